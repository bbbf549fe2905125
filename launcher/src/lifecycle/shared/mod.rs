//! Shared sessions: an anchor that many sandboxes hang below. What a launch
//! needs to know of one is read once a process, not once a launch.

mod create;
mod list;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use tokio::time::Instant;

pub(crate) use create::{create, take_back};
pub use list::{SharedSession, list};

use super::anchor::is_going;
use super::launch::owner_of;
use super::stop::{self, Stop};
use crate::cluster::{Cluster, Deadline};
use crate::manifest::{EXPIRES, MAKING, OWNER, Owner, SANDBOX, SESSION};
use crate::outcome::Failure;
use crate::spec::SandboxSpec;

/// Longest for a look at what became of a session.
const LOOK: Duration = Duration::from_secs(5);

/// Whether an anchor is a shared session's: it has no sandbox of its own.
pub(super) fn is_shared(anchor: &Service) -> bool {
    anchor.labels().contains_key(SESSION) && !anchor.labels().contains_key(SANDBOX)
}

/// What a launch knows of its session.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) anchor: Owner,
    /// The Lease it lives by.
    pub(super) lease: Option<String>,
    /// As it was read: an extension since then is not seen.
    pub(super) expires: Option<Timestamp>,
}

impl Known {
    fn is_over(&self) -> bool {
        self.expires
            .is_some_and(|expires| expires <= Timestamp::now())
    }
}

/// One session, read by one launch while the others wait.
type Slot = Arc<tokio::sync::Mutex<Read>>;

#[derive(Default)]
struct Read {
    known: Option<Arc<Known>>,
    /// Why it could not be read, and when that was.
    failed: Option<(Instant, Stop)>,
}

/// The sessions this process has launched into. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Sessions {
    all: Arc<Mutex<HashMap<String, Slot>>>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared session of a launch; `None` when it is to have its own.
    ///
    /// # Errors
    /// Why nothing may be launched into it.
    pub(super) async fn of(
        &self,
        cluster: &Cluster,
        spec: &SandboxSpec,
        deadline: Deadline,
    ) -> Result<Option<Arc<Known>>, Stop> {
        let Some(name) = &spec.session else {
            return Ok(None);
        };
        let slot = Arc::clone(self.lock().entry(name.clone()).or_default());
        let begun = Instant::now();
        let mut read = slot.lock().await;
        // One that has expired since may have been extended since.
        let usable = read.known.clone().filter(|known| !known.is_over());
        if usable.is_some() {
            return Ok(usable);
        }
        // Whoever waited meanwhile does not try once more.
        if let Some((_, stop)) = read.failed.as_ref().filter(|(when, _)| *when >= begun) {
            return Err(stop.clone());
        }
        let found = cluster.service(name, deadline.unless_unreachable()).await;
        let session = found.map_err(Stop::from);
        let session = session.and_then(|found| usable_one(name, found.as_ref()).map(Arc::new));
        read.known = session.as_ref().ok().cloned();
        if let Err(stop) = &session {
            read.failed = Some((Instant::now(), stop.clone()));
            self.forget(name);
        }
        session.map(Some)
    }

    /// The next launch reads it again.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// After a Pod in it was deleted: whether that was the end of the session.
    pub(super) async fn look_again(&self, cluster: &Cluster, known: &Known) -> Option<Failure> {
        let Owner { name, uid } = &known.anchor;
        self.forget(name);
        let deadline = Deadline::after(LOOK).unless_unreachable();
        let found = cluster.service(name, deadline).await.ok()?;
        let there = found.is_some_and(|s| s.uid().as_ref() == Some(uid) && !is_going(&s));
        (!there).then(|| stop::session_went(name))
    }
}

/// The session, when a sandbox may go into it.
fn usable_one(name: &str, found: Option<&Service>) -> Result<Known, Stop> {
    let anchor = found.ok_or_else(|| {
        let hint = format!("make it: podcradle session create {name}");
        stop::no_session(name, "does not exist", hint)
    })?;
    if !is_shared(anchor) {
        let how = if anchor.labels().contains_key(SESSION) {
            "is the own one of a sandbox, not a shared one"
        } else {
            "is a Service that podcradle did not make"
        };
        let hint = "take another name: podcradle session list names those there are";
        return Err(stop::no_session(name, how, hint).into());
    }
    let another = "make another: podcradle session create";
    if is_going(anchor) {
        return Err(stop::no_session(name, "is being deleted", another).into());
    }
    let annotation = |key: &str| anchor.annotations().get(key);
    if annotation(MAKING).is_some() {
        let hint = format!(
            "launch once podcradle session create has ended; if it was killed: podcradle session delete {name}"
        );
        return Err(stop::no_session(name, "is still being made", hint).into());
    }
    let known = Known {
        anchor: owner_of(anchor),
        lease: annotation(OWNER).cloned(),
        expires: annotation(EXPIRES).and_then(|text| text.parse().ok()),
    };
    if known.is_over() {
        return Err(stop::no_session(name, "has expired", another).into());
    }
    Ok(known)
}
