//! Stopping the host: asked first, killed when the grace is over, reported
//! either way.

use std::time::{Duration, Instant};

use crate::lasted;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Process, Running, Setup, Subject, WATCHDOG, eventually, kill};

crate::cases![
    a_host_that_ignores_the_stop_is_killed_after_the_grace,
    a_host_that_stops_in_time_ends_the_grace_early,
    a_host_may_choose_its_code_during_the_grace,
    a_second_stop_neither_restarts_nor_shortens_the_grace,
    a_stopped_host_is_killed_after_the_grace,
    with_g_the_grace_ends_the_whole_group,
    without_a_grace_nobody_is_killed,
    int_and_quit_are_stop_requests_and_usr1_is_none,
    another_signal_can_be_made_a_stop_request,
    int_can_be_left_to_the_host,
    a_stop_request_is_reported_with_who_asked,
    a_stop_request_from_inside_names_its_sender,
];

/// A host that survives what it is asked, started with these flags.
fn stubborn(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    let script = "trap '' TERM INT QUIT USR1; echo ready; read end; exit 21";
    let mut run = t.with_script(flags, script).piped_input().start()?;
    ensure!(run.line()? == "ready", "no host");
    Ok(run)
}

/// Ends by the supervisor's kill, no earlier than `grace` after the request.
fn killed(run: &mut Running, asked: Instant, grace: Duration) -> Outcome {
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    ensure!(lasted(asked, grace), "killed after {:?}", asked.elapsed());
    let report = run.report()?;
    ensure!(report["graceExpired"] == true, "{report}");
    ensure!(report["exitCode"] == 137, "{report}");
    ensure!(report["end"]["signal"] == 9, "{report}");
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);

fn a_host_that_ignores_the_stop_is_killed_after_the_grace(t: &Subject) -> Outcome {
    let mut run = stubborn(t, &["--grace", "1"])?;
    let asked = Instant::now();
    run.signal(libc::SIGTERM)?;
    killed(&mut run, asked, SECOND)
}

fn a_host_that_stops_in_time_ends_the_grace_early(t: &Subject) -> Outcome {
    // Longer than the watchdog: waiting it out would fail the test.
    let mut run = t
        .init(&["--grace", "3000", "--drain", "3000"], &["sleep", "1000"])
        .start()?;
    run.host()?;
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report["graceExpired"] == false, "{report}");
    ensure!(report["stop"]["signal"] == 15, "{report}");
    Ok(())
}

fn a_host_may_choose_its_code_during_the_grace(t: &Subject) -> Outcome {
    let script = "trap 'exit 4' TERM; echo ready; sleep 1000 & wait";
    let mut run = t.with_script(&["--grace", "3000"], script).start()?;
    ensure!(run.line()? == "ready", "no host");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 4, "exit {}", run.code()?);
    Ok(())
}

