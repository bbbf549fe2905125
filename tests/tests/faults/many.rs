//! Many launches of one process: one watch for all, so many at a time, and one
//! that fails is nobody else's failure.

use std::future::ready;

use futures::StreamExt as _;
use podcradle_launcher::token::Token;
use podcradle_launcher::{LaunchEvent, Launches, Outcome as Launch, Reason, SandboxSpec};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, Seen, going_well, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::json;

use super::support::{Bed, failed, launched, wait};

pub fn add(suite: &mut Suite) {
    suite.test("many_launches_share_one_watch_on_all_pods", share);
    suite.test("what_happens_is_a_stream_for_one_and_for_many", streams);
    suite.test("no_more_are_under_way_than_asked_for", bounded);
    suite.test("one_that_fails_leaves_the_others_alone", one_fails);
    suite.test("a_cancel_of_many_keeps_those_that_are_done", cancelled);
    suite.test(
        "those_that_wait_for_a_namesakes_end_hold_up_no_other",
        || {
            let bed = Bed::well()?;
            let going = wanted(40);
            for (spec, ..) in &going {
                let metadata =
                    json!({ "name": spec.sandbox, "deletionTimestamp": "2026-01-01T00:00:00Z" });
                bed.api.put("services", json!({ "metadata": metadata }));
            }
            let waiting = bed.launcher.launch_many(going, 40)?;
            bed.api.wait_for(|api| api.calls("WATCH services") >= 32)?;
            launched(bed.launch()?)?;
            drop(waiting);
            bed.shut_down()
        },
    );
    suite.test("a_429_pauses_the_creates_of_all", paused);
    suite.test("a_place_that_is_gone_costs_one_list_for_all", relisted);
    suite.test(
        "a_watch_that_may_not_be_opened_fails_all_and_leaves_nothing",
        || {
            let watch = |seen: &Seen| (seen.verb == "WATCH").then_some(Fault::Denied);
            denied(4, watch, "watch pods in namespace ns")
        },
    );
    suite.test(
        "a_list_that_may_not_be_read_where_a_watch_goes_on_fails_all_and_leaves_nothing",
        || denied(4, place_gone, "list pods in namespace ns"),
    );
    suite.test(
        "a_pod_that_may_not_be_read_where_its_watch_goes_on_fails_and_leaves_nothing",
        || denied(1, place_gone, "get pods ns/podcradle-many-000000"),
    );
}

fn wanted(count: usize) -> Vec<(SandboxSpec, Token, bool)> {
    let spec = |nth| SandboxSpec::new(format!("podcradle-many-{nth:06}"), "localhost/image:1");
    (0..count)
        .map(|nth| (spec(nth), Token::random(), false))
        .collect()
}

/// The outcomes in the order of the launch.
pub fn all(mut launches: Launches) -> Result<Vec<Launch>, Stop> {
    wait(async {
        let mut outcomes = Vec::new();
        while let Some(outcome) = launches.next().await {
            outcomes.push(outcome);
        }
        outcomes.sort_by_key(|(which, _)| *which);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    })
}

fn count(bed: &Bed, call: &str) -> usize {
    bed.api.calls().iter().filter(|seen| *seen == call).count()
}

fn share() -> Outcome {
    let bed = Bed::well()?;
    // Nobody runs until all have been let go, so that all wait at once.
    bed.api.kubelet(Vec::new());
    let launches = bed.launcher.launch_many(wanted(20), 50)?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 20)?;
    bed.api.run_all(going_well());
    for (nth, outcome) in all(launches)?.into_iter().enumerate() {
        let done = launched(outcome)?;
        ensure!(
            done.sandbox == format!("podcradle-many-{nth:06}"),
            "{done:?}"
        );
    }
    // By name for the first, and by label once there was a second.
    let watches = count(&bed, "WATCH pods");
    ensure!(watches <= 2, "{watches} watches for 20 launches");
    let lists = count(&bed, "GET pods");
    ensure!(lists == 0, "{lists} reads of Pods");
    ensure!(bed.api.objects().len() == 60, "{:?}", bed.api.objects());
    Ok(())
}

/// Told by the combinators of any stream, to its end.
fn streams() -> Outcome {
    let told = [
        ("service", "podcradle-many-000000"),
        ("pod", "podcradle-many-000000"),
        ("secret", "podcradle-many-000000-g1-token"),
    ];
    let told = told.map(|(kind, name)| {
        let name = name.to_owned();
        LaunchEvent::Created { kind, name }
    });
    let bed = Bed::well()?;
    let (spec, token, _) = wanted(1).remove(0);
    let mut launch = bed.launcher.launch(spec, token)?;
    let events = launch.events().ok_or("no events")?;
    ensure!(launch.events().is_none(), "they are given twice");
    let (outcome, events) = wait(futures::future::join(launch, events.collect::<Vec<_>>()))?;
    launched(outcome)?;
    ensure!(events.starts_with(&told), "events: {events:?}");
    ensure!(
        events.last() == Some(&LaunchEvent::Ready),
        "events: {events:?}"
    );

    let bed = Bed::well()?;
    let mut launches = bed.launcher.launch_many(wanted(3), 50)?;
    let events = launches.events().ok_or("no events")?;
    all(launches)?;
    let ready = events.filter(|(_, event)| ready(*event == LaunchEvent::Ready));
    let mut ready: Vec<_> = wait(ready.map(|(which, _)| which).collect())?;
    ready.sort_unstable();
    ensure!(ready == [0, 1, 2], "ready: {ready:?}");
    Ok(())
}

