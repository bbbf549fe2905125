//! How often the kernel's OOM killer has struck in our control group.
//!
//! In: `memory.events` (cgroup v2) or `memory.oom_control` (v1). Out: a running count, or
//! `None` when it cannot be read: unknown is not zero.

use crate::sys::file::Fd;
use crate::text::{self, Text};
use core::ffi::CStr;

/// How much room it needs.
pub const ROOM: usize = 4 * 1024;
/// Of this for the counters; the rest is for the names of our groups.
const COUNTERS: usize = 512;

/// The count so far; `root` stands for /sys/fs/cgroup, `room` is written over.
///
/// The host waits for the first of the two looks, so the likely place comes first: a
/// container finds its own group at the root. There is no such file at v2's true root.
#[inline(never)]
pub fn kills(root: Option<&CStr>, room: &mut [u8]) -> Option<u64> {
    let (counters, groups) = room.split_at_mut_checked(COUNTERS)?;
    let root = root.map_or(&b"/sys/fs/cgroup"[..], CStr::to_bytes);
    let v2 = Place {
        root,
        hierarchy: b"",
        file: b"/memory.events",
    };
    let v1 = Place {
        root,
        hierarchy: b"/memory",
        file: b"/memory.oom_control",
    };
    if let Some(kills) = v2.read(b"", counters) {
        return Some(kills);
    }
    let groups = read(c"/proc/self/cgroup", groups).unwrap_or(&[]);
    let (in_v2, in_v1) = (own_path(groups, b""), own_path(groups, b"memory"));
    v2.below(in_v2, counters)
        .or_else(|| v1.below(in_v1, counters))
        .or_else(|| v1.read(b"", counters))
}

struct Place<'a> {
    root: &'a [u8],
    hierarchy: &'static [u8],
    file: &'static [u8],
}

impl Place<'_> {
    /// Not at the root itself, where whoever asks looks anyway.
    fn below(&self, path: &[u8], buffer: &mut [u8]) -> Option<u64> {
        if matches!(path, b"" | b"/") {
            return None;
        }
        self.read(path, buffer)
    }

    #[inline(never)]
    fn read(&self, path: &[u8], buffer: &mut [u8]) -> Option<u64> {
        let mut name = Text::<1024>::new();
        name.push(self.root)
            .push(self.hierarchy)
            .push(path)
            .push(self.file);
        oom_kills(read(name.as_c_str()?, buffer)?)
    }
}

fn read<'b>(path: &CStr, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let file = Fd::open(path, libc::O_RDONLY, 0).ok()?;
    // At once: the kernel makes up such a file whole, at the first read.
    let got = file.read(buffer).ok()?;
    buffer.get(..got)
}

/// The path of our group in the hierarchy that has `controller` (v2: the one with none).
fn own_path<'a>(groups: &'a [u8], controller: &[u8]) -> &'a [u8] {
    let lines = groups.split(|byte| *byte == b'\n');
    let mut found = lines.rev().filter_map(|line| {
        let (_, rest) = text::split(line, b':')?;
        let (controllers, path) = text::split(rest, b':')?;
        let mut names = controllers.split(|byte| *byte == b',');
        names.any(|name| name == controller).then_some(path)
    });
    found.next().unwrap_or(b"")
}

fn oom_kills(counters: &[u8]) -> Option<u64> {
    let mut lines = counters.split(|byte| *byte == b'\n');
    lines.find_map(|line| text::number(text::after(line, b"oom_kill ")?, u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;

    #[test]
    fn the_group_of_the_right_hierarchy_is_taken() {
        let v1 = b"12:cpu,cpuacct:/a\n4:memory:/kubepods/pod:1\n0::/\n";
        assert_eq!(own_path(v1, b"memory"), b"/kubepods/pod:1");
        assert_eq!(own_path(v1, b""), b"/");
        assert_eq!(own_path(b"garbage", b"memory"), b"");
    }

    #[test]
    fn oom_kill_is_not_mistaken_for_its_neighbours() {
        assert_eq!(
            oom_kills(b"low 0\noom 3\noom_kill 2\noom_group_kill 1\n"),
            Some(2)
        );
        assert_eq!(
            oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            Some(7)
        );
        assert_eq!(oom_kills(b"oom_kill_disable 0\n"), None);
    }

    #[test]
    fn a_tree_is_read_in_either_version_and_a_missing_one_is_unknown() {
        let tree = tempfile::tempdir().unwrap();
        let root = CString::new(tree.path().to_str().unwrap()).unwrap();
        let kills = |root| super::kills(root, &mut [0; ROOM]);
        assert_eq!(kills(Some(&root)), None);
        fs::create_dir(tree.path().join("memory")).unwrap();
        fs::write(
            tree.path().join("memory/memory.oom_control"),
            "oom_kill 4\n",
        )
        .unwrap();
        assert_eq!(kills(Some(&root)), Some(4));
        fs::write(tree.path().join("memory.events"), "oom_kill 5\n").unwrap();
        assert_eq!(kills(Some(&root)), Some(5));
    }
}
