//! The host's program: looked for along PATH, executed, and if it cannot be, why not.
//!
//! In the child: a search that ends in another program or a failure, left in the note.
//! In the supervisor: the line and the code for such a note.

use crate::args::{self, Complaint, complain};
use crate::signals::SignalSet;
use crate::sys::file::{self, Fd};
use crate::sys::memory::{Entry, ExecNote, NOTE_BYTES};
use crate::text::{self, Text};
use crate::{errors, sys};
use core::ffi::CStr;
use nix::errno::Errno;

/// Room for a path that is tried.
pub const PATH_ROOM: usize = 4096;
/// Where a host is looked for without a PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an exec failed at, beside its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program itself.
    Host = 0,
    /// What is to run it.
    Interpreter = 1,
    /// It is no program for this machine.
    Format = 2,
    /// It is a directory.
    Directory = 3,
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

/// The search along PATH. It ends in another program, or in the error to report.
pub struct Search<'t, 'a> {
    /// Null-ended tables; the first slot of `argv` is for a shell.
    pub argv: &'t mut [Entry<'a>],
    /// As for exec.
    pub envp: &'t [Entry<'a>],
    /// Room for the path that is tried.
    pub path: &'t mut [u8],
    /// Room for the name a shell gets, once.
    pub script: Option<&'a mut [u8]>,
    /// The signal mask the host is to have.
    pub mask: u64,
}

/// The error, what was at fault, and its name where that is not the host.
pub type Failure = (Errno, Fault, Text<NOTE_BYTES>);

impl<'a> Search<'_, 'a> {
    #[inline(never)]
    /// Comes back only when nothing could be executed.
    pub fn run(mut self) -> Failure {
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
