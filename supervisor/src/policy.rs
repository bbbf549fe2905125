//! What was asked for, as far as it decides what to do: `args` fills it in, `step` obeys it.

use crate::signals::{Rewrite, SignalSet};

/// Nanoseconds, on the monotonic clock where it is a point in time. Whole, as the kernel
/// counts: a clock cut to milliseconds would end a grace up to one of them too soon.
pub type Nanos = u64;

/// A millisecond.
pub const MILLI: Nanos = 1_000_000;

/// A set of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CodeSet([u64; 4]);

impl CodeSet {
    /// Adds `code`.
    pub fn add(&mut self, code: u8) {
        if let Some(word) = self.0.get_mut(usize::from(code >> 6)) {
            *word |= 1 << (code & 63);
        }
    }

    /// Whether `code` is in it.
    pub fn has(&self, code: u8) -> bool {
        let word = self.0.get(usize::from(code >> 6)).copied().unwrap_or(0);
        word >> (code & 63) & 1 == 1
    }
}

/// What to do when a host was stopped by a job-control signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspend {
    /// Nothing: PID 1 cannot stop, and tini and catatonit do not.
    Never,
    /// Stop along with the host, and continue with it.
    WithHost,
    /// Stop ourselves when such a signal is sent to us, as dumb-init does.
    OnSignal,
}

/// What was asked for on the command line, as far as `step` needs it.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// From the first stop signal to SIGKILL.
    pub grace: Option<Nanos>,
    /// From SIGTERM to SIGKILL for what is left once the host is gone; 0 skips it.
    pub drain: Nanos,
    /// Whether a failed host is started again, and at most how often in a row.
    pub restart: Option<u32>,
    /// Codes after which it is not.
    pub no_restart: CodeSet,
    /// Codes that count as 0.
    pub success: CodeSet,
    /// Signals that ask for a stop.
    pub stop: SignalSet,
    /// What each signal is sent on as.
    pub rewrite: Rewrite,
    /// Whether we are PID 1 of our namespace, whose end is the end of all in it.
    pub pid1: bool,
    /// Job control.
    pub suspend: Suspend,
}

impl Policy {
    /// Whether `signal`, as received, asks for a stop.
    pub fn is_stop(&self, signal: u8) -> bool {
        let sent_on = self.rewrite.of(signal);
        sent_on != 0 && (self.stop.has(signal) || self.stop.has(sent_on))
    }

    /// The code we exit with for the host's `code`.
    pub fn map(&self, code: u8) -> u8 {
        if self.success.has(code) { 0 } else { code }
    }
}
