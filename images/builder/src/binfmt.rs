//! Lets this kernel run programs of another architecture, for as long as that
//! is needed: what was registered or mounted here is gone at the end.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount, umount};
use thiserror::Error;

use crate::arch::Arch;

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";

/// Why foreign programs cannot run here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BinfmtError {
    #[error("cannot mount {FOLDER}")]
    Mount(#[source] nix::Error),
    #[error("no emulator for {0}: apt-get install qemu-user-static")]
    NoEmulator(&'static str),
    #[error("cannot register the emulator for {arch}")]
    Register {
        arch: &'static str,
        source: std::io::Error,
    },
}

/// While this lives, programs of one architecture run here.
#[derive(Debug)]
pub struct Emulation {
    registered: Option<PathBuf>,
    mounted: bool,
}

impl Emulation {
    /// Sees to it that programs for `arch` run, changing nothing where they do.
    pub fn of(arch: Arch) -> Result<Self, BinfmtError> {
        let mut emulation = Emulation {
            registered: None,
            mounted: false,
        };
        if arch.is_native() {
            return Ok(emulation);
        }
        if !Path::new(FOLDER).join("register").exists() {
            let kind = Some("binfmt_misc");
            mount(kind, FOLDER, kind, MsFlags::empty(), None::<&str>)
                .map_err(BinfmtError::Mount)?;
            emulation.mounted = true;
        }
        let entry = Path::new(FOLDER).join(format!("qemu-{}", arch.machine()));
        if !entry.exists() {
            // Debian's own line. Its flag F makes the kernel hold the emulator
            // open, so that a tree needs no copy of it.
            let line = format!("/usr/lib/binfmt.d/qemu-{}.conf", arch.machine());
            let line = fs::read(line).map_err(|_| BinfmtError::NoEmulator(arch.name()))?;
            fs::write(Path::new(FOLDER).join("register"), line).map_err(|source| {
                BinfmtError::Register {
                    arch: arch.name(),
                    source,
                }
            })?;
            emulation.registered = Some(entry);
        }
        Ok(emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        if let Some(entry) = &self.registered {
            let _ = fs::write(entry, "-1");
        }
        if self.mounted {
            let _ = umount(FOLDER);
        }
    }
}
