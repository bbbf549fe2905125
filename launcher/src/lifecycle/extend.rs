//! extend: the expiry of a session moves, by a write that fails when somebody
//! else wrote first: a sweep that has begun wins, or it is read again.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::find::{Found, find};
use super::holder::{Holder, is_owned_by};
use super::launch::{after, plus};
use super::shared::is_shared;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, MAKING, OWNER, SESSION};

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
    /// It has none: its session has one.
    #[error("sandbox {name} lives as long as its session, {session}: podcradle extend {session}")]
    InSession {
        /// The name.
        name: String,
        /// The shared session.
        session: String,
    },
    /// It is on its way out.
    #[error("{name} {how}: it can no longer be extended")]
    Ending {
        /// The name.
        name: String,
        /// Why.
        how: &'static str,
    },
    /// Its launch is under way and has a deadline of its own.
    #[error("{name} is still being made: extend it once that is done")]
    Launching {
        /// The name.
        name: String,
    },
    /// It lives as long as its owner.
    #[error("{name} has no expiry to move: it lives as long as its owner, lease {owner}")]
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
        let anchor = match find(&cluster, &name, deadline).await? {
            Found::Own(anchor) | Found::Shared(anchor) => anchor,
            Found::InSession(pod) => {
                let session = pod.labels().get(SESSION).cloned().unwrap_or_default();
                return Err(ExtendError::InSession { name, session });
            }
            Found::NotOurs | Found::Nothing => return Err(ExtendError::NoSuch { name }),
        };
        let shared = is_shared(&anchor);
        let anchor = Holder::from(&*anchor);
        may_move(&name, &anchor)?;
        let expires = ttl.map(after);
        // The Pods of a shared session have an end of their own each.
        if let Some(wanted) = expires.filter(|_| !shared) {
            let pod = cluster.pod(&name, deadline).await?;
            let end = pod.filter(|pod| is_owned_by(pod, anchor.uid()));
            if let Some(cap) = end.as_ref().and_then(end_of).filter(|cap| *cap < wanted) {
                return Err(ExtendError::BeyondLifetime { name, wanted, cap });
            }
        }
        let changes = [(EXPIRES, expires.map(|t| t.to_string()))];
        match anchor.change(&cluster, &changes, None, deadline).await {
            Ok(_) => return Ok(expires),
            // Somebody wrote meanwhile: the answer may be another one now.
            Err(Error::Conflict { .. }) => {}
            Err(Error::NotFound { .. }) => return Err(ExtendError::NoSuch { name }),
            Err(error) => return Err(error.into()),
        }
    }
}

fn may_move(name: &str, anchor: &Holder) -> Result<(), ExtendError> {
    let name = name.to_owned();
    if anchor.is_going() {
        let how = "is being deleted";
        return Err(ExtendError::Ending { name, how });
    }
    let launching = anchor.record().is_some_and(|r| r.operation.is_some());
    if launching || anchor.annotation(MAKING).is_some() {
        return Err(ExtendError::Launching { name });
    }
    if let Some(owner) = anchor.annotation(OWNER) {
        let owner = owner.to_owned();
        return Err(ExtendError::Owned { name, owner });
    }
    let expires = anchor.annotation(EXPIRES);
    let expires = expires.and_then(|text| text.parse::<Timestamp>().ok());
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
