//! Texts for error numbers: those a supervisor meets, in the C library's words.
//!
//! nix's table of all of them weighs 8 kB with its relocations, an eighth of this program.

use nix::errno::Errno;

/// What `errno` means.
pub fn text(errno: Errno) -> &'static [u8] {
    match errno {
        Errno::EPERM => b"Operation not permitted",
        Errno::ENOENT => b"No such file or directory",
        Errno::ESRCH => b"No such process",
        Errno::EIO => b"I/O error",
        Errno::ENXIO => b"No such device or address",
        Errno::E2BIG => b"Argument list too long",
        Errno::ENOEXEC => b"Exec format error",
        Errno::EAGAIN => b"Resource temporarily unavailable",
        Errno::ENOMEM => b"Out of memory",
        Errno::EACCES => b"Permission denied",
        Errno::EEXIST => b"File exists",
        Errno::ENOTDIR => b"Not a directory",
        Errno::EISDIR => b"Is a directory",
        Errno::EINVAL => b"Invalid argument",
        Errno::ENFILE => b"Too many open files in system",
        Errno::EMFILE => b"Too many open files",
        Errno::ETXTBSY => b"Text file busy",
        Errno::EFBIG => b"File too large",
        Errno::ENOSPC => b"No space left on device",
        Errno::EROFS => b"Read-only file system",
        Errno::ENAMETOOLONG => b"Filename too long",
        Errno::ENOSYS => b"Function not implemented",
        Errno::ELOOP => b"Too many links",
        Errno::ELIBBAD => b"Accessing a corrupted shared library",
        Errno::ESTALE => b"Stale file handle",
        Errno::EDQUOT => b"Quota exceeded",
        _ => b"see errno(3)",
    }
}
