//! Tells whether archives are what baking them again would give, since writing
//! them takes longer than everything else once the builder's cache is warm. A
//! stamp beside the archives holds a digest of all that goes into them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// A digest in the making.
pub struct Stamp(Sha256);

impl Stamp {
    /// Starts with the call itself: arguments, and the environment it adds.
    pub fn of(command: &Command) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: &OsStr| {
            digest.update(text.as_encoded_bytes());
            digest.update([0]);
        };
        command.get_args().for_each(&mut add);
        for (name, value) in command.get_envs() {
            add(name);
            add(value.unwrap_or_default());
        }
        Stamp(digest)
    }

    /// Adds what the caller's environment says about a name.
    pub fn add_variable(&mut self, name: &str) {
        let value = std::env::var_os(name).unwrap_or_default();
        self.0.update(format!("{name}={}\0", value.display()));
    }

    /// Adds every file below a folder, by content.
    pub fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?;
        entries.sort();
        for path in entries {
            if path.is_dir() {
                self.add_folder(&path)?;
            } else {
                self.0.update(format!("{}\0", path.display()));
                self.0.update(fs::read(&path)?);
            }
        }
        Ok(())
    }

    /// Adds a file too large to read each time, by what changes when it is replaced.
    pub fn add_large(&mut self, path: &Path) -> io::Result<()> {
        let facts = fs::metadata(path)?;
        let (inode, size, time) = (facts.ino(), facts.size(), facts.mtime());
        self.0
            .update(format!("{}\0{inode} {size} {time}\0", path.display()));
        Ok(())
    }

    /// The digest, in hexadecimal.
    pub fn finish(self) -> String {
        format!("{:x}", self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(folder: &Path, argument: &str) -> String {
        let mut stamp = Stamp::of(Command::new("x").arg(argument).env("A", "1"));
        stamp.add_folder(folder).unwrap();
        stamp.finish()
    }

    #[test]
    fn it_changes_with_a_file_and_with_the_call_and_not_otherwise() {
        let folder = std::env::temp_dir().join(format!("podcradle-stamp-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), "1").unwrap();
        let first = stamp(&folder, "a");
        assert_eq!(first, stamp(&folder, "a"));
        assert_ne!(first, stamp(&folder, "b"));
        fs::write(folder.join("deep/file"), "2").unwrap();
        assert_ne!(first, stamp(&folder, "a"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