fn bounded() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let launches = bed.launcher.launch_many(wanted(10), 3)?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 3)?;
    ensure!(count(&bed, "POST services") == 3, "{:?}", bed.api.calls());
    bed.api.run_all(going_well());
    for outcome in all(launches)? {
        launched(outcome)?;
    }
    Ok(())
}

fn one_fails() -> Outcome {
    let bed = Bed::well()?;
    bed.api.admission(|resource, object| {
        if resource == "pods" && object["metadata"]["name"] == "podcradle-many-000002" {
            object["spec"]["containers"][0]["securityContext"] = json!({});
        }
    });
    let outcomes = all(bed.launcher.launch_many(wanted(5), 50)?)?;
    for (nth, outcome) in outcomes.into_iter().enumerate() {
        if nth == 2 {
            let failure = failed(outcome)?;
            ensure!(failure.reason == Reason::AdmissionChanged, "{failure:?}");
        } else {
            launched(outcome)?;
        }
    }
    let left = bed.api.objects();
    ensure!(left.len() == 12, "{left:?}");
    ensure!(!left.iter().any(|o| o.contains("000002")), "{left:?}");
    Ok(())
}

fn cancelled() -> Outcome {
    let bed = Bed::well()?;
    // The first one runs; the others wait for a node.
    bed.api.kubelet(Vec::new());
    let mut launches = bed.launcher.launch_many(wanted(4), 50)?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 4)?;
    bed.run("podcradle-many-000000");
    let first = wait(launches.next())?.ok_or("no outcome")?;
    ensure!(first.0 == 0, "not the first: {}", first.0);
    launched(first.1)?;
    launches.cancel();
    for outcome in all(launches)? {
        let failure = failed(outcome)?;
        ensure!(failure.reason == Reason::Cancelled, "{failure:?}");
    }
    let left = bed.api.objects();
    ensure!(
        left.len() == 3 && left.iter().all(|o| o.contains("000000")),
        "{left:?}"
    );
    Ok(())
}

/// The server asks for a second's pause at the first create; while that lasts
/// nothing is created by anybody.
fn paused() -> Outcome {
    let bed = Bed::well()?;
    let times = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen_at = std::sync::Arc::clone(&times);
    bed.api.script(move |_, seen| {
        if seen.verb != "POST" {
            return Fault::None;
        }
        let Ok(mut times) = seen_at.lock() else {
            return Fault::None;
        };
        times.push(std::time::Instant::now());
        if times.len() == 1 {
            return Fault::Refuse(429);
        }
        Fault::None
    });
    for outcome in all(bed.launcher.launch_many(wanted(6), 2)?)? {
        launched(outcome)?;
    }
    let times = times.lock().map_err(|_| "poisoned")?;
    // `retryAfterSeconds` of the fake is 1. One more create may have been on its
    // way when the first was told.
    let second = std::time::Duration::from_secs(1);
    let early = times
        .iter()
        .skip(1)
        .filter(|at| at.duration_since(times[0]) < second);
    let early = early.count();
    ensure!(early <= 1, "{early} creates during the pause");
    Ok(())
}

fn relisted() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let mut listed = false;
    bed.api.script(move |_, seen| {
        let of_all = seen.resource == "pods" && seen.query.contains("labelSelector");
        listed |= of_all && seen.verb == "GET";
        if of_all && seen.verb == "WATCH" && !listed {
            return Fault::Refuse(410);
        }
        Fault::None
    });
    let launches = bed.launcher.launch_many(wanted(8), 50)?;
    bed.api.wait_for(|api| api.calls("GET pods") == 1)?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 8)?;
    bed.api.run_all(going_well());
    for outcome in all(launches)? {
        launched(outcome)?;
    }
    let lists = count(&bed, "GET pods");
    ensure!(lists == 1, "{lists} lists: {:?}", bed.api.calls());
    Ok(())
}

/// Each watch's place is gone, and what is there now may not be read.
fn place_gone(seen: &Seen) -> Option<Fault> {
    match (seen.verb.as_str(), seen.resource.as_str()) {
        ("WATCH", "pods") => Some(Fault::Refuse(410)),
        ("GET", "pods") => Some(Fault::Denied),
        _ => None,
    }
}

/// So many launches, of which none may see its Pod: all say what was denied.
fn denied(
    launches: usize,
    fault: impl Fn(&Seen) -> Option<Fault> + Send + 'static,
    call: &str,
) -> Outcome {
    let bed = Bed::new(vec![status(&json!({}), &json!({}))])?;
    bed.api
        .script(move |_, seen| fault(seen).unwrap_or(Fault::None));
    for outcome in all(bed.launcher.launch_many(wanted(launches), 50)?)? {
        let failure = failed(outcome)?;
        ensure!(failure.reason == Reason::Denied, "{failure:?}");
        ensure!(failure.message.starts_with(call), "{failure:?}");
    }
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
