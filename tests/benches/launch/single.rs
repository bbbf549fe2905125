//! One launch at a time, in turn with `poller.py`. When the host ran is taken
//! from the API server's own log of the kubelet's write, since `startedAt` has
//! whole seconds.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use podcradle_tests::e2e::audit::{self, Request};
use podcradle_tests::e2e::{Actor, Error, NAMESPACE, native};
use serde_json::{Value, json};

use crate::process::{Took, Traced};
use crate::quantile;
use crate::table::Table;

const ROUNDS: usize = 30;
/// The poller waits whole seconds, so fewer say as much.
const POLLER_EVERY: usize = 3;
/// For what takes milliseconds.
const WATCHDOG: Duration = Duration::from_secs(30);
const POLLER: &str = include_str!("poller.py");

#[derive(Default)]
struct Figures {
    to_gate: Vec<f64>,
    after_running: Vec<f64>,
    cpu: Vec<f64>,
    peak: Vec<f64>,
}

/// Adds the rows of launches one by one.
pub fn measure(table: &mut Table) -> Result<(), Error> {
    let actor = Actor::new(native())?;
    let Ok(log) = actor.cluster.audit.as_ref() else {
        table.absent("launch", "the audit log cannot be read here");
        return Ok(());
    };
    let (mut ours, mut poller) = (Figures::default(), Figures::default());
    // Of the launch that took most.
    let mut calls = Vec::new();
    for round in 0..ROUNDS {
        let name = actor.reserve("bench")?;
        let before = audit::requests(log, &actor.credential)?.len();
        let took = launch(&actor, &name)?;
        ours.add(log, &name, &took)?;
        let of_this = audit::requests(log, &actor.credential)?.split_off(before);
        let gate = of_this.iter().find(|call| call.short() == "patch pods");
        let gate = gate.ok_or_else(|| Error::Missing("no write of the gate".to_owned()))?;
        ours.to_gate
            .push(milliseconds(took.begun, at(&gate.stage_timestamp)?));
        if of_this.len() > calls.len() {
            calls = of_this;
        }
        if round % POLLER_EVERY == 0 {
            let beside = format!("{name}-poller");
            let took = poll(&actor, &name, &beside)?;
            poller.add(log, &beside, &took)?;
            actor
                .cluster
                .admin
                .run(&["delete", "pod", &beside, "--wait=false"])?;
        }
        actor.run(&["delete", &name])?;
    }
    rows(table, &ours, &poller);
    report_calls(table, &calls);
    in_session(table, &actor, log)
}

/// What launches into a shared session ask, by a process that makes several.
#[allow(clippy::cast_precision_loss, reason = "a handful of calls")]
fn in_session(table: &mut Table, actor: &Actor, log: &Path) -> Result<(), Error> {
    let made = actor.json(&["session", "create", "--name", "bench"])?;
    let session = made["session"].as_str().unwrap_or_default();
    actor.own(session);
    let before = audit::requests(log, &actor.credential)?.len();
    let count = ROUNDS.to_string();
    let launch = actor.launch_many("bench");
    let launch = launch.option(&["--session", session, "--count", &count]);
    launch
        .option(&["--concurrency", "1"])
        .host(&["sleep", "1000"])
        .run()?;
    let calls = audit::requests(log, &actor.credential)?.split_off(before);
    let each = |verbs: &[&str]| number(&calls, verbs) / ROUNDS as f64;
    let what = "in a shared session: writes, hand-over included";
    table.owed(what, each(&WRITES), "", 4.0, "");
    table.owed(
        "in a shared session: watches",
        each(&["watch"]),
        "",
        1.0,
        "",
    );
    let reads = number(&calls, &["get", "list"]);
    let beside = format!("of {count} launches by one process");
    table.owed(
        "in a shared session: reads, all of them",
        reads,
        "",
        1.0,
        &beside,
    );
    actor.run(&["session", "delete", session])?;
    Ok(())
}

const WRITES: [&str; 4] = ["create", "patch", "update", "delete"];

#[allow(clippy::cast_precision_loss, reason = "a handful of calls")]
fn number(calls: &[Request], verbs: &[&str]) -> f64 {
    let calls = calls.iter();
    calls
        .filter(|call| verbs.contains(&call.verb.as_str()))
        .count() as f64
}

impl Figures {
    fn add(&mut self, log: &Path, pod: &str, took: &Took) -> Result<(), Error> {
        let running = host_running(log, pod)?;
        self.after_running
            .push(milliseconds(at(&running)?, took.ended));
        self.cpu.push(took.cpu);
        self.peak.push(took.peak);
        Ok(())
    }
}

