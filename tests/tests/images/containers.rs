//! The images at work under a real docker engine, each platform, the foreign
//! one under QEMU.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use podcradle_tests::e2e::{Actor, Arch, Cluster, hexadecimal, native};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::engine::{Engine, load, load_one, must};
use crate::root;

/// One architecture's images, loaded once.
pub struct Bench {
    engine: Arc<Engine>,
    arch: &'static str,
    loaded: OnceLock<Result<(), String>>,
}

type Test = fn(&Bench) -> Outcome;

pub fn add(suite: &mut Suite, engine: &Arc<Engine>) {
    let tests: [(&str, Test); 12] = [
        ("podcradle_init_is_pid_1_and_the_host_its_child", pid_1),
        ("host_code_comes_back", code),
        ("orphans_are_reaped", orphans),
        ("docker_stop_reaches_the_host_in_its_grace", stop),
        ("report_is_written_to_the_termination_log", report),
        (
            "supervisor_copies_itself_into_a_volume_and_runs_a_foreign_image",
            copy,
        ),
        ("supervisor_runs_busybox_from_a_volume", busybox),
        ("copy_to_a_full_disk_leaves_nothing_and_says_so", full_disk),
        ("copy_works_from_a_read_only_root", read_only),
        ("a_user_without_a_passwd_entry_runs", stranger),
        ("docker_run_init_uses_it_as_docker_init", docker_init),
        ("launcher_launches_from_its_own_image", launcher),
    ];
    for arch in ["amd64", "arm64"] {
        let bench = Arc::new(Bench {
            engine: engine.clone(),
            arch,
            loaded: OnceLock::new(),
        });
        for (name, body) in tests {
            let bench = bench.clone();
            suite.test(format!("{arch}::{name}"), move || {
                bench.ready()?;
                body(&bench)
            });
        }
    }
}

impl Bench {
    fn arch(&self) -> Arch {
        if self.arch == "arm64" {
            Arch::Arm64
        } else {
            Arch::Amd64
        }
    }

    fn ready(&self) -> Outcome {
        let machine = machine(self.arch);
        if self.arch() != native()
            && !Path::new("/proc/sys/fs/binfmt_misc")
                .join(format!("qemu-{machine}"))
                .exists()
        {
            return Err(skip(format!(
                "no QEMU registered for {machine} (a test bed that is up registers it)"
            )));
        }
        self.engine.docker()?;
        let load = || {
            for image in ["supervisor", "sandbox", "launcher"] {
                load(&self.engine, image, self.arch, &self.tag(image))
                    .map_err(|stop| format!("{stop:?}"))?;
            }
            let host = root().join(format!("out/stage/sandbox/{}/host", self.arch));
            load_one(&self.engine, &host, self.arch, &self.tag("foreign"))
                .map_err(|stop| format!("{stop:?}"))
        };
        Ok(self.loaded.get_or_init(load).as_ref().copied()?)
    }

    fn tag(&self, image: &str) -> String {
        format!("podcradle-test/{image}:{}", self.arch)
    }

    /// `docker run --rm`, options first; the network is not needed.
    fn run(&self, options: &[&str], image: &str, command: &[&str]) -> Result<Command, Stop> {
        let mut docker = self.engine.docker()?;
        docker
            .args([
                "run",
                "--rm",
                "--network=none",
                &format!("--platform=linux/{}", self.arch),
            ])
            .args(options)
            .arg(self.tag(image))
            .args(command);
        Ok(docker)
    }
}

fn machine(arch: &str) -> &'static str {
    if arch == "arm64" { "aarch64" } else { "x86_64" }
}

fn pid_1(bench: &Bench) -> Outcome {
    let script = "cat /proc/1/comm; ps -o ppid= -p $$ 2>/dev/null || awk '{print $4}' /proc/$$/stat; id -un; uname -m";
    let said = must(&mut bench.run(&[], "sandbox", &["bash", "-c", script])?)?;
    let words: Vec<&str> = said.split_whitespace().collect();
    ensure!(
        words == ["podcradle-init", "1", "sandbox", machine(bench.arch)],
        "{said}"
    );
    Ok(())
}

fn code(bench: &Bench) -> Outcome {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 42", 42),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let status = bench
            .run(&[], "sandbox", &["bash", "-c", script])?
            .status()?;
        ensure!(
            status.code() == Some(code),
            "{script}: {status}, not {code}"
        );
    }
    let output = bench.run(&[], "sandbox", &["/not/here"])?.output()?;
    ensure!(output.status.code() == Some(127), "{output:?}");
    Ok(())
}

