//! The facts of the commit that end up in the images: its id, its time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::process::{ProcessError, output};

/// What is built.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The full id, with `-dirty` when the tree differs from it.
    pub revision: String,
    /// `SOURCE_DATE_EPOCH` as set, or the time of the commit.
    pub epoch: u64,
}

impl Commit {
    /// Asks git, and the environment first.
    pub fn of(root: &Path) -> Result<Self, ProcessError> {
        let git =
            |arguments: &[&str]| output(Command::new("git").current_dir(root).args(arguments));
        let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
        let dirty = if changes.is_empty() { "" } else { "-dirty" };
        let revision = format!("{}{dirty}", git(&["rev-parse", "HEAD"])?.trim());
        let set = std::env::var("SOURCE_DATE_EPOCH").ok();
        let epoch = match set.and_then(|text| text.parse().ok()) {
            Some(epoch) => epoch,
            // A commit time is a number, or git is not git.
            None => git(&["log", "-1", "--format=%ct"])?
                .trim()
                .parse()
                .unwrap_or_default(),
        };
        Ok(Commit { revision, epoch })
    }

    /// The time of the commit.
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.epoch)
    }
}
