//! Cross-compiles what the images hold, on this machine and never under
//! emulation, and lays it out as the contexts of the bake file:
//! `out/stage/<image>/<arch>/<program>`, every file dated with the commit, so
//! that the same bytes give the same layer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::Deserialize;
use thiserror::Error;

use crate::arch::Arch;
use crate::commit::{Commit, CommitError};
use crate::process::{ProcessError, output_watched};

/// What to stage.
#[derive(Debug, Args)]
pub struct Options {
    /// Only these images: supervisor, sandbox, launcher (default: all)
    #[arg(value_name = "IMAGE", value_parser = IMAGES)]
    images: Vec<String>,
}

/// A program, how it is built, and the images that hold it.
pub struct Program {
    pub package: &'static str,
    pub name: &'static str,
    profile: &'static str,
    pub images: &'static [&'static str],
}

pub const IMAGES: [&str; 3] = ["supervisor", "sandbox", "launcher"];

/// Everything of ours that goes into an image.
pub const PROGRAMS: [Program; 3] = [
    Program {
        package: "podcradle-init",
        name: "podcradle-init",
        profile: "supervisor",
        images: &["supervisor", "sandbox"],
    },
    Program {
        package: "podcradle-host",
        name: "host",
        profile: "release",
        images: &["sandbox"],
    },
    Program {
        package: "podcradle-launcher",
        name: "podcradle",
        profile: "release",
        images: &["launcher"],
    },
];

/// Why staging failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StageError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("cargo built {package} but named no program {name}")]
    NoProgram {
        package: &'static str,
        name: &'static str,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Builds and lays out.
pub fn stage(root: &Path, options: &Options) -> Result<(), StageError> {
    let commit = Commit::of(root)?;
    let wanted =
        |image: &&str| options.images.is_empty() || options.images.iter().any(|i| i == image);
    for program in &PROGRAMS {
        let images: Vec<&str> = program
            .images
            .iter()
            .copied()
            .filter(|image| wanted(image))
            .collect();
        if images.is_empty() {
            continue;
        }
        for arch in Arch::ALL {
            eprintln!("building {} for {}", program.name, arch.name());
            let built = build(root, program, arch)?;
            for image in &images {
                place(&built, &place_of(root, image, arch, program), &commit)?;
            }
        }
    }
    Ok(())
}

/// Where the bake file looks for a program of an image.
pub fn place_of(root: &Path, image: &str, arch: Arch, program: &Program) -> PathBuf {
    let stage = root.join("out/stage");
    stage.join(image).join(arch.name()).join(program.name)
}

/// What cargo says about each thing it has built; one JSON object a line.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    executable: Option<PathBuf>,
}

fn build(root: &Path, program: &Program, arch: Arch) -> Result<PathBuf, StageError> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--profile", program.profile])
        .args(["--package", program.package, "--bin", program.name])
        .args(["--target", &arch.target()])
        .arg("--message-format=json-render-diagnostics");
    // What `cargo run` tells about this crate is not meant for those: build
    // scripts that look at it would compile everything behind them again.
    for (name, _) in std::env::vars_os() {
        let about_us = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
            "CARGO_PRIMARY_",
        ];
        if about_us
            .iter()
            .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        {
            cargo.env_remove(name);
        }
    }
    let flags = format!(
        "CARGO_TARGET_{}_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
        arch.machine().to_uppercase()
    );
    // Cargo adds them to those of .cargo/config.toml. The Makefile sets the same.
    if std::env::var_os(&flags).is_none() {
        cargo.env(flags, remap());
    }
    let messages = output_watched(&mut cargo)?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .find(|path| path.file_name().is_some_and(|name| name == program.name))
        .ok_or(StageError::NoProgram {
            package: program.package,
            name: program.name,
        })
}

/// A panic names a crate's file without the folder that this machine keeps
/// crates in.
fn remap() -> String {
    let home = std::env::var("CARGO_HOME").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cargo")
    });
    format!("--remap-path-prefix={home}/registry/src=/crates")
}

/// Puts a program in its place at once or not at all, dated with the commit.
fn place(from: &Path, to: &Path, commit: &Commit) -> Result<(), StageError> {
    let error = |source| StageError::Write {
        path: to.to_owned(),
        source,
    };
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(error)?;
    }
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).map_err(error)?;
    let file = File::options().write(true).open(&fresh).map_err(error)?;
    file.set_modified(commit.time()).map_err(error)?;
    fs::rename(&fresh, to).map_err(error)
}
