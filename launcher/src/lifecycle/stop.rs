//! Why a launch stopped short of its end, and the failures that are not the
//! API server's or the Pod's own words.

use std::time::Duration;

use crate::cluster::Error;
use crate::outcome::{Failure, Reason};
use crate::watch::Fatal;

/// Why a launch stopped short of its end.
#[derive(Clone)]
pub(super) enum Stop {
    Cancelled,
    Error(Error),
    Fatal(Box<Fatal>),
    Failure(Box<Failure>),
}

impl Stop {
    /// Without what a Pod may tell of it.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Cancelled => cancelled(),
            Self::Error(error) => Failure::from_error(&error),
            Self::Failure(failure) => *failure,
            Self::Fatal(fatal) => Failure::new(fatal.reason, fatal.message, fatal.hint),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

/// Its caller went away, or asked for the end.
pub(super) fn cancelled() -> Failure {
    Failure::new(
        Reason::Cancelled,
        "the launch was cancelled",
        "launch again",
    )
}

/// Whoever wanted the session went away, or asked for the end.
pub(super) fn creation_cancelled() -> Failure {
    Failure::new(
        Reason::Cancelled,
        "the creation of the session was cancelled",
        "create it again",
    )
}

/// Nothing may be launched into the session.
pub(super) fn no_session(name: &str, how: &str, hint: impl Into<String>) -> Failure {
    Failure::new(Reason::Session, format!("session {name} {how}"), hint)
}

/// The shared session vanished under what was done in it.
pub(super) fn session_went(name: &str) -> Failure {
    Failure::new(
        Reason::DeletedBySomeone,
        format!("session {name} was deleted by someone else, with all that is in it"),
        "make another: podcradle session create",
    )
}

/// The policy of an earlier attempt, which nobody may change, is not the one
/// that is wanted now.
pub(super) fn other_traffic(sandbox: &str) -> Failure {
    Failure::new(
        Reason::NameTaken,
        format!(
            "networkpolicies {sandbox} of an earlier attempt allows other traffic than is wanted now"
        ),
        "launch again once it is deleted, or ask for the traffic of before",
    )
}

/// What has the name is being deleted, and did not go in the time there was.
pub(super) fn still_going(resource: &str, name: &str, given: Duration) -> Failure {
    Failure::new(
        Reason::TimedOut,
        format!("{resource} {name} of before is still being deleted after {given:?}"),
        format!(
            "see what holds it, a finalizer or a lost node (kubectl get {resource} {name} -o yaml); wait longer with --timeout, or take another name"
        ),
    )
}

/// Pod or anchor vanished under the launch.
pub(super) fn gone() -> Failure {
    Failure::new(
        Reason::DeletedBySomeone,
        "the sandbox was deleted by someone else during the launch",
        "see who deletes Pods and Services in this namespace",
    )
}

/// Another process launches the same launch id, and came later.
pub(super) fn taken_over(sandbox: &str) -> Failure {
    Failure::new(
        Reason::TakenOver,
        format!("another launch of {sandbox} with the same launch id took over"),
        "wait for that one; it has the sandbox",
    )
}

/// The Lease that sessions were to live by is no longer ours to renew.
pub(super) fn owner_lost(why: &str) -> Failure {
    Failure::new(
        Reason::OwnerLost,
        format!("the lease of the session's owner was lost: {why}"),
        "see who deletes Leases in this namespace; the sweep does it when one is not renewed",
    )
}

/// The sandbox is there, but its token is not the one of this launch.
pub(super) fn other_token(sandbox: &str) -> Failure {
    Failure::new(
        Reason::AlreadyLaunched,
        format!(
            "{sandbox} was launched before with this launch id, and its host has the token of that launch, not this one"
        ),
        format!(
            "launch again with that token (--token-file, or the same --token-out file), or delete it first: podcradle delete {sandbox}"
        ),
    )
}

/// The sandbox was launched, and its Pod is gone since.
pub(super) fn without_pod(sandbox: &str) -> Failure {
    Failure::new(
        Reason::AlreadyLaunched,
        format!("{sandbox} was launched before with this launch id, and has no Pod any more"),
        format!("delete it first: podcradle delete {sandbox}"),
    )
}

/// The anchor is ours by its labels, but does not say how far it came.
pub(super) fn unreadable_record(resource: &str, sandbox: &str) -> Failure {
    Failure::new(
        Reason::NameTaken,
        format!("{resource} {sandbox}: its record cannot be read, so it is left alone"),
        format!("delete it first: podcradle delete {sandbox}"),
    )
}

/// The caller's callback did not give the token of a Pod.
pub(super) fn no_token(pod: &str, why: &str) -> Failure {
    Failure::new(
        Reason::Token,
        format!(
            "the callback that is to give the token of pod {pod} gave none that can be used: {why}"
        ),
        "see what the callback does; the Pod was not run",
    )
}

/// The same, in the time there was.
pub(super) fn token_late(pod: &str, given: Duration) -> Failure {
    Failure::new(
        Reason::TimedOut,
        format!(
            "the callback that is to give the token of pod {pod} gave none within the {given:?} of the launch"
        ),
        "see what the callback waits for, or give the launch more time (budgets.total)",
    )
}

/// An admission plug-in took away what keeps the sandbox in.
pub(super) fn changed(changes: &[String]) -> Failure {
    Failure::new(
        Reason::AdmissionChanged,
        format!(
            "an admission plug-in of the cluster changed the Pod: {}",
            changes.join("; ")
        ),
        "exempt the namespace from that plug-in; the Pod was not run",
    )
}
