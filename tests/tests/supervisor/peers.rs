//! Called by a peer's name or configured by its environment, it takes that
//! peer's flags and gives its results.

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{Process, Pty, Running, Setup, Subject, eventually, kill};
use std::path::Path;

crate::cases![
    tini_flags_work_under_our_own_name,
    the_version_is_what_docker_info_parses,
    called_as_tini_bad_input_is_tinis_code,
    called_as_tini_without_a_program_it_is_tinis_code,
    called_as_docker_init_it_runs_as_docker_starts_it,
    called_as_podman_init_it_runs_as_podman_starts_it,
    called_as_catatonit_it_pauses_and_runs,
    called_as_dumb_init_its_flags_work,
    called_as_dumb_init_the_group_gets_the_signal,
    called_as_dumb_init_a_rewrite_works,
    called_as_dumb_init_the_host_has_the_terminal_in_a_session_of_its_own,
    called_as_dumb_init_with_c_ctrl_c_arrives_once,
    called_as_dumb_init_the_group_is_told_to_stop_when_the_host_ends,
    called_as_dumb_init_a_job_control_stop_always_stops,
    tinis_exit_codes_are_ours,
    dumb_inits_exit_codes_are_ours,
    catatonits_exit_codes_are_ours,
    tinis_environment_is_obeyed,
    tinis_environment_makes_it_a_subreaper: "QEMU refuses PR_SET_CHILD_SUBREAPER, so nobody but PID 1 adopts there",
];

fn called(t: &Subject, name: &str, words: &[&str]) -> Result<Running, Stop> {
    Ok(Setup::called(t, name).args(words).start()?)
}

fn code(t: &Subject, name: &str, words: &[&str], right: i32) -> Result<Running, Stop> {
    let mut run = called(t, name, words)?;
    let got = run.code()?;
    ensure!(
        got == right,
        "{name} {words:?}: exit {got}: {}",
        run.stderr()?
    );
    Ok(run)
}

fn tini_flags_work_under_our_own_name(t: &Subject) -> Outcome {
    for flags in [
        &["-s"][..],
        &["-g", "-w"][..],
        &["-v", "-vv", "-vvv"][..],
        &["-p", "SIGTERM"][..],
        &["-e", "9", "-sgw"][..],
    ] {
        let mut run = t.with_script(flags, "exit 5").start()?;
        ensure!(
            run.code()? == 5,
            "{flags:?}: exit {}: {}",
            run.code()?,
            run.stderr()?
        );
    }
    for flag in ["-l", "-h", "--version"] {
        let mut run = code(t, "tini", &[flag], 0)?;
        ensure!(!run.out.rest()?.is_empty(), "{flag} says nothing");
    }
    Ok(())
}

fn the_version_is_what_docker_info_parses(t: &Subject) -> Outcome {
    for name in ["tini", "docker-init", "/usr/bin/docker-init"] {
        let mut run = code(t, name, &["--version"], 0)?;
        let text = run.out.rest()?;
        ensure!(text.starts_with("tini version "), "{name}: {text:?}");
    }
    Ok(())
}

fn called_as_tini_bad_input_is_tinis_code(t: &Subject) -> Outcome {
    code(t, "tini", &["-x", "--", "true"], 1)?;
    code(t, "tini", &["-p", "NOPE", "--", "true"], 1)?;
    code(t, "tini", &["-e", "256", "--", "true"], 1)?;
    Ok(())
}

fn called_as_tini_without_a_program_it_is_tinis_code(t: &Subject) -> Outcome {
    code(t, "tini", &[], 1)?;
    code(t, "tini", &["--"], 1)?;
    code(t, "tini", &["--", "/nope"], 127)?;
    code(t, "tini", &["--", "/usr"], 126)?;
    code(
        t,
        "/sbin/tini",
        &["-e", "143", "--", "sh", "-c", "kill -TERM $$"],
        0,
    )?;
    code(t, "tini-static", &["sh", "-c", "exit 3"], 3)?;
    Ok(())
}

fn called_as_docker_init_it_runs_as_docker_starts_it(t: &Subject) -> Outcome {
    code(t, "/sbin/docker-init", &["--", "sh", "-c", "exit 3"], 3)?;
    Ok(())
}

