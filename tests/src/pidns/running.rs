//! A started program: what it says, what lives in its namespace, how it ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use tempfile::TempDir;

use super::stream::readable;
use super::{Error, Process, Pty, Result, Stream, WATCHDOG, procfs};

/// The init of a namespace. Dropping it ends the namespace.
#[derive(Debug)]
pub struct Running {
    /// Its pid as the test sees it.
    pub pid: i32,
    /// Its standard output.
    pub out: Stream,
    /// Its terminal, when it has one.
    pub terminal: Option<Pty>,
    /// When its exec began, by [`super::monotonic`].
    pub launched: u64,
    /// When its exec had happened.
    pub started: Instant,
    input: Option<File>,
    pidfd: OwnedFd,
    errors: PathBuf,
    report: PathBuf,
    watchdog: Duration,
    status: Option<i32>,
    folder: Option<TempDir>,
}

impl Running {
    pub(super) fn new(
        pid: i32,
        input: Option<OwnedFd>,
        out: Stream,
        errors: PathBuf,
        report: PathBuf,
        terminal: Option<Pty>,
        folder: Option<TempDir>,
    ) -> Result<Self> {
        // SAFETY: our own unreaped child; the descriptor is owned once.
        let pidfd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            let Ok(fd @ 0..) = i32::try_from(fd) else {
                let error = io::Error::last_os_error();
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
                return Err(Error::Step("open a pidfd", error));
            };
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self {
            pid,
            out,
            terminal,
            launched: 0,
            started: Instant::now(),
            input: input.map(File::from),
            pidfd,
            errors,
            report,
            watchdog: WATCHDOG,
            status: None,
            folder,
        })
    }

    /// A longer (or shorter) watchdog for all that follows.
    pub fn set_watchdog(&mut self, limit: Duration) {
        self.watchdog = limit;
        self.out.set_watchdog(limit);
    }

    /// Sends `signal` to the init, from outside its namespace.
    pub fn signal(&self, signal: i32) -> Result<()> {
        kill(self.pid, signal)
    }

    /// Writes to the standard input.
    pub fn write(&mut self, text: &str) -> Result<()> {
        if let Some(input) = &mut self.input {
            input.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Closes the standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// The terminal; fails when there is none.
    pub fn terminal(&mut self) -> Result<&mut Pty> {
        let none = || Error::Missing("this start has no terminal".to_owned());
        self.terminal.as_mut().ok_or_else(none)
    }

    /// The next line of output.
    pub fn line(&mut self) -> Result<String> {
        self.out.line().map_err(|error| self.explain(error))
    }

    /// Waits for the end and gives the exit code.
    ///
    /// # Errors
    /// When the watchdog runs out, or a signal ended the program itself.
    pub fn code(&mut self) -> Result<i32> {
        let status = self.wait()?;
        if libc::WIFEXITED(status) {
            return Ok(libc::WEXITSTATUS(status));
        }
        let signal = libc::WTERMSIG(status);
        Err(Error::Exit(format!(
            "killed by signal {signal}; {}",
            self.context()
        )))
    }

    /// Waits for the end and gives the raw status.
    pub fn wait(&mut self) -> Result<i32> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        if !readable(&self.pidfd, Instant::now() + self.watchdog)? {
            return Err(Error::Watchdog("its exit", self.context()));
        }
        Ok(self.reap())
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        self.status.is_none() && !readable(&self.pidfd, Instant::now()).unwrap_or(true)
    }

    /// What it and its host wrote to standard error so far.
    pub fn stderr(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.errors)?).into_owned())
    }

    /// The report's bytes, empty when none was written.
    pub fn report_bytes(&self) -> Result<Vec<u8>> {
        Ok(fs::read(&self.report)?)
    }

    /// The report: one line of JSON, of a size that a termination log keeps.
    pub fn report(&self) -> Result<Value> {
        parse_report(&self.report_bytes()?)
    }

    /// The folder the program was started in.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new("/"), TempDir::path)
    }

    /// Every process of the namespace, its init first.
    pub fn members(&self) -> Vec<Process> {
        procfs::members(self.pid)
    }

    /// The one process of the namespace that `which` picks, once there is one.
    pub fn find(&self, what: &'static str, which: impl Fn(&Process) -> bool) -> Result<Process> {
        eventually(what, || self.members().into_iter().find(|p| which(p)))
            .map_err(|error| self.explain(error))
    }

    /// The init's first child: its host.
    pub fn host(&self) -> Result<Process> {
        self.find("the host", |process| process.parent == self.pid)
    }

    /// Waits until `process` (a pid of [`Running::members`]) is in `state`.
    pub fn reaches(&self, pid: i32, state: char) -> Result<()> {
        let reached = || Process::read(pid).filter(|process| process.state == state);
        let found = eventually("a process state", reached).map(|_| ());
        found.map_err(|error| self.explain(error))
    }

    /// What a person needs to see when a test fails.
    pub fn context(&self) -> String {
        let processes: Vec<String> = self
            .members()
            .iter()
            .map(|p| format!("{} {} [{}]", p.inner, p.state, p.command))
            .collect();
        let errors = self.stderr().unwrap_or_default();
        format!("processes {processes:?}, stderr {errors:?}")
    }

    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Watchdog(what, seen) => {
                Error::Watchdog(what, format!("{seen:?}; {}", self.context()))
            }
            Error::Ended(what, seen) => Error::Ended(what, format!("{seen:?}; {}", self.context())),
            other => other,
        }
    }

    fn reap(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child, waited for once: `status` remembers it.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        self.status = Some(status);
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            // SAFETY: our own unreaped child. The init's death takes every
            // process of its namespace along, and waitpid returns after them.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}

/// Checks a report's form, parses it and holds it against its schema.
pub fn parse_report(bytes: &[u8]) -> Result<Value> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let wrong = |why: String| Error::Report(text.clone(), why);
    if bytes.len() > 4096 {
        return Err(wrong(format!("{} bytes are more than 4096", bytes.len())));
    }
    if text.matches('\n').count() != 1 || !text.ends_with('\n') {
        return Err(wrong("not one whole line".to_owned()));
    }
    let report = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    let (schemas, index) = SCHEMA.as_ref().map_err(|error| wrong(error.clone()))?;
    let valid = schemas.validate(&report, *index);
    valid.map_err(|error| wrong(error.to_string()))?;
    Ok(report)
}

static SCHEMA: LazyLock<std::result::Result<(Schemas, SchemaIndex), String>> =
    LazyLock::new(|| {
        const NAME: &str = "https://report.example/schema.json";
        let text = include_str!("../../../supervisor/report.schema.json");
        let text = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let compiled = compiler
            .add_resource(NAME, text)
            .and_then(|()| compiler.compile(NAME, &mut schemas));
        Ok((schemas, compiled.map_err(|error| error.to_string())?))
    });

/// Sends a signal to any process of the test's, by its outer pid.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: a plain system call.
    if unsafe { libc::kill(pid, signal) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(())
}

/// Asks again until `condition` gives a value: for states of /proc, of which
/// the kernel sends no event.
pub fn eventually<T>(what: &'static str, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + WATCHDOG;
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(Error::Watchdog(what, "nothing".to_owned()));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}
