//! Shared sessions on a real cluster: many sandboxes under one anchor, whose end
//! is theirs, and which outlives each of them.

use std::collections::BTreeMap;

use podcradle_tests::e2e::{Actor, Arch, Error, Running, WATCHDOG, actor, audit};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use rustix::process::Signal;
use serde_json::Value;

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("sandboxes_come_and_go_and_end_together", life),
    ("a_launch_into_a_session_is_a_write_less", calls),
    (
        "ctrl_c_during_a_launch_leaves_the_session_and_the_others",
        interrupted,
    ),
    ("killed_it_can_be_launched_again", killed),
    ("a_session_that_goes_in_mid_launch_is_named", went),
    ("what_takes_no_sandbox_is_refused", refused),
    (
        "its_policy_is_there_before_it_is_and_selects_all_its_pods",
        policy,
    ),
];

const SLEEP: [&str; 2] = ["sleep", "1000"];

/// A session, created under this label.
struct Team {
    actor: Actor,
    session: String,
}

impl Team {
    fn new(arch: Arch, options: &[&str]) -> Result<Self, Stop> {
        let actor = Actor::new(arch)?;
        let create = ["session", "create", "--name", "team"];
        let made = actor.json(&[&create, options].concat())?;
        let session = made["session"].as_str().unwrap_or_default().to_owned();
        ensure!(session.starts_with("podcradle-team-"), "created {made}");
        ensure!(made["state"] == "Open", "created {made}");
        actor.own(&session);
        Ok(Self { actor, session })
    }

    fn launch(&self, name: &str) -> actor::Launch<'_> {
        let launch = self.actor.launch(name);
        launch.option(&["--session", &self.session]).host(&SLEEP)
    }

    /// Its uid, and what else would tell that it was written to.
    fn anchor(&self) -> Result<Value, Error> {
        let anchor = self.actor.cluster.admin.one("service", &self.session)?;
        Ok(anchor["metadata"].clone())
    }

    /// Deletes it; nothing of it or its sandboxes stays.
    fn end(&self, sandboxes: &[&String]) -> Outcome {
        self.actor.run(&["session", "delete", &self.session])?;
        let admin = &self.actor.cluster.admin;
        for name in sandboxes {
            let pod = admin.find("pod", name)?;
            ensure!(pod.is_none(), "it returned before the Pod {name} was gone");
            admin.wait_gone("secret", &format!("{name}-g1-token"))?;
            let left = admin.left_of(name)?;
            ensure!(left.is_empty(), "left behind: {left:?}");
        }
        let left = admin.left_of(&self.session)?;
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    }
}

fn life(arch: Arch) -> Outcome {
    let team = Team::new(arch, &["--ttl", "2h"])?;
    let (actor, session) = (&team.actor, &team.session);
    let names = [
        actor.reserve("one")?,
        actor.reserve("two")?,
        actor.reserve("three")?,
    ];
    let anchor = team.anchor()?;
    for name in &names {
        let launched = team.launch(name).run()?;
        ensure!(launched["session"] == **session, "launched {launched}");
        ensure!(
            launched["expires"] == anchor["annotations"]["podcradle.dev/expires"],
            "launched {launched}"
        );
    }
    ensure!(team.anchor()? == anchor, "the session was written to");

    let list = actor.json(&["list"])?;
    let in_it = |one: &&Value| one["session"] == **session && one["state"] == "Running";
    let count = list.as_array().into_iter().flatten().filter(in_it).count();
    ensure!(count == 3, "listed {list}");
    let status = actor.json(&["status", &names[0]])?;
    ensure!(
        status["session"] == **session && status["host"]["state"] == "running",
        "status: {status}"
    );
    actor.run(&["logs", &names[0]])?;
    let sessions = actor.json(&["session", "list"])?;
    let mut sessions = sessions.as_array().into_iter().flatten();
    let one = sessions.find(|one| one["session"] == **session);
    let sandboxes = one.map(|one| one["sandboxes"].clone());
    ensure!(sandboxes == Some(3.into()), "listed {one:?}");

    // One goes, and the others stay.
    actor.run(&["delete", &names[1]])?;
    let admin = &actor.cluster.admin;
    let left = admin.left_of(&names[1])?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    for name in [&names[0], &names[2]] {
        let pod = admin.one("pod", name)?;
        ensure!(
            pod["metadata"]["deletionTimestamp"].is_null(),
            "{name} goes too"
        );
    }
    // Each verb has its own names.
    for (args, said) in [
        (
            &["delete", session][..],
            format!("podcradle session delete {session}"),
        ),
        (
            &["extend", &names[0], "--ttl", "1h"],
            format!("podcradle extend {session}"),
        ),
    ] {
        let ended = actor.try_run(args)?;
        ensure!(
            ended.code != 0 && ended.stderr.contains(&said),
            "{args:?}: {}: {}",
            ended.code,
            ended.stderr
        );
    }
    actor.run(&["extend", session, "--ttl", "5h"])?;
    let moved = team.anchor()?["annotations"]["podcradle.dev/expires"].clone();
    ensure!(
        moved != anchor["annotations"]["podcradle.dev/expires"],
        "it did not move"
    );
    team.end(&[&names[0], &names[2]])
}

