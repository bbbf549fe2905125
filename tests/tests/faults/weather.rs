//! Bad weather between launcher and API server, and clusters that interfere.

use std::collections::BTreeMap;
use std::time::Duration;

use podcradle_launcher::spec::NetworkPolicy;
use podcradle_launcher::token::Token;
use podcradle_launcher::{LaunchEvent, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, Seen, going_well, status};
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::{Value, json};

use super::again::token;
use super::ambiguous::once;
use super::support::{Bed, NAME, failed, launched, spec, wait};

pub fn add(suite: &mut Suite) {
    for (verb, resource) in [
        ("POST", "services"),
        ("POST", "pods"),
        ("POST", "secrets"),
        ("PATCH", "pods"),
        ("WATCH", "pods"),
        ("PATCH", "services"),
    ] {
        suite.test(
            format!("a_429_of_{verb}_{resource}_is_waited_out"),
            move || survives(verb, resource, 429),
        );
    }
    for (resource, code) in [("services", 409), ("pods", 409), ("secrets", 409)] {
        suite.test(
            format!("a_conflict_over_the_quota_of_{resource}_is_tried_again"),
            move || survives("POST", resource, code),
        );
    }
    for resource in ["services", "networkpolicies", "pods", "secrets"] {
        suite.test(
            format!("a_quota_without_room_for_{resource}_is_waited_for"),
            move || quota(resource),
        );
    }
    for resource in ["services", "pods", "secrets"] {
        for (word, fault) in [
            ("500", Fault::Refuse(500)),
            ("429", Fault::Refuse(429)),
            ("conflict", Fault::Refuse(409)),
            ("reset_after_it", Fault::DoneButReset),
        ] {
            suite.test(
                format!("a_{word}_at_the_delete_of_{resource}_leaves_nothing"),
                move || cleans_up(once("DELETE", resource, fault), &[resource]),
            );
        }
    }
    suite.test("a_storm_through_the_clean_up_leaves_nothing", || {
        cleans_up(storm(), &["services", "pods", "secrets"])
    });
    suite.test("all_refusals_share_one_schedule_budget", one_budget);
    suite.test("a_queue_that_takes_its_own_gate_off_is_no_trouble", queue);
    suite.test(
        "a_watch_whose_place_is_gone_goes_on_from_the_pod_as_it_is",
        || survives("WATCH", "pods", 410),
    );
    suite.test("a_watch_that_is_refused_once_is_opened_again", || {
        survives("WATCH", "pods", 500)
    });
    suite.test(
        "a_hand_over_that_meets_another_writer_reads_again",
        hand_over_conflict,
    );
    suite.test("a_hand_over_to_whoever_came_later_is_none", too_late);
    suite.test(
        "a_webhook_that_takes_the_security_context_away_is_an_error",
        stripped,
    );
    suite.test(
        "a_failed_clone_is_reported_with_its_log_and_leaves_nothing",
        clone_fails,
    );
    suite.test(
        "the_events_of_a_pod_are_told_whatever_ended_its_launch",
        evidence,
    );
    suite.test("a_kept_failure_loses_its_token", kept);
    suite.test(
        "a_kept_failure_loses_its_token_whose_answer_was_lost_too",
        || {
            let bed = clone_fails_bed()?;
            bed.api
                .script(once("POST", "secrets", Fault::DoneButSay(500)));
            let mut spec = spec();
            spec.keep_on_failure = true;
            failed(bed.launch_spec(spec)?)?;
            let kept = bed.api.objects();
            ensure!(
                kept.len() == 2 && kept[0].starts_with("pods/") && kept[1].starts_with("services/"),
                "kept: {kept:?}"
            );
            Ok(())
        },
    );
    suite.test(
        "a_failure_whose_token_cannot_be_deleted_alone_is_not_kept",
        not_alone,
    );
    for code in [403, 422] {
        suite.test(format!("a_token_refused_with_{code}_is_none"), move || {
            no_token(code)
        });
    }
    suite.test("what_could_not_be_kept_is_not_said_to_be", not_kept);
    suite.test("what_could_not_be_deleted_is_named", named);
}

