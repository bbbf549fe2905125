//! The program itself against the fake: what a terminal shows, and what a
//! thousand launches in flight take.

use std::process::{Command, Stdio};

use podcradle_tests::e2e::{Cluster, Running, WATCHDOG, native};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite, skip};
use podcradle_tests::pidns::Pty;
use rustix::process::Signal;

use super::support::{Bed, NAME};

/// What is promised, in kB.
const MOST: u64 = 40 << 10;

/// A build that is stripped and optimized has a third of this, in bytes.
const RELEASE: u64 = 30 << 20;

pub fn add(suite: &mut Suite) {
    suite.test("a_terminal_shows_one_live_line_a_sandbox", live);
    suite.test("a_thousand_in_flight_take_no_more_than_promised", thousand);
}

/// `podcradle launch` of the program under test, pointed at the fake.
fn program(bed: &Bed) -> Result<Command, Stop> {
    let program = Cluster::launcher(native()).map_err(skip)?;
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", bed.kubeconfig())
        .args(["launch", "--image", "localhost/image:1"]);
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