fn calls(arch: Arch) -> Outcome {
    let team = Team::new(arch, &[])?;
    let log = team.actor.cluster.audit.as_ref().map_err(skip)?;
    let before = audit::requests(log, &team.actor.credential)?.len();
    let launch = team.actor.launch_many("calls");
    let launched = launch
        .option(&[
            "--session",
            &team.session,
            "--count",
            "3",
            "--concurrency",
            "1",
        ])
        .host(&SLEEP)
        .run()?;
    let requests = audit::requests(log, &team.actor.credential)?.split_off(before);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in &requests {
        *counts.entry(request.short()).or_default() += 1;
    }
    // Which session that is, a process asks once.
    let expected = [
        ("create pods", 3),
        ("create secrets", 3),
        ("get services", 1),
        ("patch pods", 6),
        ("watch pods", 3),
    ];
    let expected = expected.map(|(call, count)| (call.to_owned(), count));
    ensure!(
        counts == BTreeMap::from(expected),
        "the API server counted {counts:#?}"
    );
    let launched = launched.as_array().cloned().unwrap_or_default();
    let names: Vec<_> = launched
        .iter()
        .map(|one| one["sandbox"].as_str().unwrap_or_default().to_owned())
        .collect();
    team.end(&names.iter().collect::<Vec<_>>())
}

/// Starts a launch that waits for a node which never comes.
fn waiting(team: &Team, name: &str) -> Result<Running, Error> {
    let running = team
        .launch(name)
        .option(&["--node-selector", "podcradle.dev/nowhere=yes"])
        .start()?;
    running.wait_for_stderr("gate removed", WATCHDOG)?;
    Ok(running)
}

fn interrupted(arch: Arch) -> Outcome {
    let team = Team::new(arch, &[])?;
    let [stays, goes] = [team.actor.reserve("stays")?, team.actor.reserve("goes")?];
    team.launch(&stays).run()?;
    let anchor = team.anchor()?;
    let running = waiting(&team, &goes)?;
    running.signal(Signal::INT)?;
    running.wait(WATCHDOG)?.with_code(130)?;
    let admin = &team.actor.cluster.admin;
    admin.wait_gone("pod", &goes)?;
    let left = admin.left_of(&goes)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    ensure!(team.anchor()? == anchor, "the session was touched");
    let pod = admin.one("pod", &stays)?;
    ensure!(
        pod["metadata"]["deletionTimestamp"].is_null(),
        "the other one goes"
    );
    team.end(&[&stays])
}

fn killed(arch: Arch) -> Outcome {
    let team = Team::new(arch, &[])?;
    let reserved = team.actor.json(&["reserve", "again"])?;
    let text = |key: &str| reserved[key].as_str().unwrap_or_default().to_owned();
    let (name, id) = (text("sandbox"), text("launchId"));
    team.actor.own(&name);
    let launch = || team.launch(&name).option(&["--launch-id", &id]);
    let running = launch().start()?;
    running.wait_for_stderr("pod ", WATCHDOG)?;
    running.signal(Signal::KILL)?;
    running.wait(WATCHDOG)?;
    let pod = team.actor.cluster.admin.one("pod", &name)?;
    let expires = &pod["metadata"]["annotations"]["podcradle.dev/expires"];
    ensure!(expires.is_string(), "nobody will ever find it: {pod}");
    let first = launch().run()?;
    ensure!(first["adopted"] == true, "launched {first}");
    let again = launch().run()?;
    ensure!(
        again["podUid"] == first["podUid"],
        "launched {again} after {first}"
    );
    let pod = team.actor.cluster.admin.one("pod", &name)?;
    let annotations = &pod["metadata"]["annotations"];
    ensure!(
        annotations["podcradle.dev/expires"].is_null(),
        "not handed over: {pod}"
    );
    let generation = first["generation"].as_u64().unwrap_or_default();
    team.actor.run(&["delete", &name])?;
    let secret = format!("{name}-g{generation}-token");
    team.actor.cluster.admin.wait_gone("secret", &secret)?;
    team.end(&[&name])
}

