//! Taking an instance down. There is one way, for an instance that runs, for
//! one that crashed and for one that never came up: kill everything that bears
//! its mark, then remove what it made. Nothing is asked to stop, since nothing
//! it holds is kept.
//!
//! No mount has to be undone: they are in the daemons' own mount namespace,
//! which goes with the last of them, so removing files never follows one.

use std::fs;
use std::io;
use std::time::Duration;

use super::cgroup::Hierarchies;
use super::error::{At, Error, Result};
use super::layout::Layout;
use super::process::{kill_all, marked};
use super::{machine, network};

/// A watchdog: the kernel may hold a process in an uninterruptible sleep.
const PATIENCE: Duration = Duration::from_mins(1);

/// What becomes of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    /// Removed with everything else.
    Remove,
    /// Kept, for whoever wants to know why.
    Keep,
}

/// Ends and removes the instance; nothing happens when there is none.
pub(super) fn clean(layout: &Layout, logs: Logs) -> Result<()> {
    let cgroups = Hierarchies::here()?;
    let group = layout.cgroup();
    let alive = || {
        let mut all = marked(layout);
        all.extend(cgroups.processes(&group));
        all
    };
    let left = kill_all(alive, PATIENCE);
    if !left.is_empty() {
        return Err(Error::LeftBehind {
            name: layout.name().to_owned(),
            left: format!("processes {left:?}, which SIGKILL does not end"),
        });
    }
    network::down(layout)?;
    cgroups.remove(&group, PATIENCE)?;
    remove_state(layout, logs)?;
    machine::leave(layout, &cgroups)
}

fn remove_state(layout: &Layout, logs: Logs) -> Result<()> {
    let state = layout.state();
    let entries = match fs::read_dir(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.at("read", state)?,
    };
    for entry in entries {
        let entry = entry.at("read", state)?;
        let path = entry.path();
        if logs == Logs::Keep && path == layout.logs() {
            continue;
        }
        if entry.file_type().at("look at", &path)?.is_dir() {
            fs::remove_dir_all(&path).at("remove", &path)?;
        } else {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    // With its logs kept it is not empty; the parents may have other instances.
    for dir in state.ancestors().take(3) {
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}