fn a_second_stop_neither_restarts_nor_shortens_the_grace(t: &Subject) -> Outcome {
    let mut run = stubborn(t, &["--grace", "2"])?;
    let asked = Instant::now();
    // For ever: a grace that starts again with each of them never ends.
    while run.alive() {
        run.signal(libc::SIGTERM)?;
        ensure!(
            asked.elapsed() < WATCHDOG,
            "the grace starts again and again"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    killed(&mut run, asked, 2 * SECOND)
}

fn a_stopped_host_is_killed_after_the_grace(t: &Subject) -> Outcome {
    let setup = t.with_script(&["--grace", "1"], "kill -STOP $$; exit 3");
    let mut run = setup.start()?;
    let host = run.host()?;
    run.reaches(host.pid, 'T')?;
    let asked = Instant::now();
    run.signal(libc::SIGTERM)?;
    killed(&mut run, asked, SECOND)
}

fn with_g_the_grace_ends_the_whole_group(t: &Subject) -> Outcome {
    // Not as PID 1, whose end would be the child's anyway. The child has the host's group.
    for (flags, survives) in [("", true), ("-g", false)] {
        let script = format!(
            r#""$@" {flags} --grace 1 --termination-log "$REPORT" -- \
               sh -c 'trap "" TERM; sleep 1000 & echo ready; wait'; echo "code $?"; read end"#
        );
        let mut run = Setup::shell(t, &script).piped_input().start()?;
        ensure!(run.line()? == "ready", "no host");
        let child = run.find("the child", |p| p.command == "sleep 1000")?;
        let supervisor = run.host()?;
        kill(supervisor.pid, libc::SIGTERM)?;
        ensure!(run.line()? == "code 137", "not killed");
        ensure!(run.report()?["graceExpired"] == true, "{}", run.report()?);
        let lives = || Process::read(child.pid).is_some_and(|p| p.state != 'Z');
        if survives {
            ensure!(lives(), "{flags:?}: the child went along");
        } else {
            eventually("the child's end", || (!lives()).then_some(()))?;
        }
    }
    Ok(())
}

fn without_a_grace_nobody_is_killed(t: &Subject) -> Outcome {
    let mut run = stubborn(t, &[])?;
    run.signal(libc::SIGTERM)?;
    run.signal(libc::SIGTERM)?;
    std::thread::sleep(SECOND);
    run.close_input();
    ensure!(run.code()? == 21, "exit {}", run.code()?);
    let report = run.report()?;
    ensure!(report["graceExpired"] == false, "{report}");
    ensure!(report["stop"]["signal"] == 15, "{report}");
    Ok(())
}

fn int_and_quit_are_stop_requests_and_usr1_is_none(t: &Subject) -> Outcome {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        let mut run = stubborn(t, &["--grace", "1"])?;
        let asked = Instant::now();
        run.signal(signal)?;
        killed(&mut run, asked, SECOND)?;
        ensure!(
            run.report()?["stop"]["signal"] == signal,
            "{}",
            run.report()?
        );
    }
    let mut run = stubborn(t, &["--grace", "1"])?;
    run.signal(libc::SIGUSR1)?;
    std::thread::sleep(2 * SECOND);
    run.close_input();
    ensure!(run.code()? == 21, "exit {}", run.code()?);
    ensure!(run.report()?.get("stop").is_none(), "{}", run.report()?);
    Ok(())
}

fn another_signal_can_be_made_a_stop_request(t: &Subject) -> Outcome {
    let mut run = stubborn(t, &["--grace", "1", "--stop-signal", "USR1"])?;
    let asked = Instant::now();
    run.signal(libc::SIGUSR1)?;
    killed(&mut run, asked, SECOND)?;
    ensure!(run.report()?["stop"]["signal"] == 10, "{}", run.report()?);
    Ok(())
}

fn int_can_be_left_to_the_host(t: &Subject) -> Outcome {
    let mut run = stubborn(t, &["--grace", "1", "--no-stop-signal", "INT"])?;
    run.signal(libc::SIGINT)?;
    std::thread::sleep(2 * SECOND);
    run.close_input();
    ensure!(run.code()? == 21, "exit {}", run.code()?);
    ensure!(run.report()?.get("stop").is_none(), "{}", run.report()?);
    Ok(())
}

fn a_stop_request_is_reported_with_who_asked(t: &Subject) -> Outcome {
    let mut run = t.init(&[], &["sleep", "1000"]).start()?;
    run.host()?;
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    let stop = run.report()?["stop"].clone();
    // Seen from inside, what comes from outside the namespace has no pid.
    ensure!(
        stop == serde_json::json!({"signal": 15, "pid": 0, "uid": 0}),
        "{stop}"
    );
    Ok(())
}

fn a_stop_request_from_inside_names_its_sender(t: &Subject) -> Outcome {
    // A shell's built-in kill: the host itself asks.
    let script = "echo $$; kill -TERM 1; sleep 1000";
    let mut run = t.with_script(&[], script).start()?;
    let host: i32 = run.line()?.parse()?;
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    let stop = run.report()?["stop"].clone();
    ensure!(stop["pid"] == host, "{stop}");
    Ok(())
}