fn went(arch: Arch) -> Outcome {
    let team = Team::new(arch, &[])?;
    let name = team.actor.reserve("went")?;
    let running = waiting(&team, &name)?;
    // Its Pods are the collector's.
    let admin = &team.actor.cluster.admin;
    admin.run(&["delete", "service", &team.session])?;
    let ended = running.wait(WATCHDOG)?.with_code(6)?.json()?;
    let error = &ended["error"];
    ensure!(error["reason"] == "DeletedBySomeone", "{error:#}");
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&team.session), "{message}");
    let again = team.launch(&name).try_run()?.with_code(5)?.json()?;
    ensure!(again["error"]["reason"] == "Session", "{again:#}");
    admin.wait_gone("pod", &name)?;
    admin.wait_gone("secret", &format!("{name}-g1-token"))?;
    Ok(())
}

fn refused(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let [own, other] = [actor.reserve("own")?, actor.reserve("other")?];
    actor.launch(&own).host(&SLEEP).run()?;
    let before = actor.cluster.admin.left_of(&own)?;
    for session in ["podcradle-nowhere-000000", &own] {
        let launch = actor.launch(&other).option(&["--session", session]);
        let error = launch.try_run()?.with_code(5)?.json()?["error"].clone();
        ensure!(error["reason"] == "Session", "{error:#}");
        ensure!(
            error["message"]
                .as_str()
                .unwrap_or_default()
                .contains(session),
            "{error:#}"
        );
    }
    let taken = actor.try_run(&["session", "create", &own])?.with_code(5)?;
    ensure!(taken.stderr.contains(&own), "{}", taken.stderr);
    let deleted = actor.try_run(&["session", "delete", &own])?.with_code(5)?;
    ensure!(
        deleted.stderr.contains(&format!("podcradle delete {own}")),
        "{}",
        deleted.stderr
    );
    ensure!(
        actor.cluster.admin.left_of(&own)? == before,
        "it was touched"
    );
    let left = actor.cluster.admin.left_of(&other)?;
    ensure!(left.is_empty(), "made: {left:?}");
    for (options, named) in [
        (&["--ttl", "1h"][..], "--ttl"),
        (&["--owner", "team-a"], "--owner"),
        (&["--egress", "192.0.2.0/24"], "--egress"),
        (&["--attach"], "--attach"),
    ] {
        let launch = actor
            .launch(&other)
            .option(&["--session", "podcradle-a-000000"]);
        let said = launch.option(options).try_run()?.with_code(2)?.stderr;
        ensure!(said.contains(named), "{options:?}: {said}");
    }
    actor.run(&["delete", &own])?;
    Ok(())
}

fn policy(arch: Arch) -> Outcome {
    let team = Team::new(arch, &["--network-policy", "--egress", "192.0.2.0/24"])?;
    let admin = &team.actor.cluster.admin;
    let policy = admin.one("networkpolicy", &team.session)?;
    let owner = &policy["metadata"]["ownerReferences"][0]["uid"];
    ensure!(*owner == team.anchor()?["uid"], "{policy:#}");
    let name = team.actor.reserve("inside")?;
    team.launch(&name).run()?;
    let selected = &policy["spec"]["podSelector"]["matchLabels"];
    let pod = admin.one("pod", &name)?;
    let labels = selected.as_object().into_iter().flatten();
    for (key, value) in labels {
        ensure!(
            pod["metadata"]["labels"][key] == *value,
            "not selected: {pod:#}"
        );
    }
    ensure!(
        selected["podcradle.dev/session"] == team.session,
        "{policy:#}"
    );
    team.end(&[&name])?;
    admin.wait_gone("networkpolicy", &team.session)?;
    Ok(())
}
