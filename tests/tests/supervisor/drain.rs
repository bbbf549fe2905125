//! What is left once the host is gone: asked to end, given time, then killed;
//! nothing of it when we are not PID 1 and it is not ours.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::lasted;
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Process, Running, Setup, Subject, eventually};

crate::cases![
    what_is_left_gets_a_term_and_time_to_finish,
    without_a_drain_the_end_of_the_host_is_the_end,
    what_ignores_the_term_is_killed_at_the_end_of_the_drain,
    the_drain_ends_as_soon_as_nothing_is_left,
    a_stopped_process_is_woken_to_act_on_its_term,
    an_uninterruptible_sleeper_does_not_hold_us_up,
    a_process_that_entered_the_namespace_is_drained_too,
    all_this_works_without_proc,
    a_second_stop_during_the_drain_changes_nothing,
    a_stop_during_the_drain_keeps_the_code,
    not_as_pid_1_only_descendants_are_drained: "QEMU refuses PR_SET_CHILD_SUBREAPER, so nobody but PID 1 adopts there",
    not_as_pid_1_and_without_proc_no_drain_is_claimed: "QEMU makes up a /proc/self/stat of its own",
    not_as_pid_1_an_own_session_does_not_escape: "QEMU refuses PR_SET_CHILD_SUBREAPER, so nobody but PID 1 adopts there",
];

const SECOND: Duration = Duration::from_secs(1);

/// A worker in a session of its own that needs a second once it is told.
const WORKER: &str = "setsid sh -c 'trap \"sleep 1; echo done >>worker; exit\" TERM; \
     echo started; while :; do sleep 0.1; done' & ";

fn worker(t: &Subject, flags: &[&str], then: &str) -> Result<Running, Stop> {
    let script = format!("{WORKER}{then}");
    let mut run = t.with_script(flags, &script).piped_input().start()?;
    ensure!(run.line()? == "started", "no worker");
    Ok(run)
}

fn what_is_left_gets_a_term_and_time_to_finish(t: &Subject) -> Outcome {
    let mut run = worker(t, &["--drain", "30"], "exec sleep 1000")?;
    let asked = Instant::now();
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 143, "exit {}", run.code()?);
    ensure!(lasted(asked, SECOND), "it did not wait for the worker");
    ensure!(
        fs::read_to_string(run.folder().join("worker"))? == "done\n",
        "cut off"
    );
    let drain = run.report()?["drain"].clone();
    ensure!(drain["killed"] == 0 && drain["expired"] == false, "{drain}");
    ensure!(drain["left"].as_u64() >= Some(1), "{drain}");
    Ok(())
}

fn without_a_drain_the_end_of_the_host_is_the_end(t: &Subject) -> Outcome {
    for flags in [&[][..], &["--drain", "0"][..]] {
        let mut run = worker(t, flags, "exec sleep 1000")?;
        run.signal(libc::SIGTERM)?;
        ensure!(run.code()? == 143, "exit {}", run.code()?);
        ensure!(
            !run.folder().join("worker").exists(),
            "somebody was waited for"
        );
        ensure!(run.report()?.get("drain").is_none(), "{}", run.report()?);
    }
    Ok(())
}

/// A process that does not care, left behind by a host that exits 5.
const STUBBORN: &str = "(trap '' TERM; echo started; exec sleep 1000) & ";

fn what_ignores_the_term_is_killed_at_the_end_of_the_drain(t: &Subject) -> Outcome {
    let script = format!("{STUBBORN} read end; exit 5");
    let setup = t.with_script(&["--drain", "1"], &script);
    let mut run = setup.piped_input().start()?;
    ensure!(run.line()? == "started", "nobody was left");
    let ended = Instant::now();
    run.close_input();
    ensure!(run.code()? == 5, "exit {}", run.code()?);
    ensure!(lasted(ended, SECOND), "the drain was cut short");
    let drain = run.report()?["drain"].clone();
    ensure!(drain["expired"] == true, "{drain}");
    ensure!(drain["killed"].as_u64() >= Some(1), "{drain}");
    Ok(())
}

fn the_drain_ends_as_soon_as_nothing_is_left(t: &Subject) -> Outcome {
    // Longer than the watchdog: waiting it out would fail the test.
    let flags = ["--grace", "3000", "--drain", "3000"];
    let mut run = t.with_script(&flags, "sleep 1000 & exit 6").start()?;
    ensure!(run.code()? == 6, "exit {}", run.code()?);
    // With nobody at all.
    let mut run = t.with_script(&flags, "exit 7").start()?;
    ensure!(run.code()? == 7, "exit {}", run.code()?);
    Ok(())
}

fn a_stopped_process_is_woken_to_act_on_its_term(t: &Subject) -> Outcome {
    let script = "sh -c 'trap \"echo woken >woken; exit\" TERM; echo started; kill -STOP $$; \
                  while :; do sleep 0.1; done' & read end";
    let setup = t.with_script(&["--drain", "3000"], script);
    let mut run = setup.piped_input().start()?;
    ensure!(run.line()? == "started", "nobody was left");
    run.find("the stopped one", |p| p.state == 'T')?;
    run.close_input();
    run.code()?;
    ensure!(run.folder().join("woken").exists(), "the trap did not run");
    Ok(())
}

