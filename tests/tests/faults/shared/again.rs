//! A launch again into a shared session: the same as into one of its own, by
//! the Pod's record.

use std::time::Duration;

use podcradle_launcher::{Launched, Outcome as Launch, Reason};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::{Value, json};

use super::super::again::token;
use super::super::cancel::hold;
use super::super::support::{Bed, NAME, failed, launched, wait};
use super::launch::REQUESTS;
use super::{TEAM, annotation, inside, open};

/// How often the collector comes by.
const COLLECTS: Duration = Duration::from_millis(5);

pub fn add(suite: &mut Suite) {
    suite.test("a_launch_again_in_a_session_is_the_same_sandbox", the_same);
    suite.test(
        "a_launch_again_in_a_session_with_another_token_is_refused",
        || {
            let bed = Bed::well()?;
            open(&bed)?;
            launched(again(&bed)?)?;
            let before = bed.api.object("pods", NAME);
            let failure = failed(bed.launch_spec(inside())?)?;
            ensure!(failure.reason == Reason::AlreadyLaunched, "{failure:?}");
            ensure!(bed.api.object("pods", NAME) == before, "it was changed");
            Ok(())
        },
    );
    // From the Pod on: before it there is nothing to take over.
    for nth in 1..=REQUESTS {
        for (word, fault) in [("done", Fault::DoneButSilent), ("not_done", Fault::Silent)] {
            suite.test(
                format!(
                    "a_second_launch_in_a_session_takes_over_from_one_stuck_at_request_{nth}_{word}"
                ),
                move || takes_over(nth, fault),
            );
        }
    }
    suite.test(
        "an_adoption_in_a_session_whose_answer_is_lost_counts",
        || {
            let bed = Bed::well()?;
            open(&bed)?;
            let mut held = hold(&bed, 2, Fault::Silent);
            let first = bed.launcher.launch(inside(), token()?)?;
            wait(held.recv())?.ok_or("the request never came")?;
            bed.api.script(super::super::ambiguous::once(
                "PATCH",
                "pods",
                Fault::DoneButSay(500),
            ));
            let other = bed.another()?;
            let done = launched(wait(other.launch(inside(), token()?)?)?)?;
            drop(first);
            bed.shut_down()?;
            ensure!(done.generation == 2, "{done:?}");
            whole(&bed, &done)
        },
    );
    suite.test(
        "launches_of_one_id_at_the_same_time_in_a_session_make_one_sandbox",
        at_once,
    );
    suite.test(
        "a_launch_again_in_a_session_that_fails_says_that_the_sandbox_stays",
        || {
            let bed = Bed::well()?;
            open(&bed)?;
            let first = launched(again(&bed)?)?;
            let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
            let ended = json!({ "terminated": { "exitCode": 7, "reason": "Error" } });
            bed.api.run_all(vec![status(&done, &ended)]);
            let failure = failed(again(&bed)?)?;
            ensure!(failure.reason == Reason::HostEnded, "{failure:?}");
            ensure!(
                !failure.cleaned_up && failure.hint.contains("stays"),
                "{failure:?}"
            );
            whole(&bed, &first)
        },
    );
    suite.test("a_pod_of_before_in_a_session_is_waited_for", || {
        let bed = Bed::well()?;
        open(&bed)?;
        bed.api.put(
            "pods",
            json!({
                "metadata": { "name": NAME, "deletionTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "containers": [] },
            }),
        );
        bed.api.script(|_, _| Fault::None);
        let launch = bed.launcher.launch(inside(), token()?)?;
        bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
        bed.api.remove("pods", NAME);
        let done = launched(wait(launch)?)?;
        ensure!(done.generation == 1 && !done.adopted, "{done:?}");
        whole(&bed, &done)
    });
}

fn again(bed: &Bed) -> Result<Launch, Stop> {
    wait(bed.launcher.launch(inside(), token()?)?)
}

fn the_same() -> Outcome {
    let bed = Bed::well()?;
    open(&bed)?;
    let first = launched(again(&bed)?)?;
    bed.api.script(|_, _| Fault::None);
    let second = launched(again(&bed)?)?;
    ensure!(
        second.adopted && second.pod_uid == first.pod_uid && second.expires == first.expires,
        "{second:?} after {first:?}"
    );
    let calls = bed.api.calls();
    let wrote: Vec<_> = calls
        .iter()
        .filter(|call| !call.starts_with("GET"))
        .collect();
    // The second answers for it now, so that the first cannot take it away.
    ensure!(wrote == ["POST pods", "PATCH pods"], "calls: {calls:?}");
    whole(&bed, &second)
}

/// The first launch hangs, the second one comes, from another process; then the
/// first is cancelled, and what it cleans up is not the second's.
fn takes_over(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    open(&bed)?;
    let mut held = hold(&bed, nth, fault);
    let first = bed.launcher.launch(inside(), token()?)?;
    wait(held.recv())?.ok_or("the request never came")?;
    let other = bed.another()?;
    let done = launched(wait(other.launch(inside(), token()?)?)?)?;
    let adopts = nth > 1 || fault == Fault::DoneButSilent;
    ensure!(done.adopted == adopts, "{done:?}");
    drop(first);
    bed.shut_down()?;
    whole(&bed, &done)
}

/// The sandbox of that result, and nothing beside it and its session once the
/// collector has been there.
fn whole(bed: &Bed, done: &Launched) -> Outcome {
    bed.api.collect();
    let expected = [
        format!("pods/{NAME}"),
        format!("secrets/{NAME}-g{}-token", done.generation),
        format!("services/{TEAM}"),
    ];
    let there = bed.api.objects();
    ensure!(there == expected, "there are {there:?}, launched {done:?}");
    let pod = bed.api.object("pods", NAME);
    ensure!(pod["metadata"]["uid"] == done.pod_uid, "another Pod: {pod}");
    let record = annotation(&pod, "record");
    let record: Value = serde_json::from_str(record.as_str().unwrap_or_default())?;
    ensure!(
        record["generation"] == done.generation && record["operation"].is_null(),
        "the record says {record}"
    );
    ensure!(annotation(&pod, "expires").is_null(), "not handed over");
    Ok(())
}

fn at_once() -> Outcome {
    for _ in 0..25 {
        let bed = Bed::well()?;
        open(&bed)?;
        let others = [bed.another()?, bed.another()?];
        let launches = [
            bed.launcher.launch(inside(), token()?)?,
            others[0].launch(inside(), token()?)?,
            others[1].launch(inside(), token()?)?,
        ];
        // A Secret outlives its Pod until the collector comes by.
        let outcomes = wait(async {
            let collects = async {
                loop {
                    bed.api.collect();
                    tokio::time::sleep(COLLECTS).await;
                }
            };
            tokio::select! {
                outcomes = futures::future::join_all(launches) => outcomes,
                () = collects => unreachable!("it never ends"),
            }
        })?;
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Launch::Launched(launched) => done.push(launched),
                Launch::Failed(failure) => failures.push(failure),
            }
        }
        let Some(one) = done.last() else {
            return Err(format!("nobody has it: {failures:?}").into());
        };
        let same = done.iter().all(|other| other.pod_uid == one.pod_uid);
        ensure!(same, "two sandboxes: {done:?}");
        // One that was replaced before it looked has only seen that its Pod went.
        let known = [Reason::TakenOver, Reason::DeletedBySomeone];
        let taken = failures.iter().all(|f| known.contains(&f.reason));
        ensure!(taken, "{failures:?}");
        whole(&bed, one)?;
    }
    Ok(())
}
