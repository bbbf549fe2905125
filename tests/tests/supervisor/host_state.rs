//! The state the host starts with: exactly what the supervisor was given.

use std::fs;
use std::process::Command;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{Process, Setup, Subject, eventually, kill};

crate::cases![
    mask_and_dispositions_are_those_of_the_starter: "QEMU puts handlers of its own in the place of ignored signals that would end a process",
    the_mask_is_that_of_the_starter,
    a_pipeline_ends_quietly_by_sigpipe,
    the_environment_is_passed_on_unchanged,
    arguments_are_passed_on_byte_by_byte,
    the_host_has_a_group_of_its_own,
    a_parent_death_signal_reaches_us,
    a_parent_that_dies_before_it_is_watched_is_noticed: "strace stops the emulator, not what it emulates",
];

/// What a host sees of its own signals: mask, ignored, caught.
fn seen(setup: Setup) -> Result<Vec<String>, Stop> {
    let mut run = setup.start()?;
    let lines = run.out.rest()?;
    ensure!(run.code()? == 0, "{}", run.stderr()?);
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Reads its own status without a shell, which changes dispositions.
const LOOK: [&str; 5] = [
    "grep",
    "-E",
    "-e",
    "^Sig(Blk|Ign|Cgt):",
    "/proc/self/status",
];

/// Those whose bit is set.
fn pick(from: &[i32], bits: usize) -> Vec<i32> {
    let chosen = from
        .iter()
        .enumerate()
        .filter(|(at, _)| bits >> at & 1 == 1);
    chosen.map(|(_, signal)| *signal).collect()
}

fn combinations() -> Vec<(Vec<i32>, Vec<i32>)> {
    let ignorable = [libc::SIGPIPE, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD];
    let blockable = [libc::SIGTERM, libc::SIGUSR1];
    (0..64)
        .map(|bits| (pick(&ignorable, bits), pick(&blockable, bits >> 4)))
        .collect()
}

fn mask_and_dispositions_are_those_of_the_starter(t: &Subject) -> Outcome {
    // SIGCHLD apart: a blocked one would be pending in one of the two cases.
    let every = (
        vec![],
        (1..=64)
            .filter(|n| ![9, 17, 19, 32, 33].contains(n))
            .collect(),
    );
    for (ignored, blocked) in combinations().into_iter().chain([every]) {
        let state = |setup: Setup| seen(setup.ignoring(&ignored).blocking(&blocked));
        let words = LOOK.map(Into::into).into();
        let bare = state(Setup::program("/bin/grep".into(), words).no_report_flag())?;
        let under = state(t.init(&[], &LOOK))?;
        ensure!(bare.len() == 3, "{bare:?}");
        ensure!(
            bare == under,
            "ignored {ignored:?}, blocked {blocked:?}: {bare:?} became {under:?}"
        );
    }
    Ok(())
}

fn the_mask_is_that_of_the_starter(t: &Subject) -> Outcome {
    for bits in 0..4 {
        let blocked = pick(&[libc::SIGTERM, libc::SIGUSR1], bits);
        let lines = seen(t.init(&[], &LOOK).blocking(&blocked))?;
        let mask = blocked.iter().fold(0_u64, |set, n| set | 1 << (n - 1));
        let right = format!("SigBlk:\t{mask:016x}");
        ensure!(lines.contains(&right), "blocked {blocked:?}: {lines:?}");
    }
    Ok(())
}

fn a_pipeline_ends_quietly_by_sigpipe(t: &Subject) -> Outcome {
    let mut run = t.with_script(&[], "yes | head -n 1").start()?;
    ensure!(run.line()? == "y", "no line");
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(run.stderr()?.is_empty(), "{}", run.stderr()?);
    Ok(())
}

fn the_environment_is_passed_on_unchanged(t: &Subject) -> Outcome {
    let odd = [
        "EMPTY=",
        "TWO WORDS=a b",
        "LINE=a\tb",
        "=x",
        "PODCRADLE_X=1",
    ];
    let mut setup = t.init(&[], &["env"]);
    for entry in odd {
        setup = setup.env(entry);
    }
    let lines = seen(setup)?;
    for entry in odd {
        ensure!(
            lines.iter().any(|line| line == entry),
            "{entry:?} is not in {lines:?}"
        );
    }
    ensure!(
        lines.len() == odd.len() + 1,
        "something was added: {lines:?}"
    );
    Ok(())
}

fn arguments_are_passed_on_byte_by_byte(t: &Subject) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let raw = std::ffi::OsStr::from_bytes(b"a\xff\xfe b");
    let script = r#"for word; do printf '%s' "$word" | od -An -tx1; done"#;
    let setup = t
        .with_script(&[], script)
        .args(["sh", "", "--", "-e"])
        .arg(raw);
    let lines = seen(setup)?;
    ensure!(
        lines == [" 2d 2d", " 2d 65", " 61 ff fe 20 62"],
        "{lines:?}"
    );
    Ok(())
}

