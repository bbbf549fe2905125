//! The list of system calls beside the supervisor's sources: strace sees nothing that is not
//! in it, in any way of life, and nothing in it is needed that old profiles refuse.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{
    Arch, Filter, Pty, Running, Setup, Subject, eventually, procfs, write_program,
};

crate::cases![
    no_life_makes_a_call_that_is_not_listed: "strace of an emulated program shows the emulator's calls",
    dockers_profile_of_2017_allows_all_but_the_optional_ones,
];

/// A line of the list: a call, and what is said of it.
struct Listed {
    name: String,
    said: String,
}

fn listed() -> Result<Vec<Listed>, Stop> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../supervisor/syscalls.txt");
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let lines = text
        .lines()
        .map(|line| line.split_once('#').unwrap_or((line, "")));
    let calls = lines.map(|(name, said)| Listed {
        name: name.trim().to_owned(),
        said: said.trim().to_owned(),
    });
    Ok(calls.filter(|call| !call.name.is_empty()).collect())
}

/// One way of living: how it is started and what happens to it.
#[derive(Default)]
struct Life {
    /// What it is called by; its own name when empty.
    name: &'static str,
    flags: &'static [&'static str],
    host: &'static [&'static str],
    /// Sent one after the other, each when it waits for signals.
    signals: &'static [i32],
    on_terminal: bool,
    no_proc: bool,
    filter: Option<Filter>,
}

const ORPHANS: &str = "(sleep 0.1 &) ; (sleep 0.1 &); exit 3";
const STOPS: &[&str] = &[
    "sh",
    "-c",
    "(sleep 0.1; kill -CONT $$) & kill -STOP $$; exit 3",
];
const STUBBORN: &str = "trap '' TERM; (sleep 1000 &); kill -TERM 1 $PPID; exec sleep 1000";

fn lives() -> Vec<Life> {
    let life = |flags, host| Life {
        flags,
        host,
        ..Life::default()
    };
    let called = |name, flags, host| Life {
        name,
        ..life(flags, host)
    };
    let told = |signals, life| Life { signals, ..life };
    let (exits, orphans): (&[&str], &[&str]) = (&["sh", "-c", "exit 3"], &["sh", "-c", ORPHANS]);
    let sleeps: &[&str] = &["sleep", "1000"];
    let failing: &[&str] = &["sh", "-c", "sleep 1000 & exit 1"];
    let refusing = |call, errno| Some(Filter::new().deny(call, errno));
    vec![
        life(&[], exits),
        life(&["-vv", "-w", "--drain", "1"], orphans),
        life(
            &["--grace", "0.1", "--drain", "0.1"],
            &["sh", "-c", STUBBORN],
        ),
        life(
            &["--restart", "on-failure:1", "--drain", "9", "--close-fds"],
            failing,
        ),
        life(
            &["-g", "-s", "-p", "TERM", "-e", "143", "--rewrite", "10:15"],
            exits,
        ),
        life(&["--close-fds", "--keep-fd", "5", "--no-new-privs"], exits),
        told(
            &[libc::SIGWINCH, libc::SIGCONT, libc::SIGTERM],
            life(&["-g"], sleeps),
        ),
        told(
            &[libc::SIGTSTP, libc::SIGCONT, libc::SIGTERM],
            life(&["-vv"], sleeps),
        ),
        life(&["--env-from-file", "TOKEN=token"], exits),
        life(&["--env-from-file", "TOKEN=nope"], exits),
        life(&["--termination-log", "/"], exits),
        life(&[], &["/nope"]),
        life(&[], &["./bare"]),
        life(&[], &["./broken"]),
        life(&["--no-such-flag"], &[]),
        life(&["--help"], &[]),
        life(&["--version"], &[]),
        life(&["--prepare", "made/by/us"], &[]),
        life(&["--copy-to", "copied/by/us"], &[]),
        life(&["--copy-to", "taken"], &[]),
        told(&[libc::SIGTERM], life(&["-P"], &[])),
        told(&[libc::SIGINT], called("catatonit", &["-P"], &[])),
        called("catatonit", &["-g"], exits),
        called("podman-init", &[], exits),
        called("docker-init", &["-s"], exits),
        called("tini", &["-g", "-vvv", "-w"], orphans),
        called("tini-static", &["-h"], &[]),
        called("dumb-init", &[], orphans),
        told(
            &[libc::SIGTSTP, libc::SIGCONT, libc::SIGTERM],
            called("dumb-init", &["-v"], sleeps),
        ),
        Life {
            on_terminal: true,
            ..life(&["--grace", "1"], exits)
        },
        Life {
            on_terminal: true,
            ..called("dumb-init", &[], exits)
        },
        Life {
            filter: refusing(libc::SYS_close_range, libc::ENOSYS),
            ..life(&["--close-fds"], exits)
        },
        Life {
            filter: refusing(libc::SYS_close_range, libc::EPERM),
            no_proc: true,
            ..life(&[], orphans)
        },
        life(&[], STOPS),
    ]
}

