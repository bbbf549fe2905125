//! Under seccomp profiles and kernels that answer calls they do not know with
//! an error: all that is newer than the oldest of them is optional.

use std::ffi::OsString;
use std::process::Command;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{Filter, Setup, Subject};

crate::cases![
    no_call_newer_than_2018_is_needed,
    a_refused_subreaper_is_no_obstacle,
    refused_prctl_calls_cost_nothing_but_what_they_do,
    the_list_of_system_calls_is_true: "strace of an emulated program shows the emulator's calls",
];

/// The first call of the numbers that all architectures share: `pidfd_send_signal`,
/// from Linux 5.1; nothing a profile of 2017 knows is above.
const SHARED: libc::c_long = 424;

/// One life with all there is to it: an orphan, a forwarded signal, a stop, a
/// drain, a report.
fn full_life(t: &Subject, filter: &Filter) -> Outcome {
    let script = "trap 'echo usr1' USR1; trap 'exit 9' TERM; (sleep 1000 &); echo ready; \
                  while :; do sleep 0.02; done";
    let flags = ["--grace", "3000", "--drain", "3000", "--close-fds"];
    let mut run = t.with_script(&flags, script).filter(filter).start()?;
    ensure!(run.line()? == "ready", "no host");
    run.signal(libc::SIGUSR1)?;
    ensure!(run.line()? == "usr1", "not forwarded");
    run.signal(libc::SIGTERM)?;
    ensure!(run.code()? == 9, "exit {}", run.code()?);
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    let report = run.report()?;
    ensure!(report["stop"]["signal"] == 15, "{report}");
    ensure!(report["drain"]["left"].as_u64() >= Some(1), "{report}");
    Ok(())
}

fn no_call_newer_than_2018_is_needed(t: &Subject) -> Outcome {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut filter = Filter::new();
        if t.emulated() {
            // The emulator itself starts a thread and takes EPERM for a failure.
            filter = filter.allow(libc::SYS_clone3);
        }
        full_life(t, &filter.deny_from(SHARED, errno))?;
    }
    Ok(())
}

fn a_refused_subreaper_is_no_obstacle(t: &Subject) -> Outcome {
    for errno in [libc::EPERM, libc::EINVAL, libc::ENOSYS] {
        let filter = Filter::new().deny_first(
            libc::SYS_prctl,
            u32::try_from(libc::PR_SET_CHILD_SUBREAPER)?,
            errno,
        );
        let script = r#""$@" -- sh -c 'exit 19'; echo "code $?""#;
        let mut run = Setup::shell(t, script).filter(&filter).start()?;
        ensure!(run.line()? == "code 19", "errno {errno}");
        ensure!(run.code()? == 0, "the shell failed");
        ensure!(run.stderr()?.is_empty(), "errno {errno}: {}", run.stderr()?);
        full_life(t, &filter)?;
    }
    Ok(())
}

fn refused_prctl_calls_cost_nothing_but_what_they_do(t: &Subject) -> Outcome {
    for errno in [libc::EPERM, libc::ENOSYS] {
        full_life(t, &Filter::new().deny(libc::SYS_prctl, errno))?;
    }
    Ok(())
}

/// The names in the list that is kept beside the supervisor's sources.
fn listed() -> Result<Vec<String>, Stop> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../supervisor/syscalls.txt");
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

fn the_list_of_system_calls_is_true(t: &Subject) -> Outcome {
    if Command::new("strace").arg("--version").output().is_err() {
        return Err(skip("strace is not installed"));
    }
    let listed = listed()?;
    // Traced alone, without its children; each way of life once.
    let lives: [&[&str]; 6] = [
        &["--", "sh", "-c", "(sleep 0.1 &); exit 3"],
        &[
            "--grace",
            "1",
            "--drain",
            "1",
            "--",
            "sh",
            "-c",
            "trap '' TERM; kill -TERM $PPID; sleep 9 & wait; wait",
        ],
        &[
            "--restart",
            "on-failure:1",
            "-g",
            "-s",
            "-p",
            "TERM",
            "--",
            "sh",
            "-c",
            "exit 1",
        ],
        &[
            "--close-fds",
            "--keep-fd",
            "5",
            "--no-new-privs",
            "--",
            "sh",
            "-c",
            "kill -USR1 $PPID; exit 0",
        ],
        &["--", "/nope"],
        &["--prepare", "made/by/us"],
    ];
    for life in lives {
        let script = r#"strace -qq -o calls "$@"; cut -d'(' -f1 calls | grep -v '^[-+]' | sort -u"#;
        let argv: Vec<OsString> = ["sh", "-c", script, "sh"].map(Into::into).into();
        let argv = argv.into_iter().chain(t.words()).collect();
        let mut run = Setup::program("/bin/sh".into(), argv)
            .args(["--termination-log", "log"])
            .args(life)
            .no_report_flag()
            .start()?;
        let seen = run.out.rest()?;
        run.code()?;
        let seen: Vec<&str> = seen
            .lines()
            .filter(|line| {
                line.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            })
            .collect();
        ensure!(
            seen.contains(&"exit_group"),
            "{life:?}: nothing was traced: {seen:?}"
        );
        for call in seen {
            ensure!(
                listed.iter().any(|name| name == call),
                "{life:?}: {call} is not listed"
            );
        }
    }
    Ok(())
}
