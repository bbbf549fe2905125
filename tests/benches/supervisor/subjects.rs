//! The programs that are compared: ours, its peers from Debian, and a small
//! reaper in Python as the baseline.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use podcradle_tests::pidns::{Arch, Setup, Subject};

use crate::Result;

/// One program, and how it is told to run a host.
pub struct Contender {
    pub name: &'static str,
    /// The file whose size counts; none for a script.
    pub file: Option<PathBuf>,
    program: PathBuf,
    words: Vec<OsString>,
    /// The flags the launcher gives it in a Pod; the peers have none of the kind.
    in_a_pod: &'static [&'static str],
}

/// What the launcher passes, with the secret in a file of the start's own folder.
const IN_A_POD: &[&str] = &[
    "--grace",
    "20",
    "--drain",
    "5",
    "--close-fds",
    "--no-new-privs",
    "--env-from-file",
    "PODCRADLE_HOST_TOKEN=token",
];

impl Contender {
    /// Runs `host` under it, as PID 1 of a new namespace.
    pub fn run(&self, host: &[OsString]) -> Setup {
        let argv = self.words.iter().chain(host).cloned().collect();
        Setup::program(self.program.clone(), argv).no_report_flag()
    }

    /// As [`Contender::run`], with the flags it has in a Pod.
    pub fn run_in_a_pod(&self, host: &[OsString]) -> Result<Setup> {
        let (program, rest) = self.words.split_first().ok_or("no program")?;
        let flags = self.in_a_pod.iter().map(OsString::from);
        let argv = std::iter::once(program.clone()).chain(flags);
        let argv = argv.chain(rest.iter().chain(host).cloned()).collect();
        let mut setup = Setup::program(self.program.clone(), argv).no_report_flag();
        fs::write(setup.folder()?.join("token"), "a secret of some length\n")?;
        Ok(setup)
    }

    /// "static" or "dynamic", by whether the file names a loader.
    pub fn linked(&self) -> &'static str {
        const LOADER: u32 = 3;
        let bytes = self
            .file
            .as_deref()
            .map(fs::read)
            .and_then(std::result::Result::ok);
        let Some(bytes) = bytes else { return "script" };
        let half = |at: usize| {
            bytes
                .get(at..at + 2)
                .map_or(0, |b| usize::from(b[0]) | usize::from(b[1]) << 8)
        };
        let start = bytes.get(32).map_or(64, |first| usize::from(*first));
        let kinds = (0..half(56)).map(|n| start + n * half(54));
        let loader = |at: usize| {
            bytes.get(at..at + 4).map(|b| [b[0], b[1], b[2], b[3]]) == Some(LOADER.to_le_bytes())
        };
        if kinds.into_iter().any(loader) {
            "dynamic"
        } else {
            "static"
        }
    }
}

/// The native one of ours.
pub fn native() -> Arch {
    if env::consts::ARCH == Arch::Amd64.machine() {
        Arch::Amd64
    } else {
        Arch::Arm64
    }
}

/// The emulated one of ours, of which only the size is compared.
pub fn foreign() -> Arch {
    if native() == Arch::Amd64 {
        Arch::Arm64
    } else {
        Arch::Amd64
    }
}

/// Everybody, ours first. Installs what Debian has and this machine has not.
pub fn all(folder: &Path) -> Result<Vec<Contender>> {
    install(&["tini", "dumb-init", "catatonit"])?;
    let ours = Subject::locate(native())?;
    let reaper = folder.join("reaper.py");
    fs::write(&reaper, include_str!("reaper.py"))?;
    let python = python()?;
    let binary = |name, path: PathBuf, flags: &[&str]| Contender {
        name,
        file: Some(path.clone()),
        words: std::iter::once(OsString::from(&path))
            .chain(flags.iter().map(OsString::from))
            .collect(),
        program: path,
        in_a_pod: if name == "podcradle-init" {
            IN_A_POD
        } else {
            &[]
        },
    };
    Ok(vec![
        binary("podcradle-init", ours, &["--"]),
        binary("tini", "/usr/bin/tini".into(), &["--"]),
        binary("tini-static", "/usr/bin/tini-static".into(), &["--"]),
        binary("dumb-init", "/usr/bin/dumb-init".into(), &["--"]),
        binary("catatonit", "/usr/bin/catatonit".into(), &["--"]),
        Contender {
            name: "Python reaper",
            file: None,
            words: vec![python.clone().into(), reaper.into()],
            program: python,
            in_a_pod: &[],
        },
    ])
}

fn install(packages: &[&str]) -> Result<()> {
    let missing: Vec<&&str> = packages
        .iter()
        .filter(|name| !Path::new("/usr/bin").join(name).exists())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {missing:?}");
    let done = Command::new("apt-get")
        .args(["install", "-y", "-q", "-o", "DPkg::Lock::Timeout=300"])
        .args(missing.iter().map(|name| **name))
        .stdout(Stdio::null())
        .status()?;
    if done.success() {
        return Ok(());
    }
    Err(format!("apt-get could not install {missing:?}: install them by hand").into())
}

/// The interpreter itself: what PATH has may be a wrapper script.
fn python() -> Result<PathBuf> {
    let words = ["-c", "import sys; print(sys.executable)"];
    let output = Command::new("python3").args(words).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Compiles the host that has no start-up of its own.
pub fn stamp(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("stamp.rs");
    fs::write(&source, include_str!("stamp.rs"))?;
    let program = folder.join("stamp");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(rustc)
        .args([
            "--edition=2024",
            "-O",
            "-Cpanic=abort",
            "-Crelocation-model=static",
        ])
        .args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-static",
            "-o",
        ])
        .arg(&program)
        .arg(&source)
        .status()?;
    if done.success() {
        return Ok(program);
    }
    Err("rustc could not compile the stamp host".into())
}
