//! A pseudo-terminal whose master end the test holds.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::stream::Stream;

/// Both ends of a terminal; the far end is handed to the process under test.
#[derive(Debug)]
pub struct Pty {
    master: OwnedFd,
    /// What the terminal shows.
    pub screen: Stream,
    pub(super) slave: OwnedFd,
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

impl Pty {
    /// Opens a terminal of 24 rows by 80 columns.
    pub fn open() -> io::Result<Self> {
        // SAFETY: each descriptor is checked and owned once; the name buffer is
        // longer than any the kernel makes.
        let (master, slave) = unsafe {
            let master = checked(libc::posix_openpt(
                libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
            ))?;
            let master = OwnedFd::from_raw_fd(master);
            checked(libc::grantpt(master.as_raw_fd()))?;
            checked(libc::unlockpt(master.as_raw_fd()))?;
            let mut name = [0; 64];
            if libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let name = CStr::from_ptr(name.as_ptr());
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            let slave = checked(libc::open(name.as_ptr(), flags))?;
            (master, OwnedFd::from_raw_fd(slave))
        };
        let screen = Stream::new(master.try_clone()?);
        let pty = Self {
            master,
            screen,
            slave,
        };
        pty.resize(24, 80)?;
        Ok(pty)
    }

    /// The far end, for a program that is to have a terminal.
    pub fn far_end(&self) -> io::Result<OwnedFd> {
        self.slave.try_clone()
    }

    /// Types `text`; control characters do what the keys do.
    pub fn type_text(&self, text: &str) -> io::Result<()> {
        File::from(self.master.try_clone()?).write_all(text.as_bytes())
    }

    /// Changes the window size, which sends SIGWINCH to the foreground group.
    pub fn resize(&self, rows: u16, columns: u16) -> io::Result<()> {
        let size = libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the descriptor is ours, `size` outlives the call.
        checked(unsafe {
            libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size)
        })?;
        Ok(())
    }

    /// Sets or clears local modes, such as TOSTOP and ECHO.
    pub fn local_modes(&self, set: libc::tcflag_t, clear: libc::tcflag_t) -> io::Result<()> {
        // SAFETY: `modes` is filled by tcgetattr before it is read.
        unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            checked(libc::tcgetattr(self.slave.as_raw_fd(), &raw mut modes))?;
            modes.c_lflag = (modes.c_lflag | set) & !clear;
            checked(libc::tcsetattr(
                self.slave.as_raw_fd(),
                libc::TCSANOW,
                &raw const modes,
            ))?;
        }
        Ok(())
    }

    /// The foreground process group, numbered as the test's namespace does.
    pub fn foreground(&self) -> io::Result<i32> {
        let mut group: libc::pid_t = 0;
        // SAFETY: the kernel writes one pid_t.
        checked(unsafe { libc::ioctl(self.raw(), libc::TIOCGPGRP, &raw mut group) })?;
        Ok(group)
    }

    fn raw(&self) -> RawFd {
        self.master.as_raw_fd()
    }
}
