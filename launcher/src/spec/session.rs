//! A shared session as its maker wants it: what sandboxes launched into it do
//! not have a say in.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{NetworkPolicy, Problems, Profile, SandboxSpec, check};

/// One shared session. Make one with [`SessionSpec::new`] and change what
/// differs from the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSpec {
    /// Its name, and its anchor's.
    pub session: String,
    /// Whose labels.
    pub profile: Profile,
    /// More labels for anchor and policy; none of Podcradle's or Kubernetes' own.
    pub labels: BTreeMap<String, String>,
    /// When it expires, from its creation; `None` is never.
    pub ttl: Option<Duration>,
    /// Lease of the deployment that owns it, instead of a TTL.
    pub owner: Option<String>,
    /// The traffic its sandboxes may have; any when absent.
    pub network_policy: Option<NetworkPolicy>,
}

impl SessionSpec {
    /// With the defaults of a launch.
    pub fn new(session: impl Into<String>) -> Self {
        Self::of(session.into(), SandboxSpec::default())
    }

    /// What a sandbox's spec says of its session.
    pub(super) fn of(session: String, spec: SandboxSpec) -> Self {
        Self {
            session,
            profile: spec.profile,
            labels: spec.labels,
            ttl: spec.ttl,
            owner: spec.owner,
            network_policy: spec.network_policy,
        }
    }

    /// Checks the whole spec.
    ///
    /// # Errors
    /// Every problem there is, each with its path.
    pub fn validate(&self) -> Result<(), Problems> {
        check::session(self)
    }
}
