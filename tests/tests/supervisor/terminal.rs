//! Under a terminal: an interactive shell finds its job control, keys arrive
//! once, stops stop, and a terminal that misbehaves never costs the host.

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{Filter, Process, Pty, Running, Setup, Subject, eventually, kill};
use std::ffi::OsString;
use std::path::Path;

crate::cases![
    an_interactive_shell_has_job_control,
    a_line_is_echoed_and_end_of_file_ends_the_host,
    the_host_is_the_foreground_group_and_we_are_not,
    the_window_size_changes_once,
    ctrl_c_arrives_once,
    a_signal_sent_to_us_arrives_once_under_a_terminal,
    with_g_ctrl_c_and_a_sent_signal_arrive_once_each,
    ctrl_z_stops_the_host_and_cont_resumes_it,
    tstp_ttin_and_ttou_reach_the_hosts_handlers,
    under_an_outer_shell_a_stop_gives_the_prompt_back,
    under_an_outer_shell_ttin_and_ttou_stop_us_along_with_the_host,
    in_the_background_of_a_shell_it_takes_no_time,
    in_the_background_it_does_not_take_the_terminal,
    the_old_foreground_group_is_given_back,
    a_terminal_that_refuses_is_left_alone,
    a_terminal_of_another_session_is_left_alone,
    a_warning_is_not_stopped_by_tostop,
];

fn on_terminal(setup: Setup) -> Result<Running, Stop> {
    Ok(setup.terminal(Pty::open()?).start()?)
}

fn bash() -> Result<&'static str, Stop> {
    if Path::new("/bin/bash").exists() {
        return Ok("/bin/bash");
    }
    Err(skip("no /bin/bash: job control needs a shell that has it"))
}

/// Types a command, waits for its output and the next prompt.
fn at_prompt(run: &mut Running, command: &str, expect: &str) -> Result<String, Stop> {
    let terminal = run.terminal()?;
    terminal.type_text(command)?;
    let seen = terminal.screen.until(expect)?;
    Ok(seen + &terminal.screen.until("$> ")?)
}

/// A shell whose prompt nothing else prints, with no echo in the way.
fn shell_flags() -> [&'static str; 4] {
    ["--norc", "--noprofile", "--noediting", "-i"]
}

fn an_interactive_shell_has_job_control(t: &Subject) -> Outcome {
    let setup = t.init(&[], &[bash()?]).args(shell_flags()).env("PS1=$> ");
    let mut run = on_terminal(setup)?;
    let greeting = run.terminal()?.screen.until("$> ")?;
    ensure!(!greeting.contains("job control"), "{greeting:?}");
    let shell = run.host()?;
    run.terminal()?.type_text("sleep 1000\n")?;
    let job = run.find("the job", |p| p.command == "sleep 1000")?;
    foreground(&run, job.group)?;
    run.terminal()?.type_text("\x1a")?;
    run.reaches(job.pid, 'T')?;
    run.terminal()?.screen.until("$> ")?;
    foreground(&run, shell.group)?;
    at_prompt(&mut run, "jobs\n", "Stopped")?;
    run.terminal()?.type_text("fg\n")?;
    foreground(&run, job.group)?;
    run.reaches(job.pid, 'S')?;
    run.terminal()?.type_text("\x03")?;
    run.terminal()?.screen.until("$> ")?;
    foreground(&run, shell.group)?;
    run.terminal()?.type_text("exit 3\n")?;
    ensure!(run.code()? == 3, "exit {}", run.code()?);
    Ok(())
}

/// Waits until a group is the terminal's foreground group.
fn foreground(run: &Running, group: i32) -> Outcome {
    let terminal = run.terminal.as_ref();
    let now = || Some(terminal?.foreground().ok()? == group).filter(|same| *same);
    eventually("the foreground group", now)?;
    Ok(())
}

