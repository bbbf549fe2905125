//! Debian trees for `FROM`, where no registry is reachable: debootstrap, its
//! second stage in the tree itself (under QEMU where the tree is foreign), the
//! security updates, then what a slim image leaves out is taken out. Minutes
//! of work, so the result is cached outside the repository under a name made
//! of everything that decides it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::arch::Arch;
use crate::binfmt::{BinfmtError, Emulation};
use crate::process::{ProcessError, quietly};

/// How the trees are made.
#[derive(Debug, Args)]
pub struct Options {
    /// Make the trees anew, with today's packages, instead of taking cached ones
    #[arg(long)]
    refresh: bool,

    /// Where Debian's packages come from [default: debootstrap's]
    #[arg(long, env = "DEBIAN_MIRROR", value_name = "URL")]
    mirror: Option<String>,

    /// Where Debian's security updates come from [default: the mirror's URL and `-security`]
    #[arg(long, env = "DEBIAN_SECURITY_MIRROR", value_name = "URL")]
    security_mirror: Option<String>,
}

const SUITE: &str = "trixie";
/// Beside what every Debian has: what the sandbox image wants, so that its
/// build needs no network of its own.
const PACKAGES: &str = "ca-certificates,git";
/// Raise when the recipe below gives another tree.
const RECIPE: &str = "2";
/// What programs in the tree are given of our environment: nothing.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
    ("LC_ALL", "C.UTF-8"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("HOME", "/root"),
];
/// Kept out of the tree, also when packages are added later; copyright notices
/// stay, the licences ask for them.
const SLIM: &str = "\
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/groff/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
";

/// Why there is no tree.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RootfsError {
    #[error("making a Debian tree needs root (device nodes, chroot): run this step with sudo")]
    NotRoot,
    #[error("no folder for the cache: set PODCRADLE_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error(transparent)]
    Binfmt(#[from] BinfmtError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{path} has no date: a Release file must have a line `Date:`")]
    NoDate { path: PathBuf },
    #[error("{path} names no mirror: give one with --mirror")]
    NoMirror { path: PathBuf },
    #[error("{path}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Makes `out/rootfs/<arch>.tar` for both architectures.
pub fn make(root: &Path, options: &Options) -> Result<(), RootfsError> {
    let out = root.join("out/rootfs");
    let cache = cache_folder()?.join("rootfs");
    for folder in [&out, &cache] {
        fs::create_dir_all(folder).map_err(at(folder))?;
    }
    for arch in Arch::ALL {
        let cached = cache.join(format!(
            "debian-{SUITE}-{}-{}.tar",
            arch.name(),
            key(options)
        ));
        if options.refresh || !cached.exists() {
            let start = Instant::now();
            eprintln!(
                "making Debian {SUITE} for {} (a minute or two)",
                arch.name()
            );
            build(&cache, &cached, arch, options)?;
            eprintln!(
                "made Debian {SUITE} for {} in {:.0?}",
                arch.name(),
                start.elapsed()
            );
        }
        place(&cached, &place_of(root, arch))?;
    }
    Ok(())
}

/// Where the bake file looks for a tree.
pub fn place_of(root: &Path, arch: Arch) -> PathBuf {
    root.join("out/rootfs").join(format!("{}.tar", arch.name()))
}

/// Twelve digits for everything that decides what the tree holds, but for the
/// day it is made on.
fn key(options: &Options) -> String {
    let mirror = options.mirror.as_deref().unwrap_or_default();
    let security = options.security_mirror.as_deref().unwrap_or_default();
    let all = [SUITE, PACKAGES, RECIPE, SLIM, mirror, security].join("\0");
    let mut digits = format!("{:x}", Sha256::digest(all));
    digits.truncate(12);
    digits
}

fn cache_folder() -> Result<PathBuf, RootfsError> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("PODCRADLE_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("podcradle")))
        .or_else(|| Some(set("HOME")?.join(".cache/podcradle")))
        .ok_or(RootfsError::NoCache)
}

/// A hard link where that is possible: a tree is 200 MB.
fn place(from: &Path, to: &Path) -> Result<(), RootfsError> {
    let fresh = to.with_extension("new");
    let _ = fs::remove_file(&fresh);
    fs::hard_link(from, &fresh)
        .or_else(|_| fs::copy(from, &fresh).map(drop))
        .and_then(|()| fs::rename(&fresh, to))
        .map_err(at(to))?;
    // Renaming one link over another of the same file does nothing, and leaves both.
    let _ = fs::remove_file(&fresh);
    Ok(())
}

fn build(cache: &Path, cached: &Path, arch: Arch, options: &Options) -> Result<(), RootfsError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(RootfsError::NotRoot);
    }
    let _emulation = Emulation::of(arch)?;
    let tree = Tree(cache.join(format!("tree-{}-{}", arch.name(), std::process::id())));
    tree.bootstrap(arch, options)?;
    tree.update(options)?;
    let date = tree.date_of_archive()?;
    tree.slim()?;
    let fresh = cached.with_extension("new");
    tree.pack(&fresh, date)?;
    fs::rename(&fresh, cached).map_err(at(cached))
}

/// A tree in the making; what is left of it goes when this does.
struct Tree(PathBuf);

impl Tree {
    fn bootstrap(&self, arch: Arch, options: &Options) -> Result<(), RootfsError> {
        quietly(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--foreign", "--force-check-gpg"])
                .args([
                    &format!("--arch={}", arch.name()),
                    &format!("--include={PACKAGES}"),
                ])
                .arg(SUITE)
                .arg(&self.0)
                .args(&options.mirror),
        )?;
        self.write("etc/dpkg/dpkg.cfg.d/podcradle-slim", SLIM)?;
        self.run(&["/debootstrap/debootstrap", "--second-stage"])
    }

