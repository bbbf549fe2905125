//! The flags: their names under each name we may be called by, and what their values are.
//!
//! In: a name. Out: a `Flag`, or the nearest known name. Pure.

/// Whose name we were called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persona {
    /// Our own.
    Podcradle,
    /// tini, or docker-init.
    Tini,
    /// catatonit, or podman-init.
    Catatonit,
    /// dumb-init.
    DumbInit,
}

impl Persona {
    /// The persona for a program name without its directory.
    pub fn of(name: &[u8]) -> Persona {
        match name {
            b"tini" | b"tini-static" | b"docker-init" => Persona::Tini,
            b"catatonit" | b"podman-init" => Persona::Catatonit,
            b"dumb-init" => Persona::DumbInit,
            _ => Persona::Podcradle,
        }
    }

    /// The exit code for an error of our own.
    pub fn own_error(self) -> u8 {
        if self == Persona::Podcradle { 125 } else { 1 }
    }
}

/// A flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the usage text documents each")]
pub enum Flag {
    Subreaper,
    ParentDeath,
    Verbose,
    WarnOnReap,
    Group,
    Success,
    SingleChild,
    Pause,
    Help,
    Version,
    License,
    Grace,
    Drain,
    Rewrite,
    StopSignal,
    NoStopSignal,
    Restart,
    NoRestart,
    CloseFds,
    KeepFd,
    NoNewPrivs,
    Prepare,
    CopyTo,
    TerminationLog,
    CgroupRoot,
    EnvFromFile,
}

impl Flag {
    /// What its value has to be; empty when it takes none.
    pub fn wants(self) -> &'static [u8] {
        match self {
            Flag::ParentDeath | Flag::StopSignal | Flag::NoStopSignal => {
                b"a signal name or a number from 1 to 64"
            }
            Flag::Success | Flag::NoRestart => b"an exit code from 0 to 255",
            Flag::Grace | Flag::Drain => b"a number of seconds from 0 to 31536000",
            Flag::Rewrite => b"FROM:TO, two signals (TO may be 0, FROM not SIGCHLD)",
            Flag::Restart => b"on-failure or on-failure:MAX",
            Flag::KeepFd => b"a descriptor from 0 to 1023",
            Flag::Prepare | Flag::CopyTo | Flag::CgroupRoot => b"a directory",
            Flag::TerminationLog => b"a file",
            Flag::EnvFromFile => b"NAME=PATH with a NAME of letters, digits and _",
            _ => b"",
        }
    }

    /// Whether it takes a value.
    pub fn takes_value(self) -> bool {
        !self.wants().is_empty()
    }
}

const LONG: [(&[u8], Flag); 22] = [
    (b"grace", Flag::Grace),
    (b"drain", Flag::Drain),
    (b"rewrite", Flag::Rewrite),
    (b"stop-signal", Flag::StopSignal),
    (b"no-stop-signal", Flag::NoStopSignal),
    (b"restart", Flag::Restart),
    (b"no-restart", Flag::NoRestart),
    (b"close-fds", Flag::CloseFds),
    (b"keep-fd", Flag::KeepFd),
    (b"no-new-privs", Flag::NoNewPrivs),
    (b"prepare", Flag::Prepare),
    (b"copy-to", Flag::CopyTo),
    (b"termination-log", Flag::TerminationLog),
    (b"env-from-file", Flag::EnvFromFile),
    (b"cgroup-root", Flag::CgroupRoot),
    (b"verbose", Flag::Verbose),
    (b"group", Flag::Group),
    (b"help", Flag::Help),
    (b"version", Flag::Version),
    (b"license", Flag::License),
    (b"pause", Flag::Pause),
    (b"single-child", Flag::SingleChild),
];

/// The long flag `name`.
pub fn long(name: &[u8], persona: Persona) -> Option<Flag> {
    let (_, flag) = LONG.iter().find(|(known, _)| *known == name)?;
    let only_dumb_init = *flag == Flag::SingleChild;
    (!only_dumb_init || persona == Persona::DumbInit).then_some(*flag)
}

