//! Many sandboxes by one launch: each has its own result, in the order of the
//! file, and one that cannot run is nobody else's failure.

use std::fmt::Write as _;

use podcradle_tests::e2e::{Actor, Arch, Cluster, Running, WATCHDOG, audit};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};
use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("of_twelve_one_with_a_bad_image_fails_alone", twelve),
    ("copies_have_names_and_tokens_of_their_own", copies),
    ("ctrl_c_deletes_all_that_are_under_way", interrupted),
    ("progress_as_json_is_one_object_a_line", progress),
];

const SMALL: [&str; 4] = ["--cpu-request", "10m", "--memory-request", "16Mi"];

fn twelve(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let missing = actor.cluster.registry.as_ref().map_err(skip)?;
    let image = Cluster::image(arch);
    let mut names = Vec::new();
    let mut file = String::new();
    for nth in 0..12 {
        let name = actor.reserve("bulk")?;
        let image = if nth == 5 {
            format!("{missing}/no-such-image:1")
        } else {
            image.clone()
        };
        writeln!(
            file,
            "---\nsandbox: {name}\nimage: {image}\nhost: [sleep, \"1000\"]\nimagePullPolicy: IfNotPresent"
        )?;
        names.push(name);
    }
    let path = actor.folder().join("many.yaml");
    std::fs::write(&path, file)?;
    let path = path.to_string_lossy();
    let mut command = actor.podcradle(&["launch", "-f", &path, "-o", "json"]);
    command.args(SMALL);
    let ended = Running::start(&mut command)?.wait(WATCHDOG)?;
    let results = ended.with_code(9)?.json()?;
    let results = results.as_array().cloned().unwrap_or_default();
    ensure!(results.len() == 12, "{} results", results.len());
    for (nth, (name, result)) in names.iter().zip(&results).enumerate() {
        ensure!(result["sandbox"] == *name, "result {nth} is {result}");
        if nth == 5 {
            let error = &result["error"];
            ensure!(error["reason"] == "ImagePull", "{error}");
            ensure!(error["cleanedUp"] == true, "{error}");
            gone(&actor, name)?;
        } else {
            ensure!(result["podUid"].is_string(), "{result}");
        }
    }
    let others: Vec<_> = names.iter().filter(|name| **name != names[5]).collect();
    let delete: Vec<_> = std::iter::once("delete")
        .chain(others.iter().map(|name| name.as_str()))
        .collect();
    actor.run(&delete)?;
    for name in others {
        gone(&actor, name)?;
    }
    Ok(())
}

fn copies(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let tokens = actor.folder().join("tokens");
    let launch = actor
        .launch_many("copies")
        .option(&["--count", "3", "--token-out", &tokens.to_string_lossy()])
        .host(&["sleep", "1000"]);
    let results = launch.try_run()?.with_code(0)?.json()?;
    watched(&actor)?;
    let mut found = std::collections::BTreeSet::new();
    for result in results.as_array().into_iter().flatten() {
        let name = result["sandbox"].as_str().unwrap_or_default();
        actor.own(name);
        ensure!(name.starts_with("podcradle-copies-"), "launched {result}");
        found.insert(std::fs::read_to_string(tokens.join(name))?);
        actor.run(&["delete", name])?;
        gone(&actor, name)?;
    }
    ensure!(found.len() == 3, "{} different tokens of 3", found.len());
    Ok(())
}

/// One watch for all, which was that of the first alone until there was a
/// second; nobody is asked for by itself.
fn watched(actor: &Actor) -> Outcome {
    let Ok(log) = actor.cluster.audit.as_ref() else {
        // Of a cluster that is none of ours nobody counts.
        return Ok(());
    };
    let requests = audit::requests(log, &actor.credential)?;
    let count = |call: &str| requests.iter().filter(|one| one.short() == call).count();
    let (watches, creates) = (count("watch pods"), count("create pods"));
    ensure!(creates == 3, "{creates} Pods were made");
    ensure!((1..=2).contains(&watches), "{watches} watches for three");
    let reads = count("get pods") + count("list pods");
    ensure!(reads == 0, "{reads} reads of Pods");
    Ok(())
}

fn interrupted(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let running = actor
        .launch_many("interrupted")
        .option(&["--count", "6", "--progress", "json"])
        .option(&["--node-selector", "podcradle.dev/nowhere=yes"])
        .host(&["sleep", "1000"])
        .start()?;
    // All of them are made by then, or are about to be.
    running.wait_for_stderr("gateRemoved", WATCHDOG)?;
    running.signal(Signal::INT)?;
    let ended = running.wait(WATCHDOG)?.with_code(130)?;
    let results = ended.json()?;
    let results = results.as_array().cloned().unwrap_or_default();
    ensure!(results.len() == 6, "{} results", results.len());
    for result in &results {
        ensure!(result["error"]["reason"] == "Cancelled", "{result}");
        gone(&actor, result["sandbox"].as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn progress(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("progress")?;
    let launch = actor
        .launch(&name)
        .option(&["--progress", "json"])
        .host(&["sleep", "1000"]);
    let ended = launch.try_run()?.with_code(0)?;
    let mut events = Vec::new();
    for line in ended.stderr.lines() {
        let event: Value = serde_json::from_str(line)?;
        ensure!(event["sandbox"] == name, "{event}");
        ensure!(event["time"].is_string(), "{event}");
        events.push(event["event"].as_str().unwrap_or_default().to_owned());
    }
    events.retain(|event| event != "waiting");
    let expected = [
        "created",
        "created",
        "created",
        "gateRemoved",
        "ready",
        "launched",
    ];
    ensure!(events == expected, "events: {events:?}");
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}
