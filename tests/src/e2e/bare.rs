//! An image of the reference host and nothing else, as the cluster's node has
//! it: no shell, no git, no user, and no `podcradle-init`.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Arch, Error, Result, Trying, repository};
use crate::testbed::{self, Layout};

/// The host in it.
pub const HOST: &str = "/host";

/// One import at a time: tests share the image.
static LOADING: Mutex<()> = Mutex::new(());

/// Gives the image for this architecture to the test bed of this name, and
/// returns what it is called.
pub fn load(bed: &str, arch: Arch, folder: &Path) -> Result<String> {
    let program = repository().join(format!("out/stage/sandbox/{}/host", arch.name()));
    let program = std::fs::read(&program).map_err(|_| {
        Error::Missing(format!(
            "{} is missing; `make images` builds it",
            program.display()
        ))
    })?;
    let missing = |error: testbed::Error| Error::Missing(testbed::chain(&error));
    let image = format!("podcradle.test/bare-{}:1", arch.name());
    let archive = folder.join("bare.tar");
    let name = HOST.trim_start_matches('/');
    testbed::of_one_program(&archive, &image, arch.name(), (name, &program)).map_err(missing)?;
    let layout = Layout::new(bed).map_err(missing)?;
    let platform = format!("linux/{}", arch.name());
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    testbed::load(&layout, std::slice::from_ref(&archive), Some(&platform)).map_err(missing)?;
    std::fs::remove_file(&archive).trying("remove an archive")?;
    Ok(image)
}
