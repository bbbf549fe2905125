//! The binary under test, and how this machine runs it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Error, Filter, Result, Setup};

/// An architecture the supervisor is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Arch {
    /// The name container images use for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name the kernel, Rust and QEMU use for it.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Amd64 => "PODCRADLE_INIT_AMD64",
            Self::Arm64 => "PODCRADLE_INIT_ARM64",
        }
    }
}

/// One build of `podcradle-init`, the multi-tool its tests use as a host, and
/// the emulator when the build is not for this machine's processor.
///
/// All of them are copies in a folder that every user may enter, so that tests
/// can start them as somebody else.
#[derive(Debug)]
pub struct Subject {
    /// What it was built for.
    pub arch: Arch,
    /// The binary.
    pub path: PathBuf,
    /// The test host, a program of this machine's own architecture.
    pub host: PathBuf,
    /// What its tests run under unless they bring a filter of their own.
    pub profile: Option<Filter>,
    emulator: Option<PathBuf>,
    _folder: TempDir,
}

impl Subject {
    /// Finds the build for `arch`: `PODCRADLE_INIT_AMD64` or `PODCRADLE_INIT_ARM64`
    /// name it, else it is where cargo leaves it.
    ///
    /// # Errors
    /// One line that names the command that would build or install what is missing.
    pub fn find(arch: Arch, host: &Path) -> Result<Self> {
        let source = Self::locate(arch)?;
        let emulator = if arch.machine() == env::consts::ARCH {
            None
        } else {
            Some(emulator(arch)?)
        };
        let folder = tempfile::Builder::new()
            .prefix("podcradle-test-")
            .tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let copy = |from: &Path, name: &str| -> Result<PathBuf> {
            let to = folder.path().join(name);
            fs::copy(from, &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
            Ok(to)
        };
        Ok(Self {
            arch,
            path: copy(&source, "podcradle-init")?,
            host: copy(host, "testhost")?,
            profile: None,
            emulator,
            _folder: folder,
        })
    }

    /// With this seccomp profile around every start.
    #[must_use]
    pub fn under(mut self, profile: Filter) -> Self {
        self.profile = Some(profile);
        self
    }

    /// The path of the build for `arch`, without the rest of [`Subject::find`].
    ///
    /// # Errors
    /// One line that names the command that would build it.
    pub fn locate(arch: Arch) -> Result<PathBuf> {
        let source = env::var_os(arch.variable()).map_or_else(|| built(arch), PathBuf::from);
        if source.is_file() {
            return Ok(source);
        }
        Err(Error::Missing(format!(
            "{} is missing; build it with `cargo build -p podcradle-init --profile supervisor --target {}-unknown-linux-musl` or name it in {}",
            source.display(),
            arch.machine(),
            arch.variable(),
        )))
    }

    /// Whether the build runs under QEMU here.
    pub fn emulated(&self) -> bool {
        self.emulator.is_some()
    }

    /// The emulator, when there is one.
    pub fn emulator(&self) -> Option<&Path> {
        self.emulator.as_deref()
    }

    /// Whether each round costs more or tells less: emulated, or once more under a profile.
    pub fn dear(&self) -> bool {
        self.emulated() || self.profile.is_some()
    }

    /// How often a race is tried: `full` times where `PODCRADLE_RACES=full` asks for it, else
    /// as often as takes seconds, and less where each round is dear.
    pub fn rounds(&self, full: usize) -> usize {
        let wanted = env::var_os("PODCRADLE_RACES").is_some_and(|word| word == "full");
        let part = match (wanted, self.dear()) {
            (true, false) => 1,
            (false, false) => 4,
            (true, true) => 10,
            (false, true) => 20,
        };
        full / part
    }

    /// The words a shell runs to start the binary.
    pub fn words(&self) -> Vec<OsString> {
        let emulator = self.emulator.iter().map(OsString::from);
        emulator.chain([OsString::from(&self.path)]).collect()
    }

    /// The same as one shell word list (no path here holds a blank).
    pub fn shell_words(&self) -> String {
        let words = self.words();
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// The file to execute and the first words of its command line, so that
    /// the binary sees itself called `name`.
    pub fn called(&self, name: &OsStr) -> (PathBuf, Vec<OsString>) {
        self.called_at(&self.path, name)
    }

    /// As [`Subject::called`], for a copy of the binary at `path`.
    pub fn called_at(&self, path: &Path, name: &OsStr) -> (PathBuf, Vec<OsString>) {
        match &self.emulator {
            None => (path.to_owned(), vec![name.to_owned()]),
            Some(emulator) => (
                emulator.clone(),
                vec![emulator.into(), "-0".into(), name.to_owned(), path.into()],
            ),
        }
    }

    /// Starts it with `flags` and, after `--`, the host and its arguments; none
    /// when `host` is empty.
    pub fn init(&self, flags: &[&str], host: &[&str]) -> Setup {
        let setup = Setup::new(self).args(flags);
        if host.is_empty() {
            return setup;
        }
        setup.args(["--"]).args(host)
    }

    /// As [`Subject::init`], with the test host's commands as the host.
    pub fn with_testhost(&self, flags: &[&str], command: &[&str]) -> Setup {
        let setup = Setup::new(self).args(flags);
        setup.args(["--"]).arg(&self.host).args(command)
    }

    /// As [`Subject::init`] with a shell script as the host.
    pub fn with_script(&self, flags: &[&str], script: &str) -> Setup {
        self.init(flags, &["sh", "-c", script])
    }
}

/// Where cargo leaves the build: beside the profile this test was built with.
fn built(arch: Arch) -> PathBuf {
    let me = env::current_exe().unwrap_or_default();
    // The tag is at the root of every target folder.
    let target = me.ancestors().find(|at| at.join("CACHEDIR.TAG").is_file());
    target
        .unwrap_or(Path::new("target"))
        .join(format!("{}-unknown-linux-musl", arch.machine()))
        .join("supervisor/podcradle-init")
}

fn emulator(arch: Arch) -> Result<PathBuf> {
    let name = format!("qemu-{}-static", arch.machine());
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(&name))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            Error::Missing(format!(
                "{name} is missing; install it with `apt-get install qemu-user-static`"
            ))
        })
}