fn called_as_podman_init_it_runs_as_podman_starts_it(t: &Subject) -> Outcome {
    code(t, "/dev/init", &["--", "sh", "-c", "exit 3"], 3)?;
    code(t, "/run/podman-init", &["--", "sh", "-c", "exit 4"], 4)?;
    Ok(())
}

fn called_as_catatonit_it_pauses_and_runs(t: &Subject) -> Outcome {
    code(t, "catatonit", &["--", "sh", "-c", "exit 3"], 3)?;
    code(t, "catatonit", &["-g", "sh", "-c", "exit 3"], 3)?;
    code(t, "catatonit", &["-V"], 0)?;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut run = called(t, "catatonit", &["-P"])?;
        run.reaches(run.pid, 'S')?;
        run.signal(signal)?;
        ensure!(run.code()? == 0, "{signal}: exit {}", run.code()?);
    }
    Ok(())
}

fn called_as_dumb_init_its_flags_work(t: &Subject) -> Outcome {
    for words in [
        &["sh", "-c", "exit 3"][..],
        &["--", "sh", "-c", "exit 3"][..],
        &["-c", "sh", "-c", "exit 3"][..],
        &["--single-child", "-v", "sh", "-c", "exit 3"][..],
        &["--verbose", "--rewrite", "15:2", "sh", "-c", "exit 3"][..],
    ] {
        code(t, "/usr/bin/dumb-init", words, 3)?;
    }
    for flag in ["-V", "--version", "-h", "--help"] {
        code(t, "dumb-init", &[flag], 0)?;
    }
    Ok(())
}

/// A host and a child of it, both listening; the host ends by SIGTERM with 33.
fn pair(t: &Subject, flags: &[&str]) -> Result<Running, Stop> {
    let host = t.host.display();
    let script = format!("{host} listen child 15 0 & exec {host} listen host 15 33");
    let mut run = Setup::called(t, "dumb-init")
        .args(flags)
        .args(["sh", "-c", &script])
        .start()?;
    let mut ready = [run.line()?, run.line()?];
    ready.sort();
    ensure!(ready == ["child ready", "host ready"], "{ready:?}");
    Ok(run)
}

fn called_as_dumb_init_the_group_gets_the_signal(t: &Subject) -> Outcome {
    let mut run = pair(t, &[])?;
    run.signal(libc::SIGUSR1)?;
    let mut lines = [run.line()?, run.line()?];
    lines.sort();
    ensure!(lines == ["child 10", "host 10"], "{lines:?}");
    let mut run = pair(t, &["-c"])?;
    run.signal(libc::SIGUSR1)?;
    ensure!(run.line()? == "host 10", "not the host");
    run.signal(libc::SIGTERM)?;
    ensure!(run.line()? == "host 15", "the group got it");
    Ok(())
}

fn called_as_dumb_init_a_rewrite_works(t: &Subject) -> Outcome {
    let mut run = pair(t, &["-c", "-r", "1:10", "--rewrite", "12:0"])?;
    run.signal(libc::SIGUSR2)?;
    run.signal(libc::SIGHUP)?;
    ensure!(run.line()? == "host 10", "not rewritten");
    Ok(())
}

fn tinis_environment_is_obeyed(t: &Subject) -> Outcome {
    let host = t.host.display();
    let script = format!("{host} listen child 15 0 & exec {host} listen host 15 33");
    let setup = Setup::called(t, "tini").args(["--", "sh", "-c", &script]);
    let mut run = setup.env("TINI_KILL_PROCESS_GROUP=1").start()?;
    run.line()?;
    run.line()?;
    run.signal(libc::SIGUSR1)?;
    let mut lines = [run.line()?, run.line()?];
    lines.sort();
    ensure!(lines == ["child 10", "host 10"], "{lines:?}");
    // More words about what it does.
    let setup = Setup::called(t, "tini").args(["--", "sh", "-c", "exit 3"]);
    let mut run = setup.env("TINI_VERBOSITY=3").start()?;
    ensure!(run.code()? == 3, "exit {}", run.code()?);
    ensure!(!run.stderr()?.is_empty(), "it says nothing");
    Ok(())
}

fn tinis_environment_makes_it_a_subreaper(t: &Subject) -> Outcome {
    let script = r#"TINI_SUBREAPER=1 "$@" -- sh -c '(sleep 1000 & echo left); read end'"#;
    let mut run = Setup::shell(t, &format!("{script}; :"))
        .piped_input()
        .start()?;
    ensure!(run.line()? == "left", "no orphan");
    let supervisor = run.host()?;
    let adopted = || {
        run.members()
            .into_iter()
            .find(|p| p.command == "sleep 1000" && p.parent == supervisor.pid)
    };
    eventually("the adoption", adopted)?;
    Ok(())
}

