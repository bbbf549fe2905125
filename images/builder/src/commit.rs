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
    /// Where `origin` is, when that is a URL that others can reach.
    pub source: Option<String>,
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
        // No remote of that name is no fault: the bake file says when one is needed.
        let origin = git(&["remote", "get-url", "origin"]).unwrap_or_default();
        Ok(Commit {
            revision,
            epoch,
            source: public(origin.trim()),
        })
    }

    /// The time of the commit.
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.epoch)
    }
}

/// A remote's URL without the credentials that may stand in it; nothing for a
/// path, or for a form that only git understands.
fn public(remote: &str) -> Option<String> {
    let (scheme, rest) = remote.split_once("://")?;
    let (host, path) = rest.split_once('/')?;
    let (login, host) = host.rsplit_once('@').unwrap_or(("", host));
    let user = login.split(':').next().unwrap_or_default();
    match scheme {
        "http" | "https" => Some(format!("{scheme}://{host}/{path}")),
        "ssh" if user.is_empty() => Some(format!("ssh://{host}/{path}")),
        "ssh" => Some(format!("ssh://{user}@{host}/{path}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_that_is_a_url_is_the_source_without_its_credentials() {
        for (remote, source) in [
            (
                "https://example.test/a/b.git",
                "https://example.test/a/b.git",
            ),
            ("https://me:secret@example.test/a", "https://example.test/a"),
            (
                "https://secret@example.test:8443/a",
                "https://example.test:8443/a",
            ),
            ("ssh://git@example.test/a", "ssh://git@example.test/a"),
            (
                "ssh://git:secret@example.test/a",
                "ssh://git@example.test/a",
            ),
            ("ssh://example.test/a", "ssh://example.test/a"),
        ] {
            assert_eq!(public(remote).as_deref(), Some(source), "{remote}");
        }
        for remote in [
            "",
            "/srv/a",
            "../a",
            "git@example.test:a/b",
            "file:///srv/a",
        ] {
            assert_eq!(public(remote), None, "{remote}");
        }
    }
}
