//! Programs of the other architecture: registers Debian's QEMU with the kernel,
//! with the interpreter opened at once (flag F), so that it works in containers
//! that have no copy of it.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount as mount_fs, unmount as unmount_fs};

use super::error::{At, Error, Result};

const DIR: &str = "/proc/sys/fs/binfmt_misc";

/// The QEMU entry for the architecture this machine is not.
pub(super) fn entry() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "qemu-x86_64"
    } else {
        "qemu-aarch64"
    }
}

/// Where Debian keeps the line that registers it.
pub(super) fn conf() -> std::path::PathBuf {
    Path::new("/usr/lib/binfmt.d").join(format!("{}.conf", entry()))
}

/// Mounts the kernel's registry unless it is; says whether it had to.
pub(super) fn mount() -> Result<bool> {
    if Path::new(DIR).join("register").exists() {
        return Ok(false);
    }
    mount_fs("binfmt_misc", DIR, "binfmt_misc", MountFlags::empty(), None).at("mount", DIR)?;
    Ok(true)
}

/// Registers the emulation unless it is; says whether it had to.
pub(super) fn register() -> Result<bool> {
    let there = Path::new(DIR).join(entry());
    if let Ok(text) = fs::read_to_string(&there) {
        return usable(&text).map(|()| false);
    }
    let conf = conf();
    let line = fs::read_to_string(&conf).at("read", &conf)?;
    let register = Path::new(DIR).join("register");
    fs::write(&register, line.trim()).at("write", &register)?;
    Ok(true)
}

/// Someone else's registration has to fit: it is not ours to replace.
fn usable(text: &str) -> Result<()> {
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags: "))
        .unwrap_or_default();
    if text.starts_with("enabled") && flags.contains('F') {
        return Ok(());
    }
    Err(Error::Binfmt(format!(
        "{DIR}/{} is registered with flags {flags:?}, but containers need an enabled entry with F; remove it with `echo -1 > {DIR}/{0}`",
        entry()
    )))
}

pub(super) fn unregister() -> Result<()> {
    let there = Path::new(DIR).join(entry());
    if there.exists() {
        fs::write(&there, "-1").at("unregister", &there)?;
    }
    Ok(())
}

pub(super) fn unmount() -> Result<()> {
    unmount_fs(DIR, UnmountFlags::empty()).at("unmount", DIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_f_would_fail_in_containers_and_is_refused() {
        let good = "enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: POCF\noffset 0\n";
        assert!(usable(good).is_ok());
        for bad in [
            good.replace("POCF", "OC"),
            good.replace("enabled", "disabled"),
        ] {
            let error = usable(&bad).unwrap_err().to_string();
            assert!(error.contains("echo -1"), "{error}");
        }
    }
}
