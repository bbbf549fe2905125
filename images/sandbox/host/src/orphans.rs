//! Orphans on purpose, to see that whoever is PID 1 reaps them. The host
//! starts itself once more as the process in the middle, that one forks the
//! orphans and goes away. In the middle there is one thread, so that forking
//! without an exec is sound, and 20,000 orphans cost 20,000 forks, no more.

use std::process::Command;
use std::time::Duration;

use nix::unistd::{ForkResult, fork};
use thiserror::Error;

use crate::exit::Exit;

/// How many orphans, and how long each lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphans {
    pub count: u32,
    pub lifetime: Duration,
}

/// Why the orphans could not be left.
#[derive(Debug, Error)]
pub enum OrphanError {
    #[error("cannot start the process in the middle")]
    Start(#[source] std::io::Error),
    #[error("the process in the middle ended early ({0})")]
    Middle(std::process::ExitStatus),
}

impl Orphans {
    /// Far above what any test needs, far below what would fill a pid table.
    pub const MOST: i64 = 1_000_000;

    /// Leaves the orphans behind; done when every one has lost its parent.
    pub fn make(self, token_variable: &str) -> Result<(), OrphanError> {
        // Not "/proc/self/exe" itself: under user-mode emulation that is the emulator.
        let this = std::env::current_exe().map_err(OrphanError::Start)?;
        let status = Command::new(this)
            .arg("--internal-leave-orphans")
            .args(["--orphans", &self.count.to_string()])
            .args([
                "--orphan-lifetime",
                &self.lifetime.as_secs_f64().to_string(),
            ])
            .env_remove(token_variable)
            .status()
            .map_err(OrphanError::Start)?;
        if status.success() {
            return Ok(());
        }
        Err(OrphanError::Middle(status))
    }
}

/// The life of the process in the middle.
pub fn leave(orphans: &Orphans) -> Exit {
    for made in 0..orphans.count {
        // SAFETY: this process has one thread, so that no lock can be held by
        // another one that the child would then wait for.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { .. }) => {}
            Ok(ForkResult::Child) => {
                std::thread::sleep(orphans.lifetime);
                std::process::exit(0);
            }
            Err(errno) => {
                eprintln!(
                    "host: fork of orphan {made} of {} failed: {errno}",
                    orphans.count
                );
                return Exit::System;
            }
        }
    }
    Exit::Done
}
