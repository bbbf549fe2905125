//! Orphans: all are reaped, none is counted twice, and none of it ever costs
//! the host's exit code.

use std::process::{Command, Stdio};
use std::time::Duration;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, skip};
use podcradle_tests::pidns::{Process, Running, Setup, Subject, eventually, kill, procfs};

crate::cases![
    a_hundred_thousand_orphans_leave_no_zombie,
    orphans_that_are_dead_before_they_are_ours,
    orphans_killed_by_real_time_signals,
    two_deaths_behind_one_sigchld,
    the_host_and_fifty_orphans_end_together,
    the_code_survives_a_storm_of_orphans,
    the_code_survives_an_ignored_sigchld,
    an_orphan_goes_as_soon_as_it_ends,
    a_stopped_host_is_not_a_dead_one,
    a_traced_host_reaches_its_own_exit: "QEMU user emulation has no ptrace: the tracer's calls are ENOSYS",
    a_traced_orphan_reaches_its_own_exit: "QEMU user emulation has no ptrace: the tracer's calls are ENOSYS",
    a_debugger_that_comes_and_goes_is_no_end,
    without_work_it_does_not_wake_up,
    with_w_each_orphan_that_is_reaped_is_named,
    with_w_a_broken_standard_error_costs_the_host_nothing,
    with_w_a_standard_error_at_its_size_limit_costs_the_host_nothing,
    not_as_pid_1_it_adopts_the_orphans_of_its_host: "QEMU refuses PR_SET_CHILD_SUBREAPER, so nobody but PID 1 adopts there",
];

fn zombies(run: &Running) -> Vec<Process> {
    let mut members = run.members();
    members.retain(|process| process.state == 'Z');
    members
}

/// COUNT orphans of a kind, then nobody but the supervisor and the host is
/// left, and the report has counted each of them once.
fn storm(t: &Subject, count: usize, kind: &str) -> Outcome {
    let number = count.to_string();
    let setup = t.with_testhost(&[], &["orphans", &number, kind]);
    let mut run = setup.piped_input().start()?;
    run.set_watchdog(Duration::from_mins(5));
    ensure!(run.line()? == format!("made {count}"), "the host failed");
    // The last ones may still run; that they go, zombies and all, is the point.
    let alone = || (run.members().len() == 2).then_some(());
    let all_gone = eventually("the last orphan's end", alone);
    ensure!(
        all_gone.is_ok(),
        "{} zombies stay: {}",
        zombies(&run).len(),
        run.context()
    );
    run.close_input();
    ensure!(run.code()? == 42, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report["orphans"] == count, "of {count}: {report}");
    Ok(())
}

fn a_hundred_thousand_orphans_leave_no_zombie(t: &Subject) -> Outcome {
    storm(t, if t.dear() { 20_000 } else { 100_000 }, "mixed")
}

fn orphans_that_are_dead_before_they_are_ours(t: &Subject) -> Outcome {
    storm(t, 5_000, "before")
}

fn orphans_killed_by_real_time_signals(t: &Subject) -> Outcome {
    storm(t, 1_000, "realtime")
}

/// The supervisor is stopped while both die, so that there is one SIGCHLD at
/// most for the two of them when it goes on.
fn two_deaths_behind_one_sigchld(t: &Subject) -> Outcome {
    let setup = t.with_testhost(&[], &["race", "1", "42"]);
    let mut run = setup.piped_input().start()?;
    ensure!(run.line()? == "ready", "no host");
    run.signal(libc::SIGSTOP)?;
    run.reaches(run.pid, 'T')?;
    run.close_input();
    eventually("two zombies", || (zombies(&run).len() == 2).then_some(()))?;
    run.signal(libc::SIGCONT)?;
    ensure!(run.code()? == 42, "exit {}", run.code()?);
    Ok(())
}

fn the_host_and_fifty_orphans_end_together(t: &Subject) -> Outcome {
    for round in 0..t.rounds(2_000) {
        let setup = t.with_testhost(&[], &["race", "50", "42"]).shared_proc();
        let mut run = setup.piped_input().start()?;
        ensure!(run.line()? == "ready", "no host");
        run.close_input();
        ensure!(run.code()? == 42, "round {round}: exit {}", run.code()?);
    }
    Ok(())
}

