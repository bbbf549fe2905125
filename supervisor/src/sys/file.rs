//! Descriptors, files and directories.

use super::Result;
use core::ffi::CStr;
use nix::errno::Errno;

/// An open descriptor, closed when dropped.
///
/// Not std's `OwnedFd`: making one brings an `expect` and with it the panic machinery.
#[derive(Debug)]
pub struct Fd(i32);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: we own the descriptor, and nobody uses it after this.
        unsafe { libc::close(self.0) };
    }
}

/// What a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// A regular file.
    pub regular: bool,
    /// A directory.
    pub directory: bool,
    /// Length in bytes.
    pub size: u64,
    /// Whether anyone may execute it.
    pub executable: bool,
}

fn kind(stat: &libc::stat) -> Kind {
    Kind {
        regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
        directory: stat.st_mode & libc::S_IFMT == libc::S_IFDIR,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        executable: stat.st_mode & 0o111 != 0,
    }
}

impl Fd {
    /// Opens `path`, close-on-exec.
    pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Fd> {
        loop {
            // SAFETY: path is NUL-terminated and live for the call.
            // The bare call: musl's own sets close-on-exec once more.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_openat,
                    libc::AT_FDCWD,
                    path.as_ptr(),
                    flags | libc::O_CLOEXEC,
                    mode,
                )
            };
            match Errno::result(fd) {
                Err(Errno::EINTR) => {}
                other => return other.map(|fd| Fd(i32::try_from(fd).unwrap_or(-1))),
            }
        }
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Reads once into `to`; 0 is the end of the file.
    pub fn read(&self, to: &mut [u8]) -> Result<usize> {
        // SAFETY: the pointer and length are those of a live, writable slice.
        let got = unsafe { libc::read(self.0, to.as_mut_ptr().cast(), to.len()) };
        Errno::result(got).map(|n| usize::try_from(n).unwrap_or(0))
    }

    /// Reads from `offset` until `to` is full or the file ends.
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.wrapping_add(filled as u64);
            let at = libc::off_t::try_from(at).map_err(|_| Errno::EOVERFLOW)?;
            // SAFETY: the pointer and length are those of a live, writable slice.
            let got = unsafe { libc::pread(self.0, rest.as_mut_ptr().cast(), rest.len(), at) };
            match Errno::result(got) {
                Ok(0) => break,
                Ok(n) => filled = filled.wrapping_add(usize::try_from(n).unwrap_or(0)),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes `bytes` once.
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        write(self.0, bytes)
    }

    /// What it refers to.
    pub fn kind(&self) -> Result<Kind> {
        // SAFETY: all-zero bytes are a valid stat.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: stat is live for the call, and on our targets laid out as the kernel's.
        Errno::result(unsafe { libc::syscall(libc::SYS_fstat, self.0, &raw mut stat) })?;
        Ok(kind(&stat))
    }

    /// Cuts the file to `length` bytes.
    pub fn truncate(&self, length: usize) -> Result<()> {
        let length = libc::off_t::try_from(length).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: no memory is involved.
        Errno::result(unsafe { libc::ftruncate(self.0, length) }).map(drop)
    }

    /// Has everything written reach the file system.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: no memory is involved.
        Errno::result(unsafe { libc::fsync(self.0) }).map(drop)
    }

    /// Sets the file's mode.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        // SAFETY: no memory is involved.
        Errno::result(unsafe { libc::fchmod(self.0, mode) }).map(drop)
    }

    /// Reads directory entries into `to`, in the layout of `getdents64(2)`; 0 is the end.
    pub fn entries(&self, to: &mut [u8]) -> Result<usize> {
        // SAFETY: the pointer and length are those of a live, writable slice.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, self.0, to.as_mut_ptr(), to.len()) };
        Errno::result(got).map(|n| usize::try_from(n).unwrap_or(0))
    }
}

/// What stands at `path`, links followed.
pub fn stat(path: &CStr) -> Result<Kind> {
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: path is NUL-terminated, both are live for the call, and on our targets the
    // structure is laid out as the kernel's.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut stat,
            0,
        )
    })?;
    Ok(kind(&stat))
}

fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    let put = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    Errno::result(put).map(|n| usize::try_from(n).unwrap_or(0))
}

/// Writes `bytes` to standard output, all of it if possible.
pub fn print(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(1, rest) {
            Ok(n) if n > 0 => rest = rest.get(n..).unwrap_or(&[]),
            Err(Errno::EINTR) => {}
            _ => return,
        }
    }
}

/// Writes a short line to standard error, but only when that cannot block.
///
/// A log pipe nobody empties must not stop PID 1, and one that nobody can empty any more
/// (writable and in error) only gives SIGPIPE: the line is lost instead.
pub fn warn(line: &[u8]) {
    let mut poll = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live pollfd is passed, and its count is 1.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) } == 1;
    if ready && poll.revents & (libc::POLLOUT | libc::POLLERR) == libc::POLLOUT {
        let _ = write(2, line);
    }
}

/// Makes one directory.
pub fn make_dir(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: path is NUL-terminated and live for the call.
    Errno::result(unsafe { libc::mkdir(path.as_ptr(), mode) }).map(drop)
}

/// Renames a file, replacing what is there.
pub fn rename(from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: both are NUL-terminated and live for the call.
    Errno::result(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }).map(drop)
}

/// Removes a file.
pub fn unlink(path: &CStr) {
    // SAFETY: path is NUL-terminated and live for the call.
    unsafe { libc::unlink(path.as_ptr()) };
}

/// Changes the working directory.
pub fn change_dir(path: &CStr) -> Result<()> {
    // SAFETY: path is NUL-terminated and live for the call.
    Errno::result(unsafe { libc::chdir(path.as_ptr()) }).map(drop)
}

/// Whether descriptor `fd` is open.
pub fn is_open(fd: i32) -> bool {
    // SAFETY: F_GETFD involves no memory.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) >= 0 }
}

/// Makes `to` a copy of `from`.
pub fn duplicate(from: i32, to: i32) {
    // SAFETY: no memory is involved; whoever owned `to` gives it up here.
    unsafe { libc::dup2(from, to) };
}

/// Closes a descriptor by number.
pub fn close(fd: i32) {
    // SAFETY: no memory is involved, and no `Fd` is alive when descriptors are swept.
    unsafe { libc::close(fd) };
}

/// Closes `first..=last` in one call (Linux 5.9).
///
/// *Errors*: ENOSYS from an older kernel, EPERM from an older seccomp profile.
pub fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: no memory is involved, and no `Fd` is alive when descriptors are swept.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// One above the highest descriptor number that may be open.
pub fn descriptor_limit() -> i32 {
    let mut limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    // SAFETY: limit is live for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX)
}
