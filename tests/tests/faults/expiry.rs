//! When a session expires, to the second: a launch has its deadline, then the
//! session its time to live, by the server's clock alone. The fake's stands
//! still, at an hour that is not this one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use podcradle_launcher::SandboxSpec;
use podcradle_launcher::token::Token;
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use serde_json::json;

use super::ambiguous::once;
use super::support::{Bed, NAME, failed, launched, spec, wait};

/// What the fake says of each object.
const CREATED: &str = "2026-01-01T00:00:00Z";

pub fn add(suite: &mut Suite) {
    suite.test("a_launch_expires_five_minutes_after_its_budget", || {
        let bed = Bed::well()?;
        let mut wanted = spec();
        wanted.budgets.total = Duration::from_mins(7);
        bed.api.script(once("POST", "pods", Fault::Hold));
        let begun = Timestamp::now();
        let launch = bed.launcher.launch(wanted, Token::random())?;
        bed.api.wait_for(|api| api.calls("POST pods") == 1)?;
        let now = expires(&bed)?.ok_or("no expiry")?;
        is_after(begun, now, SignedDuration::from_mins(12))?;
        bed.api.release();
        launched(wait(launch)?).map(drop)
    });
    suite.test("a_session_expires_when_its_time_to_live_says", || {
        lives(|_| (), Some("2026-01-02T00:00:00Z"))?;
        let hours = |spec: &mut SandboxSpec| spec.ttl = Some(Duration::from_secs(3 * 3600 + 1));
        lives(hours, Some("2026-01-01T03:00:01Z"))?;
        lives(|spec| spec.ttl = None, None)
    });
    suite.test("a_failure_that_is_kept_expires_in_an_hour", || {
        let ended = json!({ "terminated": { "exitCode": 128, "reason": "Error" } });
        let bed = Bed::new(vec![status(&ended, &json!({}))])?;
        let mut wanted = spec();
        wanted.keep_on_failure = true;
        let begun = Timestamp::now();
        failed(bed.launch_spec(wanted)?)?;
        let kept = expires(&bed)?.ok_or("no expiry")?;
        is_after(begun, kept, SignedDuration::from_hours(1))
    });
}

/// What the anchor says now.
fn expires(bed: &Bed) -> Result<Option<Timestamp>, Stop> {
    let anchor = bed.api.object("services", NAME);
    let expires = anchor["metadata"]["annotations"].get("podcradle.dev/expires");
    let text = expires.map(|text| text.as_str().ok_or("not a text"));
    Ok(text.transpose()?.map(str::parse).transpose()?)
}

/// So long after a moment since the test's `begun`, by this machine's clock.
fn is_after(begun: Timestamp, expires: Timestamp, time: SignedDuration) -> Outcome {
    let from = expires - time;
    // In whole seconds, the next one.
    let now = Timestamp::now() + SignedDuration::from_secs(1);
    ensure!(
        begun <= from && from <= now,
        "{expires} is not {time:#} after a moment since {begun}"
    );
    Ok(())
}

fn lives(change: impl Fn(&mut SandboxSpec), until: Option<&str>) -> Outcome {
    let bed = Bed::well()?;
    let mut wanted = spec();
    change(&mut wanted);
    let done = launched(bed.launch_spec(wanted)?)?;
    ensure!(done.expires.as_deref() == until, "{until:?}: {done:?}");
    let expires = expires(&bed)?.map(|moment| moment.to_string());
    ensure!(expires.as_deref() == until, "{until:?}: {expires:?}");
    let created = &bed.api.object("services", NAME)["metadata"]["creationTimestamp"];
    ensure!(created == CREATED, "{created}");
    Ok(())
}
