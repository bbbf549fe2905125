//! Reading /proc, where it is mounted; nothing here is needed as PID 1.

use crate::sys::{self, file::Fd};
use crate::text::{self, Text};

/// Calls `each` with every entry of `directory` that is a number.
#[inline(never)]
pub fn each_number(directory: &Fd, mut each: impl FnMut(i32)) {
    let mut buffer = [0_u8; 1024];
    while let Ok(got) = directory.entries(&mut buffer) {
        if got == 0 {
            return;
        }
        let mut rest = buffer.get(..got).unwrap_or(&[]);
        // struct linux_dirent64: ino and off (8 bytes each), reclen (2), type (1), name.
        while let (Some([low, high]), Some(name)) = (rest.get(16..18), rest.get(19..)) {
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            if let Some(number) = text::number(name, 1 << 30) {
                each(i32::try_from(number).unwrap_or(0));
            }
            let length = usize::from(u16::from_ne_bytes([*low, *high]));
            rest = match rest.get(length..) {
                Some(more) if length > 0 => more,
                _ => break,
            };
        }
    }
}

/// State letter and parent of a process.
#[inline(never)]
pub fn stat(pid: i32) -> Option<(u8, i32)> {
    let mut path = Text::<40>::new();
    path.push(b"/proc/").signed(pid).push(b"/stat");
    let mut buffer = [0_u8; 512];
    let file = Fd::open(path.as_c_str()?, libc::O_RDONLY, 0).ok()?;
    let got = file.read(&mut buffer).ok()?;
    parse_stat(buffer.get(..got)?)
}

/// `pid (comm) S ppid …`, where comm may hold anything, parentheses too.
fn parse_stat(line: &[u8]) -> Option<(u8, i32)> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let mut words = line
        .get(close.wrapping_add(2)..)?
        .split(|byte| *byte == b' ');
    let state = *words.next()?.first()?;
    let parent = text::number(words.next()?, 1 << 30)?;
    Some((state, i32::try_from(parent).ok()?))
}

/// /proc, when it shows our own pid namespace.
pub fn open_own() -> Option<Fd> {
    let mut start = [0_u8; 16];
    let own = Fd::open(c"/proc/self/stat", libc::O_RDONLY, 0).ok()?;
    let got = own.read(&mut start).ok()?;
    let (pid, _) = text::split(start.get(..got)?, b' ')?;
    let same = text::number(pid, 1 << 30) == u64::try_from(sys::getpid()).ok();
    same.then(|| Fd::open(c"/proc", libc::O_RDONLY | libc::O_DIRECTORY, 0).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_may_look_like_anything() {
        assert_eq!(parse_stat(b"12 (a) S 3 1 1"), Some((b'S', 3)));
        assert_eq!(parse_stat(b"12 (a) b) Z 3 (x) R 9 1"), Some((b'R', 9)));
        assert_eq!(parse_stat(b"12 (x"), None);
        assert_eq!(parse_stat(b"12 (x) S -1 2"), None);
    }

    #[test]
    fn our_own_entry_is_found_with_its_parent() {
        let directory = open_own().unwrap();
        let mut seen = false;
        each_number(&directory, |pid| seen |= pid == sys::getpid());
        assert!(seen);
        assert_eq!(stat(sys::getpid()).unwrap().1, sys::getppid());
    }
}
