//! extend: the expiry of a session moves, by a write that fails when somebody
//! else wrote first: a sweep that has begun wins, or it is read again.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

use super::anchor::{is_going, is_owned_by, record_of};
use super::launch::{after, plus};
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, OWNER, SESSION};

/// Why the expiry of a session was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// There is none of that name.
    #[error("sandbox {name} does not exist; see: podcradle list")]
    NoSuch {
        /// The name.
        name: String,
    },
    /// It is on its way out.
    #[error("sandbox {name} {how}: it can no longer be extended")]
    Ending {
        /// The name.
        name: String,
        /// Why.
        how: &'static str,
    },
    /// Its launch is under way and has a deadline of its own.
    #[error("sandbox {name} is still being launched: extend it once its launch is done")]
    Launching {
        /// The name.
        name: String,
    },
    /// It lives as long as its owner.
    #[error("sandbox {name} has no expiry to move: it lives as long as its owner, lease {owner}")]
    Owned {
        /// The name.
        name: String,
        /// The Lease.
        owner: String,
    },
    /// The end of the compute comes first.
    #[error(
        "sandbox {name} cannot live until {wanted}: its Pod ends at {cap}, its --max-lifetime; ask for {cap} at most"
    )]
    BeyondLifetime {
        /// The name.
        name: String,
        /// What was asked for.
        wanted: Timestamp,
        /// The end of the Pod.
        cap: Timestamp,
    },
}

/// Moves a session's expiry to `ttl` from now; `None` takes it away. The new
/// expiry.
///
/// # Errors
/// [`ExtendError`]; nothing was changed then.
pub async fn extend(
    cluster: Cluster,
    name: String,
    ttl: Option<Duration>,
    timeout: Duration,
) -> Result<Option<Timestamp>, ExtendError> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    loop {
        let found = cluster.service(&name, deadline).await?;
        let Some(anchor) = found.filter(|s| s.labels().contains_key(SESSION)) else {
            return Err(ExtendError::NoSuch { name });
        };
        may_move(&name, &anchor)?;
        let expires = ttl.map(after);
        if let Some(wanted) = expires {
            let pod = cluster.pod(&name, deadline).await?;
            let end = pod.filter(|pod| is_owned_by(pod, &anchor));
            if let Some(cap) = end.as_ref().and_then(end_of).filter(|cap| *cap < wanted) {
                return Err(ExtendError::BeyondLifetime { name, wanted, cap });
            }
        }
        let changes = [(EXPIRES, expires.map(|t| t.to_string()))];
        match cluster.annotate(&anchor, &changes, deadline).await {
            Ok(_) => return Ok(expires),
            // Somebody wrote meanwhile: the answer may be another one now.
            Err(Error::Conflict { .. }) => {}
            Err(Error::NotFound { .. }) => return Err(ExtendError::NoSuch { name }),
            Err(error) => return Err(error.into()),
        }
    }
}

fn may_move(name: &str, anchor: &Service) -> Result<(), ExtendError> {
    let name = name.to_owned();
    if is_going(anchor) {
        let how = "is being deleted";
        return Err(ExtendError::Ending { name, how });
    }
    if record_of(anchor).is_some_and(|record| record.operation.is_some()) {
        return Err(ExtendError::Launching { name });
    }
    let annotation = |key: &str| anchor.annotations().get(key);
    if let Some(owner) = annotation(OWNER).cloned() {
        return Err(ExtendError::Owned { name, owner });
    }
    let expires = annotation(EXPIRES).and_then(|text| text.parse::<Timestamp>().ok());
    if expires.is_some_and(|expires| expires <= Timestamp::now()) {
        let how = "has expired";
        return Err(ExtendError::Ending { name, how });
    }
    Ok(())
}

/// When the kubelet ends the Pod in any case.
fn end_of(pod: &Pod) -> Option<Timestamp> {
    let lifetime = pod.spec.as_ref()?.active_deadline_seconds?;
    let started = pod.status.as_ref()?.start_time.as_ref()?.0;
    Some(plus(
        started,
        Duration::from_secs(lifetime.try_into().ok()?),
    ))
}