fn survives(verb: &'static str, resource: &'static str, code: u16) -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once(verb, resource, Fault::Refuse(code)));
    launched(bed.launch()?)?;
    ensure!(
        bed.api.objects().len() == 3,
        "there are: {:?}",
        bed.api.objects()
    );
    Ok(())
}

fn quota(resource: &'static str) -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once("POST", resource, Fault::Quota));
    let mut spec = spec();
    spec.network_policy = Some(NetworkPolicy::default());
    let mut launch = bed.launcher.launch(spec, Token::random())?;
    let mut events = launch.events().ok_or("no events")?;
    launched(wait(launch)?)?;
    let mut said = false;
    while let Some(event) = events.try_recv() {
        said |= matches!(event, LaunchEvent::Waiting { why, .. } if why.contains("exceeded quota"));
    }
    ensure!(said, "it did not say what it waits for");
    ensure!(bed.api.objects().len() == 4, "{:?}", bed.api.objects());
    Ok(())
}

/// A launch that waits for a node is cancelled in this weather.
fn cleans_up(weather: impl FnMut(usize, &Seen) -> Fault + Send + 'static, hit: &[&str]) -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let mut launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.script(weather);
    launch.cancel();
    let failure = failed(wait(launch)?)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up && failure.left.is_empty(),
        "{failure:?}"
    );
    let left = bed.api.objects();
    ensure!(left.is_empty(), "said to be clean, but there is {left:?}");
    for resource in hit {
        let delete = format!("DELETE {resource}");
        let calls = bed.api.calls();
        let asked = calls.iter().filter(|call| **call == delete).count();
        ensure!(asked > 1, "{delete} met nothing: {calls:?}");
    }
    Ok(())
}

/// Each delete meets all of these before it gets through, and reads fail too.
fn storm() -> impl FnMut(usize, &Seen) -> Fault + Send {
    let mut met = BTreeMap::new();
    move |_, seen| {
        let nth = met.entry((seen.verb.clone(), seen.resource.clone()));
        let nth = nth.and_modify(|nth| *nth += 1).or_insert(0_usize);
        let faults = match seen.verb.as_str() {
            "DELETE" => &[
                Fault::Refuse(503),
                Fault::Refuse(409),
                Fault::Refuse(429),
                Fault::DoneButReset,
            ][..],
            _ => &[Fault::Refuse(500), Fault::DoneButReset],
        };
        faults.get(*nth).copied().unwrap_or(Fault::None)
    }
}

/// The Service takes half of it, so that the Pod's creation has less than it.
fn one_budget() -> Outcome {
    let bed = Bed::well()?;
    let mut services = 0;
    bed.api.script(
        move |_, seen| match (seen.verb.as_str(), seen.resource.as_str()) {
            ("POST", "services") if services < 2 => {
                services += 1;
                Fault::Quota
            }
            ("POST", "pods") => Fault::Quota,
            _ => Fault::None,
        },
    );
    let mut spec = spec();
    spec.budgets.schedule = Duration::from_secs(3);
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(failure.reason == Reason::Quota, "{failure:?}");
    // The pauses are 0.5, 1 and 2 s: 1.5 s are gone, and a third try of the Pod
    // would come after three seconds.
    let calls = bed.api.calls();
    let tries = calls.iter().filter(|call| *call == "POST pods").count();
    ensure!(tries <= 2, "{tries} tries of the Pod: {calls:?}");
    ensure!(bed.api.objects().is_empty(), "{:?}", bed.api.objects());
    Ok(())
}

/// It stands before ours, so that ours is at another place when it is gone.
fn queue() -> Outcome {
    let bed = Bed::well()?;
    bed.api.admission(|resource, object| {
        let gates = object["spec"]["schedulingGates"].as_array_mut();
        if let ("pods", Some(gates)) = (resource, gates) {
            gates.insert(0, json!({ "name": "queue.example/wait" }));
        }
    });
    bed.api.script(once("POST", "secrets", Fault::Hold));
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("POST secrets") == 1)?;
    bed.api.change("pods", NAME, |pod| {
        if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
            gates.remove(0);
        }
    });
    bed.api.release();
    launched(wait(launch)?)?;
    // A patch that is wrong for another reason is not sent for ever.
    let bed = Bed::well()?;
    bed.api.script(|_, seen| match seen.verb.as_str() {
        "PATCH" => Fault::Refuse(422),
        _ => Fault::None,
    });
    let failure = failed(bed.launch()?)?;
    ensure!(failure.reason == Reason::Invalid, "{failure:?}");
    Ok(())
}