fn the_host_has_a_group_of_its_own(t: &Subject) -> Outcome {
    let run = t.init(&[], &["sleep", "1000"]).start()?;
    let host = run.find("the host", |p| p.command == "sleep 1000")?;
    ensure!(host.group == host.pid, "{host:?}");
    Ok(())
}

fn a_parent_death_signal_reaches_us(t: &Subject) -> Outcome {
    // The starter goes as soon as the host is there; what its end sends to the
    // supervisor is forwarded like any other signal.
    let host = t.host.display();
    let script = format!(
        r#"sh -c '"$@" -p USR1 -- {host} listen host 10 44; echo "code $?"' sh "$@" &
        exec sleep 1000"#
    );
    let mut run = Setup::shell(t, &script).start()?;
    ensure!(run.line()? == "host ready", "no host");
    let starter = run.find("the starter", |p| {
        p.command.starts_with("sh -c") && p.inner != 1
    })?;
    podcradle_tests::pidns::kill(starter.pid, libc::SIGKILL)?;
    ensure!(
        run.line()? == "host 10",
        "the parent's death was not noticed"
    );
    Ok(())
}

fn a_parent_that_dies_before_it_is_watched_is_noticed(t: &Subject) -> Outcome {
    if Command::new("strace").arg("-V").output().is_err() {
        return Err(skip("no strace: nothing else stops us between two calls"));
    }
    // Stopped behind its first look at who its parent is, before it asks to be told of its end.
    let script = r#"sh -c 'strace -D -qq -o trace -e inject=getppid:signal=STOP:when=1 \
        "$@" -p TERM --termination-log "$REPORT" -- sleep 1000; :' sh "$@" & exec sleep 2000"#;
    let run = Setup::shell(t, script).start()?;
    let words = t.words();
    let ours = words.first().ok_or("no program")?.to_string_lossy();
    // Each call under strace is a short stop, too; only the trace tells which one lasts.
    let trace = run.folder().join("trace");
    let stays = || {
        let trace = fs::read_to_string(&trace).ok()?;
        trace.contains("--- stopped by SIGSTOP ---").then_some(())
    };
    eventually("its stop", stays)?;
    let stopped = run.find("the stopped supervisor", |p| {
        p.parent != run.pid && p.command.starts_with(&*ours)
    })?;
    kill(stopped.parent, libc::SIGKILL)?;
    let adopted = || Process::read(stopped.pid).filter(|p| p.parent == run.pid);
    eventually("its adoption", adopted)?;
    kill(stopped.pid, libc::SIGCONT)?;
    let written = || (!run.report_bytes().ok()?.is_empty()).then_some(());
    eventually("its end", written)?;
    let report = run.report()?;
    ensure!(report["stop"]["signal"] == libc::SIGTERM, "{report}");
    ensure!(report["exitCode"] == 143, "{report}");
    Ok(())
}