/// When the API server had written that the host runs. The watch may say so
/// before the line is in the log, and nothing announces that one.
fn host_running(log: &Path, pod: &str) -> Result<String, Error> {
    let begun = Instant::now();
    while begun.elapsed() < WATCHDOG {
        if let Some(running) = audit::host_running(log, pod)? {
            return Ok(running);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(Error::Missing(format!(
        "{pod}: nobody wrote that its host runs"
    )))
}

fn rows(table: &mut Table, ours: &Figures, poller: &Figures) {
    for (share, word, owed) in [(0.5, "p50", 50.0), (0.99, "p99", 100.0)] {
        let what = format!("start to the gate's removal, {word}");
        table.owed(&what, quantile(&ours.to_gate, share), "ms", owed, "");
    }
    for (share, word, owed) in [(0.5, "p50", 20.0), (0.99, "p99", 50.0)] {
        let what = format!("Running written to the return, {word}");
        let beside = format!("poller {:.0} ms", quantile(&poller.after_running, share));
        table.owed(
            &what,
            quantile(&ours.after_running, share),
            "ms",
            owed,
            &beside,
        );
    }
    let beside = format!("poller {:.0} ms", quantile(&poller.cpu, 0.5));
    table.plain(
        "CPU of a process for one launch, p50",
        quantile(&ours.cpu, 0.5),
        "ms",
        &beside,
    );
    let beside = format!("poller {:.0} kB", quantile(&poller.peak, 1.0));
    let peak = quantile(&ours.peak, 1.0);
    table.owed("peak RSS, 1 in flight", peak, "kB", 10_240.0, &beside);
}

fn report_calls(table: &mut Table, calls: &[Request]) {
    let short: Vec<_> = calls.iter().map(Request::short).collect();
    let list = short.join(", ");
    table.owed(
        "writes, hand-over included",
        number(calls, &WRITES),
        "",
        5.0,
        &list,
    );
    table.owed("watches", number(calls, &["watch"]), "", 1.0, "");
    table.owed("reads", number(calls, &["get", "list"]), "", 0.0, "");
}

fn launch(actor: &Actor, name: &str) -> Result<Took, Error> {
    let mut command = actor.launch(name).host(&["sleep", "1000"]).command();
    run(&mut command, actor.folder(), name, "")
}

/// The same Pod, made by the poller.
fn poll(actor: &Actor, like: &str, name: &str) -> Result<Took, Error> {
    actor.own(name);
    let admin = &actor.cluster.admin;
    let mut pod = admin.one("pod", like)?;
    pod["metadata"] = json!({ "name": name });
    pod["status"] = Value::Null;
    pod["spec"]["nodeName"] = Value::Null;
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        if volume.get("secret").is_some() {
            volume["secret"]["secretName"] = json!(name);
        }
    }
    // Like the launcher's own, it goes with its Pod when the actor tidies up.
    let secret = json!({ "metadata": { "name": name }, "stringData": { "token": "x" } });
    let (server, ca, token) = actor.credentials();
    let asked = json!({
        "server": server, "ca": ca, "token": token,
        "namespace": NAMESPACE, "secret": secret, "pod": pod,
    });
    let mut command = Command::new("python3");
    command.args(["-c", POLLER]);
    let took = run(&mut command, actor.folder(), name, &asked.to_string());
    admin.run(&["delete", "secret", name])?;
    took
}

/// Runs it to its success, with this as its input.
fn run(command: &mut Command, folder: &Path, name: &str, input: &str) -> Result<Took, Error> {
    let log = folder.join(format!("{name}.log"));
    let failed = |source| Error::Io {
        what: format!("use {}", log.display()),
        source,
    };
    let mut stdin = tempfile::tempfile().map_err(failed)?;
    stdin.write_all(input.as_bytes()).map_err(failed)?;
    std::io::Seek::rewind(&mut stdin).map_err(failed)?;
    let stderr = std::fs::File::create(&log).map_err(failed)?;
    command.stdin(stdin).stdout(Stdio::null()).stderr(stderr);
    let took = Traced::start(command)?.wait()?;
    if took.code != 0 {
        return Err(Error::Command {
            command: name.to_owned(),
            code: took.code,
            stderr: std::fs::read_to_string(&log).unwrap_or_default(),
        });
    }
    Ok(took)
}

fn at(time: &str) -> Result<Timestamp, Error> {
    time.parse()
        .map_err(|_| Error::Missing(format!("{time:?} in the audit log is no time")))
}

fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
