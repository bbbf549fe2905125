//! Interrupted launches clean up; a second interrupt does not wait for that.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use podcradle_tests::e2e::middle::Fault;
use podcradle_tests::e2e::proxy::Proxy;
use podcradle_tests::e2e::{Actor, Arch, Error, Middle, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use rustix::process::Signal;

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("ctrl_c_during_a_launch_leaves_nothing", |arch| {
        once(arch, Signal::INT, 130)
    }),
    ("sigterm_during_a_launch_leaves_nothing", |arch| {
        once(arch, Signal::TERM, 143)
    }),
    ("ctrl_c_in_a_storm_leaves_nothing", storm),
    ("a_second_ctrl_c_quits_at_once", twice),
    ("a_second_sigterm_is_no_reason_to_leave_anything", again),
    (
        "killed_it_leaves_a_gated_or_owned_tree_that_one_delete_takes",
        killed,
    ),
];

/// A launch that waits for a node which never comes, all its objects made.
fn waiting(actor: &Actor, name: &str) -> Result<Running, Error> {
    let running = actor
        .launch(name)
        .option(&["--node-selector", "podcradle.dev/nowhere=yes"])
        .start()?;
    let admin = &actor.cluster.admin;
    admin.wait_for("pod", name, "--for=create")?;
    // Said by the scheduler only once the gate is gone.
    let reason =
        r#"--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable"#;
    admin.wait_for("pod", name, reason)?;
    Ok(running)
}

fn once(arch: Arch, signal: Signal, code: i32) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("interrupt")?;
    let running = waiting(&actor, &name)?;
    running.signal(signal)?;
    let ended = running.wait(WATCHDOG)?;
    ensure!(
        ended.code == code,
        "ended with {}: {}{}",
        ended.code,
        ended.stdout,
        ended.stderr
    );
    gone(&actor, &name)
}

/// The weather turns bad when the clean-up begins: each delete meets all of this
/// before it gets through.
fn storm(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let name = actor.reserve("storm")?;
    let running = waiting(&actor, &name)?;
    let mut met = BTreeMap::new();
    middle.script(move |seen| {
        let nth = met.entry((seen.verb.clone(), seen.resource.clone()));
        let nth = nth.and_modify(|nth| *nth += 1).or_insert(0_usize);
        let faults = [
            Fault::Reset,
            Fault::TryAgainIn(1),
            Fault::Refuse(503),
            Fault::DoneButReset,
        ];
        let fault = faults.get(*nth).copied();
        fault.filter(|_| seen.verb != "WATCH")
    });
    running.signal(Signal::INT)?;
    let ended = running.wait(WATCHDOG)?;
    let met = middle.hurt();
    ensure!(
        ended.code == 130,
        "ended with {}: {}{}; met {met:#?}",
        ended.code,
        ended.stdout,
        ended.stderr
    );
    for resource in ["services", "pods", "secrets"] {
        let delete = format!("DELETE {resource}");
        let hurt = met.iter().filter(|line| line.contains(&delete)).count();
        ensure!(hurt == 4, "{delete} met {hurt} faults: {met:#?}");
    }
    gone(&actor, &name)
}

fn twice(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let proxy = Proxy::to(actor.cluster.api()?)?;
    actor.go_through(SocketAddr::from(([127, 0, 0, 1], proxy.address().port())))?;
    let name = actor.reserve("twice")?;
    let running = waiting(&actor, &name)?;
    proxy.freeze();
    running.signal(Signal::INT)?;
    // The clean-up has begun, and cannot get anywhere.
    proxy.wait_for_held(WATCHDOG)?;
    running.signal(Signal::INT)?;
    let ended = running.wait(WATCHDOG)?;
    ensure!(
        ended.code == 130,
        "ended with {}: {}{}",
        ended.code,
        ended.stdout,
        ended.stderr
    );
    // Nothing was deleted, so that was no finished clean-up.
    actor.cluster.admin.one("pod", &name)?;
    Ok(())
}

/// As `timeout` does: to the process, then to its group.
fn again(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("again")?;
    let running = waiting(&actor, &name)?;
    running.signal(Signal::TERM)?;
    running.signal(Signal::TERM)?;
    running.wait_for_stderr("deleting what was made", WATCHDOG)?;
    running.signal(Signal::TERM)?;
    running.wait(WATCHDOG)?.with_code(143)?;
    gone(&actor, &name)
}

fn killed(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let name = actor.reserve("killed")?;
    let running = waiting(&actor, &name)?;
    running.signal(Signal::KILL)?;
    running.wait(WATCHDOG)?;
    let left = actor.cluster.admin.left_of(&name)?;
    ensure!(left.len() == 3, "not the whole tree: {left:?}");
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}
