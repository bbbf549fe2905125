//! What has to be on the machine before anything starts, and how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::binfmt;
use super::error::{Error, Result};
use super::process::run;

/// A program, what it is for, and the Debian package that has it.
struct Need {
    what: String,
    there: bool,
    package: Option<&'static str>,
}

/// The full path of a program, also where a user's PATH does not look.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

fn needs(build: bool, images: bool) -> Vec<Need> {
    let program = |name: &str, why: &str, package| Need {
        what: format!("{name} ({why})"),
        there: find(name).is_some(),
        package: Some(package),
    };
    let conf = binfmt::conf();
    let mut all = vec![
        program("runc", "runs containers", "runc"),
        program("ip", "makes the bridge", "iproute2"),
        Need {
            what: format!("{} (QEMU for the other architecture)", conf.display()),
            there: conf.exists()
                || Path::new("/proc/sys/fs/binfmt_misc")
                    .join(binfmt::entry())
                    .exists(),
            package: Some("qemu-user-static"),
        },
    ];
    if images {
        all.push(program("gcc", "links the pause program", "gcc"));
        all.push(program(
            "busybox",
            "goes into the test image",
            "busybox-static",
        ));
    }
    if build {
        all.push(Need {
            what: "go 1.21 or newer (builds the cluster)".into(),
            there: find("go").is_some(),
            package: None,
        });
    }
    all.retain(|need| !need.there);
    all
}

/// Names what is missing; with `install`, has Debian's packages installed first.
pub(super) fn check(build: bool, images: bool, install: bool) -> Result<()> {
    let uid = rustix::process::geteuid();
    if !uid.is_root() {
        return Err(Error::NotRoot(uid.as_raw()));
    }
    let mut missing = needs(build, images);
    if install && missing.iter().any(|need| need.package.is_some()) {
        let packages: Vec<_> = missing.iter().filter_map(|need| need.package).collect();
        apt(&["update", "-q"])?;
        apt(&[
            &["install", "-qy", "--no-install-recommends"],
            packages.as_slice(),
        ]
        .concat())?;
        missing = needs(build, images);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().filter_map(|need| need.package).collect();
    let cure = if packages.is_empty() {
        "install it and put it on the PATH".to_owned()
    } else {
        format!(
            "`apt-get install {}` (or `testbed up --install`)",
            packages.join(" ")
        )
    };
    let missing: Vec<_> = missing.into_iter().map(|need| need.what).collect();
    Err(Error::Missing {
        missing: missing.join(", "),
        cure,
    })
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Someone else's apt may hold the lock for a while.
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(args);
    run(command.env("DEBIAN_FRONTEND", "noninteractive")).map(|_| ())
}