/// dumb-init with a listening host, on a terminal.
fn on_terminal(t: &Subject, flags: &[&str]) -> Result<(Running, Process), Stop> {
    let setup = Setup::called(t, "dumb-init").args(flags);
    let setup = setup.arg(&t.host).args(["listen", "host", "15", "33"]);
    let mut run = setup.terminal(Pty::open()?).start()?;
    run.terminal()?.screen.until("host ready\r\n")?;
    let host = run.host()?;
    Ok((run, host))
}

/// What Ctrl-C comes to: one SIGINT, and nothing before the signal that follows it.
fn ctrl_c_arrives_once(run: &mut Running, host: &Process) -> Outcome {
    let terminal = run.terminal()?;
    let now = || Some(terminal.foreground().ok()? == host.pid).filter(|same| *same);
    eventually("the host in the foreground", now)?;
    terminal.type_text("\x03")?;
    terminal.screen.until("host 2\r\n")?;
    run.signal(libc::SIGTERM)?;
    let more = run.terminal()?.screen.until("host 15\r\n")?;
    ensure!(more == "host 15\r\n", "{more:?}");
    ensure!(run.code()? == 33, "exit {}", run.code()?);
    Ok(())
}

fn called_as_dumb_init_the_host_has_the_terminal_in_a_session_of_its_own(t: &Subject) -> Outcome {
    let (mut run, host) = on_terminal(t, &[])?;
    ensure!(host.session == host.pid, "{host:?}");
    ctrl_c_arrives_once(&mut run, &host)
}

fn called_as_dumb_init_with_c_ctrl_c_arrives_once(t: &Subject) -> Outcome {
    let (mut run, host) = on_terminal(t, &["-c"])?;
    ensure!(host.session == run.pid, "{host:?}");
    ctrl_c_arrives_once(&mut run, &host)
}

/// dumb-init below a shell, which outlives it: a copy, since a shell gives it its file's name.
fn below_a_shell(t: &Subject, words: &str) -> Result<Running, Stop> {
    let script =
        format!(r#"cp "$FILE" dumb-init; $EMULATOR ./dumb-init {words}; echo "code $?"; read end"#);
    let emulator = t.emulator().map(Path::display);
    let emulator = emulator.map_or(String::new(), |path| path.to_string());
    let setup = Setup::shell(t, &script)
        .env(format!("FILE={}", t.path.display()))
        .env(format!("EMULATOR={emulator}"));
    Ok(setup.piped_input().start()?)
}

fn called_as_dumb_init_the_group_is_told_to_stop_when_the_host_ends(t: &Subject) -> Outcome {
    let host = t.host.display();
    let script = format!("'{host} listen child 15 0 & exec {host} listen host 10 33'");
    let mut run = below_a_shell(t, &format!("sh -c {script}"))?;
    let mut ready = [run.line()?, run.line()?];
    ready.sort();
    ensure!(ready == ["child ready", "host ready"], "{ready:?}");
    let command = format!("{host} listen host 10 33");
    let host = run.find("the host", |p| p.command == command)?;
    kill(host.pid, libc::SIGUSR1)?;
    ensure!(run.line()? == "host 10", "not the host alone");
    let mut last = [run.line()?, run.line()?];
    last.sort();
    ensure!(last == ["child 15", "code 33"], "{last:?}");
    Ok(())
}

fn called_as_dumb_init_a_job_control_stop_always_stops(t: &Subject) -> Outcome {
    // The host blocks each of them, so that SIGSTOP alone can have stopped it.
    let command = format!("{} listen host 15 33", t.host.display());
    let mut run = below_a_shell(t, &command)?;
    ensure!(run.line()? == "host ready", "no host");
    let host = run.find("the host", |p| p.command == command)?;
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        kill(host.parent, signal)?;
        run.reaches(host.pid, 'T')?;
        run.reaches(host.parent, 'T')?;
        kill(host.parent, libc::SIGCONT)?;
        ensure!(run.line()? == "host 18", "not continued");
        run.reaches(host.parent, 'S')?;
    }
    let mut run = pair(t, &["-c"])?;
    run.signal(libc::SIGTSTP)?;
    ensure!(run.line()? == "host 20", "with -c it is sent on as it is");
    Ok(())
}

