//! The exit codes, all in one place; `README.md` beside this crate lists them.

use std::process::ExitCode;

use nix::sys::signal::{SigHandler, Signal, raise, signal};

/// How the host ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Told to stop, and told to call that a success.
    Done,
    /// A flag, the environment or the server address is wrong (`EX_USAGE`).
    Usage,
    /// Something the host itself needs from the system failed (`EX_OSERR`).
    System,
    /// The server refused the token (`EX_CONFIG`): trying again cannot help,
    /// which is why a supervisor is told not to restart on this code.
    Refused,
    /// Stopped by a signal, and dies of it.
    Signalled(Signal),
}

impl Exit {
    /// The code a shell would show.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Usage => 64,
            Exit::System => 71,
            Exit::Refused => 78,
            Exit::Signalled(signal) => u8::try_from(128 + signal as i32).unwrap_or(u8::MAX),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        if let Exit::Signalled(number) = exit {
            die_of(number);
        }
        ExitCode::from(exit.code())
    }
}

/// Dies of the signal itself, so that a supervisor sees what happened and not
/// only a number that looks like it. Returns when that is impossible: the
/// kernel drops default actions for the first process of a PID namespace.
fn die_of(number: Signal) {
    // SAFETY: the default disposition runs no code of ours in signal context.
    if unsafe { signal(number, SigHandler::SigDfl) }.is_ok() {
        let _ = raise(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_what_a_shell_shows() {
        let codes = [
            Exit::Done,
            Exit::Usage,
            Exit::System,
            Exit::Refused,
            Exit::Signalled(Signal::SIGTERM),
            Exit::Signalled(Signal::SIGINT),
        ]
        .map(Exit::code);
        assert_eq!(codes, [0, 64, 71, 78, 143, 130]);
    }
}
