//! A launch again with the same launch id is the same launch, whatever became
//! of the first: one sandbox or none at the end, and nothing beside it.

use podcradle_launcher::spec::{NetworkPolicy, Wait};
use podcradle_launcher::token::Token;
use podcradle_launcher::{Launched, Outcome as Launch, Reason, SandboxSpec};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, going_well, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::{Value, json};

use super::ambiguous::once;
use super::cancel::{REQUESTS, hold};
use super::many::all as all_of;
use super::support::{Bed, NAME, failed, launched, wait};

pub fn add(suite: &mut Suite) {
    suite.test("a_launch_again_returns_the_same_sandbox", the_same);
    suite.test("a_launch_again_with_another_token_is_refused", other_token);
    suite.test("a_launch_again_whose_pod_is_gone_is_refused", without_pod);
    suite.test("a_launch_again_under_another_policy_is_refused", narrower);
    suite.test(
        "a_launch_again_waits_for_an_anchor_that_is_being_deleted",
        going,
    );
    suite.test("a_pod_of_before_is_waited_for", pod_of_before);
    suite.test("a_generated_name_that_is_taken_gets_another_suffix", || {
        let bed = Bed::well()?;
        bed.api
            .put("services", json!({ "metadata": { "name": NAME } }));
        let done = launched(wait(bed.launcher.launch_generated(spec(), token()?)?)?)?;
        ensure!(
            done.sandbox != NAME && done.sandbox.starts_with("podcradle-faults-"),
            "{done:?}"
        );
        ensure!(bed.api.objects().len() == 4, "{:?}", bed.api.objects());
        Ok(())
    });
    for nth in 0..REQUESTS {
        for (word, fault) in [("done", Fault::DoneButSilent), ("not_done", Fault::Silent)] {
            suite.test(
                format!("a_second_launch_takes_over_from_one_stuck_at_request_{nth}_{word}"),
                move || takes_over(nth, fault),
            );
        }
    }
    suite.test(
        "launches_of_one_id_at_the_same_time_make_one_sandbox",
        at_once,
    );
    suite.test("an_adoption_whose_answer_is_lost_counts", lost_adoption);
    suite.test(
        "a_sandbox_whose_adoption_was_not_answered_is_not_made_anew",
        lost_adoption_of_done,
    );
    suite.test(
        "the_policy_of_an_anchor_of_before_is_waited_for",
        policy_of_before,
    );
    for (word, done) in [("done", true), ("under_way", false)] {
        suite.test(
            format!("a_pod_that_runs_before_it_is_watched_is_seen_when_the_launch_was_{word}"),
            move || runs_before(done),
        );
    }
    suite.test(
        "two_launches_of_one_process_may_wait_for_the_same_pod",
        both_wait,
    );
    suite.test(
        "a_launch_again_that_fails_says_that_the_sandbox_stays",
        it_stays,
    );
    suite.test("an_anchor_that_never_goes_is_named", never_goes);
}

/// A token that the caller brings, the same each time.
pub fn token() -> Result<Token, Stop> {
    Ok(Token::read("the test", &b"the-callers-own"[..])?)
}

/// With one launch id for all launches.
fn spec() -> SandboxSpec {
    SandboxSpec {
        launch_id: "the-same".to_owned(),
        ..super::support::spec()
    }
}

fn again(bed: &Bed) -> Result<Launch, Stop> {
    wait(bed.launcher.launch(spec(), token()?)?)
}

fn the_same() -> Outcome {
    let bed = Bed::well()?;
    let first = launched(again(&bed)?)?;
    ensure!(!first.adopted, "{first:?}");
    let before = all(&bed);
    bed.api.script(|_, _| Fault::None);
    let second = launched(again(&bed)?)?;
    ensure!(
        second.adopted && second.pod_uid == first.pod_uid && second.expires == first.expires,
        "{second:?}"
    );
    // The second answers for it now, so that the first cannot take it away.
    let calls = bed.api.calls();
    let expected = [
        "POST services",
        "GET services",
        "GET pods",
        "PATCH services",
        "GET pods",
    ];
    ensure!(calls == expected, "calls: {calls:?}");
    ensure!(all(&bed)[..2] == before[..2], "Pod or Secret was changed");
    whole(&bed, &second)
}

