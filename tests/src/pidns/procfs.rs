//! What /proc says of processes, as the test's own namespace numbers them.

use std::fs;
use std::path::PathBuf;

/// One process, as `/proc/PID/stat` shows it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its pid in the test's namespace.
    pub pid: i32,
    /// Its pid in its own namespace.
    pub inner: i32,
    /// `R`, `S`, `T`, `t`, `Z`, `D`…
    pub state: char,
    /// The parent's pid in the test's namespace.
    pub parent: i32,
    /// Process group, 0 when its leader is not of the test's namespace.
    pub group: i32,
    /// Session, 0 when its leader is not of the test's namespace.
    pub session: i32,
    /// Foreground group of its terminal.
    pub foreground: i32,
    /// CPU time used, in clock ticks, user and system.
    pub ticks: u64,
    /// Command line, blanks between the words; empty for a zombie.
    pub command: String,
}

impl Process {
    /// Reads one process; `None` when it is gone.
    pub fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, brackets too: fields begin after the last one.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        Some(Self {
            pid,
            inner: status(pid, "NSpid")?
                .split_whitespace()
                .last()?
                .parse()
                .ok()?,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            foreground: fields.get(5)?.parse().ok()?,
            ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
            command: words.join(" ").trim_end().to_owned(),
        })
    }
}

/// One line of `/proc/PID/status`, without its name.
pub fn status(pid: i32, field: &str) -> Option<String> {
    status_of(&format!("/proc/{pid}/status"), field)
}

/// One line of the main thread's status: an emulator has threads of its own.
pub fn main_thread_status(pid: i32, field: &str) -> Option<String> {
    status_of(&format!("/proc/{pid}/task/{pid}/status"), field)
}

fn status_of(path: &str, field: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// The pid namespace of a process.
pub fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Every process of the pid namespace whose init has this pid, init first.
pub fn members(init: i32) -> Vec<Process> {
    let Some(wanted) = namespace(init) else {
        return Vec::new();
    };
    let mut found: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| namespace(*pid).as_ref() == Some(&wanted))
        .filter_map(Process::read)
        .collect();
    found.sort_by_key(|process| process.inner);
    found
}
