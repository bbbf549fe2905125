//! What a launch says of its progress: for people line by line in place, for
//! programs an object a line with every field that the README names.

use std::process::Stdio;

use podcradle_tests::e2e::{Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, going_well};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use podcradle_tests::pidns::Pty;
use serde_json::{Value, json};

use super::ambiguous::once;
use super::program::program;
use super::support::{Bed, NAME};

pub fn add(suite: &mut Suite) {
    suite.test("a_terminal_shows_a_live_line_for_each_of_several", several);
    suite.test("progress_for_programs_has_its_fields", fields);
}

fn several() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let mut pty = Pty::open()?;
    pty.resize(24, 120)?;
    let mut command = program(&bed)?;
    command
        .args(["--name", "live", "--count", "3", "-o", "name"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(pty.far_end()?);
    let child = command.spawn()?;
    drop(command);
    bed.api.wait_for(|api| api.calls("PATCH pods") == 3)?;
    let names: Vec<_> = bed.api.objects();
    let names = names.iter().filter_map(|name| name.strip_prefix("pods/"));
    let names: Vec<_> = names.map(str::to_owned).collect();
    ensure!(names.len() == 3, "{names:?}");
    // All are drawn anew time and again: below each other, so with moves up.
    let mut shown = String::new();
    for name in &names {
        shown += &pty.screen.until(&format!("{name} ["))?;
    }
    shown += &pty.screen.until("no node yet")?;
    bed.api.run_all(going_well());
    for _ in &names {
        shown += &pty.screen.until("launched")?;
    }
    ensure!(
        shown.contains("\x1b[1A") || shown.contains("\x1b[2A"),
        "not in place: {shown:?}"
    );
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout)?;
    for name in &names {
        ensure!(said.lines().any(|line| line == name), "no {name} in {said}");
    }
    Ok(())
}

/// One launch that goes through all of it, then the same again.
fn fields() -> Outcome {
    let bed = Bed::new(Vec::new())?;
    bed.api.script(once("POST", "pods", Fault::Quota));
    let token = tempfile::NamedTempFile::new()?;
    std::fs::write(token.path(), "a-token-of-a-caller-that-is-long-enough")?;
    let run = |go: &dyn Fn(&Running) -> Outcome| {
        let mut command = program(&bed)?;
        command
            .args(["--sandbox", NAME, "--launch-id", "0123456789abcdef"])
            .args(["--progress", "json", "-o", "json", "--token-file"])
            .arg(token.path());
        let launch = Running::start(&mut command)?;
        go(&launch)?;
        let ended = launch.wait(WATCHDOG)?.with_code(0)?;
        let lines = ended.stderr.lines().map(serde_json::from_str::<Value>);
        let mut lines = lines.collect::<Result<Vec<_>, _>>()?;
        for line in &mut lines {
            let time = line.as_object_mut().and_then(|line| line.remove("time"));
            let time = time.as_ref().and_then(Value::as_str).unwrap_or_default();
            time.parse::<jiff::Timestamp>()?;
        }
        Ok::<_, Stop>(lines)
    };
    let event = |event: &str, more: Value| {
        let mut line = more;
        line["event"] = json!(event);
        line["sandbox"] = json!(NAME);
        line
    };
    let created = |kind: &str, name: &str| event("created", json!({ "kind": kind, "name": name }));
    // One state after the other, each once the one before was seen.
    let first = run(&|launch| {
        let seen = ["PodInitializing", "workspace-prep runs", "", ""];
        for (status, seen) in going_well().into_iter().zip(seen) {
            bed.api.wait_for(|api| api.calls("WATCH pods") > 0)?;
            bed.api.change("pods", NAME, |pod| pod["status"] = status);
            launch.wait_for_stderr(seen, WATCHDOG)?;
        }
        Ok(())
    })?;
    let secret = format!("{NAME}-g1-token");
    for line in [
        created("service", NAME),
        created("pod", NAME),
        created("secret", &secret),
        event("gateRemoved", json!({})),
        event("ready", json!({})),
        event("launched", json!({})),
    ] {
        let times = first.iter().filter(|said| **said == line).count();
        ensure!(times == 1, "{times} times {line} in {first:#?}");
    }
    let waiting = first.iter().filter(|line| line["event"] == "waiting");
    let waiting: Vec<_> = waiting.collect();
    ensure!(
        waiting.len() + 6 == first.len(),
        "something else: {first:#?}"
    );
    ensure!(
        waiting
            .iter()
            .all(|line| line.as_object().is_some_and(|l| l.len() == 4)),
        "{waiting:?}"
    );
    let why = |stage: &str, part: &str| {
        let says = |line: &&&Value| line["why"].as_str().is_some_and(|why| why.contains(part));
        waiting
            .iter()
            .filter(|line| line["stage"] == stage)
            .any(|line| says(&line))
    };
    ensure!(
        why("schedule", "exceeded quota"),
        "no quota in {waiting:#?}"
    );
    ensure!(
        why("pull", "workspace-prep: PodInitializing"),
        "{waiting:#?}"
    );
    ensure!(why("init", "workspace-prep runs"), "{waiting:#?}");
    let again = run(&|_| Ok(()))?;
    let adopted = event("adopted", json!({ "name": NAME }));
    ensure!(again.first() == Some(&adopted), "not adopted: {again:#?}");
    let made = again.iter().any(|line| line["event"] == "created");
    ensure!(
        !made && again.last() == Some(&event("launched", json!({}))),
        "{again:#?}"
    );
    Ok(())
}
