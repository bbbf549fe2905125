//! Reading from a descriptor with a watchdog, line by line or to a pattern.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{Error, Result};

/// The reading end of a pipe or terminal, with what has been read so far.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    buffer: Vec<u8>,
    ended: bool,
    watchdog: Duration,
}

impl Stream {
    /// Reads from `fd`.
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            buffer: Vec::new(),
            ended: false,
            watchdog: super::WATCHDOG,
        }
    }

    /// Waits at most `limit` in each call from here on.
    pub fn set_watchdog(&mut self, limit: Duration) {
        self.watchdog = limit;
    }

    /// The next line, without its end; fails at the end of the stream.
    pub fn line(&mut self) -> Result<String> {
        let deadline = Instant::now() + self.watchdog;
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.ended {
                return Err(Error::Ended("a line", self.take()));
            }
            self.fill(deadline, "a line")?;
        }
    }

    /// Reads up to and with the first occurrence of `text`; gives all before its end.
    pub fn until(&mut self, text: &str) -> Result<String> {
        let deadline = Instant::now() + self.watchdog;
        let wanted = text.as_bytes();
        loop {
            let found = self.buffer.windows(wanted.len()).position(|w| w == wanted);
            if let Some(at) = found {
                let read: Vec<u8> = self.buffer.drain(..at + wanted.len()).collect();
                return Ok(String::from_utf8_lossy(&read).into_owned());
            }
            if self.ended {
                return Err(Error::Ended(
                    "a text",
                    format!("{text:?} in {:?}", self.take()),
                ));
            }
            if let Err(error) = self.fill(deadline, "a text") {
                return Err(match error {
                    Error::Watchdog(..) => {
                        Error::Watchdog("a text", format!("{text:?} in {:?}", self.take()))
                    }
                    other => other,
                });
            }
        }
    }

    /// Everything to the end of the stream.
    pub fn rest(&mut self) -> Result<String> {
        let deadline = Instant::now() + self.watchdog;
        while !self.ended {
            self.fill(deadline, "the end of the stream")?;
        }
        Ok(self.take())
    }

    /// Whether there is something to read, or the end, within `limit`.
    pub fn ready(&self, limit: Duration) -> Result<bool> {
        Ok(!self.buffer.is_empty() || self.ended || readable(&self.fd, Instant::now() + limit)?)
    }

    fn take(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }

    fn fill(&mut self, deadline: Instant, what: &'static str) -> Result<()> {
        if !readable(&self.fd, deadline)? {
            let seen = String::from_utf8_lossy(&self.buffer).into_owned();
            return Err(Error::Watchdog(what, seen));
        }
        let mut chunk = [0_u8; 8192];
        // SAFETY: the buffer is as long as it says.
        let count =
            unsafe { libc::read(self.fd.as_raw_fd(), chunk.as_mut_ptr().cast(), chunk.len()) };
        match usize::try_from(count) {
            Ok(0) => self.ended = true,
            Ok(count) => self.buffer.extend(chunk.iter().take(count)),
            Err(_) => match io::Error::last_os_error() {
                // A terminal nobody holds open any more reads as EIO.
                error if error.raw_os_error() == Some(libc::EIO) => self.ended = true,
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error.into()),
            },
        }
        Ok(())
    }
}

/// Waits until `fd` can be read or has ended; false when the deadline came first.
pub(super) fn readable(fd: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: one pollfd, as the count says; no mask is passed.
        match unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) } {
            0 if left.is_zero() => return Ok(false),
            0 => {}
            count if count > 0 => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
