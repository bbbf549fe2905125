//! From a plan to a running host: memory, fork, terminal, descriptors, mask, exec.
//!
//! In: the plan, and what our starter gave us. Out: the host's pid. Everything is blocked
//! from before the fork until just before the exec, so no signal is lost in between. What
//! the child cannot do it leaves in a shared note, and ends with 126 or 127.

use crate::args::{self, Complaint, Plan, Secret, complain};
use crate::signals::SignalSet;
use crate::sys::file::{self, Fd};
use crate::sys::memory::{Arena, Entry, ExecNote, NOTE_BYTES};
use crate::sys::{self, Side, terminal};
use crate::text::{self, Text};
use crate::{descriptors, errors, foreground};
use core::ffi::CStr;
use nix::errno::Errno;

/// The kernel's limit for one argument or variable (`MAX_ARG_STRLEN`).
const LONGEST_STRING: usize = 128 * 1024;
/// Room for a path that is tried.
const PATH_ROOM: usize = 4096;
/// Where a host is looked for without a PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const LISTEN_PID: &[u8] = b"LISTEN_PID=";

/// What we were given and the host is to have back.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The signal mask.
    pub mask: u64,
    /// Whether SIGCHLD was ignored.
    pub sigchld_ignored: bool,
}

/// What an exec failed at, beside its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Host = 0,
    Interpreter = 1,
    Format = 2,
    Directory = 3,
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
    fill_environment(plan, &arena, envp)?;
    let listen = arena.bytes(32).map_err(no_memory)?;
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
            hand_sockets_on(envp, listen, own);
            let (errno, fault, name) = Search {
                argv,
                envp,
                path,
                script,
                mask: given.mask,
            }
            .run();
            let code = exit_code(errno);
            note.leave(errno as i32, fault as u8, name.as_bytes());
            sys::exit(code)
        }
    }
}

/// 127 for what is not there, 126 for what cannot be executed, as the shell has it.
pub fn exit_code(errno: Errno) -> u8 {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG => 127,
        _ => 126,
    }
}

/// The line that tells why the host was not executed, and its errno.
pub fn failure(host: &[u8], note: &ExecNote) -> Option<(Errno, Complaint)> {
    let mut name = [0; NOTE_BYTES];
    let (errno, kind) = note.read(&mut name)?;
    let errno = Errno::from_raw(errno);
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let why = errors::text(errno);
    let shown = host.get(..200).unwrap_or(host);
    let line = match kind {
        1 => complain(&[
            b"cannot execute ",
            shown,
            b": its interpreter ",
            name,
            b": ",
            why,
        ]),
        2 => complain(&[
            b"cannot execute ",
            shown,
            b": not a program for this machine (",
            why,
            b")",
        ]),
        3 => complain(&[b"cannot execute ", shown, b": it is a directory"]),
        _ if host.is_empty() => complain(&[b"cannot execute '': the host's name is empty"]),
        _ => complain(&[b"cannot execute ", shown, b": ", why]),
    };
    Some((errno, line))
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
    let texts = secrets.wrapping_mul(LONGEST_STRING);
    tables
        .wrapping_add(texts)
        .wrapping_add(2 * PATH_ROOM)
        .wrapping_add(256)
}

fn fill_environment<'a>(
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

/// Sockets handed to us by pid are the host's now: `LISTEN_PID` follows when it named us.
fn hand_sockets_on<'a>(envp: &mut [Entry<'a>], room: &'a mut [u8], supervisor: i32) {
    let mut ours = Text::<32>::new();
    ours.push(LISTEN_PID).signed(supervisor);
    let named = |entry: &&mut Entry<'a>| {
        entry
            .get()
            .is_some_and(|text| text.to_bytes() == ours.as_bytes())
    };
    let Some(slot) = envp.iter_mut().find(named) else {
        return;
    };
    let mut new = Text::<32>::new();
    new.push(LISTEN_PID).signed(sys::getpid());
    for (to, from) in room.iter_mut().zip(new.as_bytes()) {
        *to = *from;
    }
    if let Ok(text) = CStr::from_bytes_until_nul(room) {
        *slot = Entry::new(text);
    }
}

/// The search along PATH. It ends in another program, or in the error to report.
struct Search<'t, 'a> {
    argv: &'t mut [Entry<'a>],
    envp: &'t [Entry<'a>],
    /// Room for the path that is tried.
    path: &'t mut [u8],
    /// Room for the name a shell gets, once.
    script: Option<&'a mut [u8]>,
    mask: u64,
}

