//! What can go wrong with the test bed, each as one line for a person.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation of the test bed failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The instance name is not usable.
    #[error(
        "--name {0:?}: must be 1 to 20 lower-case letters, digits or dashes, and start with a letter"
    )]
    Name(String),
    /// A file or kernel interface refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        what: &'static str,
        /// What it was applied to.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Only root can make bridges, mounts and cgroups.
    #[error("the test bed needs root (effective uid is {0}): run it under sudo")]
    NotRoot(u32),
    /// Programs that must be there are not.
    #[error("missing on this machine: {missing}; {cure}")]
    Missing {
        /// The programs, each with what it is for.
        missing: String,
        /// The command that helps.
        cure: String,
    },
    /// A program that was run to its end failed.
    #[error("`{command}` failed ({status}): {text}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The last of what it said.
        text: String,
    },
    /// A daemon ended that has to stay.
    #[error("{daemon} ended while {what}; last line of {}: {tail}", log.display())]
    DaemonEnded {
        /// Which one.
        daemon: String,
        /// What was being waited for.
        what: String,
        /// Its log.
        log: PathBuf,
        /// The log's last line.
        tail: String,
    },
    /// Something did not happen in time.
    #[error("gave up after {seconds} s {what} ({detail}); logs are in {}", logs.display())]
    Timeout {
        /// What was being waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was seen last.
        detail: String,
        /// Where to look.
        logs: PathBuf,
    },
    /// No free address range.
    #[error(
        "every /22 of {0} overlaps a route or an instance of this machine: stop an instance with `testbed down`"
    )]
    NoSubnet(String),
    /// This machine's cgroups are not usable.
    #[error("cgroups: {0}")]
    Cgroup(String),
    /// Something of an instance could not be removed.
    #[error("test bed {name}: left behind after `down`: {left}")]
    LeftBehind {
        /// The instance.
        name: String,
        /// What is left.
        left: String,
    },
    /// The foreign-architecture emulation is there, but unusable.
    #[error("binfmt: {0}")]
    Binfmt(String),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Pki(#[from] rcgen::Error),
    /// The API server, or the way to it.
    #[error("API server: {0}")]
    Api(String),
    /// An operation needs an instance that runs.
    #[error("test bed {0} does not run: start it with `testbed up`")]
    NotUp(String),
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the file in an I/O error.
pub(super) trait At<T> {
    /// `what` is a verb that fits in "cannot … PATH".
    fn at(self, what: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, what: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::Io {
            what,
            path: path.as_ref().to_owned(),
            source: error.into(),
        })
    }
}
