//! Where an instance keeps its things, and what its things are called.
//!
//! In: the instance's name and the environment's XDG variables. Out: paths and
//! names. Nothing here touches the file system.

use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{Error, Result};

/// The longest path a unix socket may have, less room for what daemons append.
const SOCKET_PATH_MAX: usize = 107 - ".ttrpc".len();

/// The variable that marks every daemon of an instance, and what daemons start.
pub(super) const MARKER: &str = "PODCRADLE_TESTBED_STATE";

/// The names and paths of one instance.
#[derive(Debug, Clone)]
pub struct Layout {
    name: String,
    state: PathBuf,
}

impl Layout {
    /// The layout of the instance called `name`.
    pub fn new(name: &str) -> Result<Self> {
        let fits = (1..=20).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !fits {
            return Err(Error::Name(name.to_owned()));
        }
        Self::under(name, &xdg("XDG_STATE_HOME", ".local/state"))
    }

    fn under(name: &str, base: &Path) -> Result<Self> {
        let layout = Self {
            name: name.to_owned(),
            state: base.join("podcradle/testbed").join(name),
        };
        let longest = layout.containerd_socket();
        if longest.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(Error::Io {
                what: "use as a socket (too long a path; set XDG_STATE_HOME to a shorter one)",
                path: longest,
                source: rustix::io::Errno::NAMETOOLONG.into(),
            });
        }
        Ok(layout)
    }

    /// The instance's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything the instance writes is in here.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// One log per daemon, and the pods' logs.
    pub fn logs(&self) -> PathBuf {
        self.state.join("log")
    }

    /// The log of one daemon.
    pub fn log(&self, daemon: &str) -> PathBuf {
        self.logs().join(format!("{daemon}.log"))
    }

    /// The API server's audit log, one JSON event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// What a client needs to be the cluster's administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// What `status` reads.
    pub(super) fn record(&self) -> PathBuf {
        self.state.join("testbed.json")
    }

    pub(super) fn dir(&self, part: &str) -> PathBuf {
        self.state.join(part)
    }

    pub(super) fn conf(&self, file: &str) -> PathBuf {
        self.state.join("conf").join(file)
    }

    pub(super) fn pki(&self, file: &str) -> PathBuf {
        self.state.join("pki").join(file)
    }

    /// containerd's gRPC socket.
    pub fn containerd_socket(&self) -> PathBuf {
        self.state.join("run/containerd.sock")
    }

    /// buildkitd's socket.
    pub fn buildkit_socket(&self) -> PathBuf {
        self.state.join("run/buildkit.sock")
    }

    pub(super) fn node_name(&self) -> String {
        format!("testbed-{}", self.name)
    }

    pub(super) fn builder(&self) -> String {
        format!("testbed-{}", self.name)
    }

    /// The cgroup below which the kubelet keeps its pods.
    pub(super) fn cgroup(&self) -> String {
        format!("podcradle-testbed-{}", self.name)
    }

    /// A link name has 15 characters at most, hence the digest.
    pub fn bridge(&self) -> String {
        let digest = Sha256::digest(self.name.as_bytes());
        format!(
            "pcbr-{:02x}{:02x}{:02x}{:02x}",
            digest[0], digest[1], digest[2], digest[3]
        )
    }
}

/// Where binaries and images are kept between instances.
pub fn cache_dir() -> PathBuf {
    match env::var_os("PODCRADLE_CACHE") {
        Some(dir) if !dir.is_empty() => dir.into(),
        _ => xdg("XDG_CACHE_HOME", ".cache").join("podcradle"),
    }
}

fn xdg(variable: &str, below_home: &str) -> PathBuf {
    match env::var_os(variable).map(PathBuf::from) {
        // The XDG specification says to ignore relative paths.
        Some(dir) if dir.is_absolute() => dir,
        _ => env::home_dir()
            .unwrap_or_else(|| "/root".into())
            .join(below_home),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_not_do_as_a_link_cgroup_or_node_are_refused() {
        for name in [
            "",
            "Upper",
            "1st",
            "a_b",
            "a/b",
            "..",
            "a-name-that-is-far-too-long",
        ] {
            assert!(Layout::new(name).is_err(), "{name:?}");
        }
        assert!(Layout::new("e2e-arm64").is_ok());
    }

    #[test]
    fn a_bridge_name_fits_an_interface_name_and_differs_by_instance() {
        let base = Path::new("/s");
        let one = Layout::under("abcdefghijklmnopqrst", base)
            .unwrap()
            .bridge();
        let two = Layout::under("abcdefghijklmnopqrsu", base)
            .unwrap()
            .bridge();
        assert!(one.len() < 16, "{one}");
        assert_ne!(one, two);
    }

    #[test]
    fn a_state_directory_too_deep_for_a_socket_is_refused() {
        let deep = PathBuf::from("/").join("d".repeat(90));
        let error = Layout::under("x", &deep).unwrap_err().to_string();
        assert!(error.contains("XDG_STATE_HOME"), "{error}");
    }
}
