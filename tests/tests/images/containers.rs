//! The images at work under a real docker engine, each platform, the foreign
//! one under QEMU.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use serde_json::Value;

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
    let tests: [(&str, Test); 10] = [
        ("podcradle_init_is_pid_1_and_the_host_its_child", pid_1),
        ("host_code_comes_back", code),
        ("orphans_are_reaped", orphans),
        ("docker_stop_reaches_the_host_in_its_grace", stop),
        ("report_is_written_to_the_termination_log", report),
        (
            "supervisor_copies_itself_into_a_volume_and_runs_a_foreign_image",
            copy,
        ),
        ("copy_to_a_full_disk_leaves_nothing_and_says_so", full_disk),
        ("copy_works_from_a_read_only_root", read_only),
        ("a_user_without_a_passwd_entry_runs", stranger),
        ("docker_run_init_uses_it_as_docker_init", docker_init),
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
    fn is_native(&self) -> bool {
        (self.arch == "arm64") == cfg!(target_arch = "aarch64")
    }

    fn ready(&self) -> Outcome {
        let machine = if self.arch == "arm64" {
            "aarch64"
        } else {
            "x86_64"
        };
        if !self.is_native()
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
            for image in ["supervisor", "sandbox"] {
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

fn pid_1(bench: &Bench) -> Outcome {
    let script = "cat /proc/1/comm; ps -o ppid= -p $$ 2>/dev/null || awk '{print $4}' /proc/$$/stat; id -un; uname -m";
    let said = must(&mut bench.run(&[], "sandbox", &["bash", "-c", script])?)?;
    let machine = if bench.arch == "arm64" {
        "aarch64"
    } else {
        "x86_64"
    };
    let words: Vec<&str> = said.split_whitespace().collect();
    ensure!(
        words == ["podcradle-init", "1", "sandbox", machine],
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

fn copy(bench: &Bench) -> Outcome {
    let volume = format!("podcradle-test-copy-{}", bench.arch);
    let into = format!("--volume={volume}:/podcradle/bin");
    must(bench.engine.docker()?.args(["volume", "create", &volume]))?;
    // The volume belongs to root, as a fresh emptyDir would to the fsGroup.
    must(&mut bench.run(
        &["--user=0", &into],
        "supervisor",
        &["--copy-to", "/podcradle/bin"],
    )?)?;
    let options = [
        &into,
        "--user=4242",
        "--entrypoint=/podcradle/bin/podcradle-init",
    ];
    let said = must(&mut bench.run(&options, "foreign", &["--", "/program", "--version"])?)?;
    ensure!(said.starts_with("host "), "{said}");
    // The foreign host's own code comes back: without a server it is 64.
    let status = bench
        .run(&options, "foreign", &["--", "/program"])?
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.code() == Some(64), "{status}");
    must(bench.engine.docker()?.args(["volume", "rm", &volume]))?;
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
    let options = ["--read-only", "--tmpfs=/podcradle/bin:mode=1777"];
    must(&mut bench.run(&options, "supervisor", &["--copy-to", "/podcradle/bin"])?)?;
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