fn all(bed: &Bed) -> Vec<Value> {
    let names = bed.api.objects();
    let split = names.iter().filter_map(|name| name.split_once('/'));
    split
        .map(|(kind, name)| bed.api.object(kind, name))
        .collect()
}

fn other_token() -> Outcome {
    let bed = Bed::well()?;
    launched(again(&bed)?)?;
    let before = all(&bed);
    let failure = failed(bed.launch_spec(spec())?)?;
    ensure!(failure.reason == Reason::AlreadyLaunched, "{failure:?}");
    let other = Token::read("the test", &b"another-of-the-callers"[..])?;
    let failure = failed(wait(bed.launcher.launch(spec(), other)?)?)?;
    ensure!(failure.reason == Reason::AlreadyLaunched, "{failure:?}");
    ensure!(all(&bed) == before, "something was changed");
    let text = before.iter().filter(|made| made["data"].is_null());
    let text = text.map(Value::to_string).collect::<String>();
    ensure!(!text.contains("the-callers-own"), "the token: {text}");
    // Nobody wants to know this one.
    let same = launched(wait(bed.launcher.launch(spec(), Token::untold())?)?)?;
    ensure!(same.adopted, "{same:?}");

    // Nobody knows the one of this sandbox.
    let bed = Bed::well()?;
    launched(wait(bed.launcher.launch(spec(), Token::untold())?)?)?;
    let failure = failed(again(&bed)?)?;
    ensure!(failure.reason == Reason::AlreadyLaunched, "{failure:?}");
    Ok(())
}

fn without_pod() -> Outcome {
    let bed = Bed::well()?;
    launched(again(&bed)?)?;
    bed.api.remove("pods", NAME);
    let before = all(&bed);
    let failure = failed(again(&bed)?)?;
    ensure!(failure.reason == Reason::AlreadyLaunched, "{failure:?}");
    ensure!(all(&bed) == before, "something was changed");
    Ok(())
}

/// Puts an object there that a finalizer holds, launches, and lets it go once
/// the launch has begun to wait for that.
fn held_up(kind: &'static str, watch: &'static str) -> Outcome {
    let bed = Bed::well()?;
    bed.api.put(
        kind,
        json!({
            "metadata": { "name": NAME, "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [] },
        }),
    );
    let (told, mut came) = tokio::sync::mpsc::unbounded_channel();
    bed.api.script(move |_, seen| {
        if format!("{} {}", seen.verb, seen.resource) == watch {
            let _ = told.send(());
        }
        Fault::None
    });
    let launch = bed.launcher.launch(spec(), token()?)?;
    wait(came.recv())?.ok_or("it did not wait")?;
    bed.api.remove(kind, NAME);
    let done = launched(wait(launch)?)?;
    ensure!(done.generation == 1 && !done.adopted, "{done:?}");
    ensure!(bed.api.objects().len() == 3, "{:?}", bed.api.objects());
    Ok(())
}

fn going() -> Outcome {
    held_up("services", "WATCH services")
}

fn pod_of_before() -> Outcome {
    held_up("pods", "WATCH pods")
}

/// The first launch hangs, the second one comes; then the first is cancelled,
/// and what it cleans up is not the second's.
fn takes_over(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, nth, fault);
    let first = bed.launcher.launch(spec(), token()?)?;
    wait(held.recv())?.ok_or("the request never came")?;
    let done = launched(again(&bed)?)?;
    // A Service that was not made is nothing to adopt.
    let adopts = nth > 0 || fault == Fault::DoneButSilent;
    ensure!(done.adopted == adopts, "{done:?}");
    drop(first);
    bed.shut_down()?;
    whole(&bed, &done)
}

/// The sandbox of that result, and nothing beside it once the collector has
/// been there.
fn whole(bed: &Bed, done: &Launched) -> Outcome {
    bed.api.collect();
    let mut expected = vec![
        format!("pods/{NAME}"),
        format!("secrets/{NAME}-g{}-token", done.generation),
        format!("services/{NAME}"),
    ];
    expected.sort();
    ensure!(
        bed.api.objects() == expected,
        "there are {:?}, launched {done:?}",
        bed.api.objects()
    );
    let pod = bed.api.object("pods", NAME);
    ensure!(pod["metadata"]["uid"] == done.pod_uid, "another Pod: {pod}");
    let anchor = bed.api.object("services", NAME);
    let record = anchor["metadata"]["annotations"]["podcradle.dev/record"].as_str();
    let record: Value = serde_json::from_str(record.unwrap_or_default())?;
    ensure!(
        record["generation"] == done.generation && record["operation"].is_null(),
        "the record says {record}"
    );
    Ok(())
}

