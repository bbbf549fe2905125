//! session create: the anchor, the policy before anything may be launched, and
//! nothing of either when it is not to be.

use podcradle_launcher::spec::NetworkPolicy;
use podcradle_launcher::{Reason, SessionSpec};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::json;

use super::super::ambiguous::once;
use super::super::cancel::hold;
use super::super::support::{Bed, wait};
use super::{TEAM, TIME, annotation, open, refused, team};

/// Service, policy, and the write that opens it.
const REQUESTS: usize = 3;

pub fn add(suite: &mut Suite) {
    suite.test("a_session_is_opened_once_its_policy_is_in_force", opened);
    suite.test("a_session_of_an_owner_has_no_expiry", owned);
    for nth in 0..REQUESTS {
        for (word, fault) in [("done", Fault::DoneButSilent), ("not_done", Fault::Silent)] {
            suite.test(
                format!("a_session_dropped_at_request_{nth}_{word}_leaves_nothing"),
                move || dropped(nth, fault),
            );
            suite.test(
                format!("a_session_at_a_shutdown_at_request_{nth}_{word}_leaves_nothing"),
                move || shut_down(nth, fault),
            );
        }
    }
    for (verb, resource) in [
        ("POST", "services"),
        ("POST", "networkpolicies"),
        ("PATCH", "services"),
    ] {
        suite.test(
            format!("a_lost_answer_to_the_{verb}_of_a_sessions_{resource}_is_resolved"),
            move || {
                let bed = Bed::well()?;
                bed.api.script(once(verb, resource, Fault::DoneButSay(500)));
                let made = wait(bed.launcher.create_session(shut_in(), TIME))?;
                ensure!(made.is_ok(), "{made:?}");
                complete(&bed)
            },
        );
    }
    suite.test("a_session_without_its_policy_is_none", || {
        let bed = Bed::well()?;
        bed.api
            .script(once("POST", "networkpolicies", Fault::Refuse(403)));
        let failure = refused(wait(bed.launcher.create_session(shut_in(), TIME))?)?;
        ensure!(failure.reason == Reason::Policy, "{failure:?}");
        ensure!(failure.cleaned_up && failure.left.is_empty(), "{failure:?}");
        let left = bed.api.objects();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    });
    suite.test("a_sessions_name_that_is_taken_is_refused", taken);
    suite.test("the_policy_of_a_session_of_before_is_waited_for", || {
        let bed = Bed::well()?;
        let owner = json!([{
            "apiVersion": "v1", "kind": "Service", "name": TEAM, "uid": "of-before",
        }]);
        let labels = json!({ "podcradle.dev/session": TEAM });
        bed.api.put(
            "networkpolicies",
            json!({ "metadata": { "name": TEAM, "labels": labels, "ownerReferences": owner } }),
        );
        let (launcher, spec) = (bed.launcher.clone(), shut_in());
        let made = std::thread::spawn(move || wait(launcher.create_session(spec, TIME)));
        bed.api
            .wait_for(|so_far| so_far.calls("GET networkpolicies") > 0)?;
        bed.api.remove("networkpolicies", TEAM);
        let made = made.join().map_err(|_| "it panicked")??;
        ensure!(made.is_ok(), "{made:?}");
        complete(&bed)
    });
    suite.test("a_session_whose_creation_was_not_read_is_deleted", unread);
    suite.test("what_is_wrong_with_a_session_makes_nothing", || {
        let bed = Bed::well()?;
        let mut spec = team();
        spec.session.push('!');
        let failure = refused(wait(bed.launcher.create_session(spec, TIME))?)?;
        ensure!(failure.reason == Reason::Invalid, "{failure:?}");
        ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
        Ok(())
    });
}

fn shut_in() -> SessionSpec {
    SessionSpec {
        network_policy: Some(NetworkPolicy {
            egress: vec!["192.0.2.0/24".to_owned()],
        }),
        ..team()
    }
}

fn complete(bed: &Bed) -> Outcome {
    let there = bed.api.objects();
    let expected = [
        format!("networkpolicies/{TEAM}"),
        format!("services/{TEAM}"),
    ];
    ensure!(there == expected, "there are {there:?}");
    let anchor = bed.api.object("services", TEAM);
    ensure!(
        annotation(&anchor, "making").is_null(),
        "still being made: {anchor}"
    );
    ensure!(
        annotation(&anchor, "expires").is_string(),
        "no expiry: {anchor}"
    );
    Ok(())
}

