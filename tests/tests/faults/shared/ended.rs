//! Sessions that take no sandbox, and those that end under a launch.

use podcradle_launcher::Reason;
use podcradle_launcher::lifecycle::Deleted;
use podcradle_launcher::token::Token;
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, going_well};
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::{Value, json};

use super::super::again::token;
use super::super::support::{Bed, NAME, failed, launched, wait};
use super::{TEAM, TIME, inside, open, session_alone, team};

pub fn add(suite: &mut Suite) {
    suite.test(
        "a_session_that_takes_no_sandbox_is_refused_before_anything_is_made",
        unfit,
    );
    suite.test("a_session_that_is_deleted_in_mid_launch_is_named", deleted);
    suite.test(
        "a_session_that_another_one_has_replaced_is_read_again",
        replaced,
    );
    suite.test(
        "a_session_whose_owner_is_lost_ends_what_is_launched_into_it",
        lost,
    );
}

fn unfit() -> Outcome {
    let label = |labels: Value| json!({ "metadata": { "name": TEAM, "labels": labels } });
    let ours = json!({ "podcradle.dev/session": TEAM });
    let with = |key: &str, value: &str| {
        let mut service = label(ours.clone());
        service["metadata"]["annotations"] = json!({ format!("podcradle.dev/{key}"): value });
        service
    };
    let mut going = label(ours.clone());
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let own = json!({ "podcradle.dev/session": TEAM, "podcradle.dev/sandbox": TEAM });
    for (service, why) in [
        (None, "does not exist"),
        (Some(label(json!({}))), "did not make"),
        (Some(label(own)), "own one of a sandbox"),
        (Some(going), "is being deleted"),
        (Some(with("making", "")), "is still being made"),
        (Some(with("expires", "2026-01-01T00:00:00Z")), "has expired"),
    ] {
        let bed = Bed::well()?;
        if let Some(service) = service {
            bed.api.put("services", service);
        }
        let before = bed.api.objects();
        let failure = failed(bed.launch_spec(inside())?)?;
        ensure!(failure.reason == Reason::Session, "{failure:?}");
        ensure!(failure.message.contains(why), "{why}: {failure:?}");
        ensure!(failure.hint.contains("podcradle session"), "{failure:?}");
        ensure!(bed.api.calls() == ["GET services"], "{:?}", bed.api.calls());
        ensure!(bed.api.objects() == before, "something was made or deleted");
    }
    Ok(())
}

fn deleted() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    open(&bed)?;
    let launch = bed.launcher.launch(inside(), token()?)?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.remove("services", TEAM);
    bed.api.collect();
    let failure = failed(wait(launch)?)?;
    ensure!(failure.reason == Reason::DeletedBySomeone, "{failure:?}");
    ensure!(
        failure
            .message
            .contains(&format!("session {TEAM} was deleted")),
        "{failure:?}"
    );
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    // Not even tried: it is read again, and is not there.
    bed.api.script(|_, _| Fault::None);
    let again = failed(bed.launch_spec(inside())?)?;
    ensure!(again.reason == Reason::Session, "{again:?}");
    ensure!(bed.api.calls() == ["GET services"], "{:?}", bed.api.calls());
    Ok(())
}

/// Somebody else has deleted it and made it anew: a Pod that names the old one
/// goes, and the next launch knows better.
fn replaced() -> Outcome {
    let bed = Bed::well()?;
    open(&bed)?;
    launched(bed.launch_spec(inside())?)?;
    let another = bed.another()?;
    let gone = wait(another.delete_session(TEAM, TIME))??;
    ensure!(gone == Deleted::Gone, "{gone:?}");
    wait(another.create_session(team(), TIME))?.map_err(|failure| format!("{failure:?}"))?;
    bed.api.kubelet(Vec::new());
    bed.api.script(|_, _| Fault::None);
    let launch = bed.launcher.launch(inside(), token()?)?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.collect();
    let failure = failed(wait(launch)?)?;
    ensure!(failure.message.contains(TEAM), "{failure:?}");
    bed.api.kubelet(going_well());
    launched(bed.launch_spec(inside())?)?;
    bed.api.collect();
    let (pod, anchor) = (
        bed.api.object("pods", NAME),
        bed.api.object("services", TEAM),
    );
    let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
    ensure!(*owner == anchor["metadata"]["uid"], "{pod}");
    Ok(())
}

fn lost() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    let owner = wait(bed.launcher.own("team-a"))??;
    let mut spec = team();
    spec.owner = Some(owner.name().to_owned());
    bed.api.script(|_, _| Fault::None);
    let made = wait(bed.launcher.create_session(spec, TIME))?;
    made.map_err(|failure| format!("{failure:?}"))?;
    let calls = bed.api.calls();
    ensure!(calls == ["POST services", "PATCH services"], "{calls:?}");
    let before = bed.api.object("services", TEAM);
    let launch = bed.launcher.launch(inside(), Token::random())?;
    bed.api.wait_for(|api| api.calls("WATCH pods") == 1)?;
    bed.api.remove("leases", "team-a");
    let failure = failed(wait(launch)?)?;
    ensure!(
        failure.reason == Reason::OwnerLost && failure.cleaned_up,
        "{failure:?}"
    );
    // The session itself is not this launch's to delete.
    session_alone(&bed, &before)
}
