//! The termination report: one line of JSON, written once, read by the launcher.
//!
//! In: how it all ended. Out: at most 4,096 bytes to a regular file that is there already
//! (or was named). It never follows a link, never blocks and never changes the exit code.
//! Schema: `supervisor/report.schema.json`.

use crate::reap::End;
use crate::step::State;
use crate::sys::{self, file::Fd};
use crate::text::Text;
use core::ffi::CStr;

/// Where the kubelet has its file, unless the Pod says otherwise.
pub const DEFAULT_PATH: &CStr = c"/dev/termination-log";
/// The longest report; the kubelet cuts there.
pub const MOST: usize = 4096;
/// How much of the host's name and of a message is kept, so that a report stays small.
const SHOWN: usize = 240;

/// All that goes into a report.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The code we exit with.
    pub exit_code: u8,
    /// What `step` remembers.
    pub state: &'a State,
    /// Why the host could not be executed, or why there was no host.
    pub message: &'a [u8],
    /// OOM kills during our life; `None` when they cannot be seen.
    pub oom_kills: Option<u64>,
    /// How long we lived.
    pub uptime_ms: u64,
    /// The host's name as given.
    pub host: &'a [u8],
}

impl Report<'_> {
    /// The line, with its newline.
    pub fn line(&self) -> Text<MOST> {
        let mut line = Text::new();
        let state = self.state;
        line.push(b"{\"v\":1,\"exitCode\":")
            .number(u64::from(self.exit_code));
        line.push(b",\"end\":{\"kind\":\"");
        self.end(&mut line);
        line.push(b"}");
        if let Some(stop) = state.stop {
            line.push(b",\"stop\":{\"signal\":")
                .number(u64::from(stop.signal));
            line.push(b",\"pid\":").signed(stop.pid);
            line.push(b",\"uid\":")
                .number(u64::from(stop.uid))
                .push(b"}");
        }
        line.push(b",\"graceExpired\":")
            .boolean(state.grace_expired);
        if state.unkillable {
            line.push(b",\"unkillable\":true");
        }
        if let Some(drain) = state.drain {
            line.push(b",\"drain\":{\"left\":")
                .number(u64::from(drain.left));
            line.push(b",\"killed\":").number(u64::from(drain.killed));
            line.push(b",\"expired\":")
                .boolean(drain.expired)
                .push(b"}");
        }
        if let Some(kills) = self.oom_kills {
            line.push(b",\"oomKills\":").number(kills);
        }
        line.push(b",\"restarts\":")
            .number(u64::from(state.restarts));
        line.push(b",\"orphans\":").number(state.orphans);
        line.push(b",\"uptimeMs\":").number(self.uptime_ms);
        line.push(b",\"host\":").json(self.host, SHOWN).push(b"}\n");
        line
    }

    fn end(&self, line: &mut Text<MOST>) {
        match (self.state.stopped_between, self.state.end) {
            (_, None) => {
                line.push(b"setup\",\"message\":").json(self.message, SHOWN);
            }
            (true, Some(end)) => {
                line.push(b"backoff\",\"lastCode\":")
                    .number(u64::from(end.code()));
                if let End::Signal { signal, .. } = end {
                    line.push(b",\"lastSignal\":").number(u64::from(signal));
                }
            }
            (false, Some(End::Exit { code })) => {
                line.push(b"exit\",\"code\":").number(u64::from(code));
            }
            (false, Some(End::Signal { signal, core })) => {
                line.push(b"signal\",\"signal\":").number(u64::from(signal));
                line.push(b",\"core\":").boolean(core);
            }
            (false, Some(End::Exec { errno, .. })) => {
                line.push(b"exec\",\"errno\":").signed(errno);
                line.push(b",\"message\":").json(self.message, SHOWN);
            }
        }
    }
}

/// Writes `line` to `path`, or to the kubelet's file when it is there.
///
/// *Errors*: only of a path that was named; nobody asked for the other.
pub fn write(line: &[u8], path: Option<&CStr>) -> sys::Result<()> {
    let place = path.unwrap_or(DEFAULT_PATH);
    if place.is_empty() {
        return Ok(());
    }
    let written = write_to(line, place, path.is_some());
    if path.is_some() { written } else { Ok(()) }
}

fn write_to(line: &[u8], path: &CStr, create: bool) -> sys::Result<()> {
    // Not truncated on opening: a file we may not fill keeps what it has.
    let flags = libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = Fd::open(path, flags | if create { libc::O_CREAT } else { 0 }, 0o644)?;
    if !file.kind()?.regular {
        return Err(nix::errno::Errno::EINVAL);
    }
    // It is often a mounted file in a read-only directory, so nothing can be renamed over
    // it: one write of the whole line is as atomic as it gets. SIGXFSZ is blocked.
    let written = file.write(line);
    if written == Ok(line.len()) {
        return file.truncate(line.len());
    }
    // Half a line is no JSON. Better none.
    let _ = file.truncate(0);
    written.and(Err(nix::errno::Errno::ENOSPC))
}
