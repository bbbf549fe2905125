//! Work done before or instead of a host: `--prepare DIR` and `--copy-to DIR`.
//!
//! Both run in images that hold nothing else, so neither needs a shell or a tool.

use crate::args::{Complaint, complain};
use crate::errors;
use crate::sys::file::{self, Fd};
use crate::sys::{self, memory};
use crate::text::Text;
use core::ffi::CStr;
use nix::errno::Errno;

const NAME: &[u8] = b"podcradle-init";
const PATH_ROOM: usize = 4096;

/// Makes `directory` with its parents, mode 0755 under the umask, as `mkdir -p` does.
#[inline(never)]
pub fn prepare(flag: &[u8], directory: &CStr) -> Result<(), Complaint> {
    let refuse = |path: &[u8], why: &[u8]| complain(&[flag, b": cannot make ", path, b": ", why]);
    let whole = directory.to_bytes();
    for (at, next) in (1_usize..).zip(whole.iter().skip(1).chain(b"/")) {
        let part = whole.get(..at).unwrap_or(whole);
        if *next != b'/' || part.ends_with(b"/") {
            continue;
        }
        let mut path = Text::<PATH_ROOM>::new();
        path.push(part);
        let path = path
            .as_c_str()
            .ok_or_else(|| refuse(part, b"the path is too long"))?;
        match file::make_dir(path, 0o755) {
            Ok(()) => {}
            // Whatever mkdir says (a read-only or foreign parent): what is there is fine.
            Err(errno) => match file::stat(path) {
                Ok(kind) if kind.directory => {}
                Ok(_) => return Err(refuse(part, b"it is there and no directory")),
                Err(_) => return Err(refuse(part, errors::text(errno))),
            },
        }
    }
    Ok(())
}

/// Copies this very program to `DIRECTORY/podcradle-init`, mode 0555, all of it or nothing.
#[inline(never)]
pub fn copy_to(directory: &CStr) -> Result<(), Complaint> {
    prepare(b"--copy-to", directory)?;
    let at = |suffix: &[u8], unique: u64| {
        let mut path = Text::<PATH_ROOM>::new();
        path.push(directory.to_bytes())
            .push(b"/")
            .push(suffix)
            .push(NAME);
        if unique > 0 {
            path.push(b".").number(unique);
        }
        path
    };
    let target = at(b"", 0);
    // Several may copy into one volume at once, and each of them is pid 1.
    let draft = at(b".", sys::wall_nanos());
    let too_long = || complain(&[b"--copy-to: the path is too long: ", directory.to_bytes()]);
    let target = target.as_c_str().ok_or_else(too_long)?;
    let draft = draft.as_c_str().ok_or_else(too_long)?;
    copy_by(draft, target).map_err(|errno| {
        complain(&[
            b"--copy-to: cannot write ",
            target.to_bytes(),
            b": ",
            errors::text(errno),
        ])
    })
}

/// Copies this program to `target` by way of `draft`, which does not outlive a failure.
fn copy_by(draft: &CStr, target: &CStr) -> sys::Result<()> {
    let source = open_self()?;
    let create = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let to = Fd::open(draft, create, 0o600)?;
    // From here on the draft is ours; one that was there before is somebody else's.
    let copied = copy(&source, &to).and_then(|()| file::rename(draft, target));
    if copied.is_err() {
        file::unlink(draft);
    }
    copied
}

#[inline(never)]
fn copy(source: &Fd, to: &Fd) -> sys::Result<()> {
    let size = source.kind()?.size;
    let mut buffer = [0_u8; 8192];
    let mut copied = 0_u64;
    loop {
        let got = source.read_at(&mut buffer, copied)?;
        let mut rest = buffer.get(..got).unwrap_or(&[]);
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let put = to.write(rest)?;
            if put == 0 {
                return Err(Errno::ENOSPC);
            }
            rest = rest.get(put..).unwrap_or(&[]);
        }
        copied = copied.wrapping_add(got as u64);
    }
    if copied != size {
        return Err(Errno::EIO);
    }
    // Some file systems tell only now that there was no room.
    to.sync()?;
    to.set_mode(0o555)
}

fn open_self() -> sys::Result<Fd> {
    let by_name = || {
        memory::own_path()
            .ok_or(Errno::ENOENT)
            .and_then(|path| Fd::open(path, libc::O_RDONLY, 0))
    };
    Fd::open(c"/proc/self/exe", libc::O_RDONLY, 0).or_else(|_| by_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;

    #[test]
    fn a_failed_copy_removes_its_own_draft_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| CString::new(path(name).to_str().unwrap()).unwrap();
        let copy = |target: &str| copy_by(&text("draft"), &text(target));

        fs::write(path("draft"), "somebody else's").unwrap();
        assert_eq!(copy("target"), Err(Errno::EEXIST));
        assert_eq!(fs::read(path("draft")).unwrap(), b"somebody else's");

        fs::remove_file(path("draft")).unwrap();
        assert_eq!(copy("nowhere/target"), Err(Errno::ENOENT));
        assert!(!path("draft").exists(), "its own draft was left");

        assert_eq!(copy("target"), Ok(()));
        let itself = fs::metadata(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(fs::metadata(path("target")).unwrap().len(), itself.len());
    }
}
