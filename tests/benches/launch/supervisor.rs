//! File size and idle memory of `podcradle-init`, beside Debian's tini-static.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use podcradle_tests::e2e::cluster::target_dir;
use podcradle_tests::e2e::{Arch, Error, Running};

use crate::memory::kilobytes;
use crate::table::Table;

const TINI: &str = "/usr/bin/tini-static";

/// Adds the rows for one architecture.
pub fn measure(table: &mut Table, arch: Arch) -> Result<(), Error> {
    let name = arch.name();
    let path = binary(arch);
    let limit = match arch {
        Arch::Amd64 => 65_536.0,
        Arch::Arm64 => 131_072.0,
    };
    let native = arch.machine() == std::env::consts::ARCH;
    let beside = |value: Result<f64, Error>, unit: &str| match value {
        Ok(value) if native => format!("tini-static {value:.0} {unit}"),
        _ => String::new(),
    };
    let tini = beside(size(Path::new(TINI)), "B");
    table.owed(
        &format!("podcradle-init {name}: file"),
        size(&path)?,
        "B",
        limit,
        &tini,
    );
    if !native {
        table.absent(
            &format!("podcradle-init {name}: RSS"),
            "under QEMU it would be QEMU's",
        );
        return Ok(());
    }
    let tini = idle(Path::new(TINI));
    let (rss, anonymous) = idle(&path)?;
    let (tini_rss, tini_anonymous) = match tini {
        Ok((rss, anonymous)) => (Ok(rss), Ok(anonymous)),
        Err(_) => (Err(missing()), Err(missing())),
    };
    let rows = [
        ("RSS", rss, 96.0, tini_rss),
        ("RSS, anonymous", anonymous, 24.0, tini_anonymous),
    ];
    for (what, value, limit, tini) in rows {
        let what = format!("podcradle-init {name}: {what}");
        table.owed(&what, value, "kB", limit, &beside(tini, "kB"));
    }
    Ok(())
}

fn missing() -> Error {
    Error::Missing(format!("{TINI} is missing; apt-get install tini"))
}

fn binary(arch: Arch) -> PathBuf {
    let variable = format!("PODCRADLE_INIT_{}", arch.name().to_uppercase());
    std::env::var_os(variable).map_or_else(
        || {
            let target = format!("{}-unknown-linux-musl", arch.machine());
            target_dir().join(target).join("supervisor/podcradle-init")
        },
        PathBuf::from,
    )
}

#[allow(clippy::cast_precision_loss, reason = "no file here has 2^53 bytes")]
fn size(path: &Path) -> Result<f64, Error> {
    let metadata = std::fs::metadata(path).map_err(|source| Error::Io {
        what: format!("look at {}", path.display()),
        source,
    })?;
    Ok(metadata.len() as f64)
}

/// RSS and its anonymous part while the host runs and nothing happens.
fn idle(init: &Path) -> Result<(f64, f64), Error> {
    let mut command = Command::new(init);
    command.args(["--", "sh", "-c", "echo up; exec sleep 1000"]);
    let running = Running::start(&mut command)?;
    running.wait_for_stdout("up", Duration::from_mins(1))?;
    let figure = |line| kilobytes(running.pid(), "smaps_rollup", line);
    let figures = (figure("Rss:")?, figure("Anonymous:")?);
    running.signal(rustix::process::Signal::TERM)?;
    running.wait(Duration::from_mins(1))?;
    Ok(figures)
}
