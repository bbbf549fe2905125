//! A pid namespace of one's own, with the program under test as its PID 1.
//!
//! In: a [`Setup`], which says how the program is started (arguments, terminal,
//! descriptors, mask, filter…). Out: a [`Running`], which reads its output,
//! signals it from outside, looks at its processes and takes its exit. When a
//! [`Running`] is dropped the kernel ends the whole namespace, so that no test
//! leaves a process behind. Every wait has a watchdog; none asserts a time.

mod files;
pub mod filter;
pub mod procfs;
pub mod pty;
mod running;
mod setup;
mod spawn;
mod stream;
mod subject;

use std::io;
use std::time::Duration;

pub use files::{copy_program, write_program};
pub use filter::Filter;
pub use procfs::Process;
pub use pty::Pty;
pub use running::{Running, eventually, kill, parse_report};
pub use setup::Setup;
pub use spawn::monotonic;
pub use stream::Stream;
pub use subject::{Arch, Subject};

/// How long any one wait may take before the test is called hung. What it
/// waits for takes milliseconds, on a loaded machine and emulated a second or two.
pub const WATCHDOG: Duration = Duration::from_mins(1);

/// What can go wrong in a fixture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call of the test process.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A step of the new process before its exec.
    #[error("cannot {0}: {1}")]
    Step(&'static str, io::Error),
    /// Nothing came in time.
    #[error("hung: no sign of {0}; so far {1}")]
    Watchdog(&'static str, String),
    /// The output ended too early.
    #[error("the output ended before {0}; so far {1}")]
    Ended(&'static str, String),
    /// The program ended in another way than the test can use.
    #[error("{0}")]
    Exit(String),
    /// The termination report is not what it should be.
    #[error("termination report {0:?}: {1}")]
    Report(String, String),
    /// Something the fixture needs is missing.
    #[error("{0}")]
    Missing(String),
}

/// What a fixture returns.
pub type Result<T> = std::result::Result<T, Error>;
