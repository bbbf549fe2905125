//! `podcradle session` of the program: what it prints, and how it ends.

use podcradle_tests::e2e::{Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Suite};
use rustix::process::Signal;
use serde_json::Value;

use super::super::ambiguous::once;
use super::super::program::podcradle;
use super::super::support::Bed;
use super::TEAM;

pub fn add(suite: &mut Suite) {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        suite.test(
            format!("a_session_create_that_is_ended_with_{code}_leaves_nothing"),
            move || interrupted(signal, code),
        );
    }
    suite.test("a_session_create_that_fails_is_told_as_data_too", || {
        let bed = Bed::well()?;
        bed.api.script(once("POST", "services", Fault::Refuse(403)));
        for (options, code, reason) in [
            (&[TEAM][..], 4, "Policy"),
            (&["T"], 2, "Invalid"),
            (&["--name", "A"], 2, "Invalid"),
            (&[TEAM, "--ttl", "1s"], 2, "Invalid"),
            (&[TEAM, "--ttl", "1h", "--owner", "o"], 2, "Invalid"),
        ] {
            let mut command = podcradle(&bed)?;
            command
                .args(["session", "create", "-o", "json"])
                .args(options);
            let ended = Running::start(&mut command)?
                .wait(WATCHDOG)?
                .with_code(code)?;
            let error = &serde_json::from_str::<Value>(&ended.stdout)?["error"];
            ensure!(error["reason"] == reason, "{options:?}: {error}");
            let lines = ended.stderr.lines().count();
            ensure!(lines == 1, "{options:?}: {}", ended.stderr);
        }
        let left = bed.api.objects();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
    suite.test("sessions_are_printed_in_every_format", printed);
}

fn interrupted(signal: Signal, code: i32) -> Outcome {
    let bed = Bed::well()?;
    bed.api
        .script(once("PATCH", "services", Fault::DoneButSilent));
    let mut command = podcradle(&bed)?;
    command.args(["session", "create", TEAM, "--network-policy", "-o", "json"]);
    let running = Running::start(&mut command)?;
    bed.api.wait_for(|api| api.calls("PATCH services") == 1)?;
    running.signal(signal)?;
    let ended = running.wait(WATCHDOG)?.with_code(code)?;
    let error = &serde_json::from_str::<Value>(&ended.stdout)?["error"];
    ensure!(
        error["reason"] == "Cancelled" && error["cleanedUp"] == true,
        "{error}"
    );
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

fn printed() -> Outcome {
    let bed = Bed::well()?;
    let ran = |args: &[&str]| {
        let mut command = podcradle(&bed)?;
        command.arg("session").args(args);
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(0)?;
        Ok::<_, podcradle_tests::harness::Stop>(ended.stdout)
    };
    let name = ran(&["create", "--ttl", "none", "-o", "name"])?;
    let name = name.trim_end();
    ensure!(name.starts_with("podcradle-session-"), "{name}");
    let table = ran(&["list"])?;
    let rows: Vec<_> = table.lines().collect();
    ensure!(
        rows.len() == 2 && rows[0].starts_with("SESSION") && rows[1].starts_with(name),
        "{table}"
    );
    ensure!(
        ran(&["list", "-o", "name"])? == format!("{name}\n"),
        "other names"
    );
    for format in ["json", "yaml"] {
        let data = ran(&["list", "-o", format])?;
        ensure!(data.contains(name) && data.contains("Open"), "{data}");
        ensure!(!data.contains("expires"), "it never does: {data}");
    }
    let deleted = ran(&["delete", name, "-o", "json"])?;
    let deleted: Value = serde_json::from_str(&deleted)?;
    ensure!(
        deleted["session"] == name && deleted["deleted"] == "gone",
        "{deleted}"
    );
    Ok(())
}
