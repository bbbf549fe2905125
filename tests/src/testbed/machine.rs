//! What instances share: a ledger of who holds which addresses and of what was
//! changed on the machine, so that the last instance to go puts all of it back.
//!
//! It lives in /run and names the boot it belongs to: after a reboot nothing of
//! it is true any more.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::binfmt;
use super::cgroup::Hierarchies;
use super::error::{At, Result};
use super::layout::Layout;
use super::process::write_whole;
use super::subnet::{self, Subnet};

const DIR: &str = "/run/podcradle-testbed";

/// Directories that containerd, its shims and the kubelet insist on. Each
/// instance mounts its own over them; here they only have to exist.
pub(super) const MOUNT_POINTS: [&str; 4] = [
    "/run/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ledger {
    boot: String,
    instances: BTreeMap<String, Subnet>,
    made_dirs: Vec<PathBuf>,
    binfmt_registered: bool,
    binfmt_mounted: bool,
    cgroup_controllers: Vec<String>,
}

/// An exclusive lock that ends with its owner.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code)] File);

impl Lock {
    /// Waits for the lock; `waiting` is called when it has to.
    fn take(name: &str, waiting: impl FnOnce()) -> Result<Self> {
        let path = Path::new(DIR).join(name);
        let mut waiting = Some(waiting);
        loop {
            fs::create_dir_all(DIR).at("make", DIR)?;
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            let file = opened.at("open", &path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                if let Some(tell) = waiting.take() {
                    tell();
                }
                flock(&file, FlockOperation::LockExclusive).at("lock", &path)?;
            }
            // The owner before us may have removed the file: then this lock
            // guards nothing.
            let ours = file.metadata().at("look at", &path)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Self(file));
            }
        }
    }

    /// One operation at a time on one instance.
    pub fn instance(layout: &Layout, waiting: impl FnOnce()) -> Result<Self> {
        Self::take(&format!("{}.lock", layout.name()), waiting)
    }
}

fn with_ledger<T>(change: impl FnOnce(&mut Ledger) -> Result<T>) -> Result<T> {
    let _lock = Lock::take("lock", || ())?;
    let path = Path::new(DIR).join("ledger.json");
    let id = "/proc/sys/kernel/random/boot_id";
    let boot = fs::read_to_string(id).at("read", id)?.trim().to_owned();
    let mut ledger = fs::read(&path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Ledger>(&bytes).ok())
        .filter(|ledger| ledger.boot == boot)
        .unwrap_or_default();
    ledger.boot = boot;
    let result = change(&mut ledger);
    // Written also after a failure: what was done before it has to be undone.
    let text = serde_json::to_vec_pretty(&ledger).unwrap_or_default();
    write_whole(&path, &text, 0o600)?;
    result
}

/// Enters the instance and makes what instances share.
pub(super) fn enter(layout: &Layout, cgroups: &Hierarchies) -> Result<Subnet> {
    with_ledger(|ledger| {
        ledger.instances.remove(layout.name());
        let table = "/proc/net/route";
        let mut taken = subnet::routes(&fs::read_to_string(table).at("read", table)?);
        taken.extend(ledger.instances.values());
        let subnet = subnet::pick(&taken)?;
        ledger.instances.insert(layout.name().to_owned(), subnet);
        for dir in MOUNT_POINTS.map(PathBuf::from) {
            if !dir.exists() {
                fs::create_dir_all(&dir).at("make", &dir)?;
                ledger.made_dirs.push(dir);
            }
        }
        ledger.binfmt_mounted |= binfmt::mount()?;
        ledger.binfmt_registered |= binfmt::register()?;
        ledger
            .cgroup_controllers
            .extend(cgroups.create(&layout.cgroup())?);
        Ok(subnet)
    })
}

/// Strikes the instance out; the last one puts the machine back as it was.
pub(super) fn leave(layout: &Layout, cgroups: &Hierarchies) -> Result<()> {
    with_ledger(|ledger| {
        ledger.instances.remove(layout.name());
        if !ledger.instances.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut ledger.binfmt_registered) {
            binfmt::unregister()?;
        }
        if std::mem::take(&mut ledger.binfmt_mounted) {
            binfmt::unmount()?;
        }
        for dir in ledger.made_dirs.drain(..) {
            // Not empty means that someone else uses it by now.
            let _ = fs::remove_dir(dir);
        }
        cgroups.disable(&std::mem::take(&mut ledger.cgroup_controllers));
        Ok(())
    })
}

/// Removes our own files when no instance is left. The last thing that is done
/// with the instance's lock held, since its file goes too: who waits for it
/// notices ([`Lock::take`]), but who comes later would not wait.
pub(super) fn tidy(layout: &Layout) -> Result<()> {
    let _lock = Lock::take("lock", || ())?;
    let dir = Path::new(DIR);
    let own = dir.join(format!("{}.lock", layout.name()));
    let _ = fs::remove_file(own);
    let ledger = dir.join("ledger.json");
    let empty = fs::read(&ledger)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Ledger>(&bytes).ok())
        .is_none_or(|ledger| ledger.instances.is_empty());
    if empty {
        let _ = fs::remove_file(ledger);
        let _ = fs::remove_file(dir.join("lock"));
        // Another instance's lock file keeps the directory.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}
