//! Whose a session is: a deployment's Lease, or this process'.

use podcradle_tests::e2e::{Actor, Arch, Error, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("an_owned_session_names_its_lease_and_has_no_expiry", owned),
    ("attached_it_ends_as_its_host_does", attached),
    ("attached_and_interrupted_it_leaves_nothing", interrupted),
    (
        "attached_and_killed_it_leaves_a_lease_that_nobody_renews",
        killed,
    ),
    (
        "attached_to_a_lease_that_is_taken_away_it_deletes_its_sandbox",
        lost,
    ),
    (
        "a_lease_that_goes_while_no_node_is_found_ends_the_launch",
        lost_before,
    ),
    ("extend_moves_the_expiry_and_knows_its_limits", extend),
];

const SLEEP: [&str; 2] = ["sleep", "1000"];

fn annotations(actor: &Actor, name: &str) -> Result<Value, Error> {
    let anchor = actor.cluster.admin.one("service", name)?;
    Ok(anchor["metadata"]["annotations"].clone())
}

fn owned(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("owned")?;
    let lease = format!("{name}-owner");
    let launch = actor
        .launch(&name)
        .option(&["--owner", &lease])
        .host(&SLEEP);
    let launched = launch.run()?;
    let admin = &actor.cluster.admin;
    let made = admin.one("lease", &lease);
    let found = annotations(&actor, &name);
    let extended = actor.try_run(&["extend", &name, "--ttl", "1h"]);
    admin.run(&["delete", "lease", &lease, "--ignore-not-found=true"])?;
    made?;
    let found = found?;
    ensure!(
        found["podcradle.dev/owner"] == lease && found["podcradle.dev/expires"].is_null(),
        "annotations: {found}"
    );
    ensure!(
        launched["owner"] == lease && launched["expires"].is_null(),
        "launched {launched}"
    );
    let refused = extended?.with_code(2)?;
    ensure!(refused.stderr.contains(&lease), "said: {}", refused.stderr);
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

/// The Lease of an attached process, by the anchor of its sandbox.
fn lease_of(actor: &Actor, name: &str) -> Result<String, Stop> {
    let found = annotations(actor, name)?;
    let lease = found["podcradle.dev/owner"].as_str().unwrap_or_default();
    ensure!(
        lease.starts_with("podcradle-attach-"),
        "annotations: {found}"
    );
    Ok(lease.to_owned())
}

/// An attached launch whose host runs.
fn attach(actor: &Actor, name: &str, host: &[&str]) -> Result<Running, Error> {
    let running = actor
        .launch(name)
        .option(&["--attach"])
        .host(host)
        .start()?;
    running.wait_for_stdout("podUid", WATCHDOG)?;
    running.wait_for_stderr("host runs", WATCHDOG)?;
    Ok(running)
}

fn attached(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("attached")?;
    let script = "trap 'exit 7' USR1; while :; do sleep 0.1; done";
    let running = attach(&actor, &name, &["sh", "-c", script])?;
    let lease = lease_of(&actor, &name)?;
    let admin = &actor.cluster.admin;
    admin.run(&[
        "exec",
        &name,
        "-c",
        "host",
        "--",
        "sh",
        "-c",
        "kill -USR1 1",
    ])?;
    let ended = running.wait(WATCHDOG)?;
    ensure!(ended.code == 7, "{}: {}", ended.code, ended.stderr);
    ensure!(ended.stderr.contains("code 7"), "said: {}", ended.stderr);
    ensure!(admin.find("lease", &lease)?.is_none(), "its Lease is left");
    gone(&actor, &name)
}

fn interrupted(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("attached")?;
    let running = attach(&actor, &name, &SLEEP)?;
    let lease = lease_of(&actor, &name)?;
    running.signal(Signal::INT)?;
    running.wait(WATCHDOG)?.with_code(130)?;
    let left = actor.cluster.admin.find("lease", &lease)?;
    ensure!(left.is_none(), "its Lease is left");
    gone(&actor, &name)
}

fn killed(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("attached")?;
    let running = attach(&actor, &name, &SLEEP)?;
    let lease = lease_of(&actor, &name)?;
    running.signal(Signal::KILL)?;
    running.wait(WATCHDOG)?;
    let admin = &actor.cluster.admin;
    // What a sweep goes by: a Lease that is there, and a session that names it.
    let stale = admin.one("lease", &lease);
    let found = annotations(&actor, &name);
    admin.run(&["delete", "lease", &lease, "--ignore-not-found=true"])?;
    stale?;
    let found = found?;
    ensure!(found["podcradle.dev/expires"].is_null(), "{found}");
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn lost(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("attached")?;
    let running = attach(&actor, &name, &SLEEP)?;
    let lease = lease_of(&actor, &name)?;
    actor.cluster.admin.run(&["delete", "lease", &lease])?;
    let ended = running.wait(WATCHDOG)?.with_code(6)?;
    ensure!(ended.stderr.contains(&lease), "said: {}", ended.stderr);
    gone(&actor, &name)
}

fn lost_before(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("attached")?;
    let running = actor
        .launch(&name)
        .option(&["--attach", "--node-selector", "podcradle.test/nowhere=yes"])
        .start()?;
    running.wait_for_stderr("node(s) didn't match", WATCHDOG)?;
    // Until the hand-over only the record says whose it is to be.
    let found = annotations(&actor, &name)?;
    let record = found["podcradle.dev/record"].as_str().unwrap_or_default();
    let record: Value = serde_json::from_str(record)?;
    let lease = record["spec"]["owner"].as_str().unwrap_or_default();
    ensure!(lease.starts_with("podcradle-attach-"), "record: {record}");
    actor.cluster.admin.run(&["delete", "lease", lease])?;
    let error = running.wait(WATCHDOG)?.with_code(6)?.json()?["error"].clone();
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        error["reason"] == "OwnerLost" && error["cleanedUp"] == true && message.contains(lease),
        "{error:#}"
    );
    gone(&actor, &name)
}

fn extend(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("extend")?;
    let launch = actor.launch(&name).option(&["--max-lifetime", "2d"]);
    let launched = launch.host(&SLEEP).run()?;
    let moved = actor.json(&["extend", &name, "--ttl", "30h"])?;
    ensure!(
        moved["expires"].as_str() > launched["expires"].as_str(),
        "{moved} after {launched}"
    );
    let found = annotations(&actor, &name)?;
    ensure!(
        found["podcradle.dev/expires"] == moved["expires"],
        "{found}"
    );
    // Kubernetes ends the Pod after two days whatever the session says.
    let capped = actor.try_run(&["extend", &name, "--ttl", "3d"])?;
    let capped = capped.with_code(2)?;
    ensure!(
        capped.stderr.contains("--max-lifetime"),
        "said: {}",
        capped.stderr
    );
    let none = actor.json(&["extend", &name, "--ttl", "none"])?;
    ensure!(none["expires"].is_null(), "{none}");
    let found = annotations(&actor, &name)?;
    ensure!(found["podcradle.dev/expires"].is_null(), "{found}");
    actor.run(&["delete", &name])?;
    actor
        .try_run(&["extend", &name, "--ttl", "1h"])?
        .with_code(5)?;
    gone(&actor, &name)
}
