//! What happens before and around `docker buildx bake`: cross-compile on this
//! machine (`stage`), make Debian trees where no registry is reachable
//! (`rootfs`), call buildx with the commit's facts (`bake`), and write the bills
//! of materials (`sbom`). In: the repository. Out: `out/`, nothing else but the
//! cache. `docker-bake.hcl` beside this crate also works without it.

mod arch;
mod bake;
mod binfmt;
mod commit;
mod process;
mod rootfs;
mod sbom;
mod stage;
mod stamp;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Stages and bakes Podcradle's images.
#[derive(Debug, Parser)]
#[command(name = "podcradle-images", version)]
struct Flags {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Cross-compile what the images hold into out/stage
    Stage(stage::Options),
    /// Make the Debian trees in out/rootfs (as root; cached)
    Rootfs(rootfs::Options),
    /// Call docker buildx bake
    Bake(bake::Options),
    /// Write the bills of materials to out/sbom
    Sbom(sbom::Options),
}

fn main() -> ExitCode {
    let step = Flags::parse().step;
    let root = repository();
    let done = match step {
        Step::Stage(options) => stage::stage(&root, &options).map_err(say),
        Step::Rootfs(options) => rootfs::make(&root, &options).map_err(say),
        Step::Bake(options) => bake::bake(&root, &options).map_err(say),
        Step::Sbom(options) => sbom::write(&root, &options).map_err(say),
    };
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// The repository this program was built from.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// One line with the whole chain of causes.
fn say(error: impl std::error::Error) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    eprintln!("podcradle-images: {line}");
}
