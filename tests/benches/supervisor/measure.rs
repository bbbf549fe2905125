//! One measurement each; every function runs one contender once.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use podcradle_tests::pidns::{Setup, eventually};

use crate::Result;
use crate::subjects::Contender;

/// Microseconds from a program's exec to its end.
pub fn life(setup: Setup) -> Result<f64> {
    let mut run = setup.shared_proc().start()?;
    let code = run.code()?;
    if code != 0 {
        return Err(format!("exit {code}: {}", run.stderr()?).into());
    }
    Ok(microseconds(now() - run.launched))
}

/// Microseconds from a program's exec to the first instruction of the host: itself, or
/// the one it is told to start.
pub fn first_instruction(setup: Setup) -> Result<f64> {
    let (mut reader, writer) = std::io::pipe()?;
    let setup = setup.shared_proc();
    let mut run = setup.descriptor(OwnedFd::from(writer), 1).start()?;
    let at = time(&mut reader)?;
    run.code()?;
    Ok(microseconds(at - run.launched))
}

/// Microseconds from a signal to the host's having it, for each of `count`.
pub fn latencies(contender: &Contender, stamp: &Path, count: usize) -> Result<Vec<f64>> {
    let (mut reader, writer) = std::io::pipe()?;
    let setup = contender
        .run(&[stamp.into(), "signals".into()])
        .shared_proc();
    let run = setup.descriptor(OwnedFd::from(writer), 1).start()?;
    time(&mut reader)?;
    // The host is there; give an init that looks at its terminal or its
    // handlers last the time to wait for signals.
    run.reaches(run.pid, 'S')?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = now();
        // SIGINT: the one that every contender forwards, the baseline too.
        run.signal(libc::SIGINT)?;
        all.push(microseconds(time(&mut reader)? - sent));
        run.reaches(run.pid, 'S')?;
    }
    Ok(all)
}

/// What an idle init holds, in kilobytes.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    pub resident: u64,
    pub private: u64,
    pub anonymous: u64,
}

/// The memory of an init whose host sleeps, ours with the flags of a Pod.
pub fn memory(contender: &Contender) -> Result<Memory> {
    let host: Vec<OsString> = vec!["/bin/sleep".into(), "1000".into()];
    let run = contender.run_in_a_pod(&host)?.start()?;
    let host = run.find("the host", |p| {
        p.command.ends_with("/bin/sleep 1000") && p.pid != run.pid
    })?;
    run.reaches(host.pid, 'S')?;
    run.reaches(run.pid, 'S')?;
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", run.pid))?;
    let field = |name: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number
            .and_then(|number| number.trim().parse().ok())
            .unwrap_or(0)
    };
    Ok(Memory {
        resident: field("Rss"),
        private: field("Private_Clean") + field("Private_Dirty"),
        anonymous: field("Anonymous"),
    })
}

/// What a burst of orphans costs an init.
#[derive(Clone, Copy)]
pub struct Burst {
    /// Microseconds of its CPU for each of them.
    pub cpu: f64,
    /// The most processes that stood in the namespace besides init and host.
    pub backlog: usize,
}

/// Lets a host make `count` orphans as fast as it can.
pub fn burst(contender: &Contender, count: usize) -> Result<Burst> {
    let me = std::env::current_exe()?;
    let host = vec![me.into(), "--make-orphans".into(), count.to_string().into()];
    let mut run = contender.run(&host).piped_input().start()?;
    run.set_watchdog(Duration::from_mins(10));
    if run.line()? != "start" {
        return Err("the host did not start".into());
    }
    let before = cpu(run.pid)?;
    // Seen through the namespace's own /proc, which lists its members alone.
    let proc = format!("/proc/{}/root/proc", run.pid);
    let standing = || -> usize {
        let entries = fs::read_dir(&proc).into_iter().flatten().flatten();
        let pids = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
        pids.count().saturating_sub(2)
    };
    run.write("go\n")?;
    let mut backlog = 0;
    while !run.out.ready(Duration::from_micros(500))? {
        backlog = backlog.max(standing());
    }
    if run.line()? != format!("made {count}") {
        return Err("the host failed".into());
    }
    eventually("the last orphan's end", || (standing() == 0).then_some(()))?;
    let spent = cpu(run.pid)? - before;
    run.close_input();
    run.code()?;
    #[expect(clippy::cast_precision_loss, reason = "a count of at most a million")]
    let each = microseconds(spent) / count as f64;
    Ok(Burst { cpu: each, backlog })
}

/// Nanoseconds a process has been on a CPU.
fn cpu(pid: i32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let first = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(first.parse()?)
}

fn time(reader: &mut (impl Read + AsFd)) -> Result<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn now() -> u64 {
    podcradle_tests::pidns::monotonic()
}

#[expect(clippy::cast_precision_loss, reason = "times of seconds at most")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}