fn at_once() -> Outcome {
    for _ in 0..25 {
        let bed = Bed::well()?;
        let others = [bed.another()?, bed.another()?];
        let launches = [
            bed.launcher.launch(spec(), token()?)?,
            others[0].launch(spec(), token()?)?,
            others[1].launch(spec(), token()?)?,
        ];
        let outcomes = wait(futures::future::join_all(launches))?;
        let done: Vec<_> = outcomes
            .into_iter()
            .filter_map(|outcome| launched(outcome).ok())
            .collect();
        bed.api.collect();
        // Those that succeeded mean the same Pod.
        if let Some(one) = done.last() {
            let same = done.iter().all(|other| other.pod_uid == one.pod_uid);
            ensure!(same, "two sandboxes: {done:?}");
            whole(&bed, one)?;
        } else {
            let left = bed.api.objects();
            ensure!(left.is_empty(), "no sandbox, but {left:?}");
        }
    }
    Ok(())
}

fn lost_adoption() -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, 1, Fault::Silent);
    let first = bed.launcher.launch(spec(), token()?)?;
    wait(held.recv())?.ok_or("the request never came")?;
    bed.api
        .script(once("PATCH", "services", Fault::DoneButSay(500)));
    let done = launched(again(&bed)?)?;
    drop(first);
    bed.shut_down()?;
    ensure!(done.generation == 2, "{done:?}");
    whole(&bed, &done)
}

/// Else the creation that follows would be one to clean up after.
fn lost_adoption_of_done() -> Outcome {
    let bed = Bed::well()?;
    launched(again(&bed)?)?;
    let before = all(&bed);
    bed.api
        .script(once("PATCH", "services", Fault::DoneButSay(500)));
    let second = launched(again(&bed)?)?;
    ensure!(second.adopted, "{second:?}");
    let calls = bed.api.calls();
    let creations = calls.iter().filter(|call| *call == "POST services");
    ensure!(creations.count() == 1, "calls: {calls:?}");
    ensure!(all(&bed)[..2] == before[..2], "Pod or Secret was changed");
    whole(&bed, &second)
}

/// Its anchor is gone, and the collector has not come yet.
fn policy_of_before() -> Outcome {
    let bed = Bed::well()?;
    let mut spec = spec();
    spec.network_policy = Some(NetworkPolicy::default());
    let owner = json!([{
        "apiVersion": "v1", "kind": "Service", "name": NAME, "uid": "of-before",
    }]);
    let labels = json!({ "podcradle.dev/session": NAME });
    bed.api.put(
        "networkpolicies",
        json!({ "metadata": { "name": NAME, "labels": labels, "ownerReferences": owner } }),
    );
    let launch = bed.launcher.launch(spec, token()?)?;
    bed.api
        .wait_for(|so_far| so_far.calls("GET networkpolicies") > 0)?;
    bed.api.remove("networkpolicies", NAME);
    let done = launched(wait(launch)?)?;
    let policy = bed.api.object("networkpolicies", NAME);
    let anchor = bed.api.object("services", NAME);
    let owner = &policy["metadata"]["ownerReferences"][0]["uid"];
    ensure!(*owner == anchor["metadata"]["uid"], "{policy}, {done:?}");
    Ok(())
}

/// A sandbox that was handed over before its host ran.
fn let_go(bed: &Bed) -> Result<Launched, Stop> {
    let mut spec = spec();
    spec.wait = Wait::None;
    launched(wait(bed.launcher.launch(spec, token()?)?)?)
}

