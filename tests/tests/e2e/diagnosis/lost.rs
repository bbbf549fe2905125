//! Pods that go although nothing is wrong with their host.

use podcradle_tests::e2e::admission::Policy;
use podcradle_tests::e2e::{Arch, NAMESPACE, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use serde_json::{Value, json};

use super::support::{Expected, Row, says};
use crate::Test;
use crate::failures::gone;
use crate::manifest::Own;

pub const TESTS: &[(&str, Test)] = &[
    ("a_lifetime_that_runs_out", deadline),
    ("events_of_a_namesake_are_nobody_s", namesake),
    ("a_pod_that_somebody_deletes", deleted),
    (
        "a_pod_that_somebody_deletes_before_it_has_a_node",
        never_ran,
    ),
    ("an_anchor_that_somebody_deletes", anchor_deleted),
    ("a_pod_that_the_eviction_api_takes", evicted),
    ("a_host_that_fills_the_disk", disk),
    ("a_host_that_fills_its_home", home),
];

const SLEEP: [&str; 2] = ["sleep", "1000"];

/// A launch that waits for its host, which runs already.
fn waiting(row: &Row) -> Result<(Policy<'_>, Running), Stop> {
    let Some(policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let launch = row.launch().host(&SLEEP).start()?;
    launch.wait_for_stderr("the host runs but is not ready", WATCHDOG)?;
    Ok((policy, launch))
}

fn deadline(arch: Arch) -> Outcome {
    let row = Row::new(arch, "lifetime")?;
    let (_policy, launch) = waiting(&row)?;
    // Kubernetes lets it shrink, and the shortest a launch takes is a minute.
    let patch = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
    let admin = &row.actor.cluster.admin;
    admin.run(&["patch", "pod", &row.name, "--patch", patch])?;
    let expected = Expected {
        code: 6,
        reason: "LifetimeExceeded",
        message: &["maximum lifetime ran out"],
        hint: "--max-lifetime",
    };
    row.fails(launch.wait(WATCHDOG)?, &expected).map(drop)
}

/// Another Pod had the name before, or has it elsewhere: its events are not
/// those of the one that fails.
fn namesake(arch: Arch) -> Outcome {
    let row = Row::new(arch, "namesake")?;
    let (_policy, launch) = waiting(&row)?;
    let admin = &row.actor.cluster.admin;
    let pod = admin.one("pod", &row.name)?;
    let now = jiff::Timestamp::now().to_string();
    let event = |label: &str, uid: &Value| {
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": format!("{}-{label}", row.name) },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": row.name, "uid": uid,
            },
            "type": "Warning", "reason": "Tested", "message": format!("of the {label}"),
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "source": { "component": "podcradle-tests" },
        })
    };
    let other = json!("00000000-0000-0000-0000-000000000000");
    let events = [
        event("namesake", &other),
        event("sandbox", &pod["metadata"]["uid"]),
    ];
    let _own = Own::create(admin, &events)?;
    let patch = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
    admin.run(&["patch", "pod", &row.name, "--patch", patch])?;
    let expected = Expected {
        code: 6,
        reason: "LifetimeExceeded",
        message: &[],
        hint: "",
    };
    let error = says(launch.wait(WATCHDOG)?, &expected)?;
    let events = error["events"].to_string();
    ensure!(
        events.contains("of the sandbox") && !events.contains("of the namesake"),
        "events: {events}"
    );
    gone(&row.actor, &row.name)
}

fn deleted(arch: Arch) -> Outcome {
    let row = Row::new(arch, "deleted")?;
    let (_policy, launch) = waiting(&row)?;
    let admin = &row.actor.cluster.admin;
    admin.run(&["delete", "pod", &row.name, "--wait=false"])?;
    let expected = Expected {
        code: 6,
        reason: "DeletedBySomeone",
        message: &["deleted by someone else"],
        hint: "who deletes Pods",
    };
    row.fails(launch.wait(WATCHDOG)?, &expected).map(drop)
}

/// There is no kubelet to end anything: it is gone at once.
fn never_ran(arch: Arch) -> Outcome {
    let row = Row::new(arch, "deleted-unscheduled")?;
    let nowhere = ["--node-selector", "podcradle.test/nowhere=x"];
    let launch = row.launch().option(&nowhere).start()?;
    launch.wait_for_stderr("node(s) didn't match", WATCHDOG)?;
    let admin = &row.actor.cluster.admin;
    admin.run(&["delete", "pod", &row.name, "--wait=false"])?;
    let expected = Expected {
        code: 6,
        reason: "DeletedBySomeone",
        message: &["deleted by someone else"],
        hint: "who deletes Pods",
    };
    row.fails(launch.wait(WATCHDOG)?, &expected).map(drop)
}

/// Its Pod goes with it, by the cluster's own collector.
fn anchor_deleted(arch: Arch) -> Outcome {
    let row = Row::new(arch, "anchor-deleted")?;
    let (_policy, launch) = waiting(&row)?;
    let admin = &row.actor.cluster.admin;
    admin.run(&["delete", "service", &row.name, "--wait=false"])?;
    let expected = Expected {
        code: 6,
        reason: "DeletedBySomeone",
        message: &["deleted by someone else"],
        hint: "who deletes",
    };
    says(launch.wait(WATCHDOG)?, &expected)?;
    gone(&row.actor, &row.name)
}

fn evicted(arch: Arch) -> Outcome {
    let row = Row::new(arch, "evicted")?;
    let (_policy, launch) = waiting(&row)?;
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": row.name, "namespace": NAMESPACE },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}/eviction", row.name);
    let admin = &row.actor.cluster.admin;
    admin
        .try_send(&["create", "--raw", &path], &eviction)?
        .with_code(0)?;
    let expected = Expected {
        code: 6,
        reason: "Evicted",
        message: &["no fault of its host", "Eviction API"],
        hint: "launch again",
    };
    row.fails(launch.wait(WATCHDOG)?, &expected).map(drop)
}

fn disk(arch: Arch) -> Outcome {
    let row = Row::new(arch, "disk")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let script = "head -c 8M /dev/zero > \"$HOME/fill\"; exec sleep 1000";
    let launch = row
        .launch()
        .option(&["--ephemeral-storage-limit", "1Mi"])
        .host(&["sh", "-c", script]);
    let expected = Expected {
        code: 6,
        reason: "Evicted",
        message: &["more disk than its limit", "1Mi"],
        hint: "--ephemeral-storage-limit",
    };
    row.fails(launch.try_run()?, &expected).map(drop)
}

fn home(arch: Arch) -> Outcome {
    let row = Row::new(arch, "home-disk")?;
    let Some(_policy) = Policy::never_ready(&row.actor, &row.name)? else {
        return Err(skip("the cluster has no MutatingAdmissionPolicy"));
    };
    let script = "head -c 8M /dev/zero > \"$HOME/fill\"; exec sleep 1000";
    let launch = row
        .launch()
        .option(&["--home-size-limit", "1Mi"])
        .host(&["sh", "-c", script]);
    let expected = Expected {
        code: 6,
        reason: "Evicted",
        message: &["more disk than its limit", "home", "1Mi"],
        hint: "--home-size-limit",
    };
    row.fails(launch.try_run()?, &expected).map(drop)
}