type Failure = (Errno, Fault, Text<NOTE_BYTES>);

impl<'a> Search<'_, 'a> {
    #[inline(never)]
    fn run(mut self) -> Failure {
        let mut failure = (Errno::ENOENT, Fault::Host, Text::new());
        let host = args::first(self.argv.get(1..).unwrap_or(&[]));
        if host.is_empty() {
            return failure;
        }
        let path = core::mem::take(&mut self.path);
        if host.contains(&b'/') {
            return match join(path, b"", host) {
                Some(candidate) => self.attempt(candidate),
                None => (Errno::ENAMETOOLONG, Fault::Host, Text::new()),
            };
        }
        let directories = args::variable(self.envp, b"PATH").map_or(DEFAULT_PATH, CStr::to_bytes);
        for directory in directories.split(|byte| *byte == b':') {
            // An empty element is the working directory.
            let Some(candidate) = join(path, directory, host) else {
                continue;
            };
            let found = self.attempt(candidate);
            let missing =
                matches!(found.0, Errno::ENOENT | Errno::ENOTDIR) && found.1 == Fault::Host;
            if missing {
                continue;
            }
            // What is there but cannot be executed is the better answer than "not found".
            if failure.0 == Errno::ENOENT && failure.1 == Fault::Host {
                failure = found;
            }
            if !matches!(found.0, Errno::ENOENT | Errno::EACCES) {
                return failure;
            }
        }
        failure
    }

    /// Executes `path`, or tells why not. What a look can tell is found while signals are
    /// still blocked, so that a stop in flight does not hide it.
    fn attempt(&mut self, path: &CStr) -> Failure {
        match file::stat(path) {
            Err(errno) => return (errno, Fault::Host, Text::new()),
            Ok(kind) if kind.directory => return (Errno::EACCES, Fault::Directory, Text::new()),
            Ok(kind) if !kind.executable => return (Errno::EACCES, Fault::Host, Text::new()),
            Ok(_) => {}
        }
        let errno = execute(
            path,
            self.argv.get(1..).unwrap_or(&[]),
            self.envp,
            self.mask,
        );
        let mut start = [0_u8; 512];
        let file = Fd::open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0);
        let got = file
            .as_ref()
            .map_or(0, |file| file.read_at(&mut start, 0).unwrap_or(0));
        let start = start.get(..got).unwrap_or(&[]);
        match errno {
            Errno::ENOENT | Errno::EACCES => {
                let mut name = Text::new();
                if let Ok(file) = &file {
                    interpreter(start, file, &mut name);
                }
                let fault = if name.as_bytes().is_empty() {
                    Fault::Host
                } else {
                    Fault::Interpreter
                };
                (errno, fault, name)
            }
            Errno::ENOEXEC if is_binary(start) => (errno, Fault::Format, Text::new()),
            Errno::ENOEXEC => self.run_by_shell(path),
            _ => (errno, Fault::Host, Text::new()),
        }
    }

    /// A script without `#!`: what every shell and glibc's execvp do, and musl's does not.
    fn run_by_shell(&mut self, path: &CStr) -> Failure {
        const SHELL: &CStr = c"/bin/sh";
        let room = self.script.take().unwrap_or(&mut []);
        for (to, from) in room.iter_mut().zip(path.to_bytes_with_nul()) {
            *to = *from;
        }
        let script: &'a CStr = CStr::from_bytes_until_nul(room).unwrap_or(c"");
        for (slot, text) in self.argv.iter_mut().zip([SHELL, script]) {
            *slot = Entry::new(text);
        }
        let errno = execute(SHELL, self.argv, self.envp, self.mask);
        let mut name = Text::new();
        name.push(SHELL.to_bytes());
        (errno, Fault::Interpreter, name)
    }
}

fn join<'p>(path: &'p mut [u8], directory: &[u8], host: &[u8]) -> Option<&'p CStr> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    let length = directory
        .len()
        .wrapping_add(slash.len())
        .wrapping_add(host.len());
    if length >= path.len() {
        return None;
    }
    let parts = directory.iter().chain(slash).chain(host).chain(&[0]);
    for (to, from) in path.iter_mut().zip(parts) {
        *to = *from;
    }
    CStr::from_bytes_until_nul(path).ok()
}

