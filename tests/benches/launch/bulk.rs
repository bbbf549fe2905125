//! A thousand launches in flight from one process. No node takes them, so that
//! all are in flight at once and what is measured is the launcher's own work;
//! then Ctrl-C, and nothing may be left.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use podcradle_tests::e2e::{Actor, Error, native};

use crate::process::{Took, Traced};
use crate::table::Table;

const COUNT: u32 = 1_000;
const LABEL: &str = "bench-bulk";
/// The server's caches and its heap grow in the first.
const ROUNDS: u32 = 3;

/// Adds the rows of thousands of launches.
pub fn measure(table: &mut Table) -> Result<(), Error> {
    let actor = Actor::new(native())?;
    let (mut seconds, mut cpu, mut peak) = (0.0, 0.0, 0.0_f64);
    let mut said = String::new();
    for _ in 0..ROUNDS {
        let round = round(&actor)?;
        seconds += round.seconds;
        cpu += round.took.cpu;
        peak = peak.max(round.took.peak);
        said = round.said;
    }
    let launches = f64::from(COUNT * ROUNDS);
    table.least(
        "launches a second, sustained",
        launches / seconds,
        "/s",
        100.0,
    );
    table.owed(
        "CPU a launch, clean-up included",
        cpu / launches,
        "ms",
        5.0,
        "",
    );
    let what = format!("peak RSS, {COUNT} in flight");
    table.owed(&what, peak, "kB", 40_960.0, "");
    table.owed("objects left after Ctrl-C", left(&actor)?, "", 0.0, &said);
    Ok(())
}

struct Round {
    /// From the start of the process to the last gate's removal.
    seconds: f64,
    took: Took,
    /// What the process said last.
    said: String,
}

/// A thousand launches from one process, and Ctrl-C once all are in flight.
fn round(actor: &Actor) -> Result<Round, Error> {
    let count = COUNT.to_string();
    let mut command = actor
        .launch_many(LABEL)
        .option(&["--count", &count, "--concurrency", &count])
        .option(&["--node-selector", "podcradle.dev/nowhere=true"])
        .option(&["--schedule-timeout", "30m", "--timeout", "1h"])
        .option(&["--progress", "json"])
        .host(&["sleep", "1000"])
        .command();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut traced = Traced::start(&mut command)?;
    let begun = Timestamp::now();
    let lines = traced.stderr().map(|stderr| BufReader::new(stderr).lines());
    let pid = traced.pid();
    let reader = std::thread::spawn(move || {
        let (mut open, mut last, mut said) = (0, begun, String::new());
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            if line.contains("\"gateRemoved\"") {
                open += 1;
                last = Timestamp::now();
                if open == COUNT {
                    // Every one is in flight now.
                    let _ = kill(pid, Signal::SIGINT);
                }
            } else {
                said = line;
            }
        }
        (open, last, said)
    });
    let took = traced.wait()?;
    let (open, last, said) = reader
        .join()
        .map_err(|_| Error::Missing("the reader of its events".to_owned()))?;
    if open != COUNT {
        return Err(Error::Command {
            command: format!("podcradle launch --count {COUNT}"),
            code: took.code,
            stderr: format!("{open} gates removed; {said}"),
        });
    }
    let seconds = last.duration_since(begun).as_secs_f64();
    Ok(Round {
        seconds,
        took,
        said,
    })
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
fn left(actor: &Actor) -> Result<f64, Error> {
    let names = ["get", "services,pods,secrets", "--output=name"];
    let found = actor.cluster.admin.run(&names)?;
    let ours = found.lines().filter(|line| line.contains(LABEL));
    Ok(ours.count() as f64)
}