fn a_line_is_echoed_and_end_of_file_ends_the_host(t: &Subject) -> Outcome {
    let mut run = on_terminal(t.init(&[], &["cat"]))?;
    run.terminal()?.type_text("hello\n")?;
    // Once by the terminal, once by the host.
    run.terminal()?.screen.until("hello\r\n")?;
    run.terminal()?.screen.until("hello\r\n")?;
    run.terminal()?.type_text("\x04")?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    Ok(())
}

fn the_host_is_the_foreground_group_and_we_are_not(t: &Subject) -> Outcome {
    let run = on_terminal(t.init(&[], &["sleep", "1000"]))?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    ensure!(
        host.group == host.pid,
        "the host has no group of its own: {host:?}"
    );
    foreground(&run, host.pid)?;
    let own = Process::read(run.pid).map(|p| p.group);
    ensure!(own == Some(run.pid), "we changed our own group to {own:?}");
    Ok(())
}

fn listener(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    let mut run = on_terminal(t.with_testhost(flags, &["listen", "host", "15", "33"]))?;
    run.terminal()?.screen.until("host ready\r\n")?;
    Ok(run)
}

/// Everything the host says from here to its end by SIGTERM.
fn rest(run: &mut Running) -> Result<Vec<String>, Stop> {
    run.signal(libc::SIGTERM)?;
    let seen = run.terminal()?.screen.until("host 15\r\n")?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    let lines = seen
        .lines()
        .map(|line| line.trim_matches(['^', 'C']).to_owned());
    Ok(lines.filter(|line| line != "host 15").collect())
}

fn the_window_size_changes_once(t: &Subject) -> Outcome {
    let mut run = listener(t, &[])?;
    run.terminal()?.resize(50, 132)?;
    // In order behind it, so that a second one would be seen.
    run.terminal()?.screen.until("host 28\r\n")?;
    run.signal(libc::SIGUSR1)?;
    run.terminal()?.screen.until("host 10\r\n")?;
    let more = rest(&mut run)?;
    ensure!(more.is_empty(), "{more:?}");
    Ok(())
}

fn ctrl_c_arrives_once(t: &Subject) -> Outcome {
    let mut run = listener(t, &[])?;
    run.terminal()?.type_text("\x03")?;
    run.terminal()?.screen.until("host 2\r\n")?;
    run.signal(libc::SIGUSR1)?;
    run.terminal()?.screen.until("host 10\r\n")?;
    let more = rest(&mut run)?;
    ensure!(more.is_empty(), "{more:?}");
    Ok(())
}

fn a_signal_sent_to_us_arrives_once_under_a_terminal(t: &Subject) -> Outcome {
    let mut run = listener(t, &[])?;
    run.signal(libc::SIGINT)?;
    run.terminal()?.screen.until("host 2\r\n")?;
    let more = rest(&mut run)?;
    ensure!(more.is_empty(), "{more:?}");
    Ok(())
}

fn with_g_ctrl_c_and_a_sent_signal_arrive_once_each(t: &Subject) -> Outcome {
    let host = t.host.display();
    let script = format!("{host} listen child 15 0 & exec {host} listen host 15 33");
    let mut run = on_terminal(t.with_script(&["-g"], &script))?;
    let screen = &mut run.terminal()?.screen;
    screen.until(" ready\r\n")?;
    screen.until(" ready\r\n")?;
    run.terminal()?.type_text("\x03")?;
    run.terminal()?.screen.until(" 2\r\n")?;
    run.terminal()?.screen.until(" 2\r\n")?;
    run.signal(libc::SIGUSR1)?;
    let mut seen = run.terminal()?.screen.until(" 10\r\n")?;
    seen += &run.terminal()?.screen.until(" 10\r\n")?;
    ensure!(!seen.contains(" 2\r\n"), "INT came twice: {seen:?}");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    Ok(())
}

