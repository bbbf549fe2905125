//! Under seccomp profiles and kernels that answer calls they do not know with
//! an error: all that is newer than the oldest of them is optional.

use podcradle_tests::ensure;
use podcradle_tests::harness::Outcome;
use podcradle_tests::pidns::{Filter, Setup, Subject};

crate::cases![
    no_call_newer_than_2017_is_needed,
    a_refused_subreaper_is_no_obstacle,
    refused_prctl_calls_cost_nothing_but_what_they_do,
];

/// The first call of the numbers that all architectures share: `pidfd_send_signal`, from
/// Linux 5.1. Below, an emulator has needs of its own.
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

fn no_call_newer_than_2017_is_needed(t: &Subject) -> Outcome {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let filter = if t.emulated() {
            // The emulator itself starts a thread and takes EPERM for a failure.
            Filter::new()
                .allow(libc::SYS_clone3)
                .deny_from(SHARED, errno)
        } else {
            Filter::of_2017(errno)
        };
        full_life(t, &filter)?;
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