/// The short flag `letter`.
pub fn short(letter: u8, persona: Persona) -> Option<Flag> {
    let flag = match (persona, letter) {
        (_, b'h') => Flag::Help,
        (Persona::DumbInit, b'c') => Flag::SingleChild,
        (Persona::DumbInit | Persona::Podcradle, b'r') => Flag::Rewrite,
        (Persona::DumbInit | Persona::Catatonit | Persona::Podcradle, b'V') => Flag::Version,
        (Persona::DumbInit, b'v') => Flag::Verbose,
        (Persona::DumbInit, _) => return None,
        (_, b'g') => Flag::Group,
        (Persona::Catatonit | Persona::Podcradle, b'P') => Flag::Pause,
        (Persona::Catatonit | Persona::Podcradle, b'L') => Flag::License,
        (Persona::Catatonit, _) => return None,
        (_, b's') => Flag::Subreaper,
        (_, b'p') => Flag::ParentDeath,
        (_, b'v') => Flag::Verbose,
        (_, b'w') => Flag::WarnOnReap,
        (_, b'e') => Flag::Success,
        (_, b'l') => Flag::License,
        _ => return None,
    };
    Some(flag)
}

/// The known long flag nearest to `name`, when one is near.
pub fn nearest(name: &[u8]) -> Option<&'static [u8]> {
    let shown = LONG
        .iter()
        .filter(|(_, flag)| !matches!(flag, Flag::SingleChild | Flag::CgroupRoot));
    let scored = shown.map(|(known, _)| (distance(name, known), *known));
    let (score, known) = scored.min_by_key(|(score, _)| *score)?;
    // Two slips of the finger, or a third of a long name; but never most of a short one.
    let score = usize::from(score);
    let near =
        (score <= 2 || score.wrapping_mul(3) <= known.len()) && score.wrapping_mul(2) <= name.len();
    near.then_some(known)
}

/// Letters to insert, delete or change to get from one to the other; 255 when far too long.
fn distance(from: &[u8], to: &[u8]) -> u8 {
    const MOST: usize = 24;
    if from.len() >= MOST || to.len() >= MOST {
        return u8::MAX;
    }
    // One row of the table: row[j] is the distance to the first j letters of `to`.
    let mut row = [0_u8; MOST];
    for (cell, at) in row.iter_mut().zip(0_u8..) {
        *cell = at;
    }
    let mut answer = row.get(to.len()).copied().unwrap_or(u8::MAX);
    for (letter, line) in from.iter().zip(1_u8..) {
        let mut diagonal = line.wrapping_sub(1);
        let mut left = line;
        let Some((first, rest)) = row.split_first_mut() else {
            return u8::MAX;
        };
        *first = line;
        for (cell, other) in rest.iter_mut().zip(to) {
            let above = *cell;
            let change = diagonal.wrapping_add(u8::from(letter != other));
            *cell = change.min(above.wrapping_add(1)).min(left.wrapping_add(1));
            diagonal = above;
            left = *cell;
        }
        answer = left;
    }
    answer
}

/// The usage text.
pub const USAGE: &[u8] = b"\
Usage: podcradle-init [OPTIONS] [--] HOST [ARG...]

Runs HOST under a small init: forwards signals, reaps orphans, exits with its code.

Stopping
  --grace SECONDS         from the first stop signal to SIGKILL for HOST
  --drain SECONDS         once HOST is gone: SIGTERM to what is left, SIGKILL after SECONDS
  --stop-signal SIG       SIG asks for a stop, too (TERM, INT and QUIT do)
  --no-stop-signal SIG    SIG does not
Signals
  -g, --group             signals go to HOST's process group
  -r, --rewrite FROM:TO   send FROM on as TO; 0 drops it (repeatable)
  -p SIG                  get SIG when our parent dies
  -s                      become a child subreaper (done by itself unless PID 1)
Exit
  -e CODE                 exit with 0 instead of CODE (repeatable)
  --restart on-failure[:MAX]  start a failed HOST again, after 1 s doubling to 30 s
  --no-restart CODE       but not after CODE (repeatable)
  --termination-log PATH  where the report goes (default /dev/termination-log)
Host
  --env-from-file NAME=PATH   set NAME in HOST's environment from a file (repeatable)
  --close-fds             HOST gets descriptors 0 to 2 only
  --keep-fd N             and N (repeatable)
  --no-new-privs          nothing below us gains privileges by exec
  --prepare DIR           make DIR and its parents first; without HOST do only that
Other
  --copy-to DIR           copy this program into DIR, and end
  -P, --pause             run nothing, reap, end at SIGTERM or SIGINT (no report)
  -v, --verbose           say what is done (repeatable)
  -w                      warn of each orphan reaped
  -V, --version; -h, --help; -l, -L, --license

Exit code: HOST's, 128+N when signal N killed it, 126 HOST cannot be executed,
127 HOST not found, 125 our own error.
Called as tini, docker-init, catatonit, podman-init or dumb-init: their flags, too.
";

/// The licence text.
pub const LICENSE: &[u8] = b"\
podcradle-init is licensed under the Apache License, Version 2.0:
http://www.apache.org/licenses/LICENSE-2.0
It comes without warranties or conditions of any kind.
";
