//! The cluster's programs: built by Go from the modules pinned in
//! `tests/cluster`, once, and kept in the cache under a digest of everything
//! that decides what comes out.
//!
//! The module files are part of this binary, so a build needs no checkout.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::error::{At, Error, Result};
use super::layout::cache_dir;
use super::progress::Progress;

/// One Go module whose `tool` lines are programs.
struct Module {
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    ldflags: &'static str,
    /// Programs whose package is not called as they are.
    rename: &'static [(&'static str, &'static str)],
}

macro_rules! module {
    ($name:literal, $ldflags:literal, $rename:expr) => {
        Module {
            name: $name,
            go_mod: include_str!(concat!("../../cluster/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../../cluster/", $name, "/go.sum")),
            ldflags: $ldflags,
            rename: &$rename,
        }
    };
}

// The version strings are what these programs tell their clients; they have to
// agree with go.mod, which a test checks.
const MODULES: [Module; 5] = [
    module!(
        "kubernetes",
        "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/component-base/version.gitTreeState=clean",
        [("server", "etcd")]
    ),
    module!(
        "containerd",
        "-s -w -X github.com/containerd/containerd/v2/version.Version=2.2.9",
        []
    ),
    module!("buildkit", "-s -w", []),
    module!(
        "buildx",
        "-s -w -X github.com/docker/buildx/version.Version=v0.38.2",
        []
    ),
    module!("registry", "-s -w", []),
];

/// The directories that hold the built programs, in the order of a PATH.
#[derive(Debug, Clone)]
pub struct Tools {
    dirs: Vec<PathBuf>,
}

impl Tools {
    /// Where they are or will be.
    pub fn locate() -> Self {
        let bin = cache_dir().join("bin");
        Self {
            dirs: MODULES.iter().map(|m| bin.join(m.key())).collect(),
        }
    }

    /// Whether nothing has to be built.
    pub fn are_built(&self) -> bool {
        self.dirs.iter().all(|dir| dir.exists())
    }

    /// The path of one program.
    pub fn path(&self, program: &str) -> PathBuf {
        let found = self
            .dirs
            .iter()
            .map(|dir| dir.join(program))
            .find(|path| path.exists());
        found.unwrap_or_else(|| program.into())
    }

    /// The directories.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Changes whenever any program does.
    pub fn digest(&self) -> String {
        let keys: Vec<_> = MODULES.iter().map(Module::key).collect();
        keys.join(" ")
    }

    /// Builds what is not in the cache yet.
    pub fn ensure(&self, progress: &Progress) -> Result<()> {
        for (module, dir) in MODULES.iter().zip(&self.dirs) {
            if !dir.exists() {
                module.build(dir, progress)?;
            }
        }
        Ok(())
    }
}

impl Module {
    fn key(&self) -> String {
        let mut digest = Sha256::new();
        for part in [
            self.go_mod,
            self.go_sum,
            self.ldflags,
            std::env::consts::ARCH,
        ] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        format!("{}-{}", self.name, hex(&digest.finalize()[..6]))
    }

    /// Builds beside the final place and renames, so that a directory that is
    /// there is complete; whoever comes second waits and finds it.
    fn build(&self, dir: &Path, progress: &Progress) -> Result<()> {
        let parent = dir.parent().unwrap_or(dir);
        fs::create_dir_all(parent).at("make", parent)?;
        let lock = parent.join(format!("{}.lock", self.name));
        let lock_file = File::create(&lock).at("open", &lock)?;
        progress.begin(&format!("building {}", self.name));
        flock(&lock_file, FlockOperation::LockExclusive).at("lock", &lock)?;
        if dir.exists() {
            return Ok(());
        }
        let part = dir.with_added_extension("part");
        let _ = fs::remove_dir_all(&part);
        let source = part.join("source");
        let out = part.join("out");
        for made in [&source, &out] {
            fs::create_dir_all(made).at("make", made)?;
        }
        for (file, text) in [("go.mod", self.go_mod), ("go.sum", self.go_sum)] {
            fs::write(source.join(file), text).at("write", source.join(file))?;
        }
        let began = Instant::now();
        let packages = self.go_build(&source, &out, progress)?;
        for (from, to) in self.rename {
            fs::rename(out.join(from), out.join(to)).at("rename", out.join(from))?;
        }
        fs::rename(&out, dir).at("put in place", dir)?;
        let _ = fs::remove_dir_all(&part);
        progress.done(&format!(
            "built {} in {} s ({packages} packages compiled)",
            self.name,
            began.elapsed().as_secs()
        ));
        Ok(())
    }

    fn go_build(&self, source: &Path, out: &Path, progress: &Progress) -> Result<usize> {
        // The environment may hold flags for another project's build.
        let mut child = Command::new("go")
            .args([
                "build",
                "-v",
                "-mod=readonly",
                "-trimpath",
                "-buildvcs=false",
            ])
            .arg(format!("-ldflags={}", self.ldflags))
            .arg("-o")
            .arg(out.join(""))
            .arg("tool")
            .current_dir(source)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .env_remove("GOFLAGS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .at("run", "go")?;
        let (send, lines) = mpsc::channel();
        let errors = child.stderr.take();
        let reader = std::thread::spawn(move || {
            for line in errors
                .into_iter()
                .flat_map(|e| BufReader::new(e).lines())
                .map_while(Result::ok)
            {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut packages, mut said) = (0, String::new());
        let (began, mut told) = (Instant::now(), Instant::now());
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) if !line.contains(' ') => packages += 1,
                Ok(line) => said = line,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            let text = format!(
                "building {}: {} s, {packages} packages",
                self.name,
                began.elapsed().as_secs()
            );
            progress.live(&text);
            // Without a terminal a sign of life now and then is enough.
            if told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                progress.begin(&text);
            }
        }
        let _ = reader.join();
        let status = child.wait().at("wait for", "go")?;
        if status.success() {
            return Ok(packages);
        }
        Err(Error::Command {
            command: format!("go build tool, in tests/cluster/{}", self.name),
            status: status.to_string(),
            text: said,
        })
    }
}

/// Lower-case hex of a digest or its beginning.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_programs_say_of_their_version_is_what_is_pinned() {
        for (module, package, version) in [
            ("kubernetes", "k8s.io/kubernetes", "gitVersion="),
            (
                "containerd",
                "github.com/containerd/containerd/v2",
                "Version=",
            ),
            ("buildx", "github.com/docker/buildx", "Version="),
        ] {
            let module = MODULES.iter().find(|m| m.name == module).unwrap();
            let pinned = module
                .go_mod
                .lines()
                .find_map(|line| line.trim().strip_prefix(package)?.strip_prefix(' '))
                .and_then(|rest| rest.split(' ').next())
                .unwrap();
            let (_, told) = module.ldflags.split_once(version).unwrap();
            let told = told.split(' ').next().unwrap().trim_start_matches('v');
            assert_eq!(told, pinned.trim_start_matches('v'), "{package}");
        }
    }

    #[test]
    fn the_key_follows_every_input() {
        let base = module!("buildkit", "-s", []);
        let flags = module!("buildkit", "-w", []);
        let sums = Module {
            go_sum: "",
            ..module!("buildkit", "-s", [])
        };
        assert_ne!(base.key(), flags.key());
        assert_ne!(base.key(), sums.key());
        assert_eq!(base.key(), module!("buildkit", "-s", []).key());
    }
}
