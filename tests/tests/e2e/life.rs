//! The main road: reserve, launch, dial in, reap, list, logs, status, delete,
//! and nothing left.

use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::stage::HOST;
use podcradle_tests::e2e::{Actor, Arch, Running, Stage, WATCHDOG, hexadecimal};
use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::testserver::{Order, digest};

use crate::Test;

pub const TESTS: &[(&str, Test)] = &[
    ("from_reserve_to_nothing_left", whole_life),
    ("five_hundred_orphans_leave_no_zombie", orphans),
    ("the_token_made_for_the_caller_is_the_host_s", token_out),
    ("logs_follow_until_the_host_ends", follow),
];

fn whole_life(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let repository = Repository::serve(actor.cluster.address)?;
    let options = ["--repo", &repository.url(), "--branch", "other"];
    let stage = Stage::set_with(actor, "life", &options, &HOST)?;
    let (actor, name) = (&stage.actor, &stage.name);

    let workspace = stage.launched["workspace"].as_str().unwrap_or_default();
    ensure!(
        workspace == "/home/sandbox/workspace/hello",
        "the workspace is {workspace:?}"
    );
    ensure!(
        stage.launched["sandbox"] == **name,
        "launched: {}",
        stage.launched
    );
    ensure!(
        stage.says["pid1"] == "podcradle-init",
        "PID 1 as the host sees it: {}",
        stage.says["pid1"]
    );
    ensure!(
        stage.says["arch"] == arch.machine(),
        "the host runs on {}",
        stage.says["arch"]
    );
    let cloned = stage.order("read", &["cat", &format!("{workspace}/README.md")])?;
    ensure!(
        cloned["stdout"] == "hello from other\n",
        "the clone holds {cloned}"
    );

    let list = actor.run(&["list"])?.stdout;
    ensure!(
        list.contains(name.as_str()),
        "list does not name it: {list}"
    );
    let wide = actor.run(&["list", "-o", "wide"])?.stdout;
    let uid = stage.launched["podUid"].as_str().unwrap_or("no uid");
    let row = wide.lines().find(|line| line.starts_with(name.as_str()));
    ensure!(
        row.is_some_and(|row| row.contains(uid)) && wide.contains("LAUNCH ID"),
        "the wide list lacks the Pod's uid: {wide}"
    );
    ensure!(!list.contains(uid), "the narrow list is wide: {list}");
    let refused = actor.try_run(&["logs", "no/name"])?.with_code(2)?.stderr;
    ensure!(
        refused.contains("no/name"),
        "logs of a wrong name: {refused}"
    );
    let logs = actor.run(&["logs", name])?.stdout;
    for text in ["pid1=podcradle-init", "host: dialled in"] {
        ensure!(logs.contains(text), "no {text:?} in the logs: {logs}");
    }
    let status = actor.json(&["status", name])?;
    ensure!(
        status["host"]["state"] == "running",
        "status of a running host: {status}"
    );

    let deleted = actor.run(&["delete", name])?;
    let pod = actor.cluster.admin.find("pod", name)?;
    ensure!(pod.is_none(), "delete returned before the Pod was gone");
    let secret = actor
        .cluster
        .admin
        .wait_gone("secret", &format!("{name}-g1-token"))?;
    let left = actor.cluster.admin.left_of(name)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    println!(
        "measured: {}: delete took {:?}, the Secret was gone {:?} later; launch: {}",
        arch.name(),
        deleted.took,
        secret,
        stage.launched["timings"]
    );
    Ok(())
}

fn orphans(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "orphans", &[])?;
    let left = stage.orphans("leave", 500)?;
    ensure!(left["exitCode"] == 0, "leaving orphans: {left}");
    // Those that die at this moment may be seen for a moment; one that stays
    // keeps the loop going until the watchdog ends the test.
    let script = "while grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done; echo none";
    let zombies = stage.order("zombies", &["sh", "-c", script])?;
    ensure!(
        zombies["stdout"] == "none\n",
        "looking for zombies: {zombies}"
    );
    let count = "ls -d /proc/[0-9]* | wc -l";
    let processes = stage.order("count", &["sh", "-c", count])?;
    let text = processes["stdout"].as_str().unwrap_or_default();
    let number: u32 = text.trim().parse()?;
    // PID 1, the host, the shell and what it runs.
    ensure!(number < 10, "{number} processes in the sandbox");
    Ok(())
}

fn token_out(arch: Arch) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let actor = Actor::new(arch)?;
    let file = actor.folder().join("token-out");
    let name = actor.reserve("token-out")?;
    actor
        .launch(&name)
        .option(&["--token-out", &file.to_string_lossy()])
        .host(&[
            "sh",
            "-c",
            r#"printf %s "$PODCRADLE_HOST_TOKEN" | sha256sum; exec sleep 1000"#,
        ])
        .run()?;
    let token = std::fs::read_to_string(&file)?;
    let mode = std::fs::metadata(&file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "the token file's mode is {mode:o}");
    ensure!(
        token.trim_end().len() >= 43,
        "{} characters cannot hold 256 bits",
        token.trim_end().len()
    );
    let expected = hexadecimal(&digest(token.trim_end()));
    let logs = Running::start(&mut actor.podcradle(&["logs", "-f", &name]))?;
    logs.wait_for_stdout(&expected, WATCHDOG)?;
    Ok(())
}

fn follow(arch: Arch) -> Outcome {
    let stage = Stage::set(arch, "follow", &[])?;
    let follow = &mut stage.actor.podcradle(&["logs", "-f", &stage.name]);
    let follow = Running::start(follow)?;
    follow.wait_for_stdout("host: dialled in", WATCHDOG)?;
    stage.server.order(
        &stage.name,
        vec![Order::run("end", &["sh", "-c", "kill -TERM 1"])],
    );
    let ended = follow.wait(WATCHDOG)?.with_code(0)?;
    ensure!(
        ended.stdout.contains("saying goodbye"),
        "the last line is missing: {}",
        ended.stdout
    );
    Ok(())
}
