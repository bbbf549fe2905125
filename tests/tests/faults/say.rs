//! What the program says on standard error with `--progress json`: one object a
//! line for programs, whatever happens, and nothing in any other form.

use std::process::Stdio;

use podcradle_tests::e2e::{Ended, Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::{Fault, status};
use podcradle_tests::harness::{Outcome, Stop, Suite};
use podcradle_tests::pidns::Pty;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::ambiguous::once;
use super::program::program;
use super::support::{Bed, NAME};

pub fn add(suite: &mut Suite) {
    suite.test("a_failure_is_one_object_that_holds_all_of_it", failure);
    suite.test("failures_of_many_are_an_object_each", many);
    suite.test("what_is_wrong_before_a_launch_is_an_object", before);
    suite.test("the_words_of_others_never_have_the_token", || {
        let token = "a-token-that-nobody-may-see";
        let words = format!("cannot mount {token}");
        let stuck = json!({ "waiting": { "reason": "PodInitializing", "message": words } });
        let bed = Bed::new(vec![status(&stuck, &stuck)])?;
        let mut command = program(&bed)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("token");
        std::fs::write(&file, token)?;
        command.args(["--progress", "json", "--pull-timeout", "1s", "--token-file"]);
        let ended = Running::start(command.arg(file))?
            .wait(WATCHDOG)?
            .with_code(7)?;
        let said = &ended.stderr;
        ensure!(said.contains("cannot mount [redacted]"), "{said}");
        ensure!(!said.contains(token), "{said}");
        Ok(())
    });
    suite.test("the_log_is_an_object_a_line", log);
    suite.test("what_a_plugin_says_is_an_object_a_line", plugin);
    suite.test(
        "an_attached_process_that_is_interrupted_says_objects",
        attached,
    );
    suite.test("people_are_told_of_a_failure_in_lines", || {
        let bed = Bed::well()?;
        bed.api.script(once("POST", "pods", Fault::Refuse(403)));
        let mut command = program(&bed)?;
        let running = Running::start(command.args(["--progress", "none"]))?;
        let said = running.wait(WATCHDOG)?.with_code(4)?.stderr;
        let ours = |line: &str| line.starts_with("podcradle: ");
        ensure!(!said.is_empty() && said.lines().all(ours), "{said}");
        Ok(())
    });
}

/// The program with these options: how it ends, and each line as an object
/// that has its time.
fn told(bed: &Bed, options: &[&str], code: i32) -> Result<(Ended, Vec<Value>), Stop> {
    let mut command = program(bed)?;
    command.args(["--progress", "json"]).args(options);
    let ended = Running::start(&mut command)?
        .wait(WATCHDOG)?
        .with_code(code)?;
    let events = events(&ended)?;
    Ok((ended, events))
}

fn events(ended: &Ended) -> Result<Vec<Value>, Stop> {
    let mut events = Vec::new();
    for line in ended.stderr.lines() {
        let event: Value = serde_json::from_str(line)
            .map_err(|error| Stop::Failed(format!("{line:?} is no object: {error}")))?;
        ensure!(event["time"].is_string(), "{event}");
        events.push(event);
    }
    Ok(events)
}

/// Those of one kind.
fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == kind).collect()
}

fn failure() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once("POST", "pods", Fault::Refuse(403)));
    let (ended, events) = told(&bed, &["--sandbox", NAME, "-o", "json"], 4)?;
    let failed = events.last().ok_or("nothing was said")?;
    ensure!(
        failed["event"] == "failed" && failed["sandbox"] == NAME,
        "{failed}"
    );
    let result: Value = serde_json::from_str(&ended.stdout)?;
    for key in ["reason", "message", "hint", "cleanedUp"] {
        let (said, wanted) = (&failed[key], &result["error"][key]);
        ensure!(!wanted.is_null() && said == wanted, "{key}: {failed}");
    }
    ensure!(of(&events, "error").is_empty(), "told twice: {events:?}");
    Ok(())
}

fn many() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(|_, seen| match seen.resource.as_str() {
        "pods" if seen.verb == "POST" => Fault::Refuse(403),
        _ => Fault::None,
    });
    let (_, events) = told(&bed, &["--count", "3"], 4)?;
    let failed = of(&events, "failed");
    let policy = failed.iter().all(|event| event["reason"] == "Policy");
    ensure!(failed.len() == 3 && policy, "{events:?}");
    Ok(())
}

fn before() -> Outcome {
    let bed = Bed::well()?;
    for (options, message) in [
        (["--token-file", "/nowhere"], "/nowhere"),
        (["--memory-limit", "much"], "--memory-limit \"much\""),
        (["--kubeconfig", "/nowhere"], "/nowhere"),
    ] {
        let (_, events) = told(&bed, &options, 2)?;
        let [error] = events.as_slice() else {
            return Err(Stop::Failed(format!("not one event: {events:?}")));
        };
        let said = error["message"].as_str().unwrap_or_default();
        ensure!(
            error["event"] == "error" && said.contains(message),
            "{error}"
        );
    }
    Ok(())
}

fn log() -> Outcome {
    let bed = Bed::well()?;
    bed.api.script(once("POST", "services", Fault::Refuse(500)));
    let (_, events) = told(&bed, &["-v", "-o", "name"], 0)?;
    let again = |event: &&Value| {
        event["message"]
            .as_str()
            .is_some_and(|m| m.contains("trying again"))
    };
    ensure!(of(&events, "log").iter().any(again), "{events:?}");
    Ok(())
}

/// On a terminal it would write to it, as a person wants it.
fn plugin() -> Outcome {
    let bed = Bed::well()?;
    let kubeconfig = bed.kubeconfig();
    let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let script = r#"printf 'log in at\nhttps://login.example' >&2
        printf '{"status": {"token": "t"}}'"#;
    config["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable",
        "command": "/bin/sh", "args": ["-c", script],
    }});
    std::fs::write(kubeconfig, config.to_string())?;
    let mut pty = Pty::open()?;
    for form in ["json", "plain"] {
        let mut command = program(&bed)?;
        command.args(["--progress", form, "--wait", "none"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(pty.far_end()?).spawn()?;
        drop(command);
        ensure!(child.wait()?.success(), "{form}: it failed");
        let end = if form == "json" {
            "\"launched\""
        } else {
            "gate removed"
        };
        let shown = pty.screen.until(end)?;
        let told: Vec<Value> = shown
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let says = |text: &str| {
            told.iter().any(|event| {
                let message = event["message"].as_str();
                event["event"] == "log" && message.is_some_and(|said| said.ends_with(text))
            })
        };
        let said = says(": log in at") && says(": https://login.example");
        ensure!(said == (form == "json"), "{form}: {shown}");
        ensure!(shown.contains("log in at"), "{form}: {shown}");
        let all = shown
            .lines()
            .all(|line| line.is_empty() || line.starts_with('{'));
        ensure!(all == (form == "json"), "{form}: {shown}");
    }
    Ok(())
}

fn attached() -> Outcome {
    let bed = Bed::well()?;
    let mut command = program(&bed)?;
    command.args(["--attach", "--sandbox", NAME, "--progress", "json"]);
    let running = Running::start(&mut command)?;
    running.wait_for_stderr("\"launched\"", WATCHDOG)?;
    running.signal(Signal::INT)?;
    let ended = running.wait(WATCHDOG)?.with_code(130)?;
    let events = events(&ended)?;
    let error = of(&events, "error");
    let deleted = error
        .iter()
        .any(|event| event["message"] == format!("{NAME} was deleted"));
    ensure!(deleted, "{events:?}");
    Ok(())
}