fn ctrl_z_stops_the_host_and_cont_resumes_it(t: &Subject) -> Outcome {
    let mut run = on_terminal(t.init(&[], &["sleep", "1000"]))?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    foreground(&run, host.pid)?;
    run.terminal()?.type_text("\x1a")?;
    run.reaches(host.pid, 'T')?;
    ensure!(run.alive(), "the supervisor took a stop for an end");
    run.signal(libc::SIGCONT)?;
    run.reaches(host.pid, 'S')?;
    run.terminal()?.type_text("\x03")?;
    ensure!(run.code()? == 130, "exit {}", run.code()?);
    Ok(())
}

fn tstp_ttin_and_ttou_reach_the_hosts_handlers(t: &Subject) -> Outcome {
    let script = "trap 'echo got tstp' TSTP; trap 'echo got ttin' TTIN; \
                  trap 'echo got ttou' TTOU; trap 'exit 5' TERM; echo ready; \
                  while :; do sleep 0.02; done";
    let mut run = t.with_script(&[], script).start()?;
    ensure!(run.line()? == "ready", "no host");
    let names = [
        (libc::SIGTSTP, "tstp"),
        (libc::SIGTTIN, "ttin"),
        (libc::SIGTTOU, "ttou"),
    ];
    for (signal, name) in names {
        run.signal(signal)?;
        ensure!(run.line()? == format!("got {name}"), "{name} was lost");
    }
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 5, "exit {}", run.code()?);
    Ok(())
}

/// An interactive shell as the init, which is what the supervisor runs under.
fn outer_shell(t: &Subject) -> Result<Running, Stop> {
    let words = std::iter::once("bash").chain(shell_flags());
    let argv = words.map(OsString::from).collect();
    let setup = Setup::program(bash()?.into(), argv).profile(t);
    let mut run = on_terminal(setup.no_report_flag().env("PS1=$> "))?;
    run.terminal()?.screen.until("$> ")?;
    Ok(run)
}

fn under_an_outer_shell_a_stop_gives_the_prompt_back(t: &Subject) -> Outcome {
    let mut run = outer_shell(t)?;
    let words = t.shell_words();
    run.terminal()?
        .type_text(&format!("{words} -- sleep 1000\n"))?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    foreground(&run, host.group)?;
    run.terminal()?.type_text("\x1a")?;
    run.reaches(host.pid, 'T')?;
    run.terminal()?.screen.until("Stopped")?;
    run.terminal()?.screen.until("$> ")?;
    foreground(&run, run.pid)?;
    run.terminal()?.type_text("fg\n")?;
    run.reaches(host.pid, 'S')?;
    interrupt(&mut run, host.group)
}

fn under_an_outer_shell_ttin_and_ttou_stop_us_along_with_the_host(t: &Subject) -> Outcome {
    let mut run = outer_shell(t)?;
    let words = t.shell_words();
    run.terminal()?
        .type_text(&format!("{words} -- sleep 1000\n"))?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    let supervisor = host.parent;
    for signal in [libc::SIGTTIN, libc::SIGTTOU] {
        foreground(&run, host.group)?;
        run.reaches(supervisor, 'S')?;
        kill(supervisor, signal)?;
        run.reaches(host.pid, 'T')?;
        run.reaches(supervisor, 'T')?;
        run.terminal()?.screen.until("Stopped")?;
        run.terminal()?.screen.until("$> ")?;
        foreground(&run, run.pid)?;
        run.terminal()?.type_text("fg\n")?;
        run.reaches(host.pid, 'S')?;
    }
    interrupt(&mut run, host.group)
}

/// Ctrl-C ends the host in the foreground, and its shell sees how.
fn interrupt(run: &mut Running, group: i32) -> Outcome {
    foreground(run, group)?;
    run.terminal()?.type_text("\x03")?;
    run.terminal()?.screen.until("$> ")?;
    run.terminal()?.type_text("echo code $?\n")?;
    run.terminal()?.screen.until("code 130")?;
    Ok(())
}

