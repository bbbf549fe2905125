//! What happens to a Pod: `stream` is the I/O (one watch, resumed where it
//! broke off), `hub` shares it among all launches of a process, `diagnose` is
//! pure (a Pod's status → what to make of it).

mod diagnose;
mod hub;
mod stream;

pub use diagnose::{Diagnosis, Fatal, Instance, Late, Stage, Verdict, termination_of};
pub(crate) use hub::{Hub, Seen, Subscription};
pub use stream::{Change, PodEvent, PodWatch, Watch};
