//! Spec → objects, without I/O. The token is in the Secret alone; the Pod
//! names it. Every object has one owner, whose uid an API server returned.

mod admitted;
mod containers;
mod inject;
mod network;
mod overlay;
mod pod;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod random;
mod record;
mod secret;
mod service;
mod session;
#[cfg(test)]
mod snapshots;
mod token;
mod tree;
mod volumes;

pub use admitted::check as check_admitted;
pub use network::network_policy;
pub use pod::{check, pod, weakenings, with_record};
pub use record::{MAX_RECORD, Operation, Record, forget_values};
pub use secret::{secret, secret_name};
pub use service::service;
pub use session::{session, session_policy};
pub use token::check_token;
pub use tree::Tree;
pub(crate) use tree::redacted;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::spec::{Profile, SandboxSpec};

/// Standard label: whose objects these are, `podcradle` or the profile's name.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label: the session an object belongs to. An object is ours when it has it.
pub const SESSION: &str = "podcradle.dev/session";
/// Label: the sandbox an object belongs to.
pub const SANDBOX: &str = "podcradle.dev/sandbox";
/// Label: which Pod of the sandbox, counted from 1.
pub const GENERATION: &str = "podcradle.dev/generation";
/// Label: the caller's idempotency key.
pub const LAUNCH_ID: &str = "podcradle.dev/launch-id";
/// Annotation of the anchor: when the session expires, RFC 3339. Of a Pod in a
/// shared session: when its launch is dead.
pub const EXPIRES: &str = "podcradle.dev/expires";
/// Annotation of the anchor: the Lease the session lives by, instead of an
/// expiry.
pub const OWNER: &str = "podcradle.dev/owner";
/// Label of a Lease of ours: whether it is a `process`' or a `deployment`'s.
pub const OWNER_KIND: &str = "podcradle.dev/owner-kind";
/// Annotation of the anchor, or of a Pod in a shared session: the [`Record`].
pub const RECORD: &str = "podcradle.dev/record";
/// Annotation of a shared session's anchor that is still being made: nothing is
/// launched into it.
pub const MAKING: &str = "podcradle.dev/making";
/// The scheduling gate that holds a Pod back until its Secret exists.
pub const TOKEN_GATE: &str = "podcradle.dev/token";
/// The container that runs the host.
pub const HOST_CONTAINER: &str = "host";
/// The init container that makes the workspace.
pub const PREP_CONTAINER: &str = "workspace-prep";
/// The init container that brings `podcradle-init` along.
pub const COPY_CONTAINER: &str = "podcradle-init";

/// An object of ours that the API server has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// The uid the API server gave it.
    pub uid: String,
}

/// The labels every object of a sandbox carries; the caller's give way to ours.
pub fn labels(spec: &SandboxSpec, generation: u32) -> BTreeMap<String, String> {
    let mut labels = spec.labels.clone();
    labels.extend(
        our_labels(spec, generation)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value)),
    );
    labels
}

/// The labels that Podcradle and its profile set.
fn our_labels(spec: &SandboxSpec, generation: u32) -> Vec<(&'static str, String)> {
    let mut labels = vec![
        (SESSION, spec.session_name().to_owned()),
        (SANDBOX, spec.sandbox.clone()),
        (GENERATION, generation.to_string()),
        (LAUNCH_ID, spec.launch_id.clone()),
    ];
    labels.extend(profile_labels(spec.profile));
    labels
}

fn profile_labels(profile: Profile) -> Vec<(&'static str, String)> {
    match profile {
        Profile::Default => vec![(MANAGED_BY, "podcradle".to_owned())],
        Profile::Omnigent => vec![
            (MANAGED_BY, "omnigent".to_owned()),
            ("omnigent.ai/role", "sandbox-host".to_owned()),
        ],
    }
}

fn owner_reference(kind: &str, owner: &Owner) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}
