//! The two images a cluster without a registry needs, as one docker archive:
//! `pause` (ours, in C) and `busybox` (Debian's static one, every applet linked),
//! and the other architecture's `busybox` in one of its own, for who asks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::error::{At, Error, Result};
use super::layout::cache_dir;
use super::prereq;
use super::process::run;
use super::tools::hex;

const PAUSE_SOURCE: &str = include_str!("../../cluster/images/pause.c");

/// The pause image's name. `.test` is reserved, so that no resolver knows it
/// and a pull of it can only fail.
pub const PAUSE: &str = "podcradle.test/pause:1";
/// The busybox image's name.
pub const BUSYBOX: &str = "podcradle.test/busybox:1";

/// What images call this machine's architecture.
fn native() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

/// Where the archive is or will be.
pub(super) fn archive() -> PathBuf {
    cached("base", native())
}

fn cached(what: &str, architecture: &str) -> PathBuf {
    let mut digest = Sha256::new();
    digest.update(PAUSE_SOURCE);
    digest.update(include_bytes!("images.rs"));
    let hex = hex(&digest.finalize()[..6]);
    cache_dir()
        .join("images")
        .join(format!("{what}-{architecture}-{hex}.tar"))
}

/// Makes the archive unless it is there.
pub(super) fn ensure() -> Result<PathBuf> {
    make(archive(), native(), |work| {
        let program = prereq::find("busybox").unwrap_or_else(|| "/bin/busybox".into());
        let pause = (
            PAUSE.to_owned(),
            pause_layer(work)?,
            json!({"Entrypoint": ["/pause"]}),
        );
        Ok(vec![pause, busybox_image(BUSYBOX.to_owned(), &program)?])
    })
}

/// The busybox image of an architecture: its name, and an archive that holds
/// it. This machine's own is in every test bed; the other one has to be loaded.
///
/// # Errors
/// Also when no Debian mirror has it: the other architecture's is downloaded,
/// by an apt-get that leaves the machine's own state alone.
pub fn busybox(architecture: &str) -> Result<(String, PathBuf)> {
    if architecture == native() {
        return Ok((BUSYBOX.to_owned(), ensure()?));
    }
    let name = format!("{BUSYBOX}-{architecture}");
    let path = make(cached("busybox", architecture), architecture, |work| {
        let program = download_busybox(work, architecture)?;
        Ok(vec![busybox_image(name.clone(), &program)?])
    })?;
    Ok((name, path))
}

type Image = (String, Vec<u8>, serde_json::Value);

fn make(
    path: PathBuf,
    architecture: &str,
    images: impl FnOnce(&Path) -> Result<Vec<Image>>,
) -> Result<PathBuf> {
    if path.exists() {
        return Ok(path);
    }
    let dir = path.parent().unwrap_or(&path).to_owned();
    fs::create_dir_all(&dir).at("make", &dir)?;
    let work = tempfile::tempdir_in(&dir).at("make a directory in", &dir)?;
    let images = images(work.path())?;
    let part = work.path().join("archive.tar");
    write_archive(&part, architecture, &images).at("write", &part)?;
    fs::rename(&part, &path).at("put in place", &path)?;
    Ok(path)
}

fn download_busybox(work: &Path, architecture: &str) -> Result<PathBuf> {
    for dir in ["lists/partial", "cache/archives/partial", "tree"] {
        let dir = work.join(dir);
        fs::create_dir_all(&dir).at("make", &dir)?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.current_dir(work).arg("-qq");
        for option in [
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            format!("Dir::State::Lists={}", work.join("lists").display()),
            format!("Dir::Cache={}", work.join("cache").display()),
            "Dir::State::status=/dev/null".to_owned(),
            // The folder is the caller's, and not for apt's own user.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            apt.args(["-o", &option]);
        }
        apt
    };
    run(apt().arg("update"))?;
    run(apt().args(["download", "busybox-static"]))?;
    let packages = fs::read_dir(work).at("read", work)?;
    let package = packages
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .ok_or_else(|| Error::Missing {
            missing: format!("Debian's busybox-static for {architecture}"),
            cure: "name a Debian mirror that has it in /etc/apt/sources.list".into(),
        })?;
    let tree = work.join("tree");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
    let found = ["bin/busybox", "usr/bin/busybox"].map(|path| tree.join(path));
    found
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| Error::Missing {
            missing: format!("a busybox in {}", package.display()),
            cure: "see what the package holds now".into(),
        })
}

/// Writes the archive of an image that holds one program and nothing else: no
/// shell, no library, no user.
pub fn of_one_program(
    archive: &Path,
    image: &str,
    architecture: &str,
    (name, program): (&str, &[u8]),
) -> Result<()> {
    let layer = layer(|tar| entry(tar, EntryType::Regular, name, 0o755, program, None));
    let layer = layer.at("write a layer of", archive)?;
    let image = (image.to_owned(), layer, json!({}));
    write_archive(archive, architecture, &[image]).at("write", archive)
}

