//! Memory of a process: idle, and at its peak. The peak is read where the
//! kernel stops a traced process on its way out, when everything is still there:
//! `ru_maxrss` would count what the parent had before the exec.

use std::path::Path;
use std::process::Command;

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use podcradle_tests::e2e::Error;

/// A line of a `/proc/PID` file, such as `Rss:   44 kB`, as a number.
pub fn kilobytes(pid: u32, file: &str, line: &str) -> Result<f64, Error> {
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

/// Runs a program to its end; its exit code and its largest RSS in kB. Its
/// output goes where `command` sends it.
pub fn peak(command: &mut Command) -> Result<(i32, f64), Error> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |errno: nix::Error| Error::Io {
            what,
            source: errno.into(),
        }
    };
    let child = command.spawn().map_err(|source| Error::Io {
        what: "start the launcher".to_owned(),
        source,
    })?;
    let number = i32::try_from(child.id()).unwrap_or(i32::MAX);
    let pid = Pid::from_raw(number);
    ptrace::seize(pid, Options::PTRACE_O_TRACEEXIT).map_err(failed("trace the launcher"))?;
    let mut most = 0.0;
    loop {
        let signal = match waitpid(pid, None).map_err(failed("wait for the launcher"))? {
            WaitStatus::Exited(_, code) => return Ok((code, most)),
            WaitStatus::Signaled(_, signal, _) => return Ok((128 + signal as i32, most)),
            WaitStatus::PtraceEvent(_, _, event) if event == nix::libc::PTRACE_EVENT_EXIT => {
                most = kilobytes(child.id(), "status", "VmHWM:")?;
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        ptrace::cont(pid, signal).map_err(failed("continue the launcher"))?;
    }
}
