//! When a session expires, on a real API server and by its clock.

use jiff::{SignedDuration, Timestamp};
use podcradle_tests::e2e::{Actor, Arch, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("a_launch_expires_five_minutes_after_its_budget", launch),
    ("a_session_expires_when_its_time_to_live_says", session),
];

/// When the anchor was made, and when it expires.
fn times(actor: &Actor, name: &str) -> Result<(Timestamp, Option<Timestamp>), Stop> {
    let anchor = actor.cluster.admin.one("service", name)?;
    let metadata = &anchor["metadata"];
    let moment = |text: &Value| text.as_str().map(str::parse::<Timestamp>).transpose();
    let created = moment(&metadata["creationTimestamp"])?.ok_or("no creation")?;
    let expires = moment(&metadata["annotations"]["podcradle.dev/expires"])?;
    Ok((created, expires))
}

fn launch(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("launch-expires")?;
    let nowhere = ["--node-selector", "podcradle.test/nowhere=x"];
    let launch = actor.launch(&name).option(&nowhere);
    let begun = Timestamp::now();
    let launch = launch.option(&["--timeout", "7m"]).start()?;
    launch.wait_for_stderr("node(s) didn't match", WATCHDOG)?;
    let (_, expires) = times(&actor, &name)?;
    // Of the launcher's own clock, since the server's is not known before.
    let from = expires.ok_or("no expiry")? - SignedDuration::from_mins(12);
    // In whole seconds, the next one.
    let now = Timestamp::now() + SignedDuration::from_secs(1);
    ensure!(
        begun <= from && from <= now,
        "not twelve minutes after {begun}: {expires:?}"
    );
    launch.signal(Signal::INT)?;
    launch.wait(WATCHDOG)?.with_code(130)?;
    gone(&actor, &name)
}

fn session(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    for (options, ttl) in [
        (&[][..], Some(SignedDuration::from_hours(24))),
        (&["--ttl", "3h"], Some(SignedDuration::from_hours(3))),
        (&["--ttl", "none"], None),
    ] {
        let name = actor.reserve("expires")?;
        let launch = actor.launch(&name).option(options);
        let done = launch.host(&["sleep", "1000"]).run()?;
        let (created, expires) = times(&actor, &name)?;
        let right = ttl.map(|ttl| created + ttl);
        ensure!(
            expires == right,
            "{options:?}: {expires:?} and not {right:?}"
        );
        let said = done["expires"].as_str().map(str::parse).transpose()?;
        ensure!(said == right, "{options:?}: said {done}");
        actor.run(&["delete", &name])?;
    }
    Ok(())
}
