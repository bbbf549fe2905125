//! What an instance could leave on a machine. Other instances may come and go
//! meanwhile, so each fact is either this instance's own or the machine's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use podcradle_tests::testbed::Layout;

const SETTINGS: [&str; 8] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
];

const MOUNT_POINTS: [&str; 5] = [
    "/run/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/proc/sys/kernel",
];

/// A set of facts, each as a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace(BTreeSet<String>);

impl Trace {
    pub fn take(layout: &Layout) -> Self {
        let state = layout.state().to_string_lossy().into_owned();
        let group = format!("podcradle-testbed-{}", layout.name());
        let mut facts = BTreeSet::new();
        for setting in SETTINGS {
            let value = fs::read_to_string(Path::new("/proc/sys").join(setting));
            facts.insert(format!(
                "setting {setting} = {}",
                value.unwrap_or_default().trim()
            ));
        }
        // Everything on this machine that is mounted where an instance mounts.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let ours = |point: &&str| {
            point.starts_with(&state) || MOUNT_POINTS.iter().any(|own| point.starts_with(own))
        };
        facts.extend(points.filter(ours).map(|point| format!("mount {point}")));
        // The machine's links; a pod's come and go with other instances' pods.
        facts.extend(
            names("/sys/class/net")
                .filter(|link| {
                    let another = link.starts_with("pcbr-") && *link != layout.bridge();
                    !another && !link.starts_with("veth")
                })
                .map(|l| format!("link {l}")),
        );
        let links = names("/var/log/containers").filter(|link| {
            let target = fs::read_link(Path::new("/var/log/containers").join(link));
            target.is_ok_and(|target| target.starts_with(layout.state()))
        });
        facts.extend(links.map(|link| format!("log link {link}")));
        facts.extend(
            names("/run/podcradle-testbed")
                .filter(|f| f.contains(layout.name()))
                .map(|f| format!("file {f}")),
        );
        for hierarchy in names("/sys/fs/cgroup") {
            let own = Path::new("/sys/fs/cgroup").join(&hierarchy).join(&group);
            // On v2 the hierarchy is itself the entry.
            if hierarchy == group || own.exists() {
                facts.insert(format!("cgroup {hierarchy} {group}"));
            }
        }
        for pid in names("/proc").filter(|name| name.parse::<u32>().is_ok()) {
            let read = |file: &str| {
                let bytes = fs::read(Path::new("/proc").join(&pid).join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            // The dead wait for whoever is PID 1 here to notice.
            if read("stat")
                .rsplit(") ")
                .next()
                .is_none_or(|s| s.starts_with('Z'))
            {
                continue;
            }
            let command = read("cmdline").replace('\0', " ");
            if command.contains(&state)
                || read("cgroup").contains(&group)
                || read("environ").contains(&state)
            {
                facts.insert(format!("process {pid} {command}"));
            }
        }
        Self(facts)
    }

    /// What is here and was not before.
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

fn names(dir: &str) -> impl Iterator<Item = String> + use<> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}