/// 50 orphans that die at once; then the host looks, without a process of its
/// own, until nobody is left but PID 1 and itself.
fn orphans(bench: &Bench) -> Outcome {
    let script = "for n in {1..50}; do (exec sh -c 'true &'); done
                  while set -- /proc/[0-9]*; [ $# -gt 2 ]; do
                      [ $SECONDS -lt 100 ] || { echo \"$*\"; exit 3; }
                  done";
    must(&mut bench.run(&[], "sandbox", &["bash", "-c", script])?)?;
    Ok(())
}

fn stop(bench: &Bench) -> Outcome {
    let script = "trap 'echo stopping; exit 7' TERM; sleep infinity & echo ready; wait";
    let name = format!("podcradle-test-stop-{}", bench.arch);
    let mut container = bench
        .run(&["--name", &name], "sandbox", &["bash", "-c", script])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(container.stdout.take().ok_or("no stdout")?).lines();
    ensure!(
        lines.next().transpose()?.as_deref() == Some("ready"),
        "not ready"
    );
    // Far longer than it takes, so that docker's own SIGKILL is no help.
    must(bench.engine.docker()?.args(["stop", "--time=120", &name]))?;
    ensure!(
        lines.next().transpose()?.as_deref() == Some("stopping"),
        "the host saw no SIGTERM"
    );
    let status = container.wait()?;
    ensure!(status.code() == Some(7), "{status}");
    Ok(())
}

fn report(bench: &Bench) -> Outcome {
    let log = tempfile::NamedTempFile::new()?;
    fs::set_permissions(log.path(), fs::Permissions::from_mode(0o666))?;
    let mount = format!("--volume={}:/dev/termination-log", log.path().display());
    let status = bench
        .run(&[&mount], "sandbox", &["bash", "-c", "kill -TERM $$"])?
        .status()?;
    ensure!(status.code() == Some(143), "{status}");
    let text = fs::read_to_string(log.path())?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text:?}"))?;
    ensure!(report["exitCode"] == 143, "{text}");
    ensure!(
        report["end"]["kind"] == "signal" && report["end"]["signal"] == 15,
        "{text}"
    );
    Ok(())
}

/// A volume with the supervisor in it, put there by its own image.
struct Volume<'a> {
    bench: &'a Bench,
    name: String,
    mount: String,
}

impl<'a> Volume<'a> {
    /// Its image's own root is read-only, as it is under the launcher.
    fn with_supervisor(bench: &'a Bench, purpose: &str) -> Result<Self, Stop> {
        let name = format!("podcradle-test-{purpose}-{}", bench.arch);
        must(bench.engine.docker()?.args(["volume", "create", &name]))?;
        let mount = format!("--volume={name}:/podcradle/bin");
        let volume = Self { bench, name, mount };
        // The volume belongs to root, as a fresh emptyDir would to the fsGroup.
        must(&mut bench.run(
            &["--user=0", "--read-only", &volume.mount],
            "supervisor",
            &["--copy-to", "/podcradle/bin"],
        )?)?;
        Ok(volume)
    }

    /// Options for a container that has it as PID 1.
    fn options(&self) -> [&str; 3] {
        [
            &self.mount,
            "--user=4242",
            "--entrypoint=/podcradle/bin/podcradle-init",
        ]
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        // What a failed test leaves goes with the engine.
        let _ = self
            .bench
            .engine
            .docker()
            .map(|mut docker| docker.args(["volume", "rm", &self.name]).output());
    }
}

fn copy(bench: &Bench) -> Outcome {
    let volume = Volume::with_supervisor(bench, "copy")?;
    let options = volume.options();
    let said = must(&mut bench.run(&options, "foreign", &["--", "/program", "--version"])?)?;
    ensure!(said.starts_with("host "), "{said}");
    // The foreign host's own code comes back: without a server it is 64.
    let status = bench
        .run(&options, "foreign", &["--", "/program"])?
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.code() == Some(64), "{status}");
    Ok(())
}

fn busybox(bench: &Bench) -> Outcome {
    let (image, archive) = Cluster::busybox_archive(bench.arch())?;
    let archive = archive.to_string_lossy().into_owned();
    must(
        bench
            .engine
            .docker()?
            .args(["load", "--quiet", "--input", &archive]),
    )?;
    must(
        bench
            .engine
            .docker()?
            .args(["tag", &image, &bench.tag("busybox")]),
    )?;
    let volume = Volume::with_supervisor(bench, "busybox")?;
    let script = "cat /proc/1/comm; uname -m; (true &); kill -TERM $$";
    let output = bench
        .run(
            &volume.options(),
            "busybox",
            &["--", "/bin/sh", "-c", script],
        )?
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(143), "{output:?}");
    ensure!(
        said.split_whitespace()
            .eq(["podcradle-init", machine(bench.arch)]),
        "{said}"
    );
    Ok(())
}

