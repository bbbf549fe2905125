//! Containers that ran, and how that ended.

use podcradle_tests::e2e::Arch;
use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::git::Repository;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use serde_json::Value;

use super::support::{Expected, Row};
use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("a_clone_that_fails", clone_fails),
    ("a_host_that_ends", host_ends),
    ("a_host_that_is_not_in_the_image", no_host),
    ("a_host_that_uses_too_much_memory", host_memory),
    ("a_host_that_crashes_where_it_is_started_again", crashes),
    ("a_clone_that_uses_too_much_memory", clone_memory),
];

fn log(error: &Value, text: &str) -> Outcome {
    let log = error["log"].as_str().unwrap_or_default();
    ensure!(log.contains(text), "no {text:?} in the log: {error:#}");
    Ok(())
}

fn clone_fails(arch: Arch) -> Outcome {
    let row = Row::new(arch, "clone-fails")?;
    let repository = Repository::serve(row.actor.cluster.address)?;
    let url = repository.missing_url();
    let expected = Expected {
        code: 6,
        reason: "InitFailed",
        message: &["workspace-prep failed", "128", &url],
        hint: "--repo",
    };
    let error = row.fails(row.launch().option(&["--repo", &url]).try_run()?, &expected)?;
    log(&error, "fatal: repository")
}

/// A launch whose host runs, and is never ready.
fn not_ready(arch: Arch, row: &'static str) -> Result<Row, Stop> {
    Row::new(arch, row)
}

fn host_ends(arch: Arch) -> Outcome {
    let row = not_ready(arch, "host-ends")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let script = "echo the last words of the host >&2; exit 9";
    let launch = row.launch().host(&["sh", "-c", script]);
    let expected = Expected {
        code: 6,
        reason: "HostEnded",
        message: &["before it was ready", "code 9"],
        hint: "log",
    };
    let error = row.fails(launch.try_run()?, &expected)?;
    ensure!(error["report"]["exitCode"] == 9, "report: {error:#}");
    log(&error, "the last words of the host")
}

fn no_host(arch: Arch) -> Outcome {
    let row = not_ready(arch, "host-missing")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let expected = Expected {
        code: 6,
        reason: "HostEnded",
        message: &["could not be executed", "no-such-host"],
        hint: "-- HOST",
    };
    let launch = row.launch().host(&["no-such-host"]);
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn host_memory(arch: Arch) -> Outcome {
    let row = not_ready(arch, "host-memory")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    // A shell variable of 256 MiB.
    let script = "x=$(head -c 256M /dev/zero | tr '\\0' x); sleep 1000";
    let launch = row
        .launch()
        .option(&["--memory-limit", "64Mi"])
        .host(&["sh", "-c", script]);
    let expected = Expected {
        code: 6,
        reason: "OutOfMemory",
        message: &["container host", "64Mi"],
        hint: "--memory-limit",
    };
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn crashes(arch: Arch) -> Outcome {
    let row = not_ready(arch, "host-crashes")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let spec = row.actor.folder().join("overlay.yaml");
    std::fs::write(&spec, "overlay: {spec: {restartPolicy: Always}}\n")?;
    let spec = spec.display().to_string();
    // Its home outlives the container.
    let script = "echo x >> \"$HOME/starts\"; echo \"crash $(wc -l < \"$HOME/starts\")\"; exit 7";
    let launch = row
        .launch()
        .option(&["--file", &spec, "--keep-on-failure"])
        .host(&["sh", "-c", script]);
    let ended = launch.try_run()?.with_code(6)?;
    row.keep_pods()?;
    let error = ended.json()?["error"].clone();
    ensure!(error["reason"] == "HostEnded", "reason: {error:#}");
    // Whichever the launch saw end, the message and the log are of the same one.
    let message = error["message"].as_str().unwrap_or_default();
    let number = message
        .split_once("(instance ")
        .and_then(|(_, rest)| rest.split_once(" of the container)"))
        .map(|(number, _)| number.to_owned())
        .ok_or_else(|| format!("no instance in {error:#}"))?;
    ensure!(
        error["log"] == format!("crash {number}\n"),
        "not the log of instance {number}: {error:#}"
    );
    // What a launch sees that comes later: the kubelet holds the host back.
    row.held_back("containerStatuses", "crash-loop")?;
    let status = row.actor.json(&["status", &row.name])?.to_string();
    ensure!(
        status.contains("keeps ending") && status.contains("(instance "),
        "status: {status}"
    );
    row.actor.run(&["delete", &row.name])?;
    crate::failures::gone(&row.actor, &row.name)
}

fn clone_memory(arch: Arch) -> Outcome {
    let row = Row::new(arch, "clone-memory")?;
    let repository = Repository::serve_large(row.actor.cluster.address)?;
    let launch = row
        .launch()
        .option(&["--memory-limit", "48Mi", "--repo", &repository.url()]);
    let expected = Expected {
        code: 6,
        reason: "OutOfMemory",
        message: &["container workspace-prep", "48Mi"],
        hint: "--memory-limit",
    };
    row.fails(launch.try_run()?, &expected).map(drop)
}
