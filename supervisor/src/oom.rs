//! How often the kernel's OOM killer has struck in our control group.
//!
//! In: `memory.events` (cgroup v2) or `memory.oom_control` (v1). Out: a running count, or
//! `None` when it cannot be read: unknown is not zero.

use crate::sys::{file::Fd, memory::Arena};
use crate::text::{self, Text};
use core::ffi::CStr;

const ROOM: usize = 8 * 1024;

/// The count so far; `root` stands for /sys/fs/cgroup.
#[inline(never)]
pub fn kills(root: Option<&CStr>) -> Option<u64> {
    // A mapping of its own, given back at once: the stack of PID 1 stays small.
    let arena = Arena::new(ROOM).ok()?;
    let groups = arena.bytes(ROOM / 2).ok()?;
    let counters = arena.bytes(ROOM / 2).ok()?;
    let groups = read(c"/proc/self/cgroup", groups).unwrap_or(&[]);
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
    v2.kills(own_path(groups, b""), counters)
        .or_else(|| v1.kills(own_path(groups, b"memory"), counters))
}

struct Place<'a> {
    root: &'a [u8],
    hierarchy: &'static [u8],
    file: &'static [u8],
}

impl Place<'_> {
    /// Inside a container our own group is often what is mounted at the root, whatever
    /// path /proc shows; so the path first, then the root.
    fn kills(&self, path: &[u8], buffer: &mut [u8]) -> Option<u64> {
        let path = if path == b"/" { b"" } else { path };
        self.read(path, buffer).or_else(|| self.read(b"", buffer))
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
    let got = file.read_at(buffer, 0).ok()?;
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
