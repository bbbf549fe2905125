//! The test bed itself, on instances of its own beside any that run: it comes
//! up, survives what kills it, does its work, and goes without a trace.

mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use podcradle_tests::testbed::{self, BUSYBOX, Error, Layout, Node, Progress};

use trace::Trace;

fn main() -> ExitCode {
    // One at a time: each boots a cluster.
    let mut suite = Suite::new().threads(1);
    suite.test("down_leaves_the_machine_as_up_found_it", leaves_nothing);
    suite.test(
        "up_after_a_crash_of_any_daemon_boots_again",
        survives_crashes,
    );
    suite.test(
        "instances_run_side_by_side_and_callers_share_one",
        side_by_side,
    );
    suite.test(
        "an_image_of_the_other_architecture_runs_under_the_kubelet",
        other_architecture,
    );
    suite.test(
        "the_registry_serves_pulls_and_says_what_it_has_not",
        registry,
    );
    suite.test("what_needs_a_running_instance_says_so", not_up);
    suite.run()
}

/// An instance that goes when the test ends, however it ends.
struct Bed(Layout);

impl Bed {
    fn new(name: &str) -> Result<Self, Stop> {
        if !rustix::process::geteuid().is_root() {
            return Err(skip("the test bed needs root"));
        }
        let bed = Self(Layout::new(name)?);
        bed.down()?;
        Ok(bed)
    }

    fn up(&self) -> Result<Node, Error> {
        testbed::up(&self.0, false, &Progress::new())
    }

    fn down(&self) -> Result<(), Error> {
        testbed::down(&self.0, &Progress::new())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("{error}");
        }
    }
}

