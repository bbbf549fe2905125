//! What the verbs make of sandboxes in shared sessions, and of the sessions.

use std::time::Duration;

use podcradle_launcher::lifecycle::{Deleted, ExtendError};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite};

use super::super::support::{Bed, NAME, launched, wait};
use super::{TEAM, TIME, annotation, named, open};

const SECOND: &str = "podcradle-second-000000";

pub fn add(suite: &mut Suite) {
    suite.test("a_sandbox_in_a_session_is_deleted_alone", alone);
    suite.test("a_session_is_deleted_with_all_that_is_in_it", together);
    suite.test("neither_kind_of_session_is_deleted_as_the_other", kinds);
    suite.test("list_and_status_know_sandboxes_in_sessions", listed);
    suite.test(
        "a_sessions_expiry_moves_and_a_sandbox_in_it_has_none",
        extended,
    );
}

/// The session with two sandboxes in it, and one beside it.
fn three() -> Result<Bed, Stop> {
    let bed = Bed::well()?;
    open(&bed)?;
    for name in ["podcradle-first-000000", SECOND] {
        launched(bed.launch_spec(named(name))?)?;
    }
    launched(bed.launch()?)?;
    Ok(bed)
}

fn alone() -> Outcome {
    let bed = three()?;
    let mut expected = bed.api.objects();
    expected.retain(|object| !object.contains("second"));
    let deleted = wait(bed.launcher.delete(SECOND, TIME))??;
    ensure!(deleted == Deleted::Gone, "{deleted:?}");
    ensure!(bed.api.objects() == expected, "{:?}", bed.api.objects());
    let again = wait(bed.launcher.delete(SECOND, TIME))??;
    ensure!(again == Deleted::WasGone, "{again:?}");
    Ok(())
}

fn together() -> Outcome {
    let bed = three()?;
    let mut expected = bed.api.objects();
    expected.retain(|object| object.contains(NAME));
    let deleted = wait(bed.launcher.delete_session(TEAM, TIME))??;
    ensure!(deleted == Deleted::Gone, "{deleted:?}");
    ensure!(bed.api.objects() == expected, "{:?}", bed.api.objects());
    let again = wait(bed.launcher.delete_session(TEAM, TIME))??;
    ensure!(again == Deleted::WasGone, "{again:?}");
    Ok(())
}

fn kinds() -> Outcome {
    let bed = three()?;
    let before = bed.api.objects();
    let shared = wait(bed.launcher.delete(TEAM, TIME))??;
    let own = wait(bed.launcher.delete_session(NAME, TIME))??;
    ensure!(
        (shared, own) == (Deleted::OtherKind, Deleted::OtherKind),
        "{shared:?}, {own:?}"
    );
    ensure!(bed.api.objects() == before, "{:?}", bed.api.objects());
    Ok(())
}

fn listed() -> Outcome {
    let bed = three()?;
    let list = wait(bed.launcher.list(TIME))??;
    let pairs: Vec<_> = list
        .iter()
        .map(|one| {
            (
                one.sandbox.as_str(),
                one.session.as_str(),
                one.state.as_str(),
            )
        })
        .collect();
    let expected = [
        (NAME, NAME, "Running"),
        ("podcradle-first-000000", TEAM, "Running"),
        (SECOND, TEAM, "Running"),
    ];
    ensure!(pairs == expected, "{pairs:?}");
    let expires = annotation(&bed.api.object("services", TEAM), "expires");
    let one = wait(bed.launcher.status(SECOND, TIME))??.ok_or("no status")?;
    ensure!(
        one.session == TEAM && one.expires.as_deref() == expires.as_str(),
        "{one:?}"
    );
    ensure!(one.image.is_some() && one.launch_id.is_some(), "{one:?}");
    let none = wait(bed.launcher.status(TEAM, TIME))??;
    ensure!(none.is_none(), "a session is no sandbox: {none:?}");
    let sessions = wait(bed.launcher.sessions(TIME))??;
    ensure!(
        sessions.len() == 1 && sessions[0].session == TEAM && sessions[0].sandboxes == 2,
        "{sessions:?}"
    );
    Ok(())
}

fn extended() -> Outcome {
    let bed = three()?;
    let before = annotation(&bed.api.object("services", TEAM), "expires");
    let hour = Some(Duration::from_hours(1));
    let moved = wait(bed.launcher.extend(TEAM, hour, TIME))?;
    let moved = moved.map_err(|error| error.to_string())?.ok_or("none")?;
    let now = annotation(&bed.api.object("services", TEAM), "expires");
    ensure!(now == moved.as_str() && now != before, "{now}");
    let later = launched(bed.launch_spec(named("podcradle-later-000000"))?)?;
    ensure!(later.expires.as_ref() == Some(&moved), "{later:?}");
    match wait(bed.launcher.extend(SECOND, hour, TIME))? {
        Err(error @ ExtendError::InSession { .. }) => {
            ensure!(error.to_string().contains(TEAM), "{error}");
        }
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}
