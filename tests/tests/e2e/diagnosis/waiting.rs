//! What a launch waits for, in its budget, and names when that is over.

use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::{Arch, NAMESPACE};
use podcradle_tests::harness::{Outcome, skip};

use super::support::{Expected, Row};
use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("no_node_fits", unschedulable),
    ("a_gate_of_someone_else", foreign_gate),
    ("a_host_that_is_never_ready", never_ready),
];

const SHORT: [&str; 2] = ["--schedule-timeout", "3s"];

fn unschedulable(arch: Arch) -> Outcome {
    let row = Row::new(arch, "unschedulable")?;
    let expected = Expected {
        code: 7,
        reason: "Unschedulable",
        message: &["no node was found", "3s", "node(s) didn't match"],
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

fn never_ready(arch: Arch) -> Outcome {
    let row = Row::new(arch, "never-ready")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let expected = Expected {
        code: 7,
        reason: "TimedOut",
        message: &["the host runs but is not ready"],
        hint: "--start-timeout",
    };
    let launch = row.launch().option(&["--start-timeout", "3s"]);
    let launch = launch.host(&["sh", "-c", "echo not yet; exec sleep 1000"]);
    let error = row.fails(launch.try_run()?, &expected)?;
    let log = error["log"].as_str().unwrap_or_default();
    podcradle_tests::ensure!(log.contains("not yet"), "no log: {error:#}");
    Ok(())
}