fn output(command: &mut Command) -> Result<String, Stop> {
    let done = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(
        done.status.success(),
        "{command:?}: {}: {said}",
        done.status
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn kubectl(node: &Node, args: &[&str]) -> Result<String, Stop> {
    output(
        Command::new(&node.kubectl)
            .arg("--kubeconfig")
            .arg(&node.kubeconfig)
            .args(args),
    )
}

/// Runs a pod to its end, returns its log, and deletes it.
fn run_pod(node: &Node, name: &str, image: &str, command: &[&str]) -> Result<String, Stop> {
    let image = format!("--image={image}");
    let mut args = vec![
        "run",
        name,
        &image,
        "--restart=Never",
        "--image-pull-policy=IfNotPresent",
    ];
    if !command.is_empty() {
        args.push("--command");
        args.push("--");
        args.extend(command);
    }
    kubectl(node, &args)?;
    let pod = format!("pod/{name}");
    kubectl(
        node,
        &[
            "wait",
            &pod,
            "--for=jsonpath={.status.phase}=Succeeded",
            "--timeout=120s",
        ],
    )?;
    let log = kubectl(node, &["logs", name])?;
    kubectl(node, &["delete", &pod, "--wait=true", "--timeout=120s"])?;
    Ok(log)
}

/// A pod `stays` that runs until it is deleted.
fn stays(node: &Node) -> Result<(), Stop> {
    let image = format!("--image={BUSYBOX}");
    let run = ["run", "stays", &image, "--command", "--", "sleep", "1000"];
    kubectl(node, &run)?;
    let ready = ["pod/stays", "--for=condition=Ready", "--timeout=120s"];
    kubectl(node, &[&["wait"], &ready[..]].concat())?;
    Ok(())
}

fn leaves_nothing() -> Outcome {
    let bed = Bed::new("trace")?;
    let before = Trace::take(&bed.0);
    let node = bed.up()?;
    ensure!(
        Trace::take(&bed.0) != before,
        "a running instance leaves no trace: the test is blind"
    );
    let log = run_pod(&node, "hello", BUSYBOX, &["sh", "-c", "echo hello; id -u"])?;
    ensure!(log == "hello\n0\n", "log {log:?}");
    // One that is still there, with a volume mounted, when the end comes.
    stays(&node)?;
    let events = fs::read_to_string(&node.audit_log)?;
    ensure!(
        events.contains(r#""name":"stays""#),
        "the audit log does not know the pod"
    );
    bed.down()?;
    let left = Trace::take(&bed.0).beyond(&before);
    ensure!(left.is_empty(), "left behind: {left:#?}");
    ensure!(
        !bed.0.state().exists(),
        "{} is still there",
        bed.0.state().display()
    );
    Ok(())
}

fn survives_crashes() -> Outcome {
    let bed = Bed::new("crash")?;
    let before = Trace::take(&bed.0);
    for victims in [
        &["containerd"][..],
        &["kubelet"],
        &["etcd", "kube-apiserver"],
        &["buildkitd", "containerd", "kubelet"],
        &["kube-scheduler", "kube-controller-manager", "registry"],
    ] {
        let node = bed.up()?;
        stays(&node)?;
        for daemon in node
            .daemons
            .iter()
            .filter(|daemon| victims.contains(&daemon.name.as_str()))
        {
            kill(Pid::from_raw(daemon.pid), Signal::SIGKILL)?;
            while daemon.is_alive() {
                thread::yield_now();
            }
        }
        ensure!(!node.is_alive(), "{victims:?} are dead and nobody saw it");
        let again = bed.up()?;
        ensure!(
            again.is_alive(),
            "not all daemons run after {victims:?} died"
        );
        let pods = kubectl(&again, &["get", "pods", "-A", "-o=name"])?;
        ensure!(
            pods.is_empty(),
            "the new cluster has the old one's {pods:?}"
        );
        // The next round starts from one that runs, or from nothing.
        if victims.len() > 1 {
            bed.down()?;
        }
        kubectl_if_up(&bed)?;
    }
    bed.down()?;
    let left = Trace::take(&bed.0).beyond(&before);
    ensure!(left.is_empty(), "left behind: {left:#?}");
    Ok(())
}

/// Empties an instance that goes into the next round.
fn kubectl_if_up(bed: &Bed) -> Outcome {
    if let Some(node) = testbed::status(&bed.0) {
        kubectl(
            &node,
            &["delete", "pods", "--all", "--wait=true", "--timeout=120s"],
        )?;
    }
    Ok(())
}

fn side_by_side() -> Outcome {
    let (one, two) = (Bed::new("side-one")?, Bed::new("side-two")?);
    let (first, second, other) = thread::scope(|scope| {
        let first = scope.spawn(|| one.up());
        let second = scope.spawn(|| one.up());
        let other = scope.spawn(|| two.up());
        (first.join(), second.join(), other.join())
    });
    let joined = "a thread of the test panicked";
    let (first, second) = (first.map_err(|_| joined)??, second.map_err(|_| joined)??);
    let other = other.map_err(|_| joined)??;
    let pids = |node: &Node| {
        node.daemons
            .iter()
            .map(|daemon| daemon.pid)
            .collect::<Vec<_>>()
    };
    ensure!(
        pids(&first) == pids(&second),
        "two callers got two clusters"
    );
    ensure!(
        first.pod_range != other.pod_range,
        "both take {}",
        other.pod_range
    );
    for node in [&first, &other] {
        let log = run_pod(node, "who", BUSYBOX, &["hostname", "-i"])?;
        let net = node.node_ip.octets();
        ensure!(
            log.starts_with(&format!("{}.{}.", net[0], net[1])),
            "address {log:?}"
        );
    }
    one.down()?;
    ensure!(other.is_alive(), "taking one down hurt the other");
    run_pod(&other, "alone", BUSYBOX, &["true"])?;
    Ok(())
}

/// A static program for the architecture this machine is not.
fn foreign_program(dir: &Path) -> Result<(PathBuf, &'static str), Stop> {
    let (machine, platform) = if cfg!(target_arch = "aarch64") {
        ("x86_64", "linux/amd64")
    } else {
        ("aarch64", "linux/arm64")
    };
    let source = dir.join("main.rs");
    fs::write(
        &source,
        r#"fn main() { println!("{}", std::env::consts::ARCH); }"#,
    )?;
    let program = dir.join("program");
    let built = output(
        Command::new("rustc")
            .args([
                "-O",
                "-Cpanic=abort",
                "-Clinker-flavor=ld",
                "-Clink-self-contained=yes",
            ])
            .arg(format!("-Clinker={machine}-linux-gnu-ld"))
            .arg(format!("--target={machine}-unknown-linux-musl"))
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .current_dir(env!("CARGO_MANIFEST_DIR")),
    );
    match built {
        Ok(_) => Ok((program, platform)),
        Err(Stop::Failed(text)) => Err(skip(format!(
            "no {machine} program can be linked here: {text}"
        ))),
        Err(other) => Err(other),
    }
}

fn other_architecture() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (_, platform) = foreign_program(dir.path())?;
    fs::write(
        dir.path().join("Dockerfile"),
        "FROM scratch\nCOPY program /program\nENTRYPOINT [\"/program\"]\n",
    )?;
    let bed = Bed::new("foreign")?;
    let node = bed.up()?;
    let machine = if cfg!(target_arch = "aarch64") {
        "x86_64\n"
    } else {
        "aarch64\n"
    };
    let build = |exporter: &str| {
        output(
            Command::new(&node.buildx)
                .env("BUILDX_CONFIG", &node.buildx_config)
                .args(["--builder", &node.builder, "build", "--provenance=false"])
                .args(["--platform", platform, "--output", exporter])
                .arg(dir.path()),
        )
    };
    // Through an archive: what buildkitd exports straight into containerd it
    // unpacks for this machine's architecture only.
    let archive = dir.path().join("image.tar");
    build(&format!(
        "type=docker,name=podcradle.test/foreign:1,dest={}",
        archive.display()
    ))?;
    testbed::load(&bed.0, &[archive], Some(platform))?;
    let log = run_pod(&node, "loaded", "podcradle.test/foreign:1", &[])?;
    ensure!(log == machine, "log {log:?}");
    Ok(())
}

fn registry() -> Outcome {
    let bed = Bed::new("registry")?;
    let node = bed.up()?;
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("Dockerfile"), format!("FROM {BUSYBOX}\n"))?;
    let name = format!("{}/pulled:1", node.registry);
    output(
        Command::new(&node.ctr)
            .arg("--address")
            .arg(&node.containerd_socket)
            .args([
                "--namespace",
                "k8s.io",
                "images",
                "push",
                "--plain-http",
                &name,
                BUSYBOX,
            ]),
    )?;
    run_pod(&node, "pulled", &name, &["true"])?;
    let absent = format!("--image={}/absent:1", node.registry);
    kubectl(&node, &["run", "absent", &absent, "--restart=Never"])?;
    let reason = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull";
    kubectl(&node, &["wait", "pod/absent", reason, "--timeout=120s"])?;
    let message = "-o=jsonpath={.items[*].message}";
    let events = kubectl(
        &node,
        &[
            "get",
            "events",
            "--field-selector=involvedObject.name=absent",
            message,
        ],
    )?;
    ensure!(events.contains("not found"), "events {events:?}");
    Ok(())
}

fn not_up() -> Outcome {
    let bed = Bed::new("absent")?;
    let error = testbed::load(&bed.0, &["x.tar".into()], None).err();
    ensure!(matches!(error, Some(Error::NotUp(_))), "{error:?}");
    bed.down()?;
    let status = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["--name", "absent", "status"])
        .output()?;
    ensure!(status.status.code() == Some(3), "{status:?}");
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    ensure!(said.contains("absent is not up"), "{said:?}");
    Ok(())
}