const NOT_EXECUTED: &str = "README: host not found, not executable";
const NO_DASHES: &str = "README: flags of the host without --";
const LONG_FLAGS: &str = "README: our long flags work, too";

/// Runs the peer itself and ours under its name with the same words. Where nothing is said
/// the code is the same; else it differs, and what is said names where that is documented.
fn codes_beside(t: &Subject, name: &str, table: &[(&[&str], Option<&str>)]) -> Outcome {
    let peer = Path::new("/usr/bin").join(name);
    if !peer.exists() {
        return Err(skip(format!(
            "no {}: nothing to compare with",
            peer.display()
        )));
    }
    for (words, differs) in table {
        let argv = std::iter::once(name).chain(words.iter().copied());
        let argv = argv.map(Into::into).collect();
        let setup = Setup::program(peer.clone(), argv).no_report_flag();
        let theirs = setup.start()?.code()?;
        let ours = called(t, name, words)?.code()?;
        ensure!(
            (theirs == ours) == differs.is_none(),
            "{name} {words:?}: theirs {theirs}, ours {ours}, documented: {differs:?}"
        );
    }
    Ok(())
}

fn tinis_exit_codes_are_ours(t: &Subject) -> Outcome {
    codes_beside(
        t,
        "tini",
        &[
            (&["--version"], None),
            (&["-h"], None),
            (&["-l"], None),
            (&[], None),
            (&["--"], None),
            (&["-x", "--", "true"], None),
            (&["-e", "256", "--", "true"], None),
            (&["-p", "NOPE", "--", "true"], None),
            (&["--", "/nope"], None),
            (&["--", "/usr"], None),
            (&["true"], None),
            (&["--", "sh", "-c", "exit 3"], None),
            (
                &["-gvw", "-s", "-p", "SIGTERM", "--", "sh", "-c", "exit 255"],
                None,
            ),
            (&["--", "sh", "-c", "kill -TERM $$"], None),
            (&["--", "sh", "-c", "kill -KILL $$"], None),
            (&["-e", "143", "--", "sh", "-c", "kill -TERM $$"], None),
            (&["-e", "3", "--", "sh", "-c", "exit 3"], None),
            (&["-e", "3", "--", "sh", "-c", "exit 4"], None),
            (&["sh", "-c", "exit 3"], Some(NO_DASHES)),
        ],
    )
}

fn dumb_inits_exit_codes_are_ours(t: &Subject) -> Outcome {
    codes_beside(
        t,
        "dumb-init",
        &[
            (&["-V"], None),
            (&["--version"], None),
            (&["-h"], None),
            (&["--help"], None),
            (&[], None),
            (&["-x", "true"], None),
            (&["-r", "x", "true"], None),
            (&["-r", "15:99", "true"], None),
            (&["true"], None),
            (&["sh", "-c", "exit 3"], None),
            (&["-c", "-v", "--", "sh", "-c", "exit 255"], None),
            (
                &["--single-child", "--rewrite", "15:2", "sh", "-c", "exit 4"],
                None,
            ),
            (&["sh", "-c", "kill -TERM $$"], None),
            (&["-c", "sh", "-c", "kill -KILL $$"], None),
            (&["/nope"], Some(NOT_EXECUTED)),
            (&["/usr"], Some(NOT_EXECUTED)),
        ],
    )
}

fn catatonits_exit_codes_are_ours(t: &Subject) -> Outcome {
    codes_beside(
        t,
        "catatonit",
        &[
            (&["-V"], None),
            (&["--version"], None),
            (&["-h"], None),
            (&["-L"], None),
            (&[], None),
            (&["-g"], None),
            (&["-x", "--", "true"], None),
            (&["true"], None),
            (&["--", "sh", "-c", "exit 3"], None),
            (&["-g", "--", "sh", "-c", "exit 255"], None),
            (&["--", "sh", "-c", "kill -TERM $$"], None),
            (&["--", "sh", "-c", "kill -KILL $$"], None),
            (&["--", "/nope"], Some(NOT_EXECUTED)),
            (&["--", "/usr"], Some(NOT_EXECUTED)),
            (&["sh", "-c", "exit 3"], Some(NO_DASHES)),
            (&["--help"], Some(LONG_FLAGS)),
        ],
    )
}
