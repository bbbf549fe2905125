//! The instance's own cgroup, on either version of the interface.
//!
//! In: the mount table. Out: a cgroup the kubelet accepts as its root, and the
//! means to end and remove everything in it. What is decided from text is pure.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{At, Error, Result};

/// What the kubelet wants delegated, when the kernel has it.
const WANTED: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];

/// How this machine mounts its cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hierarchies {
    /// One directory a controller.
    V1(Vec<PathBuf>),
    /// One tree for all.
    V2(PathBuf),
}

/// Reads `/proc/self/mountinfo`. A hybrid machine (v1 controllers, an empty v2
/// tree beside them) counts as v1, as the kubelet sees it; that v2 tree is one
/// more directory, since the container runtime uses it too.
pub(super) fn detect(mountinfo: &str) -> Result<Hierarchies> {
    let mut v1 = Vec::new();
    let mut v2 = None;
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = before.split(' ').nth(4) else {
            continue;
        };
        match after.split(' ').next() {
            Some("cgroup") => v1.push(PathBuf::from(point)),
            Some("cgroup2") => v2 = v2.or(Some(PathBuf::from(point))),
            _ => {}
        }
    }
    v1.dedup();
    match v2 {
        _ if !v1.is_empty() => {
            v1.extend(v2);
            Ok(Hierarchies::V1(v1))
        }
        Some(root) => Ok(Hierarchies::V2(root)),
        None => Err(Error::Cgroup(
            "neither version is mounted on this machine; mount cgroup2 on /sys/fs/cgroup".into(),
        )),
    }
}

/// What has to be switched on in `cgroup.subtree_control`.
fn to_enable(available: &str, enabled: &str) -> Vec<&'static str> {
    let has = |list: &str, name: &str| list.split_whitespace().any(|c| c == name);
    WANTED
        .into_iter()
        .filter(|c| has(available, c) && !has(enabled, c))
        .collect()
}

impl Hierarchies {
    /// This machine's.
    pub fn here() -> Result<Self> {
        let path = "/proc/self/mountinfo";
        detect(&fs::read_to_string(path).at("read", path)?)
    }

    fn roots(&self) -> &[PathBuf] {
        match self {
            Self::V1(all) => all,
            Self::V2(root) => std::slice::from_ref(root),
        }
    }

    /// Makes the cgroup; says which controllers it had to switch on at the root.
    pub fn create(&self, name: &str) -> Result<Vec<String>> {
        match self {
            Self::V1(roots) => {
                for root in roots {
                    let dir = root.join(name);
                    fs::create_dir_all(&dir).at("make the cgroup", &dir)?;
                    fill_cpuset(root, &dir)?;
                }
                Ok(Vec::new())
            }
            Self::V2(root) => {
                let enabled = delegate(root)?;
                let dir = root.join(name);
                fs::create_dir_all(&dir).at("make the cgroup", &dir)?;
                delegate(&dir)?;
                Ok(enabled)
            }
        }
    }

    /// Every process in the cgroup and below.
    pub fn processes(&self, name: &str) -> Vec<i32> {
        let mut pids = Vec::new();
        for root in self.roots() {
            for dir in tree(&root.join(name)) {
                let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                pids.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
            }
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Removes the cgroup, which has no process any more.
    pub fn remove(&self, name: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        for root in self.roots() {
            for dir in tree(&root.join(name)).iter().rev() {
                remove_dir(dir, deadline)?;
            }
        }
        Ok(())
    }

    /// Switches controllers off again that [`create`](Self::create) switched on.
    pub fn disable(&self, controllers: &[String]) {
        if let Self::V2(root) = self {
            for controller in controllers {
                // Refused while someone else uses it, and then it has to stay.
                let _ = fs::write(
                    root.join("cgroup.subtree_control"),
                    format!("-{controller}"),
                );
            }
        }
    }
}

/// Parents before children.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        open.extend(
            entries
                .filter_map(io::Result::ok)
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .map(|e| e.path()),
        );
        all.push(dir);
    }
    all
}

/// A dead process leaves its cgroup a moment after its parent could see it
/// dead, and the kernel tells nobody: hence the retry.
fn remove_dir(dir: &Path, deadline: Instant) -> Result<()> {
    loop {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other.at("remove the cgroup", dir),
        }
    }
}

