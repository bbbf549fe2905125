//! Who has the terminal: handed to the host's group when it was ours, taken back at the end.
//!
//! All of it is best effort, and without a terminal it does nothing. SIGTTOU is blocked.

use crate::signals::{CONT, SignalSet};
use crate::sys::{self, file::Fd, terminal};

enum Terminal {
    Inherited(i32),
    Opened(Fd),
}

impl Terminal {
    /// Our controlling terminal: one of 0 to 2, or opened by name when all are redirected.
    fn find() -> Option<Terminal> {
        for fd in [0, 1, 2] {
            if terminal::foreground(fd).is_ok() {
                return Some(Terminal::Inherited(fd));
            }
        }
        terminal::open().ok().map(Terminal::Opened)
    }

    fn fd(&self) -> i32 {
        match self {
            Terminal::Inherited(fd) => *fd,
            Terminal::Opened(fd) => fd.number(),
        }
    }
}

/// Whether `group` is the foreground group of our terminal.
pub fn is(group: i32) -> bool {
    Terminal::find().is_some_and(|terminal| terminal::foreground(terminal.fd()) == Ok(group))
}

/// Gives up the terminal on standard input, for a host with a session of its own to take.
pub fn abandon() {
    const HUP: u8 = 1;
    if terminal::abandon(0).is_ok() {
        // To a session leader the kernel says so by these two; they are not for the host.
        for signal in [HUP, CONT] {
            let _ = sys::take_signal(SignalSet::of(&[signal]).bits(), Some(0));
        }
    }
}

/// Makes `to` the foreground group if `from` is; tells whether it did.
pub fn pass(from: i32, to: i32) -> bool {
    let Some(terminal) = Terminal::find() else {
        return false;
    };
    terminal::foreground(terminal.fd()) == Ok(from)
        && terminal::set_foreground(terminal.fd(), to).is_ok()
}

/// Gives the foreground back to our group, from the host's or from one that is no more.
pub fn take_back(host: i32) {
    let Some(terminal) = Terminal::find() else {
        return;
    };
    let Ok(group) = terminal::foreground(terminal.fd()) else {
        return;
    };
    let gone = || group > 1 && sys::kill(group.wrapping_neg(), 0) == Err(nix::errno::Errno::ESRCH);
    if group == host || gone() {
        let _ = terminal::set_foreground(terminal.fd(), sys::getpgrp());
    }
}
