//! The NetworkPolicy of a session: made, or found as an earlier attempt left it.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;

use super::{Cluster, Deadline, Error};
use crate::manifest::{Owner, SESSION};

/// What there is of it now.
pub(crate) enum Policy {
    /// This call has made it.
    Made,
    /// It belongs to the same anchor already.
    Found(Box<NetworkPolicy>),
}

impl Cluster {
    /// Creates the policy that belongs to `anchor`.
    ///
    /// # Errors
    /// [`Error::Leftover`] when that of an anchor of before has its name: the
    /// collector takes it. [`Error::Exists`] when it is something else.
    pub(crate) async fn create_policy(
        &self,
        policy: &NetworkPolicy,
        anchor: &Owner,
        in_doubt: &mut bool,
        deadline: Deadline,
    ) -> Result<Policy, Error> {
        loop {
            let made = self.create("networkpolicies", policy, in_doubt, deadline);
            let call = match made.await {
                Ok(_) => return Ok(Policy::Made),
                Err(Error::Exists { call }) => call,
                Err(error) => return Err(error),
            };
            let name = policy.name_any();
            let (api, read) = (
                self.api::<NetworkPolicy>(),
                self.what("get", "networkpolicies", &name),
            );
            let Some(found) = self.repeat(read, deadline, || api.get_opt(&name)).await? else {
                continue;
            };
            let owners = found.owner_references();
            if owners.iter().any(|owner| owner.uid == anchor.uid) {
                return Ok(Policy::Found(Box::new(found)));
            }
            // Of an anchor of the same name: two are never there at a time.
            let before = owners
                .iter()
                .any(|owner| owner.kind == "Service" && owner.name == anchor.name);
            return Err(if before && found.labels().contains_key(SESSION) {
                Error::Leftover { call }
            } else {
                Error::Exists { call }
            });
        }
    }
}
