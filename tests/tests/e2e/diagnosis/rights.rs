//! The rights of `deploy/role.yaml`, each of them missing once: whoever needs
//! it says so, with the manifest that grants it.

use podcradle_tests::e2e::Arch;
use podcradle_tests::e2e::middle::{Fault, once};
use podcradle_tests::e2e::place::Place;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use serde_json::{Value, json};

use super::refusals::{launch_in, nothing_in};
use super::support::{Expected, Row, says};
use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("each_right_that_is_missing_is_named", launches),
    ("a_right_to_leases_or_policies_that_is_missing", others),
    ("a_right_of_another_verb_that_is_missing", verbs),
    ("a_right_that_only_the_clean_up_needs", clean_up),
    ("a_right_that_only_the_evidence_needs", evidence),
];

const ROLE: &str = "deploy/role.yaml";

/// A launch that is denied this right, and leaves nothing.
fn is_denied(row: &Row, place: &Place, right: &str, options: &[&str]) -> Outcome {
    let denied = launch_in(row, &place.name, options)?;
    let expected = Expected {
        code: 4,
        reason: "Denied",
        message: &[right, &place.name, ROLE],
        hint: "deploy/",
    };
    says(denied, &expected)?;
    ended(place)
}

/// Nothing is left once the Pods had their grace.
fn ended(place: &Place) -> Outcome {
    place.kubectl(&["wait", "--for=delete", "--all", "--timeout=60s", "pods"])?;
    nothing_in(place)
}

fn launches(arch: Arch) -> Outcome {
    let row = Row::new(arch, "right-missing")?;
    let place = Place::make(&row.actor, &row.name)?;
    for (verb, resource) in [
        ("create", "pods"),
        ("create", "secrets"),
        ("patch", "pods"),
        ("watch", "pods"),
        ("patch", "services"),
        ("create", "services"),
    ] {
        place.all_but(&row.actor, verb, resource)?;
        is_denied(&row, &place, &format!("{verb} {resource}"), &[])?;
    }
    let mut refusals = row.middle.refusals();
    // What the collector was quicker to delete does not count.
    refusals.retain(|status| status["code"] == 403);
    // In the middle of a launch a denial is asked about again.
    refusals.dedup_by_key(|status| status["message"].to_string());
    ensure!(refusals.len() == 6, "refused: {refusals:#?}");
    row.keep_status(&refusals[0])
}

fn others(arch: Arch) -> Outcome {
    let row = Row::new(arch, "lease-right")?;
    let place = Place::make(&row.actor, &row.name)?;
    let denied = |verb: &str, resource: &str, options: &[&str]| {
        place.all_but(&row.actor, verb, resource)?;
        is_denied(&row, &place, &format!("{verb} {resource}"), options)
    };
    denied("create", "leases", &["--owner", "nobody"])?;
    place.create(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "there" },
    }))?;
    denied("patch", "leases", &["--owner", "there"])?;
    denied("create", "networkpolicies", &["--network-policy"])?;
    // Read back only when the answer to its creation was lost.
    let fault = once("POST", "networkpolicies", Fault::DoneButReset);
    row.middle.script(fault);
    denied("get", "networkpolicies", &["--network-policy"])?;
    row.middle.script(|_| None);
    // One that an attached launch leaves is the sweep's: said, and no failure.
    place.all_but(&row.actor, "delete", "leases")?;
    let launch = row
        .launch()
        .option(&["-n", &place.name, "--attach"])
        .host(&["true"]);
    let ended = launch.try_run()?.with_code(0)?;
    for part in ["delete leases", ROLE] {
        ensure!(ended.stderr.contains(part), "no {part:?}: {}", ended.stderr);
    }
    let left = place.kubectl(&["get", "leases", "--output=name"])?;
    ensure!(left.lines().count() == 2, "there are {left}");
    Ok(())
}

fn verbs(arch: Arch) -> Outcome {
    let row = Row::new(arch, "verb-right")?;
    let place = Place::make(&row.actor, &row.name)?;
    let name = row.name.as_str();
    launch_in(&row, &place.name, &[])?.with_code(0)?;
    for (verb, resource, args) in [
        ("list", "services", &["list"][..]),
        ("list", "pods", &["list"]),
        ("get", "services", &["status", name]),
        ("get", "pods", &["status", name]),
        ("get", "pods/log", &["logs", name]),
        ("patch", "services", &["extend", name, "--ttl", "1h"]),
        ("delete", "services", &["delete", name]),
    ] {
        place.all_but(&row.actor, verb, resource)?;
        let ended = row
            .actor
            .try_run(&[args, &["-n", &place.name]].concat())?
            .with_code(4)?;
        for part in [&format!("{verb} {resource}"), ROLE] {
            ensure!(
                ended.stderr.contains(part),
                "{args:?}: no {part:?}: {}",
                ended.stderr
            );
        }
    }
    Ok(())
}

/// A repository that nobody serves.
const NOWHERE: [&str; 2] = ["--repo", "http://127.0.0.1:1/project.git"];

/// A launch whose clone fails.
fn failing(row: &Row, place: &Place) -> Result<Value, Stop> {
    let failed = launch_in(row, &place.name, &NOWHERE)?;
    let error = failed.json()?["error"].clone();
    ensure!(
        error["reason"] == "InitFailed",
        "{}: {error:#}",
        failed.code
    );
    Ok(error)
}

fn contains(list: &Value, texts: &[&str]) -> bool {
    let lines = list.as_array().into_iter().flatten();
    let mut lines = lines.filter_map(Value::as_str);
    lines.any(|line| texts.iter().all(|text| line.contains(text)))
}

fn clean_up(arch: Arch) -> Outcome {
    let row = Row::new(arch, "delete-right")?;
    let place = Place::make(&row.actor, &row.name)?;
    for resource in ["secrets", "pods", "services"] {
        place.all_but(&row.actor, "delete", resource)?;
        let error = failing(&row, &place)?;
        let right = format!("delete {resource}");
        ensure!(
            error["cleanedUp"] == false && contains(&error["left"], &[&right, ROLE]),
            "{right}: {error:#}"
        );
        // The anchor's deletion takes the others with it, whoever may not.
        let all = ["delete", "services", "--all", "--wait=false"];
        place.kubectl(&all)?;
        for kind in ["pods", "secrets", "services"] {
            let gone = ["wait", "--for=delete", "--all", "--timeout=60s", kind];
            place.kubectl(&gone)?;
        }
    }
    Ok(())
}

fn evidence(arch: Arch) -> Outcome {
    let row = Row::new(arch, "evidence-right")?;
    let place = Place::make(&row.actor, &row.name)?;
    for (verb, resource, field) in [("list", "events", "events"), ("get", "pods/log", "log")] {
        place.all_but(&row.actor, verb, resource)?;
        let error = failing(&row, &place)?;
        let right = format!("{verb} {resource}");
        ensure!(
            contains(&error["unread"], &[&right, ROLE]) && error[field].is_null(),
            "{right}: {error:#}"
        );
        let other = if field == "log" { "events" } else { "log" };
        ensure!(
            !error[other].is_null() && error["unread"].as_array().map(Vec::len) == Some(1),
            "the other one is missing too: {error:#}"
        );
        ended(&place)?;
    }
    // For people too.
    let launch = row
        .launch()
        .option(&["-n", &place.name, "-o", "table"])
        .option(&NOWHERE);
    let said = launch.try_run()?.with_code(6)?.stderr;
    ensure!(
        said.contains("could not be read: get pods/log"),
        "said: {said}"
    );
    ended(&place)
}
