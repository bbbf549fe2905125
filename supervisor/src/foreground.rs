//! Who has the terminal: handed to the host's group when it was ours, taken back at the end.
//!
//! All of it is best effort, and without a terminal it does nothing. SIGTTOU is blocked.

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
