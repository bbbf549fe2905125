//! A launch again with the same launch id: after a SIGKILL at each step, and
//! from two processes at once, there is one sandbox and nothing beside it.

use podcradle_tests::e2e::{Actor, Arch, Error, Running, WATCHDOG, actor};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    (
        "killed_once_its_anchor_is_made_it_can_be_launched_again",
        |arch| after_kill(arch, "service ", 2),
    ),
    (
        "killed_once_its_pod_is_made_it_can_be_launched_again",
        |arch| after_kill(arch, "pod ", 2),
    ),
    (
        "killed_once_its_secret_is_made_it_can_be_launched_again",
        |arch| after_kill(arch, "secret ", 2),
    ),
    ("killed_once_its_gate_is_off_it_is_waited_for", killed_late),
    ("launched_again_it_is_the_same_sandbox", the_same),
    ("a_token_file_of_before_is_taken_again", token_file),
    ("two_processes_with_one_launch_id_make_one_sandbox", at_once),
];

const SLEEP: [&str; 2] = ["sleep", "1000"];

/// A reserved name with its launch id.
struct Reserved {
    actor: Actor,
    name: String,
    id: String,
}

impl Reserved {
    fn new(arch: Arch) -> Result<Self, Stop> {
        let actor = Actor::new(arch)?;
        let reserved = actor.json(&["reserve", "again"])?;
        let text = |key: &str| reserved[key].as_str().unwrap_or_default().to_owned();
        let (name, id) = (text("sandbox"), text("launchId"));
        actor.own(&name);
        Ok(Self { actor, name, id })
    }

    fn launch(&self) -> actor::Launch<'_> {
        let launch = self.actor.launch(&self.name);
        launch.option(&["--launch-id", &self.id]).host(&SLEEP)
    }

    /// One of each object, of this generation, and what the launch returned.
    fn whole(&self, launched: &Value, generation: u32) -> Outcome {
        let admin = &self.actor.cluster.admin;
        ensure!(launched["generation"] == generation, "launched {launched}");
        let pod = admin.one("pod", &self.name)?;
        ensure!(pod["metadata"]["uid"] == launched["podUid"], "another Pod");
        // What an earlier Pod owned follows it by the cluster's collector.
        for earlier in 1..generation {
            admin.wait_gone("secret", &format!("{}-g{earlier}-token", self.name))?;
        }
        let mut left = admin.left_of(&self.name)?;
        left.sort();
        let expected = [
            format!("Pod/{}", self.name),
            format!("Secret/{}-g{generation}-token", self.name),
            format!("Service/{}", self.name),
        ];
        ensure!(left == expected, "there are {left:?}");
        self.actor.run(&["delete", &self.name])?;
        admin.wait_gone("secret", &format!("{}-g{generation}-token", self.name))?;
        gone(&self.actor, &self.name)
    }
}

/// Starts a launch and kills it while the API server gets nothing more from it,
/// once it has said this.
fn killed_at(reserved: &Reserved, step: &str) -> Result<(), Error> {
    let running = reserved.launch().start()?;
    running.wait_for_stderr(step, WATCHDOG)?;
    running.signal(Signal::KILL)?;
    running.wait(WATCHDOG)?;
    Ok(())
}

/// How far the killed one came is a race with the kill, which is meant: it came
/// at least so far. Whether it let its Pod go decides what the second one does.
fn after_kill(arch: Arch, step: &str, generation: u32) -> Outcome {
    let reserved = Reserved::new(arch)?;
    killed_at(&reserved, step)?;
    let again = reserved.launch().run()?;
    ensure!(again["adopted"] == true, "launched {again}");
    let let_go = again["generation"] == 1;
    reserved.whole(&again, if let_go { 1 } else { generation })
}

fn killed_late(arch: Arch) -> Outcome {
    let reserved = Reserved::new(arch)?;
    killed_at(&reserved, "gate removed")?;
    let again = reserved.launch().run()?;
    ensure!(again["adopted"] == true, "launched {again}");
    ensure!(again["expires"].is_string(), "not handed over: {again}");
    reserved.whole(&again, 1)
}

fn the_same(arch: Arch) -> Outcome {
    let reserved = Reserved::new(arch)?;
    let first = reserved.launch().run()?;
    ensure!(first["adopted"] == false, "launched {first}");
    let again = reserved.launch().run()?;
    ensure!(
        again["adopted"] == true && again["podUid"] == first["podUid"],
        "launched {again} after {first}"
    );
    ensure!(again["expires"] == first["expires"], "its expiry moved");
    // A token that this launch makes is not the one the host has.
    let out = reserved.actor.folder().join("token");
    let out = out.to_string_lossy();
    let refused = reserved.launch().option(&["--token-out", &out]).try_run()?;
    let refused = refused.with_code(5)?.json()?;
    ensure!(
        refused["error"]["reason"] == "AlreadyLaunched",
        "refused: {refused}"
    );
    ensure!(
        !reserved.actor.folder().join("token").exists(),
        "a token that nobody has was left"
    );
    reserved.whole(&again, 1)
}

fn token_file(arch: Arch) -> Outcome {
    let reserved = Reserved::new(arch)?;
    let file = reserved.actor.folder().join("token");
    let out = file.to_string_lossy();
    let launch = || reserved.launch().option(&["--token-out", &out]);
    launch().run()?;
    let token = std::fs::read_to_string(&file)?;
    let again = launch().run()?;
    ensure!(again["adopted"] == true, "launched {again}");
    ensure!(std::fs::read_to_string(&file)? == token, "another token");
    reserved.whole(&again, 1)
}

fn at_once(arch: Arch) -> Outcome {
    let reserved = Reserved::new(arch)?;
    let both = [reserved.launch().start()?, reserved.launch().start()?];
    let ended = both.map(|running: Running| running.wait(WATCHDOG));
    let mut launched = Vec::new();
    for ended in ended {
        let ended = ended?;
        // The one that was taken over from says so, and nothing else went wrong.
        if ended.code == 0 {
            launched.push(ended.json()?);
        } else {
            let error = ended.with_code(5)?.json()?;
            ensure!(error["error"]["reason"] == "TakenOver", "{error}");
        }
    }
    let Some(one) = launched.last() else {
        return Err("neither has it".into());
    };
    ensure!(
        launched
            .iter()
            .all(|other| other["podUid"] == one["podUid"]),
        "two sandboxes: {launched:?}"
    );
    let generation = one["generation"].as_u64().unwrap_or_default();
    reserved.whole(one, u32::try_from(generation)?)
}