fn execute(path: &CStr, argv: &[Entry<'_>], envp: &[Entry<'_>], mask: u64) -> Errno {
    let _ = sys::set_mask(mask);
    let errno = sys::memory::execute(path, argv, envp);
    let _ = sys::set_mask(SignalSet::ALL.bits());
    errno
}

/// Whether this is no text a shell could run: an ELF file, or a NUL in the first line.
fn is_binary(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    start.starts_with(b"\x7fELF") || line.contains(&0)
}

/// Appends the name of the program that is to run this one: of `#!`, or of an ELF header.
fn interpreter(start: &[u8], file: &Fd, name: &mut Text<NOTE_BYTES>) {
    if let Some(line) = text::after(start, b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        name.push(words.find(|word| !word.is_empty()).unwrap_or(&[]));
        return;
    }
    let mut buffer = [0_u8; NOTE_BYTES];
    if let Some((offset, size)) = elf_interpreter(start) {
        let size = usize::try_from(size).unwrap_or(0).min(buffer.len());
        if let Some(room) = buffer.get_mut(..size) {
            let got = file.read_at(room, offset).unwrap_or(0);
            let text = room.get(..got).unwrap_or(&[]);
            name.push(text.split(|byte| *byte == 0).next().unwrap_or(&[]));
        }
    }
}

/// Offset and size of the `PT_INTERP` text in a 64-bit little-endian ELF file.
fn elf_interpreter(start: &[u8]) -> Option<(u64, u64)> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = start.get(at..at.checked_add(size)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    };
    if !start.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let mut header = usize::try_from(number(32, 8)?).ok()?;
    let size = usize::try_from(number(54, 2)?).ok()?;
    for _ in 0..number(56, 2)? {
        if number(header, 4)? == PT_INTERP {
            return Some((
                number(header.checked_add(8)?, 8)?,
                number(header.checked_add(32)?, 8)?,
            ));
        }
        header = header.checked_add(size)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_shell() {
        for missing in [
            Errno::ENOENT,
            Errno::ENOTDIR,
            Errno::ELOOP,
            Errno::ENAMETOOLONG,
        ] {
            assert_eq!(exit_code(missing), 127);
        }
        for there in [Errno::EACCES, Errno::ENOEXEC, Errno::E2BIG, Errno::ETXTBSY] {
            assert_eq!(exit_code(there), 126);
        }
    }

    #[test]
    fn a_path_is_joined_or_refused_whole() {
        let mut room = [0; 16];
        assert_eq!(join(&mut room, b"/bin", b"sh"), Some(c"/bin/sh"));
        assert_eq!(join(&mut room, b"", b"sh"), Some(c"sh"));
        assert_eq!(join(&mut room, b"/123456789abcd", b"sh"), None);
    }

    #[test]
    fn our_own_interpreter_is_found_in_our_own_header() {
        let file = Fd::open(c"/proc/self/exe", libc::O_RDONLY, 0).unwrap();
        let mut start = [0; 512];
        file.read_at(&mut start, 0).unwrap();
        let mut name = Text::new();
        interpreter(&start, &file, &mut name);
        let name = String::from_utf8(name.as_bytes().to_vec()).unwrap();
        assert!(name.starts_with("/lib") && name.contains("ld-"), "{name}");
    }

    #[test]
    fn garbage_has_no_interpreter() {
        let mut start =
            *b"\x7fELF\x02\x01............................................................";
        assert_eq!(elf_interpreter(&start), None);
        start[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(elf_interpreter(&start), None);
        assert_eq!(elf_interpreter(b""), None);
    }

    #[test]
    fn a_shebang_names_its_program() {
        let file = Fd::open(c"/dev/null", libc::O_RDONLY, 0).unwrap();
        for (line, program) in [
            ("#!/nope\nx", "/nope"),
            ("#! \t/a b\r\n", "/a"),
            ("#!\n", ""),
            ("x", ""),
        ] {
            let mut name = Text::new();
            interpreter(line.as_bytes(), &file, &mut name);
            assert_eq!(name.as_bytes(), program.as_bytes(), "{line:?}");
        }
    }

    #[test]
    fn text_is_told_from_programs() {
        assert!(is_binary(b"\x7fELF\n"));
        assert!(is_binary(b"a\0b\n"));
        assert!(!is_binary(b"echo hi\n\0"));
        assert!(!is_binary(b""));
    }
}
