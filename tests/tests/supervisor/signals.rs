//! What reaches the host: every signal but SIGCHLD, once, from the first
//! moment on, whatever forwarding it meets.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::lasted;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{
    Process, Running, Setup, Subject, WATCHDOG, eventually, kill, procfs, write_program,
};

crate::cases![
    every_catchable_signal_reaches_the_host,
    a_fault_that_somebody_sent_reaches_the_host,
    a_memory_fault_that_somebody_sent_reaches_the_host:
        "QEMU now and then takes a memory fault that was sent for one of its own, and dies",
    every_real_time_signal_reaches_the_host: "QEMU keeps some real-time signals for itself; those it passes have a test of their own",
    the_real_time_signals_that_qemu_passes_reach_the_host,
    real_time_signals_queue,
    a_real_time_signal_ends_a_host_that_does_not_catch_it: "QEMU gives real-time signals other numbers than the kernel outside, and which depends on its version",
    a_sigchld_that_somebody_sent_is_not_forwarded,
    a_signal_is_forwarded_to_a_host_that_dies_of_it,
    a_rewritten_signal_arrives_as_the_other,
    a_rewritten_real_time_signal_arrives_as_the_other: "QEMU gives real-time signals other numbers than the kernel outside, and which depends on its version",
    a_signal_rewritten_to_0_is_dropped_and_is_no_stop_request,
    a_stop_pending_before_the_start_is_not_lost,
    a_stop_in_the_first_milliseconds_is_not_lost,
    a_stop_does_not_hide_that_the_host_could_not_start,
    a_stop_while_the_exec_fails_counts_as_the_one_or_the_other,
    a_host_that_exits_while_a_signal_is_forwarded_keeps_its_code,
    a_host_that_may_not_be_signalled_is_survived_with_one_warning,
    a_flood_neither_fills_the_log_nor_starves_the_grace,
    with_g_the_whole_group_gets_it,
    without_g_only_the_host_gets_it,
    with_g_a_host_that_left_its_group_gets_it,
    not_as_pid_1_signals_are_forwarded_too,
];

/// A host that says what reaches it and ends on SIGTERM with 33.
fn listener(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    let host = ["listen", "host", "15", "33"];
    let mut run = t.with_testhost(flags, &host).start()?;
    ensure!(run.line()? == "host ready", "no host");
    Ok(run)
}

fn passes(t: &Subject, run: &mut Running, signals: impl Iterator<Item = i32>) -> Outcome {
    for signal in signals {
        if t.emulated() {
            // QEMU loses what comes between two waits of its guest.
            run.reaches(run.pid, 'S')?;
        }
        run.signal(signal)?;
        let line = run.line().map_err(|error| format!("{signal}: {error}"))?;
        ensure!(
            line == format!("host {signal}"),
            "{signal} arrived as {line:?}"
        );
    }
    run.signal(libc::SIGTERM)?;
    ensure!(run.line()? == "host 15", "TERM was lost");
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    Ok(())
}

fn every_catchable_signal_reaches_the_host(t: &Subject) -> Outcome {
    let apart = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGTERM];
    // INT and QUIT are requests to stop as well; without a grace nothing
    // follows from that. Those below have a test of their own.
    let signals = (1..=31).filter(|n| !apart.contains(n) && !FAULTS.contains(n));
    passes(t, &mut listener(t, &[])?, signals)
}

