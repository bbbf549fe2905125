//! Launches sandboxes in Kubernetes pods and leaves nothing behind.
//!
//! Data flows one way; imports point only to the left:
//!
//! ```text
//! spec ──► manifest ──► cluster ──► watch ──► outcome
//!  name     (pure)       (I/O)     stream     (what it came to)
//!                                  diagnose   lifecycle drives all of it
//! ```
//!
//! Start at [`Launcher`]; what is wanted is a [`spec::SandboxSpec`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod cluster;
pub mod launcher;
pub mod launching;
pub mod lifecycle;
pub mod manifest;
pub mod name;
pub mod outcome;
pub mod quantity;
pub mod report;
pub mod spec;
pub mod token;
pub mod watch;

pub use launcher::{Launcher, Owner};
pub use launching::{Events, Launch, LaunchEvent, Launches};
pub use outcome::{Failure, Launched, Outcome, Reason};
pub use spec::{SandboxSpec, SessionSpec};
pub use token::{Token, TokenSource};