/// Starts a life that waits for a line before its exec, so that strace can attach.
fn wait_for_strace(t: &Subject, life: &Life, pid1: bool) -> Result<Running, Stop> {
    let script = if pid1 {
        r#"read go; exec "$@""#
    } else {
        // The outer one stays: what is traced is not PID 1.
        r#"sh -c 'read go; exec "$@"' sh "$@"; exit"#
    };
    let argv = ["sh", "-c", script, "sh"].map(OsString::from).into();
    let mut setup = Setup::program("/bin/sh".into(), argv).no_report_flag();
    let folder = setup.folder()?.to_owned();
    fs::write(folder.join("token"), "secret\n")?;
    // No file can take the place of a directory.
    fs::create_dir_all(folder.join("taken/podcradle-init"))?;
    for (name, text) in [("bare", &b"exit 3\n"[..]), ("broken", b"#!/nope\n")] {
        write_program(&folder.join(name), text)?;
    }
    let program = if life.name.is_empty() {
        t.path.clone()
    } else {
        std::os::unix::fs::symlink(&t.path, folder.join(life.name))?;
        folder.join(life.name)
    };
    setup = setup.arg(program);
    if life.name.is_empty() {
        setup = setup.args(["--termination-log", "log"]);
    }
    setup = setup.args(life.flags);
    if !life.host.is_empty() {
        setup = setup.args(["--"]).args(life.host);
    }
    if life.no_proc {
        // Tried one by one, as far as the limit goes.
        setup = setup.no_proc().limit(libc::RLIMIT_NOFILE, 32);
    }
    if let Some(filter) = &life.filter {
        setup = setup.filter(filter);
    }
    let setup = if life.on_terminal {
        setup.terminal(Pty::open()?)
    } else {
        setup.piped_input()
    };
    Ok(setup.start()?)
}

/// What one life called, ours alone: from the exec of the supervisor on, and in a child
/// of it up to the exec of the host.
fn traced(t: &Subject, life: &Life, pid1: bool) -> Result<BTreeSet<String>, Stop> {
    let mut run = wait_for_strace(t, life, pid1)?;
    let target = if pid1 { run.pid } else { run.host()?.pid };
    let file = run.folder().join("calls");
    let pid = target.to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-q", "--decode-pids=pidns", "-p", &pid, "-o"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()?;
    let tracer = || procfs::status(target, "TracerPid").filter(|pid| pid.trim() != "0");
    eventually("strace", tracer)?;
    if life.on_terminal {
        run.terminal()?.type_text("go\n")?;
    } else {
        run.write("go\n")?;
    }
    for signal in life.signals {
        // Waiting for signals, as SIGTERM is blocked otherwise.
        let waits = || {
            let call = fs::read_to_string(format!("/proc/{target}/syscall")).ok()?;
            call.starts_with(&format!("{} ", libc::SYS_rt_sigtimedwait))
                .then_some(())
        };
        eventually("its wait for signals", waits)?;
        podcradle_tests::pidns::kill(target, *signal)?;
    }
    run.code()?;
    strace.wait()?;
    Ok(calls(&fs::read_to_string(&file)?, &pid))
}

/// The calls of `main` behind its exec, and of its children before theirs.
fn calls(trace: &str, main: &str) -> BTreeSet<String> {
    let mut executed = BTreeSet::new();
    let mut children = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        let name: String = call
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        let ours = if pid == main {
            executed.contains(main)
        } else {
            // A child of the host is none of ours, and of ours there is one at a time.
            children.contains(pid) && !executed.contains(pid)
        };
        let is_call = call
            .get(name.len()..)
            .is_some_and(|rest| rest.starts_with('('));
        if ours && is_call {
            seen.insert(name);
        }
        let done = call.ends_with("= 0");
        if done && (call.starts_with("execve(") || call.starts_with("<... execve resumed>")) {
            executed.insert(pid.to_owned());
        }
        let made = call.contains("clone(") || call.contains("<... clone resumed>");
        if pid == main && executed.contains(main) && made {
            let child = call.rsplit_once("= ").map_or("", |(_, number)| number);
            // From inside a namespace: strace adds the number outside.
            let child = child.split(" /* ").nth(1).unwrap_or(child);
            children.insert(child.split(' ').next().unwrap_or("").to_owned());
        }
    }
    seen
}

fn no_life_makes_a_call_that_is_not_listed(t: &Subject) -> Outcome {
    if Command::new("strace").arg("--version").output().is_err() {
        return Err(skip("strace is not installed"));
    }
    let listed = listed()?;
    let mut all = BTreeSet::new();
    for life in lives() {
        for pid1 in [true, false] {
            if !pid1 && life.signals.contains(&libc::SIGTSTP) {
                // It stops along with the host, and nobody is there to continue it.
                continue;
            }
            let shown = format!(
                "{} {:?} {:?}, as PID 1: {pid1}",
                life.name, life.flags, life.host
            );
            let seen = traced(t, &life, pid1)?;
            ensure!(seen.contains("exit_group"), "{shown}: nothing was traced");
            for call in &seen {
                let known = listed.iter().any(|listed| listed.name == *call);
                ensure!(known, "{shown}: {call} is not listed");
            }
            all.extend(seen);
        }
    }
    let other = if t.arch == Arch::Amd64 {
        "(arm64)"
    } else {
        "(amd64)"
    };
    // Nor does the list hold what nobody calls, but for what this machine has no use for.
    for Listed { name, said } in listed {
        let elsewhere = [other, "not to be had"]
            .iter()
            .any(|word| said.contains(word));
        ensure!(elsewhere || all.contains(&name), "nobody calls {name}");
    }
    Ok(())
}

fn dockers_profile_of_2017_allows_all_but_the_optional_ones(_: &Subject) -> Outcome {
    let text = include_str!("docker-2017.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let allowed: BTreeSet<&str> = lines.flat_map(str::split_whitespace).collect();
    ensure!(
        !allowed.contains("close_range"),
        "the comparison tells nothing"
    );
    for Listed { name, said } in listed()? {
        let fine = allowed.contains(name.as_str()) || said.starts_with("optional");
        ensure!(
            fine,
            "{name} was refused in 2017, and nothing says how we do without"
        );
    }
    Ok(())
}
