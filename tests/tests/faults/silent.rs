//! An API server that takes a request and never answers: a try has ten seconds,
//! whether it was done or not, and nothing is made twice. One that falls silent
//! for good holds nobody up for longer than a clean-up may take.

use podcradle_launcher::token::Token;
use podcradle_launcher::{Launch, Launcher, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, Seen, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::json;

use super::ambiguous::{WHOLE, once};
use super::support::{Bed, NAME, failed, launched, spec, wait};

pub fn add(suite: &mut Suite) {
    suite.test(
        "a_request_that_is_never_answered_is_tried_again",
        unanswered,
    );
    suite.test("a_read_that_is_never_answered_is_tried_again", unread);
    suite.test(
        "a_server_that_falls_silent_holds_up_no_clean_up_for_ever",
        falls_silent,
    );
    suite.test(
        "an_anchor_that_cannot_be_deleted_keeps_nobody_from_its_pod",
        anchor_silent,
    );
}

/// What each request and fault must come to: all calls, in their order.
const TRIES: [(&str, &str, &[&str], &[&str]); 6] = [
    // Request, then the calls in its place when it was done and when it was not.
    (
        "POST",
        "services",
        &["POST services", "GET services"],
        &["POST services", "GET services", "POST services"],
    ),
    (
        "POST",
        "pods",
        &["POST pods", "GET pods"],
        &["POST pods", "GET pods", "POST pods"],
    ),
    // Nobody may read it: a deletion that is not done tells whose it is.
    (
        "POST",
        "secrets",
        &["POST secrets", "POST secrets", "DRY-DELETE secrets"],
        &["POST secrets", "POST secrets"],
    ),
    (
        "PATCH",
        "pods",
        &["PATCH pods", "PATCH pods", "GET pods"],
        &["PATCH pods", "PATCH pods"],
    ),
    (
        "WATCH",
        "pods",
        &["WATCH pods", "WATCH pods"],
        &["WATCH pods", "WATCH pods"],
    ),
    (
        "PATCH",
        "services",
        &[
            "PATCH services",
            "PATCH services",
            "GET services",
            "PATCH services",
        ],
        &["PATCH services", "PATCH services"],
    ),
];

/// All at once, since each takes the time of a try.
fn unanswered() -> Outcome {
    let mut begun = Vec::new();
    for (verb, resource, done, not_done) in TRIES {
        for (fault, tries) in [(Fault::DoneButSilent, done), (Fault::Silent, not_done)] {
            let bed = Bed::well()?;
            bed.api.script(once(verb, resource, fault));
            let launch = bed.launcher.launch(spec(), Token::random())?;
            begun.push((
                format!("{fault:?} at {verb} {resource}"),
                bed,
                launch,
                tries,
            ));
        }
    }
    for (what, bed, launch, tries) in begun {
        let done = launched(wait(launch)?).map_err(|stop| format!("{what}: {stop:?}"))?;
        let expected: Vec<_> = TRIES
            .iter()
            .flat_map(|(verb, resource, ..)| {
                let call = format!("{verb} {resource}");
                if tries[0] == call {
                    tries.iter().map(|&call| call.to_owned()).collect()
                } else {
                    vec![call]
                }
            })
            .collect();
        // Without an answer for so long the Pod may be read when it runs already.
        let without = |calls: Vec<String>| {
            let other = |call: &String| tries[0].starts_with("WATCH") || call != "WATCH pods";
            calls.into_iter().filter(other).collect::<Vec<_>>()
        };
        let calls = without(bed.api.calls());
        ensure!(calls == without(expected), "{what}: {calls:?}");
        ensure!(
            bed.api.objects() == WHOLE,
            "{what}: {:?}",
            bed.api.objects()
        );
        let pod = bed.api.object("pods", NAME);
        let anchor = bed.api.object("services", NAME);
        let secret = bed.api.object("secrets", &format!("{NAME}-g1-token"));
        ensure!(pod["metadata"]["uid"] == *done.pod_uid, "{what}: {done:?}");
        for (owned, owner) in [(&pod, &anchor), (&secret, &pod)] {
            let by = &owned["metadata"]["ownerReferences"][0]["uid"];
            ensure!(*by == owner["metadata"]["uid"], "{what}: owned by {by}");
        }
        ensure!(
            pod["spec"]["schedulingGates"][0].is_null(),
            "{what}: its gate is on"
        );
        let record = &anchor["metadata"]["annotations"]["podcradle.dev/record"];
        let record = record.as_str().unwrap_or_default();
        ensure!(
            !record.contains("operation"),
            "{what}: not handed over: {record}"
        );
    }
    Ok(())
}

/// The reads that follow a doubt, a conflict, and a watch whose place is gone.
fn unread() -> Outcome {
    let mut begun = Vec::new();
    for (verb, resource, fault) in [
        ("POST", "services", Fault::DoneButSay(500)),
        ("POST", "pods", Fault::DoneButSay(500)),
        ("PATCH", "pods", Fault::DoneButSay(500)),
        ("WATCH", "pods", Fault::Refuse(410)),
        ("PATCH", "services", Fault::DoneButSay(500)),
    ] {
        let bed = Bed::well()?;
        let mut first = once(verb, resource, fault);
        let mut then = once("GET", resource, Fault::Silent);
        bed.api
            .script(move |nth, seen: &Seen| match first(nth, seen) {
                Fault::None => then(nth, seen),
                fault => fault,
            });
        let launch = bed.launcher.launch(spec(), Token::random())?;
        begun.push((format!("{verb} {resource}"), bed, launch));
    }
    for (what, bed, launch) in begun {
        launched(wait(launch)?).map_err(|stop| format!("{what}: {stop:?}"))?;
        let calls = bed.api.calls();
        let read = calls.iter().any(|call| call.starts_with("GET "));
        ensure!(read, "{what}: nothing was read: {calls:?}");
        ensure!(
            bed.api.objects() == WHOLE,
            "{what}: {:?}",
            bed.api.objects()
        );
    }
    Ok(())
}

/// A launch whose Pod waits for its node.
fn under_way() -> Result<(Bed, Launch), Stop> {
    let bed = Bed::new(Vec::new())?;
    let launch = bed.launcher.launch(spec(), Token::random())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    Ok((bed, launch))
}

/// By a cancel, and by a shutdown; with it done each time, and never.
fn falls_silent() -> Outcome {
    let mut ways = Vec::new();
    for fault in [Fault::Silent, Fault::DoneButSilent] {
        for shut_down in [false, true] {
            let (bed, mut launch) = under_way()?;
            bed.api.script(move |_, _| fault);
            let end: futures::future::BoxFuture<'static, ()> = if shut_down {
                let launcher: Launcher = bed.launcher.clone();
                Box::pin(async move { launcher.shutdown().await })
            } else {
                launch.cancel();
                Box::pin(std::future::ready(()))
            };
            ways.push((fault, bed, launch, end));
        }
    }
    let (beds, ends): (Vec<_>, Vec<_>) = ways
        .into_iter()
        .map(|(fault, bed, launch, end)| {
            let end = async move {
                end.await;
                launch.await
            };
            ((fault, bed), end)
        })
        .unzip();
    let ended = wait(futures::future::join_all(ends))?;
    for ((fault, bed), outcome) in beds.into_iter().zip(ended) {
        let failure = failed(outcome)?;
        ensure!(
            failure.reason == Reason::Cancelled && !failure.cleaned_up,
            "{fault:?}: {failure:?}"
        );
        for resource in ["services", "pods", "secrets"] {
            let named = |left: &String| left.contains(resource) && left.contains(NAME);
            ensure!(
                failure.left.iter().any(named),
                "{fault:?}: {resource} may be there: {failure:?}"
            );
            let delete = format!("DELETE {resource}");
            let calls = bed.api.calls();
            ensure!(calls.contains(&delete), "no {delete}: {calls:?}");
        }
    }
    Ok(())
}

