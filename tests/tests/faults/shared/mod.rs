//! Shared sessions: whatever befalls their making, or a launch into one, there
//! is what was asked for or nothing, and what belongs to others stays.

mod again;
mod create;
mod delete;
mod ended;
mod launch;
mod program;

use std::time::Duration;

use podcradle_launcher::lifecycle::SharedSession;
use podcradle_launcher::{Failure, SandboxSpec, SessionSpec};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::Value;

use super::support::{Bed, NAME, wait};

/// What the session of these tests is called.
const TEAM: &str = "podcradle-team-000000";
/// For what takes milliseconds.
const TIME: Duration = Duration::from_mins(1);

pub fn add(suite: &mut Suite) {
    create::add(suite);
    launch::add(suite);
    again::add(suite);
    ended::add(suite);
    delete::add(suite);
    program::add(suite);
}

/// It lives long, since the fake's clock stands still, some time ago.
fn team() -> SessionSpec {
    SessionSpec {
        ttl: Some(Duration::from_hours(10 * 365 * 24)),
        ..SessionSpec::new(TEAM)
    }
}

/// Creates the session.
fn open(bed: &Bed) -> Result<SharedSession, Stop> {
    let made = wait(bed.launcher.create_session(team(), TIME))?;
    made.map_err(|failure| Stop::Failed(format!("no session: {failure:?}")))
}

fn refused(made: Result<SharedSession, Box<Failure>>) -> Result<Failure, Stop> {
    match made {
        Err(failure) => Ok(*failure),
        Ok(session) => Err(Stop::Failed(format!("there is one: {session:?}"))),
    }
}

/// A sandbox in the session, with one launch id for all launches.
fn inside() -> SandboxSpec {
    named(NAME)
}

fn named(name: &str) -> SandboxSpec {
    SandboxSpec {
        session: Some(TEAM.to_owned()),
        launch_id: format!("of-{name}"),
        ..SandboxSpec::new(name, "localhost/image:1")
    }
}

fn annotation(object: &Value, key: &str) -> Value {
    object["metadata"]["annotations"][format!("podcradle.dev/{key}")].clone()
}

/// Only the session is there, as it was.
fn session_alone(bed: &Bed, before: &Value) -> Outcome {
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left == [format!("services/{TEAM}")], "left: {left:?}");
    let now = bed.api.object("services", TEAM);
    ensure!(now == *before, "the session was changed: {now}");
    Ok(())
}
