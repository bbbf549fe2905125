//! Restarting the host in place: when, how often, after what pause, and how a
//! stop ends it.

use std::fs;
use std::time::{Duration, Instant};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Running, Subject, eventually};

crate::cases![
    a_failing_host_is_started_again_until_the_limit,
    the_pauses_double,
    success_is_not_restarted,
    a_code_can_be_exempt,
    a_death_by_signal_is_restarted,
    a_stop_ends_the_restarts,
    a_stop_during_the_pause_ends_at_once,
    a_stop_during_the_drain_before_a_restart_ends_with_that_drain,
    other_signals_during_the_pause_are_dropped,
    an_orphan_that_ends_during_the_pause_is_reaped,
    with_a_drain_the_next_host_does_not_meet_the_last_ones_children,
    without_a_drain_what_was_left_stays,
    a_host_that_cannot_be_executed_is_not_tried_for_ever,
];

fn runs(run: &Running) -> usize {
    let text = fs::read_to_string(run.folder().join("runs"));
    text.map_or(0, |text| text.lines().count())
}

fn a_failing_host_is_started_again_until_the_limit(t: &Subject) -> Outcome {
    let flags = ["--restart", "on-failure:2"];
    let began = Instant::now();
    let mut run = t.with_script(&flags, "echo x >>runs; exit 9").start()?;
    ensure!(run.code()? == 9, "exit {}", run.code()?);
    ensure!(runs(&run) == 3, "{} runs", runs(&run));
    ensure!(
        crate::lasted(began, Duration::from_secs(3)),
        "no pauses of 1 and 2 s"
    );
    let report = run.report()?;
    ensure!(report["restarts"] == 2, "{report}");
    ensure!(report["end"]["code"] == 9, "{report}");
    Ok(())
}

fn the_pauses_double(t: &Subject) -> Outcome {
    let flags = ["--restart", "on-failure:3"];
    // By the clock of the host itself: when its line is read here says nothing.
    let mut run = t.with_testhost(&flags, &["clock", "1"]).start()?;
    let mut times: Vec<u64> = Vec::new();
    for _ in 0..4 {
        times.push(run.line()?.parse()?);
    }
    ensure!(run.code()? == 1, "exit {}", run.code()?);
    for (at, least) in [1, 2, 4].into_iter().enumerate() {
        let pause = Duration::from_nanos(times[at + 1] - times[at]);
        ensure!(
            pause >= Duration::from_secs(least),
            "pause {at} was {pause:?}"
        );
    }
    Ok(())
}

fn success_is_not_restarted(t: &Subject) -> Outcome {
    let mut run = t
        .with_script(&["--restart", "on-failure"], "echo x >>runs")
        .start()?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(runs(&run) == 1, "{} runs", runs(&run));
    ensure!(run.report()?["restarts"] == 0, "{}", run.report()?);
    Ok(())
}

fn a_code_can_be_exempt(t: &Subject) -> Outcome {
    let flags = [
        "--restart",
        "on-failure",
        "--no-restart",
        "78",
        "--no-restart",
        "143",
    ];
    for (script, code) in [("exit 78", 78), ("kill -TERM $$", 143)] {
        let script = format!("echo x >>runs; {script}");
        let mut run = t.with_script(&flags, &script).start()?;
        ensure!(run.code()? == code, "exit {}", run.code()?);
        ensure!(runs(&run) == 1, "{} runs", runs(&run));
    }
    Ok(())
}

fn a_death_by_signal_is_restarted(t: &Subject) -> Outcome {
    let flags = ["--restart", "on-failure:1"];
    let mut run = t
        .with_script(&flags, "echo x >>runs; kill -KILL $$")
        .start()?;
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    ensure!(runs(&run) == 2, "{} runs", runs(&run));
    Ok(())
}

fn a_stop_ends_the_restarts(t: &Subject) -> Outcome {
    let script = "echo x >>runs; trap 'exit 3' TERM; echo ready; sleep 1000 & wait";
    let mut run = t
        .with_script(&["--restart", "on-failure"], script)
        .start()?;
    ensure!(run.line()? == "ready", "no host");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 3, "exit {}", run.code()?);
    ensure!(runs(&run) == 1, "{} runs", runs(&run));
    Ok(())
}

/// A supervisor in its second pause, which lasts two seconds.
fn pausing(t: &Subject, script: &str) -> Result<Running, Stop> {
    let script = format!("echo x >>runs; {script}");
    let flags = ["--restart", "on-failure"];
    let run = t.with_script(&flags, &script).start()?;
    let alone = || {
        run.members()
            .iter()
            .all(|p| p.inner == 1 || p.command.starts_with("sleep"))
    };
    eventually("the second pause", || {
        (runs(&run) == 2 && alone()).then_some(())
    })?;
    Ok(run)
}