fn in_the_background_of_a_shell_it_takes_no_time(t: &Subject) -> Outcome {
    let mut run = outer_shell(t)?;
    let words = t.shell_words();
    run.terminal()?
        .type_text(&format!("{words} -- sleep 1000 &\n"))?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    let supervisor = host.parent;
    run.reaches(supervisor, 'S')?;
    let before = Process::read(supervisor).map(|p| p.ticks);
    // There is no event to wait for: that nothing happens is the point.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let after = Process::read(supervisor).map(|p| p.ticks);
    ensure!(
        before.is_some() && before == after,
        "{before:?} became {after:?}"
    );
    Ok(())
}

fn in_the_background_it_does_not_take_the_terminal(t: &Subject) -> Outcome {
    let mut run = outer_shell(t)?;
    let words = t.shell_words();
    run.terminal()?
        .type_text(&format!("{words} -- sleep 1000 &\n"))?;
    run.find("the host", |p| p.command == "sleep 1000")?;
    at_prompt(&mut run, "echo still $((20 + 3))\n", "still 23")?;
    foreground(&run, run.pid)?;
    Ok(())
}

fn the_old_foreground_group_is_given_back(t: &Subject) -> Outcome {
    // A shell without job control between the two: nobody else repairs it.
    let words = t.shell_words();
    let script = format!("{words} -- true; read line; echo \"read $line\"");
    let argv = ["sh", "-c", &script].map(OsString::from).into();
    let setup = Setup::program("/bin/sh".into(), argv).profile(t);
    let mut run = on_terminal(setup.no_report_flag())?;
    run.terminal()?.type_text("a line\n")?;
    // In the background that read would have stopped it, or failed.
    run.terminal()?.screen.until("read a line")?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    Ok(())
}

fn a_terminal_that_refuses_is_left_alone(t: &Subject) -> Outcome {
    let request = u32::try_from(libc::TIOCSPGRP)?;
    let mut filters: Vec<Filter> = [
        libc::ENOTTY,
        libc::ENXIO,
        libc::EPERM,
        libc::EIO,
        libc::ENOSYS,
    ]
    .into_iter()
    .map(|errno| Filter::new().deny_request(libc::SYS_ioctl, request, errno))
    .collect();
    filters.push(Filter::new().deny(libc::SYS_setpgid, libc::EPERM));
    for (at, filter) in filters.iter().enumerate() {
        let setup = t.with_script(&[], "echo runs; exit 17").filter(filter);
        let mut run = on_terminal(setup)?;
        let screen = run.terminal()?.screen.until("runs\r\n")?;
        ensure!(screen == "runs\r\n", "filter {at}: {screen:?}");
        ensure!(run.code()? == 17, "filter {at}: exit {}", run.code()?);
    }
    Ok(())
}

fn a_terminal_of_another_session_is_left_alone(t: &Subject) -> Outcome {
    let setup = t.with_script(&[], "echo runs; exit 18");
    let mut run = setup.foreign_terminal(Pty::open()?).start()?;
    let screen = run.terminal()?.screen.until("runs\r\n")?;
    ensure!(screen == "runs\r\n", "{screen:?}");
    ensure!(run.code()? == 18, "exit {}", run.code()?);
    Ok(())
}

fn a_warning_is_not_stopped_by_tostop(t: &Subject) -> Outcome {
    let host = ["as-user", "1001", "sleep", "1000"];
    let pty = Pty::open()?;
    pty.local_modes(libc::TOSTOP, 0)?;
    let setup = t.with_testhost(&[], &host).without_cap_kill();
    let mut run = setup.terminal(pty).start()?;
    let host = run.find("the other user's host", |p| p.command == "sleep 1000")?;
    foreground(&run, host.group)?;
    run.signal(libc::SIGUSR1)?;
    run.terminal()?.screen.until("\n")?;
    run.reaches(run.pid, 'S')?;
    kill(host.pid, libc::SIGKILL)?;
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    Ok(())
}
