//! Closing descriptors: ours after the fork, the host's under `--close-fds`.
//!
//! Works without /proc and without `close_range`; neither is needed, each is quicker.

use crate::args::Kept;
use crate::proc;
use crate::sys::file::{self, Fd};

/// Where the last resort, trying one number after the other, gives up.
const HIGHEST_TRIED: i32 = 1 << 20;

/// Closes everything above 2 but the kept ones.
pub fn close_above_2(kept: &Kept) {
    if close_ranges(kept).is_ok() || close_listed(kept) {
        return;
    }
    let end = file::descriptor_limit().min(HIGHEST_TRIED);
    let mut fd = 3;
    while fd < end {
        if !kept.has(fd) {
            file::close(fd);
        }
        fd = fd.wrapping_add(1);
    }
}

fn close_ranges(kept: &Kept) -> crate::sys::Result<()> {
    let mut start = 3_u32;
    for fd in 3..1024_u32 {
        if kept.has(fd.cast_signed()) {
            if start < fd {
                file::close_range(start, fd.wrapping_sub(1))?;
            }
            start = fd.wrapping_add(1);
        }
    }
    file::close_range(start, u32::MAX)
}

/// Closes what /proc lists; not to be had without it, or when we may not read it.
#[inline(never)]
fn close_listed(kept: &Kept) -> bool {
    let Ok(directory) = Fd::open(c"/proc/self/fd", libc::O_RDONLY | libc::O_DIRECTORY, 0) else {
        return false;
    };
    let own = directory.number();
    proc::each_number(&directory, |fd| {
        if fd > 2 && fd != own && !kept.has(fd) {
            file::close(fd);
        }
    });
    true
}

/// Lets go of our own copies: above 2 closed, /dev/null on 0 and 1, and on 2 if it was shut.
///
/// So a peer of the host sees the end of a pipe when the host closes it, and nothing we
/// open later can land where somebody writes errors.
pub fn let_go(keep_standard: bool) {
    close_above_2(&Kept::default());
    if keep_standard {
        return;
    }
    let error_shut = !file::is_open(2);
    // Closed first: opening then needs no free number above 2.
    file::close(0);
    file::close(1);
    if let Ok(null) = Fd::open(c"/dev/null", libc::O_RDWR, 0) {
        for fd in [0, 1, 2] {
            if fd != null.number() && (fd < 2 || error_shut) {
                file::duplicate(null.number(), fd);
            }
        }
        if null.number() <= 2 {
            // It is where it belongs; dropping it would shut it again.
            core::mem::forget(null);
        }
    }
}