fn a_stop_during_the_pause_ends_at_once(t: &Subject) -> Outcome {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut run = pausing(t, "exit 9")?;
        run.signal(signal)?;
        ensure!(run.code()? == 128 + signal, "exit {}", run.code()?);
        ensure!(runs(&run) == 2, "{} runs", runs(&run));
        let report = run.report()?;
        ensure!(report["end"]["kind"] == "backoff", "{report}");
        ensure!(report["end"]["lastCode"] == 9, "{report}");
        ensure!(report["stop"]["signal"] == signal, "{report}");
    }
    Ok(())
}

fn a_stop_during_the_drain_before_a_restart_ends_with_that_drain(t: &Subject) -> Outcome {
    // What is left has been told to end, and does so once it is let.
    let script = "echo x >>runs; sh -c 'trap \"echo told; read end; exit\" TERM; echo left; \
                  while :; do sleep 0.02; done' <&3 & read go; exit 9";
    let flags = ["--restart", "on-failure", "--drain", "3000"];
    let (reader, writer) = std::io::pipe()?;
    let setup = t.with_script(&flags, script).piped_input();
    let mut run = setup.descriptor(reader.into(), 3).start()?;
    ensure!(run.line()? == "left", "nothing was left");
    run.close_input();
    ensure!(run.line()? == "told", "no drain");
    run.signal(libc::SIGTERM)?;
    run.reaches(run.pid, 'S')?;
    ensure!(run.alive(), "the drain was cut short");
    drop(writer);
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    ensure!(runs(&run) == 1, "{} runs", runs(&run));
    let report = run.report()?;
    ensure!(report["end"]["kind"] == "backoff", "{report}");
    ensure!(report["end"]["lastCode"] == 9, "{report}");
    ensure!(report["drain"]["expired"] == false, "{report}");
    Ok(())
}

fn other_signals_during_the_pause_are_dropped(t: &Subject) -> Outcome {
    let script = "[ $(wc -l <runs) -lt 3 ] || { echo third; read end; }; exit 9";
    let mut run = pausing(t, script)?;
    for signal in [libc::SIGUSR1, libc::SIGHUP, libc::SIGWINCH, 40] {
        run.signal(signal)?;
    }
    ensure!(run.line()? == "third", "the schedule was ended");
    Ok(())
}

fn an_orphan_that_ends_during_the_pause_is_reaped(t: &Subject) -> Outcome {
    let run = pausing(t, "sleep 1000 & exit 9")?;
    let orphan = run.find("an orphan", |p| p.command == "sleep 1000")?;
    podcradle_tests::pidns::kill(orphan.pid, libc::SIGKILL)?;
    let gone = || {
        run.members()
            .iter()
            .all(|p| p.pid != orphan.pid)
            .then_some(())
    };
    eventually("its end", gone)?;
    ensure!(run.alive(), "the supervisor went along");
    Ok(())
}

fn name(of: &str, t: &Subject) -> String {
    format!("podcradle-{of}-{}-{}", t.arch.name(), std::process::id())
}

fn with_a_drain_the_next_host_does_not_meet_the_last_ones_children(t: &Subject) -> Outcome {
    let name = name("drained", t);
    let flags = ["--restart", "on-failure:1", "--drain", "30"];
    let mut run = t.with_testhost(&flags, &["hold", &name, "1"]).start()?;
    ensure!(run.line()? == "bound", "the first host failed");
    ensure!(
        run.line()? == "bound",
        "the second host met the first one's child"
    );
    ensure!(run.code()? == 1, "exit {}", run.code()?);
    Ok(())
}

fn without_a_drain_what_was_left_stays(t: &Subject) -> Outcome {
    let name = name("left", t);
    let flags = ["--restart", "on-failure:1"];
    let mut run = t.with_testhost(&flags, &["hold", &name, "1"]).start()?;
    ensure!(run.line()? == "bound", "the first host failed");
    ensure!(run.line()? == "in use", "what was left is gone");
    ensure!(run.code()? == 50, "exit {}", run.code()?);
    Ok(())
}

fn a_host_that_cannot_be_executed_is_not_tried_for_ever(t: &Subject) -> Outcome {
    let mut run = t.init(&["--restart", "on-failure"], &["/nope"]).start()?;
    ensure!(run.code()? == 127, "exit {}", run.code()?);
    Ok(())
}
