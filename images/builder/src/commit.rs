//! The facts of the commit that end up in the images: its id, its time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use crate::process::{ProcessError, output};

/// What is built.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The full id, with `-dirty` when the tree differs from it.
    pub revision: String,
    /// `SOURCE_DATE_EPOCH` as set, or the time of the commit.
    pub epoch: u64,
}

/// Why a commit's facts are not known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommitError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{whose} is {text:?}: it must be whole seconds since 1970")]
    Epoch { whose: &'static str, text: String },
}

impl Commit {
    /// Asks git, and the environment first.
    pub fn of(root: &Path) -> Result<Self, CommitError> {
        let git =
            |arguments: &[&str]| output(Command::new("git").current_dir(root).args(arguments));
        let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
        let dirty = if changes.is_empty() { "" } else { "-dirty" };
        let revision = format!("{}{dirty}", git(&["rev-parse", "HEAD"])?.trim());
        let (whose, text) = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => ("SOURCE_DATE_EPOCH", text),
            Err(_) => (
                "the time of the commit",
                git(&["log", "-1", "--format=%ct"])?,
            ),
        };
        let epoch = text
            .trim()
            .parse()
            .map_err(|_| CommitError::Epoch { whose, text })?;
        Ok(Commit { revision, epoch })
    }

    /// The time of the commit.
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.epoch)
    }
}
