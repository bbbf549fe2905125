//! Debian's podman, given our supervisor as the program of its `--init`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::mount::umount;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Suite, skip};

use crate::archive::Archive;
use crate::engine::must;
use crate::root;

pub fn add(suite: &mut Suite) {
    suite.test("podman::run_init_uses_it_as_podman_init", run_init);
}

/// Where podman keeps everything, for as long as the test runs.
struct Storage(tempfile::TempDir);

impl Drop for Storage {
    fn drop(&mut self) {
        // podman leaves this mounted for the next call.
        let _ = umount(&self.0.path().join("root/overlay"));
    }
}

impl Storage {
    fn podman(&self) -> Command {
        let at = |name: &str| self.0.path().join(name);
        let mut podman = Command::new("podman");
        for (option, folder) in [
            ("--root", "root"),
            ("--runroot", "run"),
            ("--tmpdir", "tmp"),
        ] {
            podman.arg(option).arg(at(folder));
        }
        // Nothing of the machine's: no journal, no systemd.
        podman.args([
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
        ]);
        podman
    }
}

fn run_init() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Err(skip("podman with storage of its own needs root"));
    }
    if Command::new("podman").arg("--version").output().is_err() {
        return Err(skip("no podman (apt-get install podman)"));
    }
    let storage = Storage(
        tempfile::Builder::new()
            .prefix("podcradle-podman")
            .tempdir()?,
    );
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    let tag = "localhost/podcradle-test/sandbox:podman";
    let image = storage.0.path().join("image.tar");
    let archive = Archive::read(&root().join("out/images/sandbox.tar"))?;
    archive.write_for_docker(&format!("linux/{arch}"), tag, &image)?;
    must(
        storage
            .podman()
            .args(["load", "--quiet", "--input"])
            .arg(&image),
    )?;

    let init = storage.0.path().join("podman-init");
    symlink(
        root().join(format!("out/stage/supervisor/{arch}/podcradle-init")),
        &init,
    )?;
    let output = run(&storage, &init, tag).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(9), "{output:?}");
    ensure!(
        said.starts_with("podman-init\n/run/podman-init -- bash "),
        "{said}"
    );
    Ok(())
}

fn run(storage: &Storage, init: &Path, tag: &str) -> Command {
    let mut podman = storage.podman();
    podman
        .args(["run", "--rm", "--network=none", "--init", "--init-path"])
        .arg(init)
        // Low enough for a machine that may not raise its own.
        .args(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"])
        .args(["--entrypoint=bash", tag, "-c"])
        .arg("cat /proc/1/comm; tr '\\0' ' ' </proc/1/cmdline; exit 9");
    podman
}