/// What the processor raises when a program is at fault.
const FAULTS: [i32; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// Those that come with an address.
const MEMORY_FAULTS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

fn a_fault_that_somebody_sent_reaches_the_host(t: &Subject) -> Outcome {
    let others = FAULTS.into_iter().filter(|n| !MEMORY_FAULTS.contains(n));
    passes(t, &mut listener(t, &[])?, others)
}

fn a_memory_fault_that_somebody_sent_reaches_the_host(t: &Subject) -> Outcome {
    passes(t, &mut listener(t, &[])?, MEMORY_FAULTS.into_iter())
}

fn every_real_time_signal_reaches_the_host(t: &Subject) -> Outcome {
    passes(t, &mut listener(t, &[])?, 32..=64)
}

fn the_real_time_signals_that_qemu_passes_reach_the_host(t: &Subject) -> Outcome {
    // Numbered otherwise inside, but what goes in comes out.
    passes(t, &mut listener(t, &[])?, 36..=60)
}

fn real_time_signals_queue(t: &Subject) -> Outcome {
    let mut run = listener(t, &[])?;
    for _ in 0..100 {
        run.signal(40)?;
        run.signal(41)?;
    }
    let mut counts: HashMap<String, usize> = HashMap::new();
    for _ in 0..200 {
        *counts.entry(run.line()?).or_default() += 1;
    }
    ensure!(
        counts["host 40"] == 100 && counts["host 41"] == 100,
        "{counts:?}"
    );
    Ok(())
}

fn a_real_time_signal_ends_a_host_that_does_not_catch_it(t: &Subject) -> Outcome {
    // The C libraries disagree on what 34 is; it must not matter.
    for signal in [34, 35, 64] {
        let mut run = t.init(&[], &["sleep", "1000"]).start()?;
        run.host()?;
        run.signal(signal)?;
        ensure!(run.code()? == 128 + signal, "exit {}", run.code()?);
    }
    Ok(())
}

fn a_sigchld_that_somebody_sent_is_not_forwarded(t: &Subject) -> Outcome {
    let mut run = listener(t, &[])?;
    for _ in 0..1000 {
        run.signal(libc::SIGCHLD)?;
    }
    run.signal(libc::SIGUSR1)?;
    ensure!(run.line()? == "host 10", "SIGCHLD was forwarded");
    passes(t, &mut run, std::iter::empty())
}

fn a_signal_is_forwarded_to_a_host_that_dies_of_it(t: &Subject) -> Outcome {
    let mut run = t.init(&[], &["sleep", "1000"]).start()?;
    run.host()?;
    run.signal(libc::SIGUSR2)?;
    ensure!(run.code()? == 140, "exit {}", run.code()?);
    Ok(())
}

fn a_rewritten_signal_arrives_as_the_other(t: &Subject) -> Outcome {
    let flags = ["--rewrite", "WINCH:10", "--rewrite", "HUP:SIGUSR2"];
    rewritten(t, &flags, &[(28, 10), (1, 12), (10, 10)])?;
    let mut run = listener(t, &["--rewrite=1:15"])?;
    run.signal(libc::SIGHUP)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    // What is rewritten to a stop signal is a request to stop.
    ensure!(run.report()?["stop"].is_object(), "{}", run.report()?);
    Ok(())
}

fn a_rewritten_real_time_signal_arrives_as_the_other(t: &Subject) -> Outcome {
    let flags = ["--rewrite", "37:10", "--rewrite", "12:RTMIN+6"];
    rewritten(t, &flags, &[(37, 10), (12, 40), (38, 38)])
}

/// Sends one and sees the other arrive, pair by pair.
fn rewritten(t: &Subject, flags: &[&str], pairs: &[(i32, i32)]) -> Outcome {
    let mut run = listener(t, flags)?;
    for (sent, arrives) in pairs {
        run.signal(*sent)?;
        let line = run.line()?;
        ensure!(
            line == format!("host {arrives}"),
            "{sent} arrived as {line:?}"
        );
    }
    Ok(())
}

fn a_signal_rewritten_to_0_is_dropped_and_is_no_stop_request(t: &Subject) -> Outcome {
    let flags = ["--rewrite", "USR2:0", "--rewrite", "INT:0"];
    let mut run = listener(t, &flags)?;
    run.signal(libc::SIGUSR2)?;
    run.signal(libc::SIGINT)?;
    run.signal(libc::SIGHUP)?;
    ensure!(run.line()? == "host 1", "a dropped signal arrived");
    kill(run.host()?.pid, libc::SIGTERM)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    ensure!(run.report()?.get("stop").is_none(), "{}", run.report()?);
    Ok(())
}

fn a_stop_pending_before_the_start_is_not_lost(t: &Subject) -> Outcome {
    // Blocked by the starter, so that it survives the exec; the host inherits
    // the blocked mask and takes the signal when it waits for it.
    let setup = t.with_testhost(&[], &["listen", "host", "15", "33"]);
    let mut run = setup.pending(&[libc::SIGTERM]).start()?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    ensure!(run.report()?["stop"]["signal"] == 15, "{}", run.report()?);
    Ok(())
}

fn a_stop_in_the_first_milliseconds_is_not_lost(t: &Subject) -> Outcome {
    let rounds = t.rounds(5_000);
    for round in 0..rounds {
        let mut run = t.init(&[], &["sleep", "1000"]).shared_proc().start()?;
        stop_at(t, &run, Duration::from_millis(3), round, rounds)?;
        ensure!(run.code()? == 143, "round {round}: exit {}", run.code()?);
    }
    Ok(())
}

/// Sends SIGTERM in the first moments of a start, spread over `range` by the rounds.
///
/// Before its first instruction nobody can keep a signal to PID 1: the kernel drops it. So
/// the clock starts when SIGTERM is blocked or, since a wait for signals lifts that, it
/// sleeps, or has ended; emulated, where the emulator does both at times, when there is a host.
fn stop_at(t: &Subject, run: &Running, range: Duration, round: usize, rounds: usize) -> Outcome {
    let started = || match Process::read(run.pid).map(|p| p.state) {
        None | Some('Z') => true,
        _ if t.emulated() => run.members().iter().any(|p| p.parent == run.pid),
        state => state == Some('S') || blocks(run.pid, libc::SIGTERM),
    };
    eventually("its first steps", || started().then_some(()))?;
    let at = Instant::now() + range * u32::try_from(round)? / u32::try_from(rounds)?;
    while Instant::now() < at {
        std::hint::spin_loop();
    }
    run.signal(libc::SIGTERM)?;
    Ok(())
}

/// Whether the main thread of a process has a signal blocked.
fn blocks(pid: i32, signal: i32) -> bool {
    let mask = procfs::main_thread_status(pid, "SigBlk");
    let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn a_stop_does_not_hide_that_the_host_could_not_start(t: &Subject) -> Outcome {
    let setup = t.init(&[], &["/nope"]).pending(&[libc::SIGTERM]);
    let mut run = setup.start()?;
    ensure!(run.code()? == 127, "exit {}", run.code()?);
    Ok(())
}

/// Only executing tells that an interpreter is missing, and for that the host's mask is in
/// force: a stop may come first. Then it is what ended the host, and all of it says so.
fn a_stop_while_the_exec_fails_counts_as_the_one_or_the_other(t: &Subject) -> Outcome {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("script");
    write_program(&script, b"#!/nope/interpreter\n")?;
    let rounds = t.rounds(2_000);
    for round in 0..rounds {
        let setup = t.init(&[], &[]).arg("--").arg(&script);
        let mut run = setup.shared_proc().start()?;
        stop_at(t, &run, Duration::from_millis(1), round, rounds)?;
        let (code, report) = (run.code()?, run.report()?);
        let kind = match code {
            127 => "exec",
            143 => "signal",
            _ => "",
        };
        ensure!(report["end"]["kind"] == kind, "exit {code}: {report}");
        ensure!(
            run.stderr()?.contains("/nope/interpreter") == (code == 127),
            "{report}"
        );
    }
    Ok(())
}

fn a_host_that_exits_while_a_signal_is_forwarded_keeps_its_code(t: &Subject) -> Outcome {
    for round in 0..t.rounds(2_000) {
        let script = "trap '' TERM; echo ready; read end; exit 7";
        let mut run = t
            .with_script(&[], script)
            .piped_input()
            .shared_proc()
            .start()?;
        ensure!(run.line()? == "ready", "no host");
        if round % 2 == 0 {
            run.close_input();
            run.signal(libc::SIGTERM)?;
        } else {
            run.signal(libc::SIGTERM)?;
            run.close_input();
        }
        ensure!(run.code()? == 7, "round {round}: exit {}", run.code()?);
    }
    Ok(())
}

fn a_host_that_may_not_be_signalled_is_survived_with_one_warning(t: &Subject) -> Outcome {
    let host = ["as-user", "1001", "sleep", "1000"];
    let setup = t.with_testhost(&[], &host).without_cap_kill();
    let run = setup.start()?;
    run.find("the other user's host", |p| p.command == "sleep 1000")?;
    for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGUSR1] {
        run.signal(signal)?;
        // Taken, and the supervisor waits for the next.
        run.reaches(run.pid, 'S')?;
    }
    eventually("a warning", || {
        run.stderr().ok().filter(|text| text.ends_with('\n'))
    })?;
    ensure!(run.alive(), "it died of EPERM");
    ensure!(run.stderr()?.lines().count() == 1, "{:?}", run.stderr()?);
    // With a grace: as PID 1 it leaves, and the kernel ends the namespace.
    let setup = t.with_testhost(&["--grace", "1"], &host).without_cap_kill();
    let mut run = setup.start()?;
    run.find("the other user's host", |p| p.command == "sleep 1000")?;
    let asked = Instant::now();
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    ensure!(
        lasted(asked, Duration::from_secs(1)),
        "the grace was cut short"
    );
    let report = run.report()?;
    ensure!(report["graceExpired"] == true, "{report}");
    ensure!(report["unkillable"] == true, "{report}");
    Ok(())
}

fn a_flood_neither_fills_the_log_nor_starves_the_grace(t: &Subject) -> Outcome {
    let script = "trap '' TERM URG WINCH; echo ready; sleep 1000 & wait; wait";
    let mut run = t.with_script(&["--grace", "1"], script).start()?;
    ensure!(run.line()? == "ready", "no host");
    let asked = Instant::now();
    run.signal(libc::SIGTERM)?;
    while run.alive() {
        // Not an error at the very end: it may go between the two.
        for signal in [libc::SIGURG, libc::SIGWINCH] {
            run.signal(signal)?;
        }
        ensure!(asked.elapsed() < WATCHDOG, "starved");
    }
    ensure!(
        lasted(asked, Duration::from_secs(1)),
        "the grace was cut short"
    );
    ensure!(run.stderr()?.is_empty(), "{:?}", run.stderr()?);
    Ok(())
}

fn group(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    let host = t.host.display();
    let script = format!("{host} listen child 15 0 & exec {host} listen host 15 33");
    let mut run = t.with_script(flags, &script).start()?;
    let mut ready = [run.line()?, run.line()?];
    ready.sort();
    ensure!(ready == ["child ready", "host ready"], "{ready:?}");
    Ok(run)
}

fn with_g_the_whole_group_gets_it(t: &Subject) -> Outcome {
    let mut run = group(t, &["-g"])?;
    run.signal(libc::SIGUSR1)?;
    let mut lines = [run.line()?, run.line()?];
    lines.sort();
    ensure!(lines == ["child 10", "host 10"], "{lines:?}");
    run.signal(libc::SIGUSR2)?;
    let mut lines = [run.line()?, run.line()?];
    lines.sort();
    ensure!(lines == ["child 12", "host 12"], "{lines:?}");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    Ok(())
}

fn without_g_only_the_host_gets_it(t: &Subject) -> Outcome {
    let mut run = group(t, &[])?;
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        run.signal(signal)?;
        let line = run.line()?;
        ensure!(line == format!("host {signal}"), "{line}");
    }
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    Ok(())
}

fn with_g_a_host_that_left_its_group_gets_it(t: &Subject) -> Outcome {
    // The group it was started in is empty then: there is nobody to send to.
    let mut run = t
        .with_testhost(&["-g"], &["listen-elsewhere", "host", "15", "33"])
        .start()?;
    ensure!(run.line()? == "host ready", "no host");
    let host = run.host()?;
    ensure!(host.group != host.pid, "it is still there: {host:?}");
    run.signal(libc::SIGUSR1)?;
    ensure!(run.line()? == "host 10", "USR1 was lost");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    Ok(())
}

fn not_as_pid_1_signals_are_forwarded_too(t: &Subject) -> Outcome {
    let host = t.host.display();
    let script = format!(r#""$@" -- {host} listen host 15 33; echo "code $?""#);
    let mut run = Setup::shell(t, &script).start()?;
    ensure!(run.line()? == "host ready", "no host");
    let supervisor = run.host()?;
    for signal in [1, 2, 10, 20, 18, 28, 40, 15] {
        kill(supervisor.pid, signal)?;
        let line = run.line()?;
        ensure!(
            line == format!("host {signal}"),
            "{signal} arrived as {line:?}"
        );
    }
    ensure!(run.line()? == "code 33", "the code was lost");
    Ok(())
}