fn the_code_survives_a_storm_of_orphans(t: &Subject) -> Outcome {
    // The host makes orphans to its very end: there is nothing for it to read.
    for round in 0..t.rounds(1_000) {
        let setup = t.with_testhost(&[], &["orphans", "250", "mixed"]);
        let mut run = setup.shared_proc().start()?;
        ensure!(run.code()? == 42, "round {round}: exit {}", run.code()?);
    }
    Ok(())
}

fn the_code_survives_an_ignored_sigchld(t: &Subject) -> Outcome {
    let setup = t.with_script(&[], "(true &); exit 5");
    let mut run = setup.ignoring(&[libc::SIGCHLD]).start()?;
    ensure!(run.code()? == 5, "exit {}", run.code()?);
    Ok(())
}

fn an_orphan_goes_as_soon_as_it_ends(t: &Subject) -> Outcome {
    let script = "(sleep 1000 & echo left); read end";
    let mut run = t.with_script(&[], script).piped_input().start()?;
    ensure!(run.line()? == "left", "no orphan");
    let orphan = run.find("the orphan", |p| p.command == "sleep 1000")?;
    eventually("its adoption", || {
        Process::read(orphan.pid).filter(|p| p.parent == run.pid)
    })?;
    kill(orphan.pid, libc::SIGKILL)?;
    eventually("its end", || {
        Process::read(orphan.pid).is_none().then_some(())
    })?;
    ensure!(run.alive(), "the supervisor went along");
    Ok(())
}

fn a_stopped_host_is_not_a_dead_one(t: &Subject) -> Outcome {
    let mut run = t.with_script(&[], "kill -STOP $$; exit 8").start()?;
    let host = run.host()?;
    run.reaches(host.pid, 'T')?;
    // Both the stop and the going on are a SIGCHLD without a death.
    run.signal(libc::SIGCONT)?;
    ensure!(run.code()? == 8, "exit {}", run.code()?);
    Ok(())
}

fn a_traced_host_reaches_its_own_exit(t: &Subject) -> Outcome {
    let mut run = t.with_testhost(&[], &["traced", "6"]).start()?;
    ensure!(run.line()? == "handled", "the signal was swallowed");
    ensure!(run.code()? == 6, "exit {}", run.code()?);
    Ok(())
}

fn a_traced_orphan_reaches_its_own_exit(t: &Subject) -> Outcome {
    let mut run = t.with_testhost(&[], &["traced-orphan", "6"]).start()?;
    ensure!(run.line()? == "handled", "the signal was swallowed");
    ensure!(run.code()? == 6, "exit {}", run.code()?);
    Ok(())
}

fn a_debugger_that_comes_and_goes_is_no_end(t: &Subject) -> Outcome {
    if Command::new("strace").arg("--version").output().is_err() {
        return Err(skip("strace is not installed"));
    }
    let script = "(sleep 1000 &); echo ready; read end; exit 9";
    let mut run = t.with_script(&[], script).piped_input().start()?;
    ensure!(run.line()? == "ready", "no host");
    let host = run.host()?.pid;
    let orphan = run.find("the orphan", |p| p.command == "sleep 1000")?.pid;
    // Its attaching and detaching stop and continue us, the host and an orphan of ours.
    let all = [run.pid, host, orphan];
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-o", "/dev/null"]);
    strace.args(
        all.iter()
            .flat_map(|pid| ["-p".to_owned(), pid.to_string()]),
    );
    let mut strace = strace.stderr(Stdio::null()).spawn()?;
    let traced = |pid: &i32| procfs::status(*pid, "TracerPid").is_some_and(|by| by.trim() != "0");
    eventually("strace", || all.iter().all(traced).then_some(()))?;
    kill(i32::try_from(strace.id())?, libc::SIGINT)?;
    strace.wait()?;
    ensure!(!all.iter().any(traced), "strace is still there");
    run.reaches(run.pid, 'S')?;
    run.reaches(host, 'S')?;
    run.close_input();
    ensure!(run.code()? == 9, "exit {}", run.code()?);
    ensure!(run.report()?["end"]["kind"] == "exit", "{}", run.report()?);
    Ok(())
}