/// A new v1 cpuset has neither CPUs nor memory nodes, and takes no process so.
fn fill_cpuset(root: &Path, dir: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (root.join(file), dir.join(file));
        if from.exists() && to.exists() {
            let value = fs::read_to_string(&from).at("read", &from)?;
            fs::write(&to, value.trim()).at("write", &to)?;
        }
    }
    Ok(())
}

fn delegate(dir: &Path) -> Result<Vec<String>> {
    let read = |file: &str| {
        let path = dir.join(file);
        fs::read_to_string(&path).at("read", path)
    };
    let control = dir.join("cgroup.subtree_control");
    let missing = to_enable(
        &read("cgroup.controllers")?,
        &read("cgroup.subtree_control")?,
    );
    for controller in &missing {
        fs::write(&control, format!("+{controller}")).map_err(|error| {
            let path = control.display();
            Error::Cgroup(format!(
                "cannot write +{controller} to {path}: {error}; inside a container, move its processes to a cgroup below the root first, or give it the host's cgroup namespace"
            ))
        })?;
    }
    Ok(missing.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "24 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        25 24 0:21 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        26 24 0:22 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,name=systemd\n\
        27 24 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &str = "24 1 0:20 / / rw - ext4 /dev/sda rw\n\
        25 24 0:21 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_hybrid_machine_is_v1_with_the_empty_v2_tree_as_one_more() {
        let roots = ["cpu", "systemd", "unified"].map(|dir| Path::new("/sys/fs/cgroup").join(dir));
        assert_eq!(detect(V1).unwrap(), Hierarchies::V1(roots.into()));
    }

    #[test]
    fn one_unified_tree_is_v2() {
        assert_eq!(
            detect(V2).unwrap(),
            Hierarchies::V2("/sys/fs/cgroup".into())
        );
    }

    #[test]
    fn no_cgroups_is_an_error_that_says_what_to_mount() {
        let error = detect("24 1 0:20 / / rw - ext4 /dev/sda rw\n").unwrap_err();
        assert!(error.to_string().contains("mount cgroup2"), "{error}");
    }

    #[test]
    fn only_controllers_that_exist_and_are_off_are_switched_on() {
        let available = "cpuset cpu io memory pids rdma misc\n";
        assert_eq!(
            to_enable(available, "memory pids\n"),
            ["cpuset", "cpu", "io"]
        );
        assert!(to_enable(available, "cpuset cpu io memory pids").is_empty());
    }

    /// A directory with v2's control files, as far as plain files can play them.
    fn v2_root() -> (tempfile::TempDir, Hierarchies) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "cpu\n").unwrap();
        let tree = Hierarchies::V2(root.path().into());
        (root, tree)
    }

    #[test]
    fn v2_switches_on_what_is_missing_and_reports_it() {
        let (root, tree) = v2_root();
        let own = root.path().join("bed");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        assert_eq!(tree.create("bed").unwrap(), ["memory", "pids"]);
        // The fixture keeps the last write; the kernel would collect them.
        let control = fs::read_to_string(own.join("cgroup.subtree_control")).unwrap();
        assert_eq!(control, "+pids");
    }

    #[test]
    fn processes_are_found_in_every_level_once() {
        let (root, tree) = v2_root();
        let deep = root.path().join("bed/kubepods/pod1");
        fs::create_dir_all(&deep).unwrap();
        fs::write(root.path().join("bed/cgroup.procs"), "7\n").unwrap();
        fs::write(deep.join("cgroup.procs"), "9\n7\n").unwrap();
        assert_eq!(tree.processes("bed"), [7, 9]);
        assert!(tree.processes("other").is_empty());
    }

    #[test]
    fn removal_is_children_first_and_repeatable() {
        let (root, tree) = v2_root();
        fs::create_dir_all(root.path().join("bed/a/b")).unwrap();
        fs::create_dir_all(root.path().join("bed/c")).unwrap();
        tree.remove("bed", Duration::ZERO).unwrap();
        assert!(!root.path().join("bed").exists());
        tree.remove("bed", Duration::ZERO).unwrap();
    }

    #[test]
    fn a_v1_cpuset_takes_its_parents_cpus() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("bed");
        fs::create_dir(&own).unwrap();
        for file in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(root.path().join(file), "0-3\n").unwrap();
            fs::write(own.join(file), "").unwrap();
        }
        Hierarchies::V1(vec![root.path().into()])
            .create("bed")
            .unwrap();
        assert_eq!(fs::read_to_string(own.join("cpuset.cpus")).unwrap(), "0-3");
    }
}
