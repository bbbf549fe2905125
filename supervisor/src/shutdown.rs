//! What is left once the host is gone: counted and signalled.
//!
//! As PID 1 that is everything in the namespace, `kubectl exec` processes too, and needs no
//! /proc. Otherwise it is our own descendants and nobody else, found through /proc.

use crate::{proc, sys};
use nix::errno::Errno;

/// How far up the tree we look for ourselves; deeper chains are taken for cycles of reused pids.
const DEEPEST: u8 = 250;

/// How many processes are left; as PID 1 without `exact`, 1 stands for any number. `None`
/// where nothing can tell: not PID 1, and no /proc of ours.
pub fn count(pid1: bool, exact: bool) -> Option<u32> {
    let mut left = 0_u32;
    if !pid1 {
        let seen = each_descendant(|_| left = left.saturating_add(1));
        return seen.then_some(left);
    }
    // EPERM: all that is left may not be signalled by us, but it is there.
    if sys::kill(-1, 0) == Err(Errno::ESRCH) {
        return Some(0);
    }
    if let Some(directory) = proc::open_own().filter(|_| exact) {
        proc::each_number(&directory, |pid| {
            left = left.saturating_add(u32::from(pid != 1));
        });
    }
    Some(left.max(1))
}

/// Sends `signals` to all that is left.
pub fn signal(pid1: bool, signals: &[u8]) {
    for signal in signals.iter().map(|signal| i32::from(*signal)) {
        if pid1 {
            let _ = sys::kill(-1, signal);
        } else {
            each_descendant(|pid| {
                let _ = sys::kill(pid, signal);
            });
        }
    }
}

/// Calls `each` with every living descendant. Nothing is reaped meanwhile, so the pid of a
/// child of ours cannot be reused under us; a deeper one's could, between look and signal.
/// Tells whether there was a /proc to look at.
fn each_descendant(mut each: impl FnMut(i32)) -> bool {
    let own = sys::getpid();
    let Some(directory) = proc::open_own() else {
        return false;
    };
    proc::each_number(&directory, |pid| {
        let mut at = pid;
        for level in 0..DEEPEST {
            let Some((state, parent)) = proc::stat(at) else {
                return;
            };
            let dead = matches!(state, b'Z' | b'X');
            if level == 0 && dead {
                return;
            }
            if parent == own {
                return each(pid);
            }
            if parent <= 1 {
                return;
            }
            at = parent;
        }
    });
    true
}
