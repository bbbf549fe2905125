//! What a process took: its largest RSS and the CPU it spent. The peak is read
//! where the kernel stops a traced process on its way out, when everything is
//! still there: `ru_maxrss` would count what the parent had before the exec.

use std::path::Path;
use std::process::{Child, Command};

use jiff::Timestamp;
use nix::sys::ptrace::{self, Options};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use podcradle_tests::e2e::Error;

/// A process that ended.
pub struct Took {
    /// Its exit code, 128+N for a signal.
    pub code: i32,
    /// Its largest RSS in kB.
    pub peak: f64,
    /// User and system time in milliseconds.
    pub cpu: f64,
    /// When it was started.
    pub begun: Timestamp,
    /// When its end was seen.
    pub ended: Timestamp,
}

/// A process under way. No other child may end meanwhile: the kernel counts
/// the CPU of all children together.
pub struct Traced {
    child: Child,
    pid: Pid,
    begun: Timestamp,
    cpu_before: f64,
}

impl Traced {
    /// Starts a program; its input and output go where `command` says.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        let cpu_before = children_cpu()?;
        let begun = Timestamp::now();
        let child = command.spawn().map_err(|source| Error::Io {
            what: "start the launcher".to_owned(),
            source,
        })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        ptrace::seize(pid, Options::PTRACE_O_TRACEEXIT).map_err(failed("trace the launcher"))?;
        Ok(Self {
            child,
            pid,
            begun,
            cpu_before,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// What it prints, when that was asked for; once.
    pub fn stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for its end.
    pub fn wait(self) -> Result<Took, Error> {
        let mut peak = 0.0;
        let code = loop {
            let stopped = waitpid(self.pid, None).map_err(failed("wait for the launcher"))?;
            let signal = match stopped {
                WaitStatus::Exited(_, code) => break code,
                WaitStatus::Signaled(_, signal, _) => break 128 + signal as i32,
                WaitStatus::PtraceEvent(_, _, event) if event == nix::libc::PTRACE_EVENT_EXIT => {
                    peak = kilobytes(self.child.id(), "status", "VmHWM:")?;
                    None
                }
                WaitStatus::Stopped(_, signal) => Some(signal),
                _ => None,
            };
            ptrace::cont(self.pid, signal).map_err(failed("continue the launcher"))?;
        };
        Ok(Took {
            code,
            peak,
            cpu: children_cpu()? - self.cpu_before,
            begun: self.begun,
            ended: Timestamp::now(),
        })
    }
}

fn failed(what: &'static str) -> impl Fn(nix::Error) -> Error {
    move |errno| Error::Io {
        what: what.to_owned(),
        source: errno.into(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "less than 2^53 microseconds")]
fn children_cpu() -> Result<f64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(failed("read the CPU time"))?;
    let spent = [usage.user_time(), usage.system_time()];
    Ok(spent
        .iter()
        .map(|time| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3)
        .sum())
}

/// A line of a `/proc/PID` file, such as `Rss:   44 kB`, as a number.
fn kilobytes(pid: u32, file: &str, line: &str) -> Result<f64, Error> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io {
        what: format!("read {}", path.display()),
        source,
    })?;
    text.lines()
        .find_map(|text| {
            text.strip_prefix(line)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .ok_or_else(|| Error::Missing(format!("{} has no line {line}", path.display())))
}