fn pause_layer(work: &Path) -> Result<Vec<u8>> {
    let source = work.join("pause.c");
    let program = work.join("pause");
    fs::write(&source, PAUSE_SOURCE).at("write", &source)?;
    run(Command::new("gcc")
        .args(["-Os", "-static", "-s", "-Wall", "-o"])
        .arg(&program)
        .arg(&source))?;
    let bytes = fs::read(&program).at("read", &program)?;
    layer(|tar| entry(tar, EntryType::Regular, "pause", 0o755, &bytes, None)).at("write", "a layer")
}

fn busybox_image(name: String, program: &Path) -> Result<Image> {
    let config = json!({"Cmd": ["sh"], "Env": ["PATH=/bin"]});
    Ok((name, busybox_layer(program)?, config))
}

/// The applets are this machine's busybox' own: one release of Debian has the
/// same ones everywhere.
fn busybox_layer(program: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(program).at("read", program)?;
    if is_dynamic(&bytes) {
        return Err(Error::Missing {
            missing: format!(
                "a static busybox ({} is linked dynamically)",
                program.display()
            ),
            cure: "`apt-get install busybox-static`".into(),
        });
    }
    let own = prereq::find("busybox").unwrap_or_else(|| "/bin/busybox".into());
    let applets = run(Command::new(own).arg("--list"))?;
    layer(|tar| {
        for (dir, mode) in [
            ("bin", 0o755),
            ("etc", 0o755),
            ("root", 0o755),
            ("tmp", 0o1777),
        ] {
            entry(tar, EntryType::Directory, dir, mode, &[], None)?;
        }
        let users = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
        entry(tar, EntryType::Regular, "etc/passwd", 0o644, users, None)?;
        entry(tar, EntryType::Regular, "bin/busybox", 0o755, &bytes, None)?;
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            entry(
                tar,
                EntryType::Symlink,
                &format!("bin/{applet}"),
                0o777,
                &[],
                Some("busybox"),
            )?;
        }
        Ok(())
    })
    .at("write", "a layer")
}

/// Whether an ELF file asks for an interpreter: its program headers have one of
/// type `PT_INTERP` (3). Only 64-bit little-endian files get this far.
fn is_dynamic(elf: &[u8]) -> bool {
    let half = |at: usize| {
        elf.get(at..at + 2)
            .map(|b| usize::from(b[0]) | usize::from(b[1]) << 8)
    };
    let (Some(offset), Some(size), Some(count)) = (half(32), half(54), half(56)) else {
        return true;
    };
    (0..count).any(|i| half(offset + i * size) == Some(3))
}

fn layer(
    fill: impl FnOnce(&mut Builder<Vec<u8>>) -> std::io::Result<()>,
) -> std::io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    fill(&mut tar)?;
    tar.into_inner()
}

/// Owner and time are always 0, so that the same input makes the same image.
fn entry<W: Write>(
    tar: &mut Builder<W>,
    kind: EntryType,
    name: &str,
    mode: u32,
    bytes: &[u8],
    link: Option<&str>,
) -> std::io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    match link {
        Some(target) => tar.append_link(&mut header, name, target),
        None => tar.append_data(&mut header, name, bytes),
    }
}

fn hex_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn write_archive(path: &Path, architecture: &str, images: &[Image]) -> std::io::Result<()> {
    let mut tar = Builder::new(fs::File::create(path)?);
    let mut manifest = Vec::new();
    for (name, layer, config) in images {
        let digest = hex_digest(layer);
        let config = serde_json::to_vec(&json!({
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        }))?;
        let config_name = format!("{}.json", hex_digest(&config));
        let layer_name = format!("{digest}/layer.tar");
        entry(
            &mut tar,
            EntryType::Regular,
            &config_name,
            0o644,
            &config,
            None,
        )?;
        entry(
            &mut tar,
            EntryType::Regular,
            &layer_name,
            0o644,
            layer,
            None,
        )?;
        manifest.push(json!({"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}));
    }
    let manifest = serde_json::to_vec(&manifest)?;
    entry(
        &mut tar,
        EntryType::Regular,
        "manifest.json",
        0o644,
        &manifest,
        None,
    )?;
    tar.into_inner()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_loader_is_told_from_one_that_does_not() {
        let mut elf = vec![0u8; 64 + 2 * 56];
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        assert!(!is_dynamic(&elf));
        elf[64 + 56] = 3;
        assert!(is_dynamic(&elf));
        assert!(is_dynamic(b"#!/bin/sh\n"));
    }
}
