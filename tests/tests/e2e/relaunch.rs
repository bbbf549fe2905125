//! The same name again, at once: what the collector has not come to yet is
//! nobody's, and no sandbox gets the token of another.

use podcradle_tests::e2e::middle::{Fault, Middle, once};
use podcradle_tests::e2e::{Actor, Arch, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("a_name_is_free_again_at_once", many_times),
    ("a_secret_that_is_not_collected_yet_is_waited_for", held),
    (
        "a_secret_that_is_not_collected_yet_is_not_ours_when_an_answer_is_lost",
        in_doubt,
    ),
];

/// Deleted by others, who leave the Secret to the collector.
fn delete_beside_us(actor: &Actor, name: &str) -> Outcome {
    let admin = &actor.cluster.admin;
    admin.run(&["delete", "service", name, "--wait=false"])?;
    admin.run(&["delete", "pod", name, "--grace-period=0", "--force"])?;
    Ok(())
}

/// The Secret of the sandbox' first Pod belongs to the Pod that runs.
fn is_its_own(actor: &Actor, name: &str, launched: &Value) -> Outcome {
    let secret = actor.cluster.admin.one("secret", &secret_of(name))?;
    let owner = &secret["metadata"]["ownerReferences"][0]["uid"];
    ensure!(*owner == launched["podUid"], "{secret}, {launched}");
    Ok(())
}

fn secret_of(name: &str) -> String {
    format!("{name}-g1-token")
}

fn many_times(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("relaunch")?;
    for turn in 0..10 {
        let launch = actor.launch(&name).option(&["--wait", "none"]);
        let launched = launch.host(&["sleep", "1000"]).run()?;
        is_its_own(&actor, &name, &launched)?;
        if turn % 2 == 0 {
            actor.run(&["delete", &name])?;
        } else {
            delete_beside_us(&actor, &name)?;
        }
    }
    Ok(())
}

/// A sandbox is gone but for its Secret, which something holds; then it is
/// launched again.
fn relaunched(actor: &Actor) -> Result<(String, podcradle_tests::e2e::Running), Stop> {
    let name = actor.reserve("held")?;
    let launch = actor.launch(&name).host(&["sleep", "1000"]);
    launch.run()?;
    let admin = &actor.cluster.admin;
    let hold = r#"{"metadata": {"finalizers": ["podcradle.test/hold"]}}"#;
    admin.run(&["patch", "secret", &secret_of(&name), "-p", hold])?;
    actor.run(&["delete", &name])?;
    Ok((name, launch.start()?))
}

fn let_go(actor: &Actor, name: &str) -> Outcome {
    let nothing = r#"{"metadata": {"finalizers": null}}"#;
    let patch = ["patch", "secret", &secret_of(name), "-p", nothing];
    actor.cluster.admin.run(&patch)?;
    Ok(())
}

fn held(arch: Arch) -> Outcome {
    waits(&Actor::new(arch)?)
}

/// The first creation does not come to pass, and the launcher cannot know.
fn in_doubt(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let mut second = false;
    let mut fault = once("POST", "secrets", Fault::Refuse(500));
    middle.script(move |seen| {
        // That of the first launch goes well.
        if seen.verb == "POST" && seen.resource == "secrets" && !second {
            second = true;
            return None;
        }
        fault(seen)
    });
    waits(&actor)?;
    let hurt = middle.hurt();
    ensure!(hurt.len() == 1, "{hurt:?}");
    Ok(())
}

fn waits(actor: &Actor) -> Outcome {
    let (name, running) = relaunched(actor)?;
    let waited = running.wait_for_stderr("one of before is still there", WATCHDOG);
    let_go(actor, &name)?;
    waited?;
    let launched = running.wait(WATCHDOG)?.with_code(0)?.json()?;
    is_its_own(actor, &name, &launched)
}