/// The work a wake-up costs, of the thread that is ours: an emulator has others.
fn effort(pid: i32) -> Option<(String, u64)> {
    let switches = procfs::main_thread_status(pid, "voluntary_ctxt_switches")?;
    Some((switches, Process::read(pid)?.ticks))
}

fn without_work_it_does_not_wake_up(t: &Subject) -> Outcome {
    for flags in [&[][..], &["--grace", "20", "--drain", "5"][..]] {
        let run = t.init(flags, &["sleep", "1000"]).start()?;
        let host = run.host()?;
        run.reaches(host.pid, 'S')?;
        run.reaches(run.pid, 'S')?;
        let before = effort(run.pid);
        // There is no event to wait for: that nothing happens is the point.
        std::thread::sleep(Duration::from_millis(2500));
        ensure!(
            effort(run.pid) == before,
            "{before:?} became {:?}",
            effort(run.pid)
        );
    }
    Ok(())
}

fn with_w_each_orphan_that_is_reaped_is_named(t: &Subject) -> Outcome {
    // Its number as the host sees it; gone before the host is.
    let script = "echo $(sh -c 'echo $$ >&3; exec sleep 1000 >/dev/null 3>&- &' 3>&1); read end";
    for (flags, lines) in [(&[][..], 0), (&["-w"][..], 1)] {
        let mut run = t.with_script(flags, script).piped_input().start()?;
        run.line()?;
        let orphan = run.find("the orphan", |p| p.command == "sleep 1000")?;
        kill(orphan.pid, libc::SIGKILL)?;
        let gone = || Process::read(orphan.pid).is_none().then_some(());
        eventually("its end", gone)?;
        run.close_input();
        run.code()?;
        let stderr = run.stderr()?;
        ensure!(stderr.lines().count() == lines, "{flags:?}: {stderr:?}");
        let wanted = format!("podcradle-init: reaped orphan with pid {}\n", orphan.inner);
        ensure!(lines == 0 || stderr == wanted, "{stderr:?}, not {wanted:?}");
    }
    Ok(())
}

fn not_as_pid_1_it_adopts_the_orphans_of_its_host(t: &Subject) -> Outcome {
    let script = r#""$@" -- sh -c '(sleep 1000 & echo left); read end; exit 4'; echo "code $?""#;
    let mut run = Setup::shell(t, script).piped_input().start()?;
    ensure!(run.line()? == "left", "no orphan");
    let supervisor = run.host()?;
    let orphan = run.find("the orphan", |p| p.command == "sleep 1000")?;
    eventually("its adoption", || {
        Process::read(orphan.pid).filter(|p| p.parent == supervisor.pid)
    })?;
    run.close_input();
    ensure!(run.line()? == "code 4", "the code was lost");
    ensure!(run.code()? == 0, "the shell failed");
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    Ok(())
}

/// A host that outlives one orphan and then tells every signal that was passed on to it.
fn after_an_orphan(t: &Subject) -> Setup {
    let script = format!("(true &); exec {} listen host 64 33", t.host.display());
    t.with_script(&["-w"], &script)
}

/// A signal that our own line raised against us comes before any with a higher number.
fn only_the_last_signal_arrives(mut run: Running) -> Outcome {
    ensure!(run.line()? == "host ready", "no host");
    let reaped = || (run.members().len() == 2).then_some(());
    eventually("the orphan's end", reaped)?;
    run.signal(64)?;
    let line = run.line()?;
    ensure!(line == "host 64", "our own line gave it {line:?}");
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    Ok(())
}

fn with_w_a_broken_standard_error_costs_the_host_nothing(t: &Subject) -> Outcome {
    let (reader, writer) = std::io::pipe()?;
    let setup = after_an_orphan(t).descriptor(writer.into(), 2);
    drop(reader);
    only_the_last_signal_arrives(setup.start()?)
}

fn with_w_a_standard_error_at_its_size_limit_costs_the_host_nothing(t: &Subject) -> Outcome {
    let setup = after_an_orphan(t).limit(libc::RLIMIT_FSIZE, 0);
    only_the_last_signal_arrives(setup.start()?)
}
