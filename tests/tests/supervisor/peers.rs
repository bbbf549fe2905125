//! Called by a peer's name or configured by its environment, it takes that
//! peer's flags and gives its results.

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Running, Setup, Subject, eventually};

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
