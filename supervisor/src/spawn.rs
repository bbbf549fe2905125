//! From a plan to a running host: memory, fork, terminal, descriptors, mask, exec.
//!
//! In: the plan, and what our starter gave us. Out: the host's pid. Everything is blocked
//! from before the fork until just before the exec, so no signal is lost in between. What
//! the child cannot do it leaves in a shared note, and ends with 126 or 127.

use crate::args::{Complaint, Plan, complain};
use crate::search::{PATH_ROOM, Search};
use crate::sys::memory::{Arena, Entry, ExecNote};
use crate::sys::{self, Side, terminal};
use crate::{descriptors, environment, errors, foreground, search};
use nix::errno::Errno;

/// What we were given and the host is to have back.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The signal mask.
    pub mask: u64,
    /// Whether SIGCHLD was ignored.
    pub sigchld_ignored: bool,
}

/// Starts the host, `in_front` when it is to have the terminal; the child never comes back.
/// `last` is called when all is ready but the host, with room for `oom::kills`.
///
/// *Errors*: a line for the person who wrote the command: a secret that cannot be read, no
/// memory, no process.
#[inline(never)]
pub fn spawn(
    plan: &Plan<'_>,
    given: Given,
    in_front: bool,
    note: &ExecNote,
    last: impl FnOnce(&mut [u8]),
) -> Result<i32, Complaint> {
    let no_memory =
        |errno: Errno| complain(&[b"memory for the host's start: ", errors::text(errno)]);
    let arena = Arena::new(room(plan)).map_err(no_memory)?;
    let argv = arena
        .table(plan.host.len().wrapping_add(2))
        .map_err(no_memory)?;
    // The slot in front is for /bin/sh, the one behind stays null.
    for (slot, entry) in argv.iter_mut().skip(1).zip(plan.host) {
        *slot = *entry;
    }
    let secrets = plan.secrets.iter().flatten().count();
    let envp = arena
        .table(plan.env.len().wrapping_add(secrets).wrapping_add(1))
        .map_err(no_memory)?;
    environment::fill(plan, &arena, envp)?;
    let listen = arena.bytes(environment::LISTEN_ROOM).map_err(no_memory)?;
    let path = arena.bytes(PATH_ROOM).map_err(no_memory)?;
    let script = arena.bytes(PATH_ROOM).map(Some).map_err(no_memory)?;
    last(path);
    let own = sys::getpid();
    // Asked before the fork: the parent's setpgid may come before the child's first step.
    let our_group = in_front.then(sys::getpgrp);
    match sys::fork() {
        Err(errno) => Err(complain(&[
            b"cannot fork for the host: ",
            errors::text(errno),
        ])),
        Ok(Side::Parent(pid)) => {
            // The kernel likes to start the child where we run, once we rest: the host comes
            // first, our own affairs can wait until it runs.
            sys::step_aside();
            if !plan.own_session {
                // The child does so, too: whoever comes first.
                let _ = sys::own_group(pid);
            }
            Ok(pid)
        }
        Ok(Side::Child) => {
            settle_in(plan, given, our_group);
            environment::hand_sockets_on(envp, listen, own);
            let (errno, fault, name) = Search {
                argv,
                envp,
                path,
                script,
                mask: given.mask,
            }
            .run();
            let code = search::exit_code(errno);
            note.leave(errno as i32, fault as u8, name.as_bytes());
            sys::exit(code)
        }
    }
}

/// Address space, not memory: pages that are not written cost nothing.
fn room(plan: &Plan<'_>) -> usize {
    let secrets = plan.secrets.iter().flatten().count();
    let entries = plan
        .host
        .len()
        .wrapping_add(plan.env.len())
        .wrapping_add(secrets)
        .wrapping_add(8);
    let tables = entries.wrapping_mul(size_of::<Entry<'_>>());
    let texts = secrets.wrapping_mul(environment::LONGEST_STRING);
    tables
        .wrapping_add(texts)
        .wrapping_add(2 * PATH_ROOM)
        .wrapping_add(256)
}

/// In the child: session or group, terminal, descriptors, dispositions.
#[inline(never)]
fn settle_in(plan: &Plan<'_>, given: Given, our_group: Option<i32>) {
    if plan.own_session {
        let _ = sys::setsid();
        let _ = terminal::adopt(0);
    } else {
        let _ = sys::own_group(0);
        if let Some(group) = our_group {
            drop_copies_from_terminal();
            foreground::pass(group, sys::getpid());
        }
    }
    if plan.close_fds {
        descriptors::close_above_2(&plan.kept);
    }
    if given.sigchld_ignored {
        sys::ignore_sigchld();
    }
}

/// A Ctrl-C between fork and setpgid reaches both of us, and the supervisor passes its own
/// on: the copy goes. Signals a process sent stay.
fn drop_copies_from_terminal() {
    const STANDARD: u64 = 0x7fff_ffff;
    const SENT_BY_KERNEL: i32 = 0x80;
    let Ok(mut set) = sys::pending().map(|set| set & STANDARD) else {
        return;
    };
    while set != 0 {
        let only = set & set.wrapping_neg();
        set &= !only;
        if let Ok(taken) = sys::take_signal(only, Some(0))
            && taken.code != SENT_BY_KERNEL
        {
            let _ = sys::kill(sys::getpid(), taken.signal);
        }
    }
}
