//! How a host ended is what `status` says: the kubelet's exit code and the
//! report of podcradle-init.

use podcradle_tests::e2e::kubectl::Kubectl;
use podcradle_tests::e2e::{Actor, Arch, Error, Running, Stage, WATCHDOG, stage};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::testserver::{Event, Order, digest};
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    (
        "sigterm_reaches_the_host_and_its_code_reaches_status",
        sigterm,
    ),
    ("an_own_exit_code_reaches_status", own_code),
    (
        "a_host_that_ignores_sigterm_is_killed_after_its_grace",
        ignores,
    ),
    ("a_refused_token_is_exit_78", refused),
];

/// Waits until the host has ended.
pub fn ended(admin: &Kubectl, name: &str) -> Result<(), Error> {
    let condition =
        "--for=jsonpath={.status.containerStatuses[?(@.name==\"host\")].state.terminated.reason}";
    admin.wait_for("pod", name, condition).map(drop)
}

/// What `status` says, after checking that the kubelet's own words are the same.
fn status(stage: &Stage) -> Result<Value, Stop> {
    let admin = &stage.actor.cluster.admin;
    ended(admin, &stage.name)?;
    let status = stage.actor.json(&["status", &stage.name])?;
    let pod = admin.one("pod", &stage.name)?;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    ensure!(
        status["host"]["exitCode"] == end["exitCode"],
        "status says {}, the kubelet {end}",
        status["host"]
    );
    let message: Value = serde_json::from_str(end["message"].as_str().unwrap_or_default())?;
    ensure!(
        status["report"] == message,
        "status shows {}, podcradle-init wrote {message}",
        status["report"]
    );
    Ok(status)
}

fn sigterm(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "sigterm", &[])?;
    stage.orphans("leave", 100)?;
    let kill = Order::run("kill", &["sh", "-c", "kill -TERM 1"]);
    stage.server.order(&stage.name, vec![kill]);
    stage.server.wait("goodbye", WATCHDOG, |events| {
        let goodbye =
            |event: &&Event| matches!(event, Event::Goodbye { id, .. } if *id == stage.name);
        events.iter().find(goodbye).map(drop)
    })?;
    let status = status(&stage)?;
    let report = &status["report"];
    ensure!(status["host"]["exitCode"] == 143, "status: {status}");
    ensure!(report["exitCode"] == 143, "report: {report}");
    ensure!(report["stop"]["signal"] == 15, "report: {report}");
    ensure!(
        report["end"]["kind"] == "signal" && report["end"]["signal"] == 15,
        "report: {report}"
    );
    ensure!(
        report["orphans"].as_u64().is_some_and(|count| count >= 100),
        "100 orphans were left, reaped: {}",
        report["orphans"]
    );
    ensure!(report["graceExpired"] == false, "report: {report}");
    Ok(())
}

fn own_code(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let host = ["bash", "-c", "host --heartbeat 0.2; exit 7"];
    let stage = Stage::set_with(actor, "own-code", &[], &host)?;
    let kill = Order::run("kill", &["sh", "-c", "kill -TERM $PPID"]);
    stage.server.order(&stage.name, vec![kill]);
    let status = status(&stage)?;
    let report = &status["report"];
    ensure!(status["host"]["exitCode"] == 7, "status: {status}");
    ensure!(
        report["end"]["kind"] == "exit" && report["end"]["code"] == 7,
        "report: {report}"
    );
    ensure!(
        report.get("stop").is_none(),
        "nobody asked for a stop: {report}"
    );
    Ok(())
}

/// By the kubelet's own SIGTERM this time; the Pod is kept by a finalizer so
/// that its last status can be read.
fn ignores(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("ignores")?;
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    actor.launch(&name).host(&["sh", "-c", script]).run()?;
    let logs = Running::start(&mut actor.podcradle(&["logs", "-f", &name]))?;
    logs.wait_for_stdout("ready", WATCHDOG)?;
    let admin = &actor.cluster.admin;
    let keep = |finalizers: &str| {
        let patch = format!(r#"{{"metadata":{{"finalizers":{finalizers}}}}}"#);
        admin.run(&["patch", "pod", &name, "--type=merge", "--patch", &patch])
    };
    keep(r#"["podcradle.dev/test"]"#)?;
    admin.run(&["delete", "pod", &name, "--wait=false"])?;
    let seen = ended(admin, &name).and_then(|()| admin.one("pod", &name));
    keep("null")?;
    let pod = seen?;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    ensure!(end["exitCode"] == 137, "the kubelet saw {end}");
    let report: Value = serde_json::from_str(end["message"].as_str().unwrap_or_default())?;
    ensure!(
        report["graceExpired"] == true && report["exitCode"] == 137,
        "report: {report}"
    );
    Ok(())
}

fn refused(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let server = stage::serve(&actor)?;
    let name = actor.reserve("refused")?;
    server.expect(&name, digest("another token"));
    let (file, _) = actor.token()?;
    let launched = actor
        .launch(&name)
        .option(&["--server", &server.url(), "--host-id", &name])
        .option(&["--token-file", &file.to_string_lossy()])
        .try_run()?;
    // Whether the launcher saw the host run first is a race that both ways are
    // right answers to; the code is 78 in either.
    let report = if launched.code == 0 {
        ended(&actor.cluster.admin, &name)?;
        actor.json(&["status", &name])?["report"].clone()
    } else {
        launched.with_code(6)?.json()?["error"]["report"].clone()
    };
    ensure!(report["exitCode"] == 78, "report: {report}");
    Ok(())
}
