//! A launch into a shared session, interrupted and refused at every request.

use podcradle_launcher::spec::Wait;
use podcradle_launcher::token::Token;
use podcradle_launcher::{Outcome as Launch, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::{Value, json};

use super::super::again::token;
use super::super::ambiguous::once;
use super::super::cancel::hold;
use super::super::many::all;
use super::super::support::{Bed, NAME, failed, launched, wait};
use super::{TEAM, annotation, inside, named, open, session_alone};

/// Pod, Secret, gate, watch, hand-over.
pub const REQUESTS: usize = 5;

pub fn add(suite: &mut Suite) {
    suite.test(
        "a_launch_into_a_session_is_a_write_less_and_reads_nothing",
        counted,
    );
    suite.test("many_launches_into_a_session_read_it_once", read_once);
    suite.test(
        "a_session_that_is_not_there_is_not_asked_for_by_each_of_many",
        not_there,
    );
    for nth in 0..REQUESTS {
        for (word, fault) in [("done", Fault::DoneButSilent), ("not_done", Fault::Silent)] {
            suite.test(
                format!(
                    "a_launch_into_a_session_dropped_at_request_{nth}_{word}_leaves_the_session"
                ),
                move || stopped(nth, fault, false),
            );
            suite.test(
                format!(
                    "a_launch_into_a_session_cancelled_at_request_{nth}_{word}_leaves_the_session"
                ),
                move || stopped(nth, fault, true),
            );
        }
    }
    for (verb, resource, nth) in [
        ("POST", "pods", 1),
        ("POST", "secrets", 1),
        ("PATCH", "pods", 1),
        ("PATCH", "pods", 2),
    ] {
        for (word, fault) in [
            ("lost_answer", Fault::DoneButSay(500)),
            ("reset", Fault::DoneButReset),
            ("429", Fault::Refuse(429)),
            ("conflict", Fault::Refuse(409)),
        ] {
            // A Pod whose gate comes off is patched by place alone.
            if fault == Fault::Refuse(409) && (verb, nth) == ("PATCH", 1) {
                continue;
            }
            suite.test(
                format!("a_{word}_at_{verb}_{nth}_of_{resource}_in_a_session_is_survived"),
                move || survives(verb, resource, nth, fault),
            );
        }
    }
    suite.test(
        "a_sandbox_in_a_session_that_is_deleted_alone_says_so",
        || {
            let bed = Bed::new(Vec::new())?;
            open(&bed)?;
            let launch = bed.launcher.launch(inside(), token()?)?;
            bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
            bed.api.remove("pods", NAME);
            let failure = failed(wait(launch)?)?;
            ensure!(failure.reason == Reason::DeletedBySomeone, "{failure:?}");
            ensure!(!failure.message.contains(TEAM), "{failure:?}");
            Ok(())
        },
    );
    suite.test("a_kept_failure_in_a_session_has_an_hour", kept);
    suite.test("a_pod_of_someone_elses_is_left_alone", taken);
    suite.test(
        "a_webhook_that_takes_the_record_away_leaves_nothing",
        || {
            let bed = Bed::well()?;
            open(&bed)?;
            let before = bed.api.object("services", TEAM);
            bed.api.admission(|resource, object| {
                if resource == "pods" {
                    object["metadata"]["annotations"] = Value::Null;
                }
            });
            let failure = failed(bed.launch_spec(inside())?)?;
            ensure!(failure.message.contains("record"), "{failure:?}");
            session_alone(&bed, &before)
        },
    );
    suite.test(
        "a_sandbox_in_a_session_that_nobody_read_of_is_deleted",
        unread,
    );
}

fn counted() -> Outcome {
    let bed = Bed::well()?;
    let session = open(&bed)?;
    let anchor = bed.api.object("services", TEAM);
    bed.api.script(|_, _| Fault::None);
    let done = launched(bed.launch_spec(inside())?)?;
    ensure!(
        done.session == TEAM && done.expires == session.expires,
        "{done:?}"
    );
    let launch = [
        "POST pods",
        "POST secrets",
        "PATCH pods",
        "WATCH pods",
        "PATCH pods",
    ];
    // The first launch of a process learns which session that is.
    let calls = bed.api.calls();
    ensure!(
        calls == [&["GET services"], &launch[..]].concat(),
        "{calls:?}"
    );
    bed.api.script(|_, _| Fault::None);
    launched(bed.launch_spec(named("podcradle-second-000000"))?)?;
    ensure!(bed.api.calls() == launch, "calls: {:?}", bed.api.calls());
    ensure!(
        bed.api.object("services", TEAM) == anchor,
        "the session was written to"
    );

    let pod = bed.api.object("pods", NAME);
    let owners = &pod["metadata"]["ownerReferences"];
    ensure!(owners.as_array().map(Vec::len) == Some(1), "{owners}");
    ensure!(owners[0]["uid"] == anchor["metadata"]["uid"], "{owners}");
    let labels = &pod["metadata"]["labels"];
    ensure!(
        labels["podcradle.dev/session"] == TEAM && labels["podcradle.dev/sandbox"] == NAME,
        "{labels}"
    );
    ensure!(
        annotation(&pod, "expires").is_null(),
        "not handed over: {pod}"
    );
    let record: Value = serde_json::from_str(annotation(&pod, "record").as_str().unwrap_or(""))?;
    let secret = bed.api.object("secrets", &format!("{NAME}-g1-token"));
    ensure!(
        record["operation"].is_null() && record["secretUid"] == secret["metadata"]["uid"],
        "{record}"
    );
    ensure!(
        secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"],
        "{secret}"
    );
    Ok(())
}

fn twenty(bed: &Bed) -> Result<Vec<Launch>, Stop> {
    let orders = (0..20).map(|nth| {
        (
            named(&format!("podcradle-many-{nth:06}")),
            Token::random(),
            false,
        )
    });
    all(bed.launcher.launch_many(orders.collect(), 20)?)
}

/// Those that wait while one asks have its answer; one may have come later.
fn not_there() -> Outcome {
    let bed = Bed::well()?;
    for outcome in twenty(&bed)? {
        let failure = failed(outcome)?;
        ensure!(failure.reason == Reason::Session, "{failure:?}");
    }
    let calls = bed.api.calls();
    ensure!(calls.len() < 5, "{calls:?}");
    ensure!(calls.iter().all(|call| call == "GET services"), "{calls:?}");
    Ok(())
}

fn read_once() -> Outcome {
    let bed = Bed::well()?;
    open(&bed)?;
    bed.api.script(|_, _| Fault::None);
    for outcome in twenty(&bed)? {
        launched(outcome)?;
    }
    let calls = bed.api.calls();
    let count = |call: &str| calls.iter().filter(|one| *one == call).count();
    ensure!(count("GET services") == 1, "{calls:?}");
    ensure!(
        count("POST pods") == 20 && count("PATCH pods") == 40,
        "{calls:?}"
    );
    ensure!(!calls.contains(&"PATCH services".to_owned()), "{calls:?}");
    Ok(())
}

/// A bed whose launcher knows the session, and in it a sandbox of somebody.
fn known() -> Result<(Bed, Vec<String>), Stop> {
    let bed = Bed::well()?;
    open(&bed)?;
    launched(bed.launch_spec(named("podcradle-other-000000"))?)?;
    let before = bed.api.objects();
    Ok((bed, before))
}

fn stopped(nth: usize, fault: Fault, cancel: bool) -> Outcome {
    let (bed, before) = known()?;
    let anchor = bed.api.object("services", TEAM);
    let mut held = hold(&bed, nth, fault);
    let mut launch = bed.launcher.launch(inside(), Token::random())?;
    wait(held.recv())?.ok_or("the request never came")?;
    if cancel {
        launch.cancel();
        let failure = failed(wait(launch)?)?;
        ensure!(
            failure.reason == Reason::Cancelled && failure.cleaned_up,
            "{failure:?}"
        );
    } else {
        drop(launch);
        bed.shut_down()?;
    }
    let pod = bed.api.object("pods", NAME);
    ensure!(pod.is_null(), "its Pod is left");
    // A Secret whose answer never came is the collector's, after its Pod.
    if nth != 1 {
        ensure!(bed.api.objects() == before, "{:?}", bed.api.objects());
    }
    bed.api.collect();
    ensure!(bed.api.objects() == before, "{:?}", bed.api.objects());
    ensure!(
        bed.api.object("services", TEAM) == anchor,
        "the session was touched"
    );
    Ok(())
}

fn survives(verb: &'static str, resource: &'static str, at: usize, fault: Fault) -> Outcome {
    let (bed, before) = known()?;
    let mut nth = 0;
    bed.api.script(move |_, seen| {
        let it = seen.verb == verb && seen.resource == resource;
        nth += usize::from(it);
        if it && nth == at { fault } else { Fault::None }
    });
    let done = launched(bed.launch_spec(inside())?)?;
    let mut expected = before;
    expected.extend([format!("pods/{NAME}"), format!("secrets/{NAME}-g1-token")]);
    expected.sort();
    ensure!(bed.api.objects() == expected, "{:?}", bed.api.objects());
    let pod = bed.api.object("pods", NAME);
    ensure!(pod["metadata"]["uid"] == done.pod_uid, "another Pod: {pod}");
    ensure!(
        annotation(&pod, "expires").is_null(),
        "not handed over: {pod}"
    );
    Ok(())
}

fn kept() -> Outcome {
    let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let ended = json!({ "terminated": { "exitCode": 7, "reason": "Error" } });
    let bed = Bed::new(vec![status(&done, &ended)])?;
    open(&bed)?;
    let before = bed.api.object("services", TEAM);
    let mut spec = inside();
    spec.keep_on_failure = true;
    // In the middle of it the kubelet writes.
    bed.api.script(once("PATCH", "pods", Fault::Refuse(429)));
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(failure.reason == Reason::HostEnded, "{failure:?}");
    ensure!(
        !failure.cleaned_up && failure.left.is_empty(),
        "{failure:?}"
    );
    let there = bed.api.objects();
    ensure!(
        there == [format!("pods/{NAME}"), format!("services/{TEAM}")],
        "{there:?}"
    );
    let expires = annotation(&bed.api.object("pods", NAME), "expires");
    let expires: jiff::Timestamp = expires.as_str().unwrap_or_default().parse()?;
    let kept = expires.duration_since(jiff::Timestamp::now()).as_secs();
    ensure!((3000..=3600).contains(&kept), "kept for {kept} s");
    ensure!(
        bed.api.object("services", TEAM) == before,
        "the session was touched"
    );
    Ok(())
}

fn taken() -> Outcome {
    let bed = Bed::well()?;
    open(&bed)?;
    let theirs = json!({
        "metadata": { "name": NAME, "labels": { "podcradle.dev/session": TEAM } },
        "spec": { "containers": [] },
    });
    bed.api.put("pods", theirs);
    let before = bed.api.object("pods", NAME);
    let failure = failed(bed.launch_spec(inside())?)?;
    ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
    let done = launched(wait(bed.launcher.launch_generated(inside(), token()?)?)?)?;
    ensure!(
        done.sandbox != NAME && done.sandbox.starts_with("podcradle-faults-"),
        "{done:?}"
    );
    ensure!(bed.api.object("pods", NAME) == before, "it was touched");
    Ok(())
}

fn unread() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    open(&bed)?;
    let before = bed.api.object("services", TEAM);
    let mut spec = inside();
    spec.wait = Wait::None;
    let mut launch = bed.launcher.launch(spec, Token::random())?;
    let mut events = launch.events().ok_or("no events")?;
    wait(async { while events.recv().await.is_some() {} })?;
    launch.cancel();
    let outcome = wait(launch)?;
    ensure!(
        matches!(&outcome, Launch::Failed(failure) if failure.cleaned_up),
        "{outcome:?}"
    );
    session_alone(&bed, &before)
}