/// Nobody ever answers for the anchor, whether it is to be deleted or kept; what
/// hangs below it goes all the same, the token before all.
fn anchor_silent() -> Outcome {
    let silent = |verb: &'static str| {
        move |_: usize, seen: &Seen| match (seen.verb.as_str(), seen.resource.as_str()) {
            (of, "services") if of == verb => Fault::Silent,
            _ => Fault::None,
        }
    };
    let (deleted, mut cancelled) = under_way()?;
    deleted.api.script(silent("DELETE"));
    cancelled.cancel();
    let kept = Bed::new(Vec::new())?;
    kept.api.script(silent("PATCH"));
    let ended = json!({ "terminated": { "exitCode": 128, "reason": "Error" } });
    kept.api.kubelet(vec![status(&ended, &json!({}))]);
    let mut keep = spec();
    keep.keep_on_failure = true;
    let fails = kept.launcher.launch(keep, Token::random())?;
    let outcomes = wait(futures::future::join(cancelled, fails))?;
    let (anchor, pod) = (format!("services/{NAME}"), format!("pods/{NAME}"));
    for (bed, outcome, there) in [
        (deleted, outcomes.0, vec![anchor.clone()]),
        (kept, outcomes.1, vec![pod, anchor]),
    ] {
        let failure = failed(outcome)?;
        ensure!(!failure.cleaned_up, "{failure:?}");
        ensure!(
            failure.left.len() == 1 && failure.left[0].contains("services"),
            "{failure:?}"
        );
        ensure!(bed.api.objects() == there, "left: {:?}", bed.api.objects());
    }
    Ok(())
}
