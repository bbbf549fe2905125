//! What the host finds around itself at its start: said to the server and
//! printed, so that a log shows whose child it is and on what machine.

use serde::Serialize;

/// Where and as whose child this process runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Surroundings {
    pub pid: u32,
    pub ppid: i32,
    /// The name of PID 1, or `?` where `/proc` is not mounted.
    pub pid1: String,
    pub arch: &'static str,
    pub cwd: String,
    pub uid: u32,
}

impl Surroundings {
    /// Looks around.
    pub fn look() -> Self {
        let pid1 = std::fs::read_to_string("/proc/1/comm");
        let cwd = std::env::current_dir();
        Surroundings {
            pid: std::process::id(),
            ppid: nix::unistd::getppid().as_raw(),
            pid1: pid1.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned()),
            arch: std::env::consts::ARCH,
            cwd: cwd.map_or_else(|_| "?".to_owned(), |path| path.display().to_string()),
            uid: nix::unistd::getuid().as_raw(),
        }
    }
}

impl std::fmt::Display for Surroundings {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Surroundings {
            pid,
            ppid,
            pid1,
            arch,
            cwd,
            uid,
        } = self;
        write!(
            out,
            "pid={pid} ppid={ppid} pid1={pid1} arch={arch} uid={uid} cwd={cwd}"
        )
    }
}
