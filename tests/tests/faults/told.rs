//! What the program makes of what it is told, and says of what became of it.

use std::process::Stdio;

use podcradle_tests::e2e::{Running, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite};

use super::program::{podcradle, program};
use super::support::{Bed, NAME};

pub fn add(suite: &mut Suite) {
    suite.test("what_stays_and_could_not_be_printed_is_named", unprinted);
    suite.test("a_launch_again_by_another_spec_says_what_stays", other_spec);
    suite.test("standard_input_is_one_thing", stdin);
    suite.test("a_token_is_refused_by_the_flag_that_holds_it", token);
    suite.test("what_is_for_one_sandbox_is_not_for_copies", copies);
    suite.test("what_is_not_there_is_not_deleted", absent);
}

fn other_spec() -> Outcome {
    let bed = Bed::well()?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "the-callers-own")?;
    let launch = |options: &[&str]| {
        let mut command = program(&bed)?;
        command.args(["--sandbox", NAME, "--launch-id", "x", "-o", "json"]);
        command.arg("--token-file").arg(file.path());
        command.args(["--progress", "none"]).args(options);
        Ok::<_, Stop>(Running::start(&mut command)?.wait(WATCHDOG)?.with_code(0)?)
    };
    let other = ["--image", "localhost/image:2", "--", "agent"];
    launch(&[])?;
    // What a launch waits for is no part of the sandbox.
    let same = launch(&["--wait", "started", "--pull-timeout", "1m"])?;
    ensure!(
        same.stderr.is_empty() && same.json()?["differs"].is_null(),
        "{}",
        same.stderr
    );
    let ended = launch(&other)?;
    ensure!(
        ended.json()?["differs"] == serde_json::json!(["host", "image"]),
        "{}",
        ended.stdout
    );
    ensure!(
        ended.stderr.contains(NAME) && ended.stderr.contains("another host, image;"),
        "{}",
        ended.stderr
    );
    Ok(())
}

fn unprinted() -> Outcome {
    for many in [&[][..], &["--count", "2"]] {
        let bed = Bed::well()?;
        let mut command = program(&bed)?;
        command
            .args(["--progress", "none", "-o", "json"])
            .args(many);
        command.stdout(std::fs::File::options().write(true).open("/dev/full")?);
        command.stderr(Stdio::piped()).stdin(Stdio::null());
        let ended = command.spawn()?.wait_with_output()?;
        ensure!(ended.status.code() == Some(1), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        let mut anchors = bed.api.objects();
        anchors.retain(|object| object.starts_with("services/"));
        ensure!(!anchors.is_empty(), "nothing was launched");
        for anchor in anchors {
            let name = anchor.trim_start_matches("services/");
            ensure!(
                said.contains(&format!(" delete {name}\n")),
                "{name}: {said}"
            );
        }
    }
    Ok(())
}

fn stdin() -> Outcome {
    let bed = Bed::well()?;
    let mut command = program(&bed)?;
    command.args(["--file", "-", "--token-file", "-"]);
    let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
    ensure!(ended.stderr.contains("standard input"), "{}", ended.stderr);
    Ok(())
}

fn token() -> Outcome {
    let bed = Bed::well()?;
    let file = tempfile::NamedTempFile::new()?;
    for (token, flag, value, said) in [
        (
            "of-a-server",
            "--server",
            "https://of-a-server",
            "--server \"[redacted]\"",
        ),
        (
            "of-a-server",
            "--label",
            "a=of-a-server",
            "--label \"a=[redacted]\"",
        ),
        ("token", "--server", "https://a", "at least 8 bytes"),
    ] {
        std::fs::write(file.path(), token)?;
        let mut command = program(&bed)?;
        command
            .arg("--token-file")
            .arg(file.path())
            .args([flag, value]);
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
        ensure!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    Ok(())
}

fn copies() -> Outcome {
    let bed = Bed::well()?;
    for flag in ["--sandbox", "--launch-id", "--host-id", "--host-name"] {
        let mut command = program(&bed)?;
        command.args(["--count", "2", flag, "podcradle-q"]);
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
        let said = &ended.stderr;
        ensure!(
            said.lines().count() == 1 && said.contains("for one sandbox only"),
            "{flag}: {said}"
        );
    }
    ensure!(bed.api.calls().is_empty(), "{:?}", bed.api.calls());
    Ok(())
}

fn absent() -> Outcome {
    let bed = Bed::well()?;
    for verb in [&["delete"][..], &["session", "delete"]] {
        let ended = |options: &[&str]| {
            let mut command = podcradle(&bed)?;
            command.args(verb).arg("podcradle-none").args(options);
            Ok::<_, Stop>(Running::start(&mut command)?.wait(WATCHDOG)?)
        };
        let said = ended(&[])?.with_code(5)?.stderr;
        ensure!(said.contains("podcradle-none does not exist"), "{said}");
        ended(&["--ignore-not-found"])?.with_code(0)?;
    }
    Ok(())
}