fn opened() -> Outcome {
    let bed = Bed::well()?;
    let session = wait(bed.launcher.create_session(shut_in(), TIME))?;
    let session = session.map_err(|failure| format!("{failure:?}"))?;
    let calls = bed.api.calls();
    let expected = ["POST services", "POST networkpolicies", "PATCH services"];
    ensure!(calls == expected, "calls: {calls:?}");
    complete(&bed)?;
    ensure!(
        session.state == "Open" && session.session == TEAM,
        "{session:?}"
    );
    let anchor = bed.api.object("services", TEAM);
    let policy = bed.api.object("networkpolicies", TEAM);
    let owner = &policy["metadata"]["ownerReferences"][0];
    ensure!(owner["uid"] == anchor["metadata"]["uid"], "{policy}");
    let selected = &policy["spec"]["podSelector"]["matchLabels"];
    ensure!(
        *selected == json!({ "podcradle.dev/session": TEAM }),
        "{policy}"
    );
    // From its creation, by the server's clock, which is fixed here.
    let expires = annotation(&anchor, "expires");
    ensure!(expires == "2035-12-30T00:00:00Z", "expires {expires}");
    ensure!(
        session.expires.as_deref() == expires.as_str(),
        "{session:?}"
    );
    Ok(())
}

fn owned() -> Outcome {
    let bed = Bed::well()?;
    let mut spec = team();
    spec.owner = Some("team-a".to_owned());
    let made = wait(bed.launcher.create_session(spec, TIME))?;
    let session = made.map_err(|failure| format!("{failure:?}"))?;
    let calls = bed.api.calls();
    ensure!(calls[..2] == ["POST leases", "POST services"], "{calls:?}");
    let anchor = bed.api.object("services", TEAM);
    ensure!(
        annotation(&anchor, "owner") == "team-a" && annotation(&anchor, "expires").is_null(),
        "{anchor}"
    );
    ensure!(session.owner.as_deref() == Some("team-a"), "{session:?}");
    Ok(())
}

fn dropped(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, nth, fault);
    let came = wait(async {
        tokio::select! {
            made = bed.launcher.create_session(shut_in(), TIME) => Err(format!("{made:?}")),
            came = held.recv() => came.ok_or("the request never came".to_owned()),
        }
    })?;
    came?;
    bed.shut_down()?;
    nothing(&bed)
}

fn shut_down(nth: usize, fault: Fault) -> Outcome {
    let bed = Bed::well()?;
    let mut held = hold(&bed, nth, fault);
    let (made, came) = wait(async {
        let ended = async {
            let came = held.recv().await;
            bed.launcher.shutdown().await;
            came
        };
        tokio::join!(bed.launcher.create_session(shut_in(), TIME), ended)
    })?;
    ensure!(came.is_some(), "the request never came");
    let failure = refused(made)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up,
        "{failure:?}"
    );
    nothing(&bed)
}

fn nothing(bed: &Bed) -> Outcome {
    let anchors = bed.api.objects();
    let anchors = anchors.iter().filter(|o| o.starts_with("services/"));
    ensure!(anchors.count() == 0, "the session is left");
    // The policy goes with the anchor.
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

fn taken() -> Outcome {
    for theirs in [
        json!({ "metadata": { "name": TEAM } }),
        json!({ "metadata": { "name": TEAM, "labels": { "podcradle.dev/session": TEAM } } }),
    ] {
        let bed = Bed::well()?;
        bed.api.put("services", theirs);
        let before = bed.api.object("services", TEAM);
        let failure = refused(wait(bed.launcher.create_session(shut_in(), TIME))?)?;
        ensure!(failure.reason == Reason::NameTaken, "{failure:?}");
        ensure!(bed.api.object("services", TEAM) == before, "it was touched");
        let spec = shut_in();
        let made = wait(bed.launcher.create_session_generated(spec, TIME))?;
        let session = made.map_err(|failure| format!("{failure:?}"))?;
        ensure!(
            session.session.starts_with("podcradle-team-") && session.session != TEAM,
            "{session:?}"
        );
        ensure!(bed.api.object("services", TEAM) == before, "it was touched");
        ensure!(bed.api.objects().len() == 3, "{:?}", bed.api.objects());
    }
    Ok(())
}

/// Created, and then the caller goes before it has heard of it.
fn unread() -> Outcome {
    let bed = Bed::well()?;
    // Polled until the last write came in, and then no more.
    let came = wait(async {
        let making = bed.launcher.create_session(team(), TIME);
        let mut making = Box::pin(making);
        let first = futures::future::poll_immediate(&mut making).await;
        ensure!(first.is_none(), "{first:?}");
        bed.api.wait_for(|api| api.calls("PATCH services") == 1)?;
        drop(making);
        Ok::<_, podcradle_tests::harness::Stop>(())
    })?;
    came?;
    bed.shut_down()?;
    nothing(&bed)?;
    // One that was read outlives its launcher.
    let bed = Bed::well()?;
    open(&bed)?;
    bed.shut_down()?;
    ensure!(bed.api.objects().len() == 1, "{:?}", bed.api.objects());
    Ok(())
}
