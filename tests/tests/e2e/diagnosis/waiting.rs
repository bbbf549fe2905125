//! What a launch waits for, and that it names the budget when that is over:
//! each of the five runs out here.

use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::registry::Registry;
use podcradle_tests::e2e::{Arch, Cluster, NAMESPACE};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};

use super::support::{Expected, Row, says};
use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("no_node_fits", unschedulable),
    ("a_gate_of_someone_else", foreign_gate),
    ("a_registry_that_does_not_answer", pull_stalls),
    (
        "a_registry_that_does_not_answer_for_the_hosts_own_image",
        host_pull_stalls,
    ),
    ("a_registry_that_is_not_there", no_registry),
    ("a_registry_that_is_not_well", bad_registry),
    ("a_clone_that_does_not_end", clone_hangs),
    ("a_host_that_is_never_ready", never_ready),
    ("a_launch_that_takes_too_long_as_a_whole", total),
];

const SHORT: [&str; 2] = ["--schedule-timeout", "3s"];

fn unschedulable(arch: Arch) -> Outcome {
    let row = Row::new(arch, "unschedulable")?;
    let expected = Expected {
        code: 7,
        reason: "Unschedulable",
        message: &[
            "no node was found within the schedule budget of 3s",
            "node(s) didn't match",
        ],
        hint: "--node-selector",
    };
    let launch = row
        .launch()
        .option(&["--node-selector", "podcradle.test/nowhere=x"])
        .option(&SHORT);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn foreign_gate(arch: Arch) -> Outcome {
    let row = Row::new(arch, "foreign-gate")?;
    let gate = r#"[JSONPatch{op: "add", path: "/spec/schedulingGates/-",
        value: Object.spec.schedulingGates{name: "queue.example/wait"}}]"#;
    let Some(_policy) = Policy::patch(&row.actor, NAMESPACE, &row.name, gate)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let expected = Expected {
        code: 7,
        reason: "Unschedulable",
        message: &["scheduling gate queue.example/wait"],
        hint: "--schedule-timeout",
    };
    row.fails(row.launch().option(&SHORT).try_run()?, &expected)
        .map(drop)
}

fn pull_stalls(arch: Arch) -> Outcome {
    stalls(arch, "pull-stalls", "workspace-prep", &[])
}

/// The clone has been made by then, from an image that was there.
fn host_pull_stalls(arch: Arch) -> Outcome {
    let prep = Cluster::image(arch);
    stalls(arch, "host-pull-stalls", "host", &["--prep-image", &prep])
}

fn stalls(arch: Arch, row: &'static str, container: &str, options: &[&str]) -> Outcome {
    let row = Row::new(arch, row)?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let registry = Registry::stalling()?;
    let image = registry.image("stalls");
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &[
            "the images or volumes were not there within the pull budget of 20s",
            &format!("{container}: PodInitializing, image {image}"),
        ],
        hint: "--pull-timeout",
    };
    let launch = row.of(&image).option(options);
    let ended = launch.option(&["--pull-timeout", "20s"]).try_run()?;
    row.keep_pods()?;
    says(ended, &expected)?;
    // A kubelet does not break off the pull of a Pod that is deleted: the Pod
    // goes once the registry does.
    drop(registry);
    gone(&row.actor, &row.name)
}

/// It may come back: that is waited for.
fn no_registry(arch: Arch) -> Outcome {
    let row = Row::new(arch, "registry-refuses")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    // A port that nobody else gets meanwhile, and on which nobody listens.
    let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    let image = format!("{}/podcradle/nowhere:1", socket.local_addr()?);
    drop(socket);
    fails_to_pull(&row, &image, "connection refused")
}

fn bad_registry(arch: Arch) -> Outcome {
    let row = Row::new(arch, "registry-fails")?;
    row.actor.cluster.registry.as_ref().map_err(skip)?;
    let registry = Registry::failing()?;
    fails_to_pull(&row, &registry.image("fails"), "503 Service Unavailable")
}

fn fails_to_pull(row: &Row, image: &str, why: &str) -> Outcome {
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &[
            "the images or volumes were not there within the pull budget of 20s",
            image,
            why,
        ],
        hint: "--pull-timeout",
    };
    let launch = row.of(image).option(&["--pull-timeout", "20s"]);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn clone_hangs(arch: Arch) -> Outcome {
    let row = Row::new(arch, "clone-hangs")?;
    let repository = Repository::hang(row.actor.cluster.address)?;
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &[
            "workspace-prep had not ended within the init budget of 3s",
            "workspace-prep runs",
        ],
        hint: "--init-timeout",
    };
    let launch = row
        .launch()
        .option(&["--repo", &repository.url(), "--init-timeout", "3s"]);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn never_ready(arch: Arch) -> Outcome {
    let row = Row::new(arch, "never-ready")?;
    let probe = r#"{"spec":{"containers":[{"name":"host","readinessProbe":{"exec":{"command":["false"]}}}]}}"#;
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &[
            "the host was not ready within the start budget of 3s",
            "the host runs but is not ready",
        ],
        hint: "--start-timeout",
    };
    let launch = row
        .launch()
        .option(&["--overlay", probe, "--start-timeout", "3s"])
        .host(&["sh", "-c", "echo not yet; exec sleep 1000"]);
    let error = row.fails(launch.try_run()?, &expected)?;
    let log = error["log"].as_str().unwrap_or_default();
    ensure!(log.contains("not yet"), "no log: {error:#}");
    Ok(())
}

/// In which stage the launch is by then is the machine's business: all its other
/// budgets have minutes left.
fn total(arch: Arch) -> Outcome {
    let row = Row::new(arch, "total")?;
    let repository = Repository::hang(row.actor.cluster.address)?;
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &["within the total budget of 8s"],
        hint: "wait longer with --timeout",
    };
    let launch = row
        .launch()
        .option(&["--repo", &repository.url(), "--timeout", "8s"]);
    says(launch.try_run()?, &expected)?;
    gone(&row.actor, &row.name)
}
