//! Baking itself: twice gives the same digest, and what is wrong is said.

use std::path::Path;
use std::process::{Command, Output};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use podcradle_tests::testbed::Testbed;

use crate::archive::Archive;
use crate::root;

pub fn add(suite: &mut Suite) {
    for image in ["supervisor", "launcher"] {
        suite.test(
            format!("{image}::baking_twice_gives_the_same_digest"),
            move || twice(image),
        );
    }
    for arch in ["x86_64", "aarch64"] {
        let name = format!("supervisor::compiling_twice_gives_the_same_program_for_{arch}");
        suite.test(name, move || compile_twice(arch));
    }
    suite.test("bake::a_broken_base_is_one_clear_error", || {
        let output = bake(
            Path::new("out/images"),
            &["sandbox"],
            &[("BASE", "debian:trixie")],
        )?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "it was taken");
        ensure!(
            said.contains("BASE must be docker-image://REF or target:rootfs"),
            "{said}"
        );
        Ok(())
    });
    suite.test("bake::a_broken_platform_is_one_clear_error", || {
        let output = bake(
            Path::new("out/images"),
            &["supervisor"],
            &[("PLATFORMS", "linux/sparc")],
        )?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "it was taken");
        ensure!(
            said.contains("PLATFORMS must be linux/amd64, linux/arm64"),
            "{said}"
        );
        Ok(())
    });
}

fn twice(image: &str) -> Outcome {
    let mut digests = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir()?;
        let output = bake(folder.path(), &["--no-cache", image], &[])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        digests.push(Archive::read(&folder.path().join(format!("{image}.tar")))?.digest);
    }
    ensure!(digests[0] == digests[1], "{digests:?}");
    Ok(())
}

/// From nothing, in two folders: neither time nor place may show. The same
/// commands as `podcradle-images stage`.
fn compile_twice(arch: &str) -> Outcome {
    let target = format!("{arch}-unknown-linux-musl");
    let mut programs = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir()?;
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(root())
            .args([
                "build",
                "--locked",
                "--profile=supervisor",
                "--package=podcradle-init",
            ])
            .args(["--target", &target, "--target-dir"])
            .arg(folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        let built = folder
            .path()
            .join(target.as_str())
            .join("supervisor/podcradle-init");
        programs.push(std::fs::read(built)?);
    }
    ensure!(programs[0] == programs[1], "two builds differ");
    Ok(())
}

/// `podcradle-images bake`, by the builder that the environment names, or the
/// test bed's.
fn bake(archives: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Output, Stop> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root())
        .args([
            "run",
            "--quiet",
            "--package",
            "podcradle-images",
            "--",
            "bake",
            "--archives",
        ])
        .arg(archives)
        .args(arguments)
        .envs(environment.iter().copied());
    if std::env::var_os("PODCRADLE_BUILDX").is_none() {
        let testbed = Testbed::up()?;
        let Some(node) = testbed.node() else {
            return Err(skip(
                "the cluster is someone else's and brings no builder: PODCRADLE_BUILDX names one",
            ));
        };
        let buildx = format!("{} --builder {}", node.buildx.display(), node.builder);
        cargo
            .env("PODCRADLE_BUILDX", buildx)
            .env("BUILDX_CONFIG", &node.buildx_config);
    }
    Ok(cargo.output()?)
}
