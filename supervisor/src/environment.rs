//! The host's environment: ours, with the secrets of `--env-from-file` and the sockets that
//! were handed to us.
//!
//! In: the plan. Out: a table for exec, in a mapping that is gone from us after the fork.

use crate::args::{Complaint, Plan, Secret, complain};
use crate::errors;
use crate::sys;
use crate::sys::file::Fd;
use crate::sys::memory::{Arena, Entry};
use crate::text::{self, Text};
use core::ffi::CStr;
use nix::errno::Errno;

/// The kernel's limit for one argument or variable (`MAX_ARG_STRLEN`).
pub const LONGEST_STRING: usize = 128 * 1024;
/// Room for `LISTEN_PID` with any pid.
pub const LISTEN_ROOM: usize = 32;
const LISTEN_PID: &[u8] = b"LISTEN_PID=";

/// Fills `envp` with what the host is to have.
///
/// *Errors*: a line that names the secret that cannot be read.
pub fn fill<'a>(
    plan: &Plan<'a>,
    arena: &'a Arena,
    envp: &mut [Entry<'a>],
) -> Result<(), Complaint> {
    let replaced = |text: &[u8]| {
        let name = text::split(text, b'=').map_or(text, |(name, _)| name);
        plan.secrets
            .iter()
            .flatten()
            .any(|secret| secret.name() == name)
    };
    let mut slots = envp.iter_mut();
    let kept = plan
        .env
        .iter()
        .filter(|entry| entry.get().is_some_and(|text| !replaced(text.to_bytes())));
    // The environment first: zip takes from its left side before it looks at the right.
    for (entry, slot) in kept.zip(slots.by_ref()) {
        *slot = *entry;
    }
    for secret in plan.secrets.iter().flatten() {
        let entry = read_secret(secret, arena)?;
        if let Some(slot) = slots.next() {
            *slot = entry;
        }
    }
    Ok(())
}

#[inline(never)]
fn read_secret<'a>(secret: &Secret<'_>, arena: &'a Arena) -> Result<Entry<'a>, Complaint> {
    let refuse = |why: &[u8]| complain(&[b"--env-from-file: ", secret.text.to_bytes(), b": ", why]);
    let system = |errno: Errno| refuse(errors::text(errno));
    let file = Fd::open(
        secret.path(),
        libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY,
        0,
    )
    .map_err(system)?;
    if !file.kind().map_err(system)?.regular {
        return Err(refuse(b"not a regular file"));
    }
    let buffer = arena.bytes(LONGEST_STRING).map_err(system)?;
    let name = secret.name();
    for (to, from) in buffer.iter_mut().zip(name.iter().chain(b"=")) {
        *to = *from;
    }
    let start = name.len().wrapping_add(1);
    let value = buffer.get_mut(start..).unwrap_or(&mut []);
    let mut length = file.read_at(value, 0).map_err(system)?;
    if length == value.len() {
        return Err(refuse(b"longer than the 131072 bytes a variable may have"));
    }
    if let Some(last) = value
        .get_mut(length.wrapping_sub(1))
        .filter(|last| **last == b'\n')
    {
        *last = 0;
        length = length.wrapping_sub(1);
    }
    let value = value.get(..length).unwrap_or(&[]);
    if value.is_empty() {
        return Err(refuse(b"the file is empty"));
    }
    if value.contains(&0) {
        return Err(refuse(b"a NUL byte cannot be in a variable"));
    }
    let text = CStr::from_bytes_until_nul(buffer).map_err(|_| refuse(b"too long"))?;
    Ok(Entry::new(text))
}

/// Sockets handed to us by pid are the host's now: `LISTEN_PID` follows when it named us.
pub fn hand_sockets_on<'a>(envp: &mut [Entry<'a>], room: &'a mut [u8], supervisor: i32) {
    let mut ours = Text::<LISTEN_ROOM>::new();
    ours.push(LISTEN_PID).signed(supervisor);
    let named = |entry: &&mut Entry<'a>| {
        entry
            .get()
            .is_some_and(|text| text.to_bytes() == ours.as_bytes())
    };
    let Some(slot) = envp.iter_mut().find(named) else {
        return;
    };
    let mut new = Text::<LISTEN_ROOM>::new();
    new.push(LISTEN_PID).signed(sys::getpid());
    for (to, from) in room.iter_mut().zip(new.as_bytes()) {
        *to = *from;
    }
    if let Ok(text) = CStr::from_bytes_until_nul(room) {
        *slot = Entry::new(text);
    }
}
