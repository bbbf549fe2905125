//! Daemons: started so that they outlive us and can be found again whatever
//! happens to their pid files, and ended without a chance to say no.
//!
//! Every daemon carries a marker in its environment, which its children (shims,
//! runc) inherit; a container's processes are found by their cgroup instead.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::error::{At, Error, Result};
use super::layout::{Layout, MARKER};

/// A daemon that was started. A pid alone may be someone else's by now, hence
/// the start time, in clock ticks since boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// What it is called, in logs too.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// When that process started.
    pub start_ticks: u64,
    /// Where it writes.
    pub log: PathBuf,
}

impl Daemon {
    /// Whether that very process still runs; one that waits to be reaped does not.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, start)| state != 'Z' && start == self.start_ticks)
    }

    /// An error when it is gone, with what it said last.
    pub(super) fn check(&self, what: &str) -> Result<()> {
        if self.is_alive() {
            return Ok(());
        }
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        Err(Error::DaemonEnded {
            daemon: self.name.clone(),
            what: what.to_owned(),
            log: self.log.clone(),
            tail: text.lines().last().unwrap_or("(it is empty)").to_owned(),
        })
    }
}

/// State letter and start time from `/proc/PID/stat`; the name in between may
/// hold anything, so the fields are counted from its closing parenthesis.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Starts `program` as a daemon of the instance: own session, own log, no
/// terminal, adopted by init at once, in the mount namespace of this thread.
pub(super) fn spawn(
    layout: &Layout,
    name: &str,
    program: &Path,
    args: impl IntoIterator<Item = impl Into<OsString>>,
    env: &[(OsString, OsString)],
) -> Result<Daemon> {
    let log = layout.log(name);
    let out = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .at("open", &log)?;
    let (mut pid_in, pid_out) = io::pipe().at("make a pipe for", program)?;
    let mut command = Command::new(program);
    command
        .args(args.into_iter().map(Into::into))
        .env_clear()
        .envs(env.iter().cloned())
        .env(MARKER, layout.state())
        // With heaps this small a fifth of the time went into collecting them.
        .env("GOGC", "400")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out.try_clone().at("open", &log)?)
        .stderr(out);
    detach(&mut command, pid_out.as_raw_fd());
    let mut parent = command.spawn().at("start", program)?;
    drop(pid_out);
    parent.wait().at("wait for", program)?;
    let mut pid = [0; 4];
    pid_in
        .read_exact(&mut pid)
        .at("learn the pid of", program)?;
    let pid = i32::from_ne_bytes(pid);
    let start_ticks = stat(pid).map_or(0, |(_, start)| start);
    Ok(Daemon {
        name: name.to_owned(),
        pid,
        start_ticks,
        log,
    })
}

/// Kills a daemon and starts it again as it was, but in this thread's mount
/// namespace: for daemons that need no mounts of the instance's own.
pub(super) fn respawn(layout: &Layout, daemon: &Daemon, patience: Duration) -> Result<Daemon> {
    let words = |file: &str| -> Result<Vec<OsString>> {
        let path = PathBuf::from(format!("/proc/{}/{file}", daemon.pid));
        let bytes = fs::read(&path).at("read", &path)?;
        let words = bytes.split(|byte| *byte == 0).filter(|w| !w.is_empty());
        Ok(words.map(|w| OsString::from_vec(w.to_vec())).collect())
    };
    daemon.check("restarting it")?;
    let program = PathBuf::from(format!("/proc/{}/exe", daemon.pid));
    let program = fs::read_link(&program).at("read", &program)?;
    let (command, environ) = (words("cmdline")?, words("environ")?);
    let pair = |word: &OsString| {
        let bytes = word.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=')?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&bytes[..at]), part(&bytes[at + 1..])))
    };
    let environ: Vec<_> = environ.iter().filter_map(pair).collect();
    kill_all(
        || {
            daemon
                .is_alive()
                .then_some(daemon.pid)
                .into_iter()
                .collect()
        },
        patience,
    );
    let args = command.into_iter().skip(1);
    spawn(layout, &daemon.name, &program, args, &environ)
}

/// Makes the child fork once more and end, so that the daemon is nobody's child
/// here (a test process may count its children), and tell its pid by `pid_out`.
fn detach(command: &mut Command, pid_out: i32) {
    // SAFETY: between fork and exec only fork, setsid, getpid, write and _exit
    // are called, all async-signal-safe, on a descriptor that is open until
    // after `spawn` has returned; nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            libc::setsid();
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(pid_out, pid.as_ptr().cast(), pid.len()) != 4 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Every process that carries the instance's marker.
pub(super) fn marked(layout: &Layout) -> Vec<i32> {
    let marker = [
        MARKER.as_bytes(),
        b"=",
        layout.state().as_os_str().as_encoded_bytes(),
    ]
    .concat();
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(own))
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|b| *b == 0).any(|v| v == marker))
        })
        .collect()
}

/// Kills what `list` names until it names nothing; returns who would not die.
pub(super) fn kill_all(list: impl Fn() -> Vec<i32>, patience: Duration) -> Vec<i32> {
    let deadline = Instant::now() + patience;
    loop {
        let pids = list();
        // A descriptor of the process, so that a reused pid is never hit.
        let open: Vec<OwnedFd> = pids
            .iter()
            .filter_map(|pid| pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok())
            .collect();
        if open.is_empty() {
            return Vec::new();
        }
        for fd in &open {
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
        for fd in &open {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let _ = poll(
                &mut [PollFd::new(&fd.as_fd(), PollFlags::IN)],
                left.as_ref(),
            );
        }
        if Instant::now() >= deadline {
            return list();
        }
    }
}

/// Runs a program to its end and returns what it printed.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().at("run", program)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut line = vec![command.get_program().to_string_lossy().into_owned()];
    line.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    Err(Error::Command {
        command: line.join(" "),
        status: output.status.to_string(),
        text: said
            .lines()
            .last()
            .unwrap_or("it said nothing")
            .trim()
            .to_owned(),
    })
}

/// Replaces a file in one step, so that a reader sees the old or the new one.
pub(super) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let part = path.with_added_extension("part");
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&part)
        .at("write", &part)?;
    file.write_all(bytes).at("write", &part)?;
    fs::rename(&part, path).at("write", path)
}
