//! The controlling terminal. All of it is best effort: any error means "leave it".

use super::Result;
use super::file::Fd;
use core::ffi::c_int;
use nix::errno::Errno;

/// The foreground process group of the terminal at `fd`, when it is our controlling one.
pub fn foreground(fd: i32) -> Result<i32> {
    let mut group: c_int = 0;
    // SAFETY: the ioctl writes one pid, and group is live for the call.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCGPGRP, &raw mut group) })?;
    Ok(group)
}

/// Makes `group` the foreground process group. SIGTTOU must be blocked.
pub fn set_foreground(fd: i32, group: i32) -> Result<()> {
    let group: c_int = group;
    // SAFETY: the ioctl reads one pid, and group is live for the call.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSPGRP, &raw const group) }).map(drop)
}

/// Makes the terminal at `fd` the controlling one of our new session.
pub fn adopt(fd: i32) -> Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }).map(drop)
}

/// Gives up our controlling terminal.
pub fn abandon(fd: i32) -> Result<()> {
    // SAFETY: TIOCNOTTY takes no argument.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCNOTTY) }).map(drop)
}

/// Opens the controlling terminal by its name.
pub fn open() -> Result<Fd> {
    Fd::open(c"/dev/tty", libc::O_RDWR | libc::O_NOCTTY, 0)
}
