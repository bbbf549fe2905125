//! A thousand launches in flight from one process. No node takes them, so that
//! all are in flight at once and what is measured is the launcher's own work;
//! then Ctrl-C, and nothing may be left.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use podcradle_tests::e2e::{Actor, Error, native};

use crate::process::Traced;
use crate::table::Table;

const COUNT: u32 = 1_000;
const LABEL: &str = "bench-bulk";

/// Adds the rows of a thousand launches.
pub fn measure(table: &mut Table) -> Result<(), Error> {
    let actor = Actor::new(native())?;
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
        let (mut open, mut last, mut other) = (0, begun, String::new());
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            if line.contains("\"gateRemoved\"") {
                open += 1;
                last = Timestamp::now();
                if open == COUNT {
                    // Every one is in flight now.
                    let _ = kill(pid, Signal::SIGINT);
                }
            } else {
                other = line;
            }
        }
        (open, last, other)
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
    table.least(
        "launches a second, sustained",
        f64::from(COUNT) / seconds,
        "/s",
        100.0,
    );
    let each = took.cpu / f64::from(COUNT);
    table.owed("CPU a launch, clean-up included", each, "ms", 5.0, "");
    let what = format!("peak RSS, {COUNT} in flight");
    table.owed(&what, took.peak, "kB", 40_960.0, "");
    let left = left(&actor)?;
    table.owed("objects left after Ctrl-C", left, "", 0.0, &said);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
fn left(actor: &Actor) -> Result<f64, Error> {
    let names = ["get", "services,pods,secrets", "--output=name"];
    let found = actor.cluster.admin.run(&names)?;
    let ours = found.lines().filter(|line| line.contains(LABEL));
    Ok(ours.count() as f64)
}
