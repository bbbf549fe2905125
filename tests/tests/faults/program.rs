//! The program itself against the fake: what a terminal shows, and what a
//! thousand launches in flight take.

use std::process::{Command, Stdio};

use podcradle_tests::e2e::{Cluster, Running, WATCHDOG, native};
use podcradle_tests::ensure;
use podcradle_tests::fakeapi::Fault;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use podcradle_tests::pidns::Pty;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::ambiguous::once;
use super::support::{Bed, NAME};

/// What is promised, in kB.
const MOST: u64 = 40 << 10;

/// A build that is stripped and optimized has a third of this, in bytes.
const RELEASE: u64 = 30 << 20;

pub fn add(suite: &mut Suite) {
    suite.test("a_terminal_shows_one_live_line_a_sandbox", live);
    suite.test("nobody_to_tell_is_no_reason_to_leave_anything", unheard);
    suite.test("a_terminal_that_is_gone_leaves_nothing", hung_up);
    suite.test("a_terminal_that_is_gone_ends_nothing_under_nohup", nohup);
    suite.test("what_never_began_is_told_as_data_too", || {
        let bed = Bed::well()?;
        bed.api.script(once("POST", "leases", Fault::Refuse(403)));
        for (options, code, reason) in [
            (&["--grace", "60", "--run-as", "0"][..], 2, "Invalid"),
            (&["--kubeconfig", "/nowhere"], 2, "Invalid"),
            (&["--attach"], 4, "Policy"),
        ] {
            let mut command = program(&bed)?;
            command.args(["-o", "json"]).args(options);
            let ended = Running::start(&mut command)?
                .wait(WATCHDOG)?
                .with_code(code)?;
            let error = &serde_json::from_str::<Value>(&ended.stdout)?["error"];
            let text = error["message"].as_str().unwrap_or_default();
            ensure!(error["reason"] == reason, "{options:?}: {error}");
            let missing: Vec<_> = text
                .lines()
                .filter(|line| !ended.stderr.contains(line))
                .collect();
            ensure!(
                !text.is_empty() && missing.is_empty(),
                "{missing:?} is not in {}",
                ended.stderr
            );
        }
        let left = bed.api.objects();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
    suite.test("a_dry_run_refuses_what_it_would_ignore", || {
        let bed = Bed::well()?;
        for option in [
            &["--count", "2"][..],
            &["--attach"],
            &["--token-out", "x"],
            &["--token-file", "x"],
        ] {
            let mut command = program(&bed)?;
            command.arg("--dry-run=client").args(option);
            let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
            let said = &ended.stderr;
            ensure!(
                said.lines().count() == 1 && said.contains(option[0]),
                "{said}"
            );
        }
        Ok(())
    });
    suite.test(
        "what_a_dry_run_meets_first_is_told_as_a_launch_would",
        looked_at,
    );
    suite.test("a_limit_alone_takes_the_default_request_along", lowered);
    suite.test("a_failure_by_another_name_goes_by_that_name", renamed);
    suite.test("a_thousand_in_flight_take_no_more_than_promised", thousand);
}

fn looked_at() -> Outcome {
    let bed = Bed::well()?;
    bed.api.admission(|resource, object| {
        if resource == "pods" {
            object["spec"]["hostNetwork"] = true.into();
        }
    });
    bed.api.script(|_, seen| match seen.resource.as_str() {
        "secrets" => Fault::Refuse(422),
        _ => Fault::None,
    });
    for verb in ["launch", "render"] {
        let mut command = podcradle(&bed)?;
        command.args([verb, "--image", "localhost/image:1", "-o", "json"]);
        command.arg("--dry-run=server");
        let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(4)?;
        let error = &ended.json()?["error"];
        let message = error["message"].as_str().unwrap_or_default();
        ensure!(
            error["reason"] == "AdmissionChanged" && message.contains("hostNetwork"),
            "{verb}: {error}"
        );
        // People are told of all.
        for said in [message, "create secrets"] {
            ensure!(ended.stderr.contains(said), "{verb}: {}", ended.stderr);
        }
    }
    let mut command = podcradle(&bed)?;
    command.args(["render", "--grace", "60", "-o", "json"]);
    let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(2)?;
    let error = &ended.json()?["error"];
    ensure!(error["reason"] == "Invalid", "{error}");
    let left = bed.api.objects();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

fn lowered() -> Outcome {
    let bed = Bed::well()?;
    let asked = |options: &[&str]| {
        let mut command = program(&bed)?;
        command.args(["--dry-run=client", "-o", "json"]);
        command.args(["--memory-limit", "512Mi"]).args(options);
        Ok::<_, Stop>(Running::start(&mut command)?.wait(WATCHDOG)?)
    };
    let made = asked(&[])?.with_code(0)?.json()?;
    let items = made["items"].as_array().cloned().unwrap_or_default();
    let pod = items.iter().find(|object| object["kind"] == "Pod");
    let spec = &pod.ok_or("no Pod")?["spec"];
    for container in [&spec["initContainers"][0], &spec["containers"][0]] {
        let resources = &container["resources"];
        let memory = |kind: &str| resources[kind]["memory"].as_str();
        ensure!(
            memory("requests") == Some("512Mi") && memory("limits") == Some("512Mi"),
            "{resources}"
        );
    }
    let said = asked(&["--memory-request", "1Gi"])?.with_code(2)?.stderr;
    let named = "--memory-request \"1Gi\": must not be above its limit 512Mi";
    ensure!(said.contains(named), "{said}");
    Ok(())
}

/// `podcradle launch` of the program under test, pointed at the fake.
pub fn program(bed: &Bed) -> Result<Command, Stop> {
    let mut command = podcradle(bed)?;
    command.args(["launch", "--image", "localhost/image:1"]);
    Ok(command)
}

/// The same without a verb.
pub fn podcradle(bed: &Bed) -> Result<Command, Stop> {
    let program = Cluster::launcher(native()).map_err(skip)?;
    let mut command = Command::new(program);
    // What steers the tests is not meant for it.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PODCRADLE_") {
            command.env_remove(name);
        }
    }
    command.env("KUBECONFIG", bed.kubeconfig());
    Ok(command)
}

fn live() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let mut pty = Pty::open()?;
    let mut command = program(&bed)?;
    command
        .args(["--sandbox", NAME, "-o", "name"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(pty.far_end()?);
    let child = command.spawn()?;
    drop(command);
    let shown = pty.screen.until("no node yet")?;
    // One line, drawn anew in place; plain output would be several.
    let moves = |text: &str| text.contains('\r') && text.contains("\x1b[");
    ensure!(shown.contains(NAME) && moves(&shown), "shown: {shown:?}");
    bed.api.run_all(podcradle_tests::fakeapi::going_well());
    let shown = pty.screen.until("launched")?;
    ensure!(shown.contains(NAME), "shown: {shown:?}");
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(
        output.stdout == format!("{NAME}\n").as_bytes(),
        "{output:?}"
    );
    Ok(())
}

/// An ssh that breaks off: what is said goes nowhere, and the signal comes twice.
fn hung_up() -> Outcome {
    for options in [&[][..], &["--attach"]] {
        let bed = Bed::well()?;
        bed.api.kubelet(Vec::new());
        let pty = Pty::open()?;
        // Whatever the tests themselves were started with.
        let mut command = through(&["env", "--default-signal=HUP"], &program(&bed)?);
        command.args(options).stdin(Stdio::null());
        command.stdout(pty.far_end()?).stderr(pty.far_end()?);
        let mut child = command.spawn()?;
        drop(command);
        bed.api.wait_for(|so_far| so_far.calls("PATCH pods") > 0)?;
        // The answer comes after the second signal.
        bed.api.script(once("DELETE", "services", Fault::Hold));
        drop(pty);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("no pid")?;
        kill_process(pid, Signal::HUP)?;
        bed.api
            .wait_for(|so_far| so_far.calls("DELETE services") > 0)?;
        kill_process(pid, Signal::HUP)?;
        bed.api.release();
        let ended = child.wait()?;
        ensure!(ended.code() == Some(129), "{options:?}: {ended:?}");
        bed.api.collect();
        let left = bed.api.objects();
        ensure!(left.is_empty(), "{options:?}: {left:?}");
    }
    Ok(())
}

/// The same program, executed by another one.
fn through(by: &[&str], program: &Command) -> Command {
    let mut command = Command::new(by[0]);
    command.args(&by[1..]);
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn nohup() -> Outcome {
    let bed = Bed::well()?;
    bed.api.kubelet(Vec::new());
    let mut command = through(&["nohup"], &program(&bed)?);
    let running = Running::start(&mut command)?;
    bed.api.wait_for(|so_far| so_far.calls("WATCH pods") > 0)?;
    running.signal(Signal::HUP)?;
    bed.api.run_all(podcradle_tests::fakeapi::going_well());
    running.wait(WATCHDOG)?.with_code(0)?;
    Ok(())
}

/// `2>&1 | tee log`, whose reader Ctrl-C ends first; and a log on a full disk.
fn unheard() -> Outcome {
    for form in ["plain", "json", "none"] {
        for full in [false, true] {
            let bed = Bed::well()?;
            bed.api.kubelet(Vec::new());
            let mut command = program(&bed)?;
            command.args(["--progress", form]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let reader = if full {
                command.stderr(std::fs::File::options().write(true).open("/dev/full")?);
                None
            } else {
                let (reader, writer) = std::io::pipe()?;
                command.stderr(writer);
                Some(reader)
            };
            let mut child = command.spawn()?;
            drop(command);
            bed.api.wait_for(|so_far| so_far.calls("PATCH pods") > 0)?;
            drop(reader);
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.ok_or("no pid")?, Signal::INT)?;
            let ended = child.wait()?;
            ensure!(ended.code() == Some(130), "{form}, {full}: {ended:?}");
            bed.api.collect();
            let left = bed.api.objects();
            ensure!(left.is_empty(), "{form}, {full}: {left:?}");
        }
    }
    Ok(())
}

/// A generated name that is taken gets another; what fails then, and may be
/// left, is named by it, and so is the file of its token.
fn renamed() -> Outcome {
    let bed = Bed::well()?;
    let dir = tempfile::tempdir()?;
    let mut first = true;
    bed.api.script(
        move |_, seen| match (seen.verb.as_str(), seen.resource.as_str()) {
            ("POST", "services") if std::mem::take(&mut first) => Fault::Taken,
            ("POST", "pods") => Fault::Refuse(422),
            ("DELETE", "services") => Fault::Refuse(403),
            _ => Fault::None,
        },
    );
    let mut command = program(&bed)?;
    command.args(["--count", "1", "--progress", "json", "-o", "json"]);
    command.arg("--token-out").arg(dir.path());
    let ended = Running::start(&mut command)?.wait(WATCHDOG)?.with_code(8)?;
    let anchors = bed.api.objects();
    let result: Value = serde_json::from_str(&ended.stdout)?;
    let name = result[0]["sandbox"].as_str().unwrap_or_default();
    let left = format!("services/{name}");
    ensure!(
        anchors.len() == 2 && anchors.contains(&left),
        "{anchors:?}, {result}"
    );
    let files: Vec<_> = std::fs::read_dir(dir.path())?.collect::<Result<_, _>>()?;
    ensure!(
        files.len() == 1 && files[0].file_name() == name,
        "{files:?}"
    );
    let events: Vec<Value> = ended
        .stderr
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let made = events.iter().position(|event| event["name"] == name);
    let after = &events[made.ok_or("its creation was not said")?..];
    ensure!(
        after.len() > 1 && after.iter().all(|event| event["sandbox"] == name),
        "{events:?}"
    );
    let last = events.last().ok_or("no events")?;
    ensure!(last["event"] == "failed", "{last}");
    Ok(())
}

fn thousand() -> Outcome {
    let built = Cluster::launcher(native()).map_err(skip)?;
    if std::fs::metadata(&built)?.len() > RELEASE {
        return Err(skip(format!(
            "{} is no release build, and its memory is not what is promised",
            built.display()
        )));
    }
    let bed = Bed::new(Vec::new())?;
    let mut command = program(&bed)?;
    command.args(["--count", "1000", "--concurrency", "1000"]);
    command.args(["--progress", "none", "-o", "name", "--timeout", "10m"]);
    let running = Running::start(&mut command)?;
    // All their gates are off, and all are waited for.
    bed.api.wait_for(|api| api.calls("PATCH pods") == 1000)?;
    let status = format!("/proc/{}/status", running.pid());
    let status = std::fs::read_to_string(status)?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok())
        .ok_or("no VmHWM")?;
    running.signal(Signal::INT)?;
    let ended = running.wait(WATCHDOG)?;
    println!(
        "measured: 1000 in flight: peak RSS {peak} kB; all deleted in {:?}",
        ended.took
    );
    ensure!(ended.code == 130, "{}: {}", ended.code, ended.stderr);
    bed.api.collect();
    let left = bed.api.objects();
    ensure!(left.is_empty(), "left: {left:?}");
    ensure!(peak <= MOST, "peak RSS {peak} kB, promised are {MOST} kB");
    Ok(())
}