fn hand_over_conflict() -> Outcome {
    let bed = Bed::well()?;
    bed.api
        .script(once("PATCH", "services", Fault::Refuse(409)));
    launched(bed.launch()?)?;
    let patches = bed
        .api
        .calls()
        .iter()
        .filter(|call| *call == "PATCH services")
        .count();
    ensure!(patches == 2, "calls: {:?}", bed.api.calls());
    Ok(())
}

fn too_late() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("PATCH pods") == 1)?;
    // As another attempt at the same Pod does, which is still under way.
    bed.api.change("services", NAME, |service| {
        let record = &mut service["metadata"]["annotations"]["podcradle.dev/record"];
        let text = record.as_str().unwrap_or_default();
        let mut other: Value = serde_json::from_str(text).unwrap_or_default();
        other["attempt"] = json!("another");
        *record = json!(other.to_string());
    });
    bed.api.run_all(going_well());
    let failure = failed(wait(launch)?)?;
    ensure!(failure.reason == Reason::TakenOver, "{failure:?}");
    let there = bed.api.objects();
    ensure!(there.len() == 3, "there are: {there:?}");
    Ok(())
}

fn stripped() -> Outcome {
    let bed = Bed::well()?;
    bed.api.admission(|resource, object| {
        if resource == "pods" {
            object["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
        }
    });
    let failure = failed(bed.launch()?)?;
    ensure!(failure.reason == Reason::AdmissionChanged, "{failure:?}");
    ensure!(
        failure.message.contains("securityContext"),
        "{}",
        failure.message
    );
    ensure!(
        !bed.api.calls().contains(&"PATCH pods".to_owned()),
        "the Pod was let run: {:?}",
        bed.api.calls()
    );
    ensure!(
        bed.api.objects().is_empty(),
        "left: {:?}",
        bed.api.objects()
    );
    Ok(())
}

/// Not the Pod's own words: it is changed, it is deleted, its watch is refused.
fn evidence() -> Outcome {
    type Ends = fn(&Bed);
    let ends: [(Reason, Ends); 4] = [
        (Reason::AdmissionChanged, |bed| {
            bed.api.admission(|resource, object| {
                if resource == "pods" {
                    object["spec"]["securityContext"] = Value::Null;
                }
            });
        }),
        (Reason::Denied, |bed| {
            bed.api.script(|_, seen| match seen.verb.as_str() {
                "WATCH" => Fault::Denied,
                _ => Fault::None,
            });
        }),
        (Reason::Policy, |bed| {
            bed.api.script(once("POST", "secrets", Fault::Refuse(403)));
        }),
        (Reason::DeletedBySomeone, |_| ()),
    ];
    for (reason, end) in ends {
        let bed = Bed::new(Vec::new())?;
        let event = json!({
            "metadata": { "name": "odd" }, "involvedObject": {},
            "type": "Warning", "reason": "Odd", "message": "it is odd",
        });
        bed.api.put("events", event);
        end(&bed);
        let launch = bed.launcher.launch(spec(), Token::random())?;
        if reason == Reason::DeletedBySomeone {
            bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
            bed.api.remove("pods", NAME);
        }
        let failure = failed(wait(launch)?)?;
        ensure!(failure.reason == reason, "{failure:?}");
        let told = failure.events == ["Warning Odd: it is odd"];
        ensure!(told && failure.unread.is_empty(), "{failure:?}");
        ensure!(
            bed.api.objects().len() == 1,
            "left: {:?}",
            bed.api.objects()
        );
    }
    Ok(())
}

fn clone_fails_bed() -> Result<Bed, podcradle_tests::harness::Stop> {
    Bed::new(clone_failed())
}

fn clone_failed() -> Vec<Value> {
    let ended = json!({ "terminated": { "exitCode": 128, "reason": "Error" } });
    vec![status(
        &ended,
        &json!({ "waiting": { "reason": "PodInitializing" } }),
    )]
}

/// The Secret is that of an earlier attempt, which was killed.
fn not_alone() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let mut spec = spec();
    spec.keep_on_failure = true;
    let first = bed.launcher.launch(spec.clone(), token()?)?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    let another = bed.another()?;
    let second = another.launch(spec, token()?)?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 2)?;
    bed.api.run_all(clone_failed());
    let failure = failed(wait(second)?)?;
    ensure!(
        failure.reason == Reason::InitFailed && failure.cleaned_up,
        "{failure:?}"
    );
    let pods = bed.api.objects().iter().any(|o| o.starts_with("pods/"));
    ensure!(!pods, "kept with its token: {:?}", bed.api.objects());
    drop(first);
    Ok(())
}

