//! Baking itself: twice gives the same digest, and what is wrong is said.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use podcradle_tests::testbed::{Node, Testbed};

use crate::archive::Archive;
use crate::{contents, root};

const MACHINE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

pub fn add(suite: &mut Suite) {
    for image in ["supervisor", "launcher"] {
        suite.test(
            format!("{image}::baking_twice_gives_the_same_digest"),
            move || {
                let bake = || baked(image, &[], &[]);
                same(&bake()?.digest, &bake()?.digest)
            },
        );
    }
    // One platform will do: the RUN lines are the same, and QEMU takes its time.
    suite.test("sandbox::baking_twice_gives_the_same_digest", || {
        let bake = || baked("sandbox", &["--base=rootfs", "--arch", MACHINE], &[]);
        same(&bake()?.digest, &bake()?.digest)
    });
    suite.test(
        "sandbox::a_base_from_a_registry_gives_the_same_as_the_tree",
        registry,
    );
    for arch in ["x86_64", "aarch64"] {
        let name = format!("supervisor::compiling_twice_gives_the_same_program_for_{arch}");
        suite.test(name, move || compile_twice(arch));
    }
    suite.test("bake::a_broken_base_is_one_clear_error", || {
        refused(
            &["sandbox"],
            ("BASE", "debian:trixie"),
            "BASE must be docker-image://REF or target:rootfs",
        )
    });
    suite.test("bake::a_broken_platform_is_one_clear_error", || {
        refused(
            &["supervisor"],
            ("PLATFORMS", "linux/sparc"),
            "PLATFORMS must be linux/amd64, linux/arm64",
        )
    });
    suite.test("bake::a_broken_source_is_one_clear_error", || {
        let reason = "SOURCE must be an http, https or ssh URL";
        refused(&["supervisor"], ("SOURCE", "a/b"), reason)
    });
    suite.test("bake::pushing_without_a_source_is_one_clear_error", || {
        let reason = "SOURCE must say where the source is to be found";
        refused(&["supervisor", "--export=registry"], ("SOURCE", ""), reason)
    });
    suite.test("bake::a_source_becomes_label_and_annotation", source);
    suite.test("bake::buildx_alone_bakes_the_same_kind_of_index", alone);
}

fn same(one: &str, other: &str) -> Outcome {
    ensure!(one == other, "{one} is not {other}");
    Ok(())
}

/// Bakes an image without cache, and returns its archive.
fn baked(image: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Archive, Stop> {
    let folder = tempfile::tempdir()?;
    let arguments = [&["--no-cache", image], arguments].concat();
    let output = bake(folder.path(), &arguments, environment)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let mut written = fs::read_dir(folder.path())?;
    let archive = written.next().ok_or("no archive was written")??.path();
    Ok(Archive::read(&archive)?)
}

fn source() -> Outcome {
    let source = "https://source.test/podcradle";
    let archive = baked("supervisor", &[], &[("SOURCE", source)])?;
    let key = "org.opencontainers.image.source";
    let index = &archive.index["annotations"][key];
    ensure!(*index == source, "the index: {index}");
    for image in archive.images()? {
        let label = &image.config["config"]["Labels"][key];
        let note = &image.manifest["annotations"][key];
        ensure!(
            *label == source && *note == source,
            "{}: label {label}, annotation {note}",
            image.platform
        );
    }
    Ok(())
}

/// The bake file as a user calls it, without `podcradle-images` around it.
fn alone() -> Outcome {
    let folder = tempfile::tempdir()?;
    let archives = folder.path();
    let allow = format!("--allow=fs.write={}", archives.display());
    let baked = buildx()?
        .args(["bake", "--file=images/docker-bake.hcl", &allow])
        .env("ARCHIVES", archives)
        .env("BASE", "target:rootfs")
        .output()?;
    let said = String::from_utf8_lossy(&baked.stderr);
    ensure!(baked.status.success(), "{said}");
    for (image, _) in crate::IMAGES {
        let archive = Archive::read(&archives.join(format!("{image}.tar")))?;
        // An attestation would be one more entry, of an unknown platform.
        contents::both_platforms(image, &archive, &archive.images()?)?;
    }
    Ok(())
}

/// The tree as an image in the test bed's registry: what a user with a registry has.
fn registry() -> Outcome {
    let testbed = Testbed::up()?;
    let Some(registry) = testbed.registry() else {
        return Err(skip("the cluster is someone else's and brings no registry"));
    };
    let base = format!("{registry}/debian:slim");
    let push = format!("rootfs.output=type=image,name={base},push=true");
    let pushed = buildx()?
        .args(["bake", "--file=images/docker-bake.hcl"])
        .args(["--set", &push, "rootfs"])
        .env("PLATFORMS", format!("linux/{MACHINE}"))
        .output()?;
    ensure!(
        pushed.status.success(),
        "{}",
        String::from_utf8_lossy(&pushed.stderr)
    );
    let base = format!("docker-image://{base}");
    let from_registry = baked("sandbox", &["--arch", MACHINE], &[("BASE", &base)])?;
    let from_tree = baked("sandbox", &["--base=rootfs", "--arch", MACHINE], &[])?;
    same(&from_registry.digest, &from_tree.digest)
}

/// A wrong variable is refused, with a word of what would be right.
fn refused(arguments: &[&str], variable: (&str, &str), reason: &str) -> Outcome {
    let output = bake(Path::new("out/images"), arguments, &[variable])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "it was taken");
    ensure!(said.contains(reason), "{said}");
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
        programs.push(fs::read(built)?);
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
        let node = node()?;
        let buildx = format!("{} --builder {}", node.buildx.display(), node.builder);
        cargo
            .env("PODCRADLE_BUILDX", buildx)
            .env("BUILDX_CONFIG", &node.buildx_config);
    }
    Ok(cargo.output()?)
}

/// The test bed's buildx, with its builder, in the repository's root.
fn buildx() -> Result<Command, Stop> {
    let node = node()?;
    let mut buildx = Command::new(&node.buildx);
    buildx
        .current_dir(root())
        .args(["--builder", &node.builder])
        .env("BUILDX_CONFIG", &node.buildx_config);
    Ok(buildx)
}

fn node() -> Result<Node, Stop> {
    let testbed = Testbed::up()?;
    testbed.node().cloned().ok_or_else(|| {
        skip("the cluster is someone else's and brings no builder: PODCRADLE_BUILDX names one")
    })
}