fn an_uninterruptible_sleeper_does_not_hold_us_up(t: &Subject) -> Outcome {
    let setup = t.with_testhost(&["--drain", "1"], &["vfork"]);
    let mut run = setup.piped_input().start()?;
    ensure!(run.line()? == "left", "nobody was left");
    run.find("one in uninterruptible sleep", |p| p.state == 'D')?;
    run.close_input();
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(
        run.report()?["drain"]["expired"] == true,
        "{}",
        run.report()?
    );
    Ok(())
}

/// Runs a script in the namespace of `run` as nobody's child there, as the
/// probes and commands of a container runtime are.
fn enter(run: &Running, script: &str) -> Result<std::process::Child, Stop> {
    let target = run.pid.to_string();
    let child = Command::new("nsenter")
        .args(["--target", &target, "--pid", "--", "sh", "-c", script])
        .current_dir(run.folder())
        .stdin(std::process::Stdio::null())
        .spawn()?;
    Ok(child)
}

const GUEST: &str = "trap 'echo told >guest; exit' TERM; : >entered; while :; do sleep 0.1; done";

fn a_process_that_entered_the_namespace_is_drained_too(t: &Subject) -> Outcome {
    guest(
        t,
        Setup::piped_input(t.with_script(&["--drain", "3000"], "read end; exit 0")),
    )
}

fn all_this_works_without_proc(t: &Subject) -> Outcome {
    let setup = t.with_script(&["--drain", "3000"], "read end; exit 0");
    guest(t, setup.piped_input().no_proc())
}

fn guest(_: &Subject, setup: Setup) -> Outcome {
    let mut run = setup.start()?;
    let mut child = enter(&run, GUEST)?;
    let entered = run.folder().join("entered");
    eventually("the guest", || entered.exists().then_some(()))?;
    run.close_input();
    let code = run.code();
    child.wait()?;
    ensure!(code? == 0, "the code was changed");
    ensure!(
        run.folder().join("guest").exists(),
        "the guest was not told"
    );
    Ok(())
}

fn a_second_stop_during_the_drain_changes_nothing(t: &Subject) -> Outcome {
    let script = format!("{STUBBORN} trap 'exit 9' TERM; sleep 1000 & wait");
    let mut run = t.with_script(&["--drain", "2"], &script).start()?;
    ensure!(run.line()? == "started", "nobody was left");
    let host = run.host()?;
    let asked = Instant::now();
    // The host may not have its trap yet, so it is asked until it is gone.
    while run.alive() {
        run.signal(libc::SIGTERM)?;
        ensure!(
            asked.elapsed() < podcradle_tests::pidns::WATCHDOG,
            "endless"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(Process::read(host.pid).is_none(), "the host lives");
    ensure!(lasted(asked, 2 * SECOND), "the drain was cut short");
    let code = run.code()?;
    ensure!(code == 9 || code == 143, "exit {code}");
    Ok(())
}

fn a_stop_during_the_drain_keeps_the_code(t: &Subject) -> Outcome {
    let mut run = worker(t, &["--drain", "30"], "echo $$ >host; read end; exit 11")?;
    let file = run.folder().join("host");
    let number = || fs::read_to_string(&file).ok()?.trim().parse().ok();
    let host: i32 = eventually("the host's pid", number)?;
    run.close_input();
    let host_gone = || {
        let members = run.members();
        members.iter().all(|p| p.inner != host).then_some(())
    };
    eventually("the host's end", host_gone)?;
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 11, "exit {}", run.code()?);
    ensure!(
        run.folder().join("worker").exists(),
        "the worker was cut off"
    );
    Ok(())
}

fn not_as_pid_1_only_descendants_are_drained(t: &Subject) -> Outcome {
    let script = r#"sleep 1000 & sibling=$!
        "$@" --drain 3000 -- sh -c 'sleep 2000 & exit 13'; echo "code $?"
        kill -0 $sibling && echo "sibling lives"; read end"#;
    let mut run = Setup::shell(t, script).piped_input().start()?;
    ensure!(run.line()? == "code 13", "the code was lost");
    ensure!(run.line()? == "sibling lives", "a stranger was killed");
    let left = run.members();
    let own = left.iter().filter(|p| p.command == "sleep 2000").count();
    ensure!(own == 0, "{}", run.context());
    ensure!(
        left.iter().any(|p| p.command == "sleep 1000"),
        "{}",
        run.context()
    );
    Ok(())
}

fn not_as_pid_1_an_own_session_does_not_escape(t: &Subject) -> Outcome {
    let script = format!(
        r#""$@" --drain 30 -- sh -c '{} read end; exit 14'; echo "code $?""#,
        WORKER.replace('\'', r#"'"'"'"#)
    );
    let mut run = Setup::shell(t, &script).piped_input().start()?;
    ensure!(run.line()? == "started", "no worker");
    run.close_input();
    ensure!(run.line()? == "code 14", "the code was lost");
    ensure!(
        run.folder().join("worker").exists(),
        "the worker was cut off"
    );
    Ok(())
}

fn not_as_pid_1_and_without_proc_no_drain_is_claimed(t: &Subject) -> Outcome {
    let script = r#""$@" -v --drain 3000 --termination-log "$REPORT" -- sh -c 'exit 13'
        echo "code $?""#;
    let mut run = Setup::shell(t, script).no_proc().start()?;
    ensure!(run.line()? == "code 13", "the code was lost");
    run.code()?;
    ensure!(run.report()?.get("drain").is_none(), "{}", run.report()?);
    let stderr = run.stderr()?;
    let said = stderr.matches("nothing is drained").count();
    ensure!(said == 1, "said {said} times in {stderr:?}");
    Ok(())
}