fn clone_fails() -> Outcome {
    let bed = clone_fails_bed()?;
    let failure = failed(bed.launch()?)?;
    ensure!(failure.reason == Reason::InitFailed, "{failure:?}");
    ensure!(
        failure.log.as_deref() == Some("a line of the log\n"),
        "{failure:?}"
    );
    ensure!(
        failure.cleaned_up && bed.api.objects().is_empty(),
        "left: {:?}",
        bed.api.objects()
    );
    let calls = bed.api.calls();
    let at = |call: &str| calls.iter().position(|c| c == call);
    ensure!(
        at("GET pods/log") < at("DELETE services"),
        "evidence after the deletion: {calls:?}"
    );
    ensure!(
        at("DELETE services") < at("DELETE pods"),
        "the anchor goes first: {calls:?}"
    );
    Ok(())
}

fn kept() -> Outcome {
    let bed = clone_fails_bed()?;
    let mut spec = spec();
    spec.keep_on_failure = true;
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(!failure.cleaned_up, "{failure:?}");
    ensure!(failure.hint.contains("kept for an hour"), "{failure:?}");
    let left = [format!("pods/{NAME}"), format!("services/{NAME}")];
    ensure!(bed.api.objects() == left, "left: {:?}", bed.api.objects());
    Ok(())
}

/// A Secret that was refused for good is not there: nothing of it is deleted,
/// and it is in the way of nothing that is to be kept.
fn no_token(code: u16) -> Outcome {
    for keep in [true, false] {
        let bed = Bed::well()?;
        bed.api.script(once("POST", "secrets", Fault::Refuse(code)));
        let mut spec = spec();
        spec.keep_on_failure = keep;
        let failure = failed(bed.launch_spec(spec)?)?;
        ensure!(failure.left.is_empty(), "{failure:?}");
        let said = failure.hint.contains("kept for an hour");
        ensure!(said == keep, "{failure:?}");
        ensure!(failure.cleaned_up != keep, "{failure:?}");
        let calls = bed.api.calls();
        let deleted = calls.contains(&"DELETE secrets".to_owned());
        ensure!(!deleted, "calls: {calls:?}");
        let left = [format!("pods/{NAME}"), format!("services/{NAME}")];
        let left = if keep { &left[..] } else { &[] };
        ensure!(bed.api.objects() == left, "left: {:?}", bed.api.objects());
    }
    Ok(())
}

fn not_kept() -> Outcome {
    let bed = clone_fails_bed()?;
    bed.api
        .script(once("PATCH", "services", Fault::Refuse(403)));
    let mut spec = spec();
    spec.keep_on_failure = true;
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(!failure.left.is_empty(), "{failure:?}");
    ensure!(!failure.hint.contains("kept for an hour"), "{failure:?}");
    Ok(())
}

fn named() -> Outcome {
    let bed = clone_fails_bed()?;
    bed.api.script(
        |_, seen| match (seen.verb.as_str(), seen.resource.as_str()) {
            ("DELETE", "pods") => Fault::Refuse(403),
            _ => Fault::None,
        },
    );
    let failure = failed(bed.launch()?)?;
    ensure!(!failure.cleaned_up, "{failure:?}");
    ensure!(
        failure
            .left
            .iter()
            .any(|line| line.contains("pods") && line.contains(NAME)),
        "{:?}",
        failure.left
    );
    Ok(())
}