    fn update(&self, options: &Options) -> Result<(), RootfsError> {
        let list = "etc/apt/sources.list";
        let mirror = match &options.mirror {
            Some(mirror) => mirror.clone(),
            None => self.mirror_of(list)?,
        };
        let security_mirror = options
            .security_mirror
            .clone()
            .unwrap_or_else(|| format!("{}-security", mirror.trim_end_matches('/')));
        let keys = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
        let sources = format!(
            "deb [{keys}] {mirror} {SUITE} main\n\
             deb [{keys}] {mirror} {SUITE}-updates main\n\
             deb [{keys}] {security_mirror} {SUITE}-security main\n"
        );
        self.write(list, &sources)?;
        self.run(&["apt-get", "--error-on=any", "update"])?;
        self.run(&["apt-get", "--yes", "upgrade"])
    }

    /// The mirror that debootstrap used, as it wrote it down: `deb URL SUITE …`.
    fn mirror_of(&self, list: &str) -> Result<String, RootfsError> {
        let path = self.0.join(list);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let url = text
            .lines()
            .find_map(|line| line.strip_prefix("deb ")?.split_whitespace().next());
        url.map(str::to_owned).ok_or(RootfsError::NoMirror { path })
    }

    /// Runs a program in the tree, in a mount and a PID namespace of its own:
    /// whatever it mounts or leaves running ends with it.
    fn run(&self, program: &[&str]) -> Result<(), RootfsError> {
        let done = quietly(
            Command::new("unshare")
                .args(["--mount", "--pid", "--fork", "--kill-child", "chroot"])
                .arg(&self.0)
                .args(program)
                .env_clear()
                .envs(ENVIRONMENT),
        );
        Ok(done?)
    }

    /// When the archive last changed, in seconds since 1970: what is younger in
    /// the tree is so because somebody made it today, and is dated back.
    fn date_of_archive(&self) -> Result<i64, RootfsError> {
        let lists = self.0.join("var/lib/apt/lists");
        let mut newest = 0;
        for entry in fs::read_dir(&lists).map_err(at(&lists))? {
            let path = entry.map_err(at(&lists))?.path();
            if path.to_string_lossy().ends_with("_InRelease") {
                let text = fs::read_to_string(&path).map_err(at(&path))?;
                newest = newest.max(date_of_release(&text).ok_or(RootfsError::NoDate { path })?);
            }
        }
        Ok(newest)
    }

    fn slim(&self) -> Result<(), RootfsError> {
        let doc = self.0.join("usr/share/doc");
        for package in fs::read_dir(&doc).map_err(at(&doc))? {
            let package = package.map_err(at(&doc))?.path();
            // A link stands for a package that shares another one's notice.
            if !package.is_symlink() && package.is_dir() {
                empty_but(&package, "copyright")?;
            }
        }
        empty_but(&self.0.join("usr/share/locale"), "locale.alias")?;
        for folder in [
            "usr/share/man",
            "usr/share/info",
            "usr/share/groff",
            "usr/share/lintian",
            "var/cache/apt",
            "var/cache/ldconfig",
            "var/lib/apt/lists",
            "var/log",
            "tmp",
            "run",
        ] {
            empty_but(&self.0.join(folder), "")?;
        }
        // These tell of the machine the tree was made on.
        for file in ["etc/hostname", "etc/resolv.conf"] {
            remove(&self.0.join(file))?;
        }
        self.write("etc/machine-id", "")
    }

    fn pack(&self, to: &Path, date: i64) -> Result<(), RootfsError> {
        let done = quietly(
            Command::new("tar")
                .args([
                    "--create",
                    "--sort=name",
                    "--numeric-owner",
                    "--one-file-system",
                ])
                .args([&format!("--mtime=@{date}"), "--clamp-mtime"])
                .args([
                    "--exclude=./dev/*",
                    "--exclude=./proc/*",
                    "--exclude=./sys/*",
                ])
                .arg("--directory")
                .arg(&self.0)
                .arg("--file")
                .arg(to)
                .arg("."),
        );
        Ok(done?)
    }

    fn write(&self, path: &str, text: &str) -> Result<(), RootfsError> {
        let path = self.0.join(path);
        fs::write(&path, text).map_err(at(&path))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Empties a folder, but for one name; a folder that is not there is empty.
fn empty_but(folder: &Path, kept: &str) -> Result<(), RootfsError> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry.map_err(at(folder))?;
        if entry.file_name() != kept {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), RootfsError> {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let done = if facts.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    done.map_err(at(path))
}

/// The `Date:` of a Release file, which Debian writes as e-mail does, but for
/// the name of the zone.
fn date_of_release(text: &str) -> Option<i64> {
    let date = text.lines().find_map(|line| line.strip_prefix("Date: "))?;
    let date = date.trim().replace("UTC", "+0000");
    Some(
        jiff::fmt::rfc2822::parse(&date)
            .ok()?
            .timestamp()
            .as_second(),
    )
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_release_is_read_as_debian_writes_it() {
        let text = "Origin: Debian\nDate: Sat, 05 Sep 2026 09:28:11 UTC\nAcquire-By-Hash: yes\n";
        assert_eq!(date_of_release(text), Some(1_788_600_491));
        assert_eq!(date_of_release("Date: yesterday\n"), None);
    }
}
