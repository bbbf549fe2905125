//! The token's Secret, which may be made and deleted and never read: what has
//! its name already, and what a log says of it.

use std::time::Duration;

use podcradle_launcher::token::Token;
use podcradle_launcher::{LaunchEvent, Reason, SandboxSpec};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, Seen};
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::{Value, json};

use super::again::token;
use super::support::{Bed, NAME, failed, launched, spec, wait};
use super::{ambiguous, log};

/// The Secret of a sandbox' first Pod.
const SECRET: &str = "podcradle-faults-000000-g1-token";

pub fn add(suite: &mut Suite) {
    for (word, fault) in [
        ("", Fault::None),
        ("_while_an_answer_is_lost", Fault::Refuse(500)),
    ] {
        suite.test(
            format!("a_secret_that_waits_for_the_collector_is_waited_for{word}"),
            move || waited_for(fault),
        );
        suite.test(
            format!("a_secret_of_somebody_elses_is_left_alone{word}"),
            move || theirs(fault),
        );
    }
    suite.test("a_secret_that_is_never_collected_is_named", never_collected);
    suite.test(
        "a_secret_whose_answer_was_lost_is_deleted_by_its_uid",
        || {
            let bed = Bed::new(Vec::new())?;
            bed.api
                .script(ambiguous::once("POST", "secrets", Fault::DoneButSay(500)));
            let launch = bed.launcher.launch(spec(), Token::random())?;
            bed.api.wait_for(|api| api.calls("PATCH pods") == 1)?;
            drop(launch);
            bed.shut_down()?;
            // Without the collector's help.
            let left = bed.api.objects();
            ensure!(left.is_empty(), "left: {left:?}");
            Ok(())
        },
    );
    for (word, verb) in [("creation", "POST"), ("deletion", "DELETE")] {
        suite.test(
            format!("no_log_has_the_token_when_the_answer_to_its_{word}_is_garbage"),
            move || unlogged(verb, Fault::DoneButGarble),
        );
    }
    suite.test("no_log_has_the_token_of_a_launch_that_goes_well", || {
        unlogged("POST", Fault::None)
    });
}

/// What a sandbox of that name left, whose Pod is gone.
fn left_over(owner: &str) -> Value {
    json!({
        "metadata": {
            "name": SECRET,
            "labels": { "podcradle.dev/session": NAME },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": owner, "uid": "gone" }],
        },
        "data": { "token": "b2xk" },
    })
}

/// The first creation meets the fault.
fn first(fault: Fault) -> impl FnMut(usize, &Seen) -> Fault + Send {
    ambiguous::once("POST", "secrets", fault)
}

fn waited_for(fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    bed.api.put("secrets", left_over(NAME));
    bed.api.script(first(fault));
    let mut launch = bed.launcher.launch(spec(), token()?)?;
    let mut events = launch.events().ok_or("no events")?;
    let waits = |event: &LaunchEvent| matches!(event, LaunchEvent::Waiting { why, .. } if why.contains("of before"));
    wait(async {
        while !waits(&events.recv().await.ok_or("it did not wait")?) {}
        Ok::<_, &str>(())
    })??;
    ensure!(
        bed.api.object("secrets", SECRET)["data"]["token"] == "b2xk",
        "deleted"
    );
    bed.api.collect();
    launched(wait(launch)?)?;
    let secret = bed.api.object("secrets", SECRET);
    let pod = bed.api.object("pods", NAME);
    ensure!(
        secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"],
        "{secret}"
    );
    Ok(())
}

fn theirs(fault: Fault) -> Outcome {
    let mut unlabelled = left_over(NAME);
    unlabelled["metadata"]["labels"] = json!({});
    let mut unowned = left_over(NAME);
    unowned["metadata"]["ownerReferences"] = json!([]);
    for theirs in [unlabelled, unowned, left_over("another")] {
        let bed = Bed::well()?;
        bed.api.put("secrets", theirs);
        bed.api.script(first(fault));
        let failure = failed(bed.launch()?)?;
        ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
        ensure!(failure.cleaned_up, "{failure:?}");
        let left = bed.api.objects();
        ensure!(left == [format!("secrets/{SECRET}")], "left: {left:?}");
    }
    Ok(())
}

fn never_collected() -> Outcome {
    let bed = Bed::well()?;
    bed.api.put("secrets", left_over(NAME));
    let mut spec: SandboxSpec = spec();
    spec.budgets.schedule = Duration::from_millis(1200);
    let failure = failed(bed.launch_spec(spec)?)?;
    ensure!(
        failure.reason == Reason::NameTaken && failure.message.contains(SECRET),
        "{failure:?}"
    );
    ensure!(failure.message.contains("collector"), "{failure:?}");
    Ok(())
}

/// A launch, and its end, of which such a request goes like this.
fn unlogged(verb: &'static str, fault: Fault) -> Outcome {
    let bed = Bed::new(Vec::new())?;
    bed.api.script(ambiguous::once(verb, "secrets", fault));
    let token = Token::random();
    let (ended, log) = log::of(|| {
        let mut launch = bed.launcher.launch(spec(), token.clone())?;
        bed.api
            .wait_for(|api| api.calls("PATCH pods") + api.calls("DELETE pods") > 0)?;
        launch.cancel();
        let failure = failed(wait(launch)?)?;
        bed.shut_down()?;
        Ok::<_, podcradle_tests::harness::Stop>(failure)
    });
    let failure = format!("{:?}", ended?);
    ensure!(
        log.contains("podcradle") && log.contains("/secrets"),
        "no log: {log}"
    );
    for (what, text) in [("the log", log), ("the failure", failure)] {
        let line = text.lines().find(|line| token.is_in(line));
        ensure!(line.is_none(), "in {what}: {line:?}");
    }
    Ok(())
}