/// From inside its own image, as its own user: a sandbox comes and goes.
fn launcher(bench: &Bench) -> Outcome {
    let arch = bench.arch();
    let actor = Actor::new(arch)?;
    let kubeconfig = actor.folder().join("for-everybody");
    fs::copy(actor.kubeconfig(), &kubeconfig)?;
    fs::set_permissions(&kubeconfig, fs::Permissions::from_mode(0o644))?;
    let mount = format!("--volume={}:/kubeconfig:ro", kubeconfig.display());
    // The test bed's API server listens on loopback.
    let options = [
        "--rm",
        "--network=host",
        "--env=KUBECONFIG=/kubeconfig",
        &mount,
    ];
    let podcradle = |arguments: &[&str]| -> Result<String, Stop> {
        let mut docker = bench.engine.docker()?;
        docker
            .arg("run")
            .arg(format!("--platform=linux/{}", bench.arch))
            .args(options)
            .arg(bench.tag("launcher"))
            .args(arguments);
        Ok(must(&mut docker)?)
    };
    let name = podcradle(&["reserve", "from-image", "-o", "name"])?;
    actor.own(&name);
    podcradle(&[
        "launch",
        "--sandbox",
        &name,
        "--image",
        &Cluster::image(arch),
        "--cpu-request=10m",
        "--memory-request=16Mi",
        "--",
        "sleep",
        "infinity",
    ])?;
    let listed = podcradle(&["list", "-o", "name"])?;
    ensure!(listed.lines().any(|line| line == name), "{listed}");
    podcradle(&["delete", &name])?;
    let left = actor.cluster.admin.left_of(&name)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

fn full_disk(bench: &Bench) -> Outcome {
    let volume = format!("podcradle-test-full-{}", bench.arch);
    let options = [
        "--opt=type=tmpfs",
        "--opt=device=tmpfs",
        "--opt=o=size=16k,mode=1777",
    ];
    must(
        bench
            .engine
            .docker()?
            .args(["volume", "create"])
            .args(options)
            .arg(&volume),
    )?;
    let into = format!("--volume={volume}:/podcradle/bin");
    let list = "ls -A /podcradle/bin";
    // A container that holds the volume: a tmpfs is gone with its last user.
    let holder = format!("{volume}-holder");
    must(&mut bench.run(
        &["--detach", "--name", &holder, &into],
        "sandbox",
        &["sleep", "infinity"],
    )?)?;
    let output = bench
        .run(&[&into], "supervisor", &["--copy-to", "/podcradle/bin"])?
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let left = must(
        bench
            .engine
            .docker()?
            .args(["exec", &holder, "bash", "-c", list]),
    );
    must(
        bench
            .engine
            .docker()?
            .args(["rm", "--force", "--volumes", &holder]),
    )?;
    must(bench.engine.docker()?.args(["volume", "rm", &volume]))?;
    ensure!(
        output.status.code() == Some(125),
        "{}: {said}",
        output.status
    );
    ensure!(
        said.lines().count() == 1 && said.contains("/podcradle/bin"),
        "{said}"
    );
    let left = left?;
    ensure!(left.is_empty(), "left behind: {left}");
    Ok(())
}

fn read_only(bench: &Bench) -> Outcome {
    let volume = Volume::with_supervisor(bench, "read-only")?;
    let script =
        "cd /podcradle/bin && ls -A && stat -c %a podcradle-init && sha256sum <podcradle-init";
    let said = must(&mut bench.run(&[&volume.mount], "sandbox", &["bash", "-c", script])?)?;
    let staged = format!("out/stage/supervisor/{}/podcradle-init", bench.arch);
    let digest = hexadecimal(&Sha256::digest(fs::read(root().join(staged))?));
    ensure!(
        said.split_whitespace()
            .eq(["podcradle-init", "555", &digest, "-"]),
        "{said}, not {digest}"
    );
    Ok(())
}

fn stranger(bench: &Bench) -> Outcome {
    let options = ["--user=4242:4242", "--env=HOME=/tmp"];
    let said = must(&mut bench.run(
        &options,
        "sandbox",
        &["bash", "-c", "id -u; git --version; cat /proc/1/comm"],
    )?)?;
    ensure!(
        said.starts_with("4242\ngit version ") && said.ends_with("\npodcradle-init"),
        "{said}"
    );
    Ok(())
}

/// The engine puts its init program in as /sbin/docker-init: of the machine's
/// own architecture, whatever the image's.
fn docker_init(bench: &Bench) -> Outcome {
    let options = ["--init", "--entrypoint=bash"];
    let script = "cat /proc/1/comm; cat /proc/1/cmdline | tr '\\0' ' '; exit 9";
    let output = bench.run(&options, "sandbox", &["-c", script])?.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(9), "{output:?}");
    ensure!(
        said.starts_with("docker-init\n/sbin/docker-init -- bash "),
        "{said}"
    );
    let format = "--format={{.InitBinary}} {{.InitCommit.ID}}";
    let version = must(bench.engine.docker()?.args(["info", format]))?;
    ensure!(
        !version.ends_with("N/A"),
        "docker cannot read its version: {version}"
    );
    Ok(())
}
