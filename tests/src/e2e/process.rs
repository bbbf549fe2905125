//! One program under test. In: a command. Out: its output as it comes, its
//! exit code as a shell would show it, both under a watchdog. A program that
//! is dropped before it ended is killed.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::{Error, Result, Trying};

/// A program that was started.
pub struct Running {
    what: String,
    child: Child,
    // Unlike its number, this cannot come to mean another process.
    pidfd: OwnedFd,
    stdout: Stream,
    stderr: Stream,
    started: Instant,
}

/// A program that ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its command line.
    pub what: String,
    /// The exit code as a shell shows it: 128+N for a signal.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Running {
    /// Starts a program without input.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::start_with(command, Stdio::null())
    }

    /// Starts a program with this input.
    pub fn start_with(command: &mut Command, stdin: Stdio) -> Result<Self> {
        let what = shown(command);
        let started = Instant::now();
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .trying(format!("start `{what}`"))?;
        let stdout = Stream::of(child.stdout.take());
        let stderr = Stream::of(child.stderr.take());
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).trying(format!("watch `{what}`"))?;
        Ok(Running {
            what,
            child,
            pidfd,
            stdout,
            stderr,
            started,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.pidfd, signal).trying(format!("signal `{}`", self.what))
    }

    /// Waits until standard output holds this text.
    pub fn wait_for_stdout(&self, text: &str, watchdog: Duration) -> Result<String> {
        self.stdout.wait_for(text, watchdog, &self.what)
    }

    /// Waits until standard error holds this text.
    pub fn wait_for_stderr(&self, text: &str, watchdog: Duration) -> Result<String> {
        self.stderr.wait_for(text, watchdog, &self.what)
    }

    /// Waits for the end.
    pub fn wait(mut self, watchdog: Duration) -> Result<Ended> {
        let timeout = Timespec {
            tv_sec: i64::try_from(watchdog.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&timeout)).trying(format!("wait for `{}`", self.what))?;
        if ready == 0 {
            return Err(Error::Watchdog {
                what: format!("end of `{}`", self.what),
                watchdog,
                so_far: format!("{}{}", self.stdout.text(), self.stderr.text()),
            });
        }
        let status = self
            .child
            .wait()
            .trying(format!("wait for `{}`", self.what))?;
        let took = self.started.elapsed();
        Ok(Ended {
            what: self.what.clone(),
            code: code(status),
            signal: status.signal(),
            stdout: self.stdout.end(),
            stderr: self.stderr.end(),
            took,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Itself when the code is this one, else an error with all that it said.
    pub fn with_code(self, code: i32) -> Result<Self> {
        if self.code == code {
            return Ok(self);
        }
        let stderr = format!("{}{} (expected {code})", self.stderr, self.stdout);
        Err(Error::Command {
            command: self.what,
            code: self.code,
            stderr,
        })
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).map_err(|source| Error::Json {
            what: format!("output of `{}`", self.what),
            source,
            text: format!("{}{}", self.stdout, self.stderr),
        })
    }
}

/// The command line as a person would type it.
pub fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn code(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(-1)
}

/// An output stream, read by a thread as it comes.
struct Stream {
    shared: Arc<(Mutex<Collected>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

impl Stream {
    fn of(pipe: Option<impl std::io::Read + Send + 'static>) -> Self {
        let shared = Arc::new((Mutex::new(Collected::default()), Condvar::new()));
        let to = Arc::clone(&shared);
        let reader = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                loop {
                    let length = pipe.read(&mut chunk).unwrap_or(0);
                    let mut read = to.0.lock().unwrap_or_else(PoisonError::into_inner);
                    read.bytes.extend_from_slice(&chunk[..length]);
                    read.ended = length == 0;
                    to.1.notify_all();
                    if read.ended {
                        return;
                    }
                }
            })
        });
        Stream { shared, reader }
    }

    fn text(&self) -> String {
        let read = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&read.bytes).into_owned()
    }

    fn wait_for(&self, text: &str, watchdog: Duration, what: &str) -> Result<String> {
        let holds = |read: &Collected| String::from_utf8_lossy(&read.bytes).contains(text);
        let read = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, _) = self
            .shared
            .1
            .wait_timeout_while(read, watchdog, |read| !holds(read) && !read.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let so_far = String::from_utf8_lossy(&read.bytes).into_owned();
        if holds(&read) {
            return Ok(so_far);
        }
        let what = format!("{text:?} in the output of `{what}`");
        Err(Error::Watchdog {
            what,
            watchdog,
            so_far,
        })
    }

    /// All of it; the program has ended, and with it whoever could write more.
    fn end(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    fn sh(script: &str) -> Running {
        Running::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn code_signal_and_both_streams_come_back() {
        let ended = sh("echo out; echo err >&2; exit 3").wait(SOON).unwrap();
        assert_eq!((ended.code, ended.signal), (3, None));
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("out\n", "err\n")
        );
        let running = sh("echo up; exec sleep 1000");
        running.wait_for_stdout("up", SOON).unwrap();
        running.signal(Signal::TERM).unwrap();
        let ended = running.wait(SOON).unwrap();
        assert_eq!((ended.code, ended.signal), (143, Some(15)));
    }

    #[test]
    fn what_never_comes_is_named_with_what_came_instead() {
        let problem = sh("echo other").wait_for_stdout("this", SOON).unwrap_err();
        let problem = problem.to_string();
        assert!(
            problem.contains("\"this\"") && problem.contains("other"),
            "{problem}"
        );
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/git");
        command.args(["log", "--format=%H", "it's", ""]);
        assert_eq!(shown(&command), r"git log --format=%H 'it'\''s' ''");
    }
}
