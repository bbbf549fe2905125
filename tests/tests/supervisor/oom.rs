//! Whether the kernel's OOM killer struck while we ran: the difference of the
//! control group's counter, apart from how the host ended.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::pidns::{Setup, Subject};

crate::cases![
    a_killed_child_is_counted_and_the_host_keeps_its_code,
    a_killed_host_is_137_and_counted,
    a_kill_by_somebody_else_is_not_counted,
    the_counter_of_cgroup_v2_is_read_as_a_difference,
    an_unreadable_counter_is_absent_and_not_zero,
];

/// A memory control group of one's own, limited to 64 MB.
struct Group(PathBuf);

impl Group {
    fn new(t: &Subject, name: &str) -> Result<Self, Stop> {
        let id = format!(
            "podcradle-test-{}-{name}-{}",
            std::process::id(),
            t.arch.name()
        );
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if v1.join("memory.limit_in_bytes").exists() {
            let group = Self(v1.join(id));
            fs::create_dir(&group.0)
                .map_err(|e| skip(format!("cannot make a control group: {e}")))?;
            fs::write(group.0.join("memory.limit_in_bytes"), "64M")?;
            return Ok(group);
        }
        let v2 = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        if !controllers.contains("memory") {
            return Err(skip("no memory controller to make a control group with"));
        }
        let group = Self(v2.join(id));
        fs::create_dir(&group.0).map_err(|e| skip(format!("cannot make a control group: {e}")))?;
        fs::write(group.0.join("memory.max"), "64M")?;
        // Without swap, or the kernel would rather use that.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        Ok(group)
    }

    fn enter(&self, setup: Setup) -> Result<Setup, Stop> {
        let file = OpenOptions::new()
            .write(true)
            .open(self.0.join("cgroup.procs"))?;
        // A container sees its own group as the root of the hierarchy.
        let root = if self.0.starts_with("/sys/fs/cgroup/memory") {
            "/sys/fs/cgroup/memory"
        } else {
            "/sys/fs/cgroup"
        };
        Ok(setup.cgroup(file.into()).bind(&self.0, root.as_ref()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn a_killed_child_is_counted_and_the_host_keeps_its_code(t: &Subject) -> Outcome {
    let group = Group::new(t, "child")?;
    let script = format!("{} eat; exit 0", t.host.display());
    let mut run = group.enter(t.with_script(&[], &script))?.start()?;
    ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
    ensure!(run.report()?["oomKills"] == 1, "{}", run.report()?);
    Ok(())
}

fn a_killed_host_is_137_and_counted(t: &Subject) -> Outcome {
    let group = Group::new(t, "host")?;
    let mut run = group.enter(t.with_testhost(&[], &["eat"]))?.start()?;
    ensure!(
        run.code()? == 137,
        "exit {}: {}",
        run.code()?,
        run.stderr()?
    );
    ensure!(run.report()?["oomKills"] == 1, "{}", run.report()?);
    Ok(())
}

fn a_kill_by_somebody_else_is_not_counted(t: &Subject) -> Outcome {
    let group = Group::new(t, "kill")?;
    let setup = t.with_script(&[], "kill -KILL $$");
    let mut run = group.enter(setup)?.start()?;
    ensure!(run.code()? == 137, "exit {}", run.code()?);
    ensure!(run.report()?["oomKills"] == 0, "{}", run.report()?);
    Ok(())
}

const EVENTS: &str = "low 0\nhigh 0\nmax 7\noom 3\noom_kill N\noom_group_kill 0\n";

/// A tree as cgroup v2 has it, over the real one; the counter stands at 5.
fn v2(setup: Setup) -> Result<Setup, Stop> {
    let mut setup = setup;
    let tree = setup.folder()?.join("cgroup");
    fs::create_dir(&tree)?;
    fs::write(tree.join("cgroup.controllers"), "cpu memory pids\n")?;
    fs::write(tree.join("memory.events"), EVENTS.replace('N', "5"))?;
    Ok(setup.bind(&tree, "/sys/fs/cgroup".as_ref()))
}

fn the_counter_of_cgroup_v2_is_read_as_a_difference(t: &Subject) -> Outcome {
    let counts = |new: &str| EVENTS.replace('N', new);
    let script = format!(
        "printf '{}' >cgroup/memory.events; exit 0",
        counts("7").replace('\n', "\\n")
    );
    let mut run = v2(t.with_script(&[], &script))?.start()?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(run.report()?["oomKills"] == 2, "{}", run.report()?);
    let mut run = v2(t.with_script(&[], "exit 0"))?.start()?;
    ensure!(run.code()? == 0, "exit {}", run.code()?);
    ensure!(run.report()?["oomKills"] == 0, "{}", run.report()?);
    Ok(())
}

fn an_unreadable_counter_is_absent_and_not_zero(t: &Subject) -> Outcome {
    let mut setup = t.with_script(&[], "exit 0");
    let empty = setup.folder()?.join("empty");
    fs::create_dir(&empty)?;
    let mut run = setup.bind(&empty, "/sys/fs/cgroup".as_ref()).start()?;
    ensure!(run.code()? == 0, "exit {}: {}", run.code()?, run.stderr()?);
    ensure!(run.report()?.get("oomKills").is_none(), "{}", run.report()?);
    Ok(())
}
