//! Fixtures of the end-to-end suite, its demo and its bench: the real programs,
//! from outside, against a real cluster.
//!
//! ```text
//! process   one program: its output as it comes, its end, under a watchdog
//! kubectl   the cluster as its administrator sees it
//! cluster   the test bed (or PODCRADLE_KUBECONFIG) with deploy/ applied
//! actor     one identity with the shipped Role, and `podcradle` run as it
//! stage     a sandbox whose host has dialled in to a server of the test
//! audit     what the API server was asked, by whom
//! bare      an image without a shell
//! git, proxy  a repository to clone; a network that can be cut
//! middle    a server before the API server that sees and harms requests
//! admission  policies that change or refuse a Pod; webhook  a server that answers for one, or not
//! registry  image indexes, behind a password
//! account   one with more rights; place  a namespace of the test's own, with the rights that it wants
//! ```

pub mod account;
pub mod actor;
pub mod admission;
pub mod audit;
pub mod bare;
pub mod cluster;
pub mod git;
pub mod kubectl;
pub mod middle;
pub mod place;
pub mod process;
pub mod proxy;
pub mod registry;
pub mod stage;
pub mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use crate::pidns::Arch;
pub use actor::Actor;
pub use cluster::Cluster;
pub use middle::Middle;
pub use process::{Ended, Running};
pub use stage::Stage;

/// For what ends by itself: more than ten times what it takes under emulation
/// on a busy machine.
pub const WATCHDOG: Duration = Duration::from_mins(5);

/// Where sandboxes live: the namespace of `deploy/`.
pub const NAMESPACE: &str = "podcradle-sandboxes";

/// Why a fixture is not what a test needs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that has to be made first; the text says how.
    #[error("{0}")]
    Missing(String),
    /// A program that should have succeeded did not.
    #[error("`{command}` ended with {code}: {stderr}")]
    Command {
        /// Its command line.
        command: String,
        /// Its exit code, 128+N for a signal.
        code: i32,
        /// What it said.
        stderr: String,
    },
    /// Nothing happened for far too long.
    #[error("{what}: not within {watchdog:?}; so far: {so_far}")]
    Watchdog {
        /// What was waited for.
        what: String,
        /// How long.
        watchdog: Duration,
        /// What had happened instead.
        so_far: String,
    },
    /// Output that is not what it should be.
    #[error("{what} is not the JSON that was expected: {source}: {text}")]
    Json {
        /// Whose output.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
        /// The output.
        text: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The test server.
    #[error(transparent)]
    Server(#[from] crate::testserver::TestServerError),
    /// The test server did not hear what it waited for.
    #[error(transparent)]
    NotSeen(#[from] crate::testserver::NotSeen),
}

/// What fixtures return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names what was tried when a system call fails.
pub(crate) trait Trying<T> {
    /// Adds what was tried.
    fn trying(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what.into(),
            source: source.into(),
        })
    }
}

/// The architecture of this machine.
pub fn native() -> Arch {
    if std::env::consts::ARCH == Arch::Arm64.machine() {
        Arch::Arm64
    } else {
        Arch::Amd64
    }
}

/// The repository's root.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Into::into)
}

/// Two digits a byte, as `sha256sum` prints them.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('?');
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}
