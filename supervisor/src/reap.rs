//! Children that changed state: taken until none is left, and decoded.
//!
//! In: the raw status words of `waitpid`. Out: whose they are. SIGCHLD is only a hint:
//! one of them may stand for any number of deaths, so each wake-up takes all there are.

use crate::sys::{self, Waited};
use nix::errno::Errno;

/// How a host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with a code.
    Exit {
        /// The code.
        code: u8,
    },
    /// By a signal.
    Signal {
        /// Its number.
        signal: u8,
        /// Whether a core was written.
        core: bool,
    },
    /// It could not be executed.
    Exec {
        /// Why.
        errno: i32,
        /// 127 when it was not found, else 126.
        code: u8,
    },
}

impl End {
    /// The code a shell would show for it.
    pub fn code(self) -> u8 {
        match self {
            End::Exit { code } | End::Exec { code, .. } => code,
            End::Signal { signal, .. } => 128_u8.wrapping_add(signal),
        }
    }

    /// Whether there was a program to end.
    pub fn was_executed(self) -> bool {
        !matches!(self, End::Exec { .. })
    }
}

/// What a status word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The process is no more.
    Ended(End),
    /// It stands still; the number may be one of `ptrace`'s.
    Stopped(u8),
}

/// Decodes a status word.
pub fn decode(status: i32) -> Change {
    let [low, high, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => Change::Ended(End::Exit { code: high }),
        0x7f => Change::Stopped(high),
        signal => Change::Ended(End::Signal {
            signal,
            core: low & 0x80 != 0,
        }),
    }
}

/// Takes the next child that ended or, with `stops_too`, was stopped.
///
/// A child in a ptrace stop (it asked to be traced, which made us its tracer) is set free
/// here with the signal it stands at, or it would stand for ever.
pub fn next(stops_too: bool) -> Option<(i32, Change)> {
    loop {
        let Waited { pid, status } = match sys::wait_any(stops_too) {
            Ok(Some(waited)) => waited,
            Err(Errno::EINTR) => continue,
            Ok(None) | Err(_) => return None,
        };
        match decode(status) {
            Change::Stopped(signal) if sys::detach(pid, after_detach(status, signal)).is_ok() => {}
            change => return Some((pid, change)),
        }
    }
}

/// The signal a traced child goes on with: the one it stands at, but for ptrace's own traps.
fn after_detach(status: i32, signal: u8) -> i32 {
    const TRAP: u8 = 5;
    let event = status >> 16;
    if signal & 0x7f == TRAP || event != 0 {
        0
    } else {
        i32::from(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_and_signal_is_decoded_whatever_the_core_bit_says() {
        for code in 0..=255_u8 {
            assert_eq!(
                decode(i32::from(code) << 8),
                Change::Ended(End::Exit { code })
            );
        }
        for signal in 1..=64_u8 {
            for core in [false, true] {
                let end = End::Signal { signal, core };
                let status = i32::from(signal) | if core { 0x80 } else { 0 };
                assert_eq!(decode(status), Change::Ended(end));
                assert_eq!(end.code(), 128 + signal);
            }
        }
        assert_eq!(decode(0x137f), Change::Stopped(19));
    }

    #[test]
    fn a_detached_child_gets_its_signal_but_no_trap() {
        assert_eq!(after_detach(0x0a7f, 10), 10);
        assert_eq!(after_detach(0x057f, 5), 0);
        assert_eq!(after_detach(0x4_057f, 5), 0);
    }
}