/// Its Pod turns Running after it was read, and before it is asked about in the
/// watch of all, which is past that by then.
fn runs_before(done: bool) -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let first = let_go(&bed)?;
    if !done {
        bed.api.change("services", NAME, |anchor| {
            let annotation = &mut anchor["metadata"]["annotations"]["podcradle.dev/record"];
            let record = annotation.as_str().unwrap_or_default();
            let mut record: Value = serde_json::from_str(record).unwrap_or_default();
            record["operation"] = json!("launch");
            *annotation = json!(record.to_string());
        });
    }
    bed.api.script(once("PATCH", "services", Fault::Hold));
    // With two that wait the watch is one of all Pods.
    let other = |nth: usize| {
        let name = format!("podcradle-others-{nth:06}");
        let launch = SandboxSpec::new(&name, "localhost/image:1");
        let launch = bed.launcher.launch(launch, Token::random())?;
        bed.api.wait_for(|api| api.calls("WATCH pods") == nth)?;
        Ok::<_, Stop>((name, launch))
    };
    let (earlier, _waits) = (other(1)?, other(2)?);
    let again = vec![(spec(), token()?, false)];
    let again = bed.launcher.launch_many(again, 1)?;
    bed.api.wait_for(|api| api.calls("PATCH services") == 1)?;
    bed.run(NAME);
    // Whoever hears of this has heard of the other.
    bed.run(&earlier.0);
    launched(wait(earlier.1)?)?;
    bed.api.release();
    for outcome in all_of(again)? {
        let again = launched(outcome)?;
        ensure!(again.pod_uid == first.pod_uid, "{again:?} after {first:?}");
    }
    Ok(())
}

fn both_wait() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let first = let_go(&bed)?;
    bed.api.script(|_, _| Fault::None);
    let one = bed.launcher.launch(spec(), token()?)?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    let two = bed.launcher.launch(spec(), token()?)?;
    // Each reads it twice.
    bed.api.wait_for(|api| api.calls("GET pods") == 4)?;
    bed.api.run_all(going_well());
    for launch in [one, two] {
        let again = launched(wait(launch)?)?;
        ensure!(again.pod_uid == first.pod_uid, "{again:?} after {first:?}");
    }
    whole(&bed, &first)
}

fn it_stays() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let first = let_go(&bed)?;
    let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let ended = json!({ "terminated": { "exitCode": 7, "reason": "Error" } });
    bed.api.run_all(vec![status(&done, &ended)]);
    let failure = failed(again(&bed)?)?;
    ensure!(failure.reason == Reason::HostEnded, "{failure:?}");
    ensure!(
        !failure.cleaned_up && failure.left.is_empty() && failure.hint.contains("stays"),
        "{failure:?}"
    );
    whole(&bed, &first)
}

/// An attempt that was killed has left its policy; nobody may change it.
fn narrower() -> Outcome {
    let bed = Bed::well()?;
    let mut silent = true;
    bed.api.script(move |_, seen| {
        if seen.verb == "POST" && seen.resource == "pods" && std::mem::take(&mut silent) {
            return Fault::Silent;
        }
        Fault::None
    });
    let with = |egress: &str| {
        let mut spec = spec();
        spec.network_policy = Some(NetworkPolicy {
            egress: vec![egress.to_owned()],
        });
        spec
    };
    let _first = bed.launcher.launch(with("192.0.2.0/24"), token()?)?;
    bed.api.wait_for(|api| api.calls("POST pods") == 1)?;
    let another = bed.another()?;
    let failure = failed(wait(another.launch(with("192.0.2.0/28"), token()?)?)?)?;
    ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
    let policy = format!("networkpolicies {NAME}");
    ensure!(failure.message.contains(&policy), "{failure:?}");
    ensure!(
        bed.api.calls().iter().filter(|c| *c == "POST pods").count() == 1,
        "a Pod was made"
    );
    Ok(())
}

fn never_goes() -> Outcome {
    let bed = Bed::well()?;
    let metadata = json!({ "name": NAME, "deletionTimestamp": "2026-01-01T00:00:00Z" });
    bed.api.put("services", json!({ "metadata": metadata }));
    let mut spec = spec();
    spec.budgets.total = std::time::Duration::from_secs(5);
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(failure.reason == Reason::TimedOut, "{failure:?}");
    ensure!(
        failure.message.contains(&format!("services {NAME}")) && !failure.message.contains("Pod"),
        "{failure:?}"
    );
    Ok(())
}
