//! What happens to a Pod: `stream` is the I/O (one watch, resumed where it
//! broke off), `diagnose` is pure (a Pod's status → what to make of it).

mod diagnose;
mod stream;

pub use diagnose::{Diagnosis, Fatal, Stage, Verdict, termination_of};
pub use stream::{Change, PodEvent, PodWatch, Watch};
