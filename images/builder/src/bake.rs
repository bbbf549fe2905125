//! Calls `docker buildx bake` with what the bake file cannot know by itself:
//! the commit, its time, the version. Whatever the environment sets wins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use thiserror::Error;

use crate::arch::Arch;
use crate::commit::{Commit, CommitError};
use crate::process::{ProcessError, run};
use crate::stamp::Stamp;
use crate::{rootfs, stage};

/// Exports dpkg's list of the sandbox image to `out/packages/linux_<arch>`.
pub fn packages(root: &Path, base: Base) -> Result<(), BakeError> {
    let targets = vec!["sandbox-packages".to_owned()];
    let options = Options {
        targets,
        base,
        export: Export::Archive,
        arch: None,
        archives: PathBuf::from("out/images"),
        no_cache: false,
    };
    check_staged(root, &options)?;
    Ok(run(&mut call(root, &options, &Commit::of(root)?))?)
}

/// What to bake, from what, and where it goes.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Bake targets (default: supervisor, sandbox and launcher)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,

    /// The Debian under the sandbox
    #[arg(long, value_enum, default_value_t = Base::Registry)]
    base: Base,

    /// Where the images go
    #[arg(long, value_enum, default_value_t = Export::Archive)]
    export: Export,

    /// One architecture alone, as TAG-ARCH: a plain image without an index,
    /// which a kubelet of another architecture runs under binfmt once loaded
    #[arg(long, value_name = "ARCH", value_enum)]
    arch: Option<Arch>,

    /// Where `--export archive` puts its archives
    #[arg(long, value_name = "FOLDER", default_value = "out/images")]
    archives: PathBuf,

    /// Take nothing from the builder's cache
    #[arg(long)]
    no_cache: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Base {
    /// An image from a registry: BASE, or the bake file's default
    Registry,
    /// The trees that `rootfs` made
    Rootfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Export {
    /// An archive an image, in out/images
    Archive,
    /// The image store of the builder (a containerd that a kubelet shares);
    /// only this machine's architecture is unpacked there, ready to run
    Image,
    /// The registry that REPOSITORY names
    Registry,
}

/// Why baking failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BakeError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("cannot make {path}")]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot tell whether the archives are up to date")]
    Stamp(#[source] std::io::Error),
    #[error("{path} is missing: {hint}")]
    NotStaged { path: PathBuf, hint: &'static str },
}

/// Bakes.
pub fn bake(root: &Path, options: &Options) -> Result<(), BakeError> {
    check_staged(root, options)?;
    let archives = root.join(&options.archives);
    fs::create_dir_all(&archives).map_err(|source| BakeError::Folder {
        path: archives.clone(),
        source,
    })?;
    let commit = Commit::of(root)?;
    let mut call = call(root, options, &commit);
    if !can_be_stamped(options) {
        return Ok(run(&mut call)?);
    }
    let stamp = stamp(root, options, &call).map_err(BakeError::Stamp)?;
    let file = archives.join(format!(".{}.stamp", names(options).join("-")));
    let written = |name: &String| archives.join(format!("{name}.tar")).exists();
    if names(options).iter().all(written)
        && fs::read_to_string(&file).is_ok_and(|last| last == stamp)
    {
        eprintln!("{}: up to date", archives.display());
        return Ok(());
    }
    run(&mut call)?;
    fs::write(&file, stamp).map_err(BakeError::Stamp)
}

/// The names of the archives a call writes, as in the bake file.
fn names(options: &Options) -> Vec<String> {
    let targets = match options.targets.as_slice() {
        [] => stage::IMAGES.map(str::to_owned).to_vec(),
        targets => targets.to_vec(),
    };
    let named = |target: String| match options.arch {
        Some(arch) => format!("{target}-{}", arch.name()),
        None => target,
    };
    targets.into_iter().map(named).collect()
}

/// Whether all that decides what the archives hold can be seen from here.
fn can_be_stamped(options: &Options) -> bool {
    let plain = |target: &String| stage::IMAGES.contains(&target.as_str());
    // A tag in a registry may have moved since the last time.
    let moving = options.base == Base::Registry && wanted(options, "sandbox");
    let as_usual = options.export == Export::Archive && !options.no_cache;
    as_usual && !moving && options.targets.iter().all(plain)
}

/// Whether a target is among those to bake.
fn wanted(options: &Options, image: &str) -> bool {
    options.targets.is_empty() || options.targets.iter().any(|target| target == image)
}

/// Everything that decides what the archives hold.
fn stamp(root: &Path, options: &Options, call: &Command) -> std::io::Result<String> {
    let mut stamp = Stamp::of(call);
    for name in [
        "PLATFORMS",
        "REPOSITORY",
        "REVISION",
        "SOURCE",
        "TAG",
        "VERSION",
    ] {
        stamp.add_variable(name);
    }
    for folder in [
        "images/rootfs",
        "images/supervisor",
        "images/launcher",
        "images/sandbox/files",
    ] {
        stamp.add_folder(&root.join(folder))?;
    }
    for file in ["images/docker-bake.hcl", "images/sandbox/Dockerfile"] {
        stamp.add_large(&root.join(file))?;
    }
    for image in names(&Options {
        arch: None,
        ..options.clone()
    }) {
        stamp.add_folder(&root.join("out/stage").join(image))?;
    }
    if options.base == Base::Rootfs {
        for arch in Arch::ALL {
            stamp.add_large(&rootfs::place_of(root, arch))?;
        }
    }
    Ok(stamp.finish())
}

fn call(root: &Path, options: &Options, commit: &Commit) -> Command {
    let archives = root.join(&options.archives);
    let mut bake = buildx();
    bake.current_dir(root)
        .args(["bake", "--file", "images/docker-bake.hcl"])
        .args(options.no_cache.then_some("--no-cache"))
        .env(
            "EXPORT",
            match options.export {
                Export::Archive => "archive",
                Export::Image => "image",
                Export::Registry => "registry",
            },
        )
        .env("ARCHIVES", &archives)
        .env("SOURCE_DATE_EPOCH", commit.epoch.to_string());
    if !archives.starts_with(root) {
        // Outside the tree, buildx wants to be told that this is meant.
        bake.arg(format!("--allow=fs.write={}", archives.display()));
    }
    bake.args(&options.targets);
    if options.base == Base::Rootfs {
        bake.env("BASE", "target:rootfs");
    }
    if let Some(arch) = options.arch {
        let tag = std::env::var("TAG").unwrap_or_else(|_| "dev".to_owned());
        bake.env("PLATFORMS", format!("linux/{}", arch.name()))
            .env("TAG", format!("{tag}-{}", arch.name()));
    }
    for (name, value) in [
        ("REVISION", commit.revision.as_str()),
        ("SOURCE", commit.source.as_deref().unwrap_or_default()),
        ("VERSION", env!("CARGO_PKG_VERSION")),
    ] {
        if std::env::var_os(name).is_none() {
            bake.env(name, value);
        }
    }
    bake
}

/// `PODCRADLE_BUILDX`, words separated by spaces, or docker's plug-in.
fn buildx() -> Command {
    let set = std::env::var("PODCRADLE_BUILDX").unwrap_or_default();
    let mut words = set.split_whitespace();
    let mut command = if let Some(program) = words.next() {
        Command::new(program)
    } else {
        let mut docker = Command::new("docker");
        docker.arg("buildx");
        docker
    };
    command.args(words);
    command
}

/// A context that is missing is a riddle in buildx's words.
fn check_staged(root: &Path, options: &Options) -> Result<(), BakeError> {
    let wanted = |image: &str| wanted(options, image);
    let mut needed = Vec::new();
    for program in &stage::PROGRAMS {
        for image in program.images.iter().filter(|image| wanted(image)) {
            let hint = "run `cargo run -p podcradle-images -- stage` first";
            needed
                .extend(Arch::ALL.map(|arch| (stage::place_of(root, image, arch, program), hint)));
        }
    }
    if options.base == Base::Rootfs && (wanted("sandbox") || wanted("sandbox-packages")) {
        let hint = "run `cargo run -p podcradle-images -- rootfs` first";
        needed.extend(Arch::ALL.map(|arch| (rootfs::place_of(root, arch), hint)));
    }
    match needed.into_iter().find(|(path, _)| !path.exists()) {
        Some((path, hint)) => Err(BakeError::NotStaged { path, hint }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_not_up_to_date_when_its_base_may_have_moved() {
        let options = |base, targets: &[&str]| Options {
            targets: targets.iter().map(|&target| target.to_owned()).collect(),
            base,
            export: Export::Archive,
            arch: None,
            archives: PathBuf::from("out/images"),
            no_cache: false,
        };
        assert!(can_be_stamped(&options(Base::Rootfs, &[])));
        assert!(can_be_stamped(&options(
            Base::Registry,
            &["supervisor", "launcher"]
        )));
        assert!(!can_be_stamped(&options(Base::Registry, &[])));
        assert!(!can_be_stamped(&options(Base::Registry, &["sandbox"])));
    }
}
