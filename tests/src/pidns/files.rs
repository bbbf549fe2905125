//! Programs that tests make up.
//!
//! They are written by a process of their own: a descriptor of ours that is open for writing
//! would be in every child that other tests start meanwhile, and executing is refused then.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Error, Result};

/// Copies a program.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp").arg(from).arg(to).status()?;
    if done.success() {
        return Ok(());
    }
    Err(Error::Exit(format!(
        "cp {} ended with {done}",
        from.display()
    )))
}

/// Makes a file that may be executed.
pub fn write_program(to: &Path, content: &[u8]) -> Result<()> {
    let draft = tempfile::NamedTempFile::new()?;
    fs::write(draft.path(), content)?;
    copy_program(draft.path(), to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
