//! How the program under test is to be started.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::spawn::{self, Mount, Plan};
use super::{Filter, Pty, Result, Running, Stream, Subject};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Null,
    Pipe,
    Closed,
}

/// A start in the making. Unless told otherwise: PID 1 of its namespace, its
/// own /proc, standard input from /dev/null, output in a pipe, errors in a
/// file, default dispositions, an empty mask, and a report file.
#[derive(Debug)]
#[must_use]
pub struct Setup {
    file: PathBuf,
    argv: Vec<OsString>,
    args: Vec<OsString>,
    env: Vec<OsString>,
    report_flag: bool,
    input: Input,
    terminal: Option<Pty>,
    extra: Vec<(OwnedFd, RawFd)>,
    folder: Option<TempDir>,
    plan: Plan,
}

impl Setup {
    /// The binary under test, called by its own name.
    pub fn new(subject: &Subject) -> Self {
        let (file, argv) = subject.called(OsStr::new("podcradle-init"));
        Self::program(file, argv).profile(subject)
    }

    /// The binary under test called by a peer's name; no report flag is passed.
    pub fn called(subject: &Subject, name: &str) -> Self {
        let (file, argv) = subject.called(OsStr::new(name));
        Self::program(file, argv).profile(subject).no_report_flag()
    }

    /// Any other program as the namespace's init: a shell that starts the
    /// binary under test, for what it does when it is not PID 1.
    pub fn program(file: PathBuf, argv: Vec<OsString>) -> Self {
        let path =
            OsString::from("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Self {
            file,
            argv,
            args: Vec::new(),
            env: vec![path],
            report_flag: true,
            input: Input::Null,
            terminal: None,
            extra: Vec::new(),
            folder: None,
            plan: Plan {
                mounts: vec![Mount::Proc],
                ..Plan::default()
            },
        }
    }

    /// `sh -c SCRIPT` as the init, with the words that start the binary under
    /// test as `$@` and the report's path as `$REPORT`.
    pub fn shell(subject: &Subject, script: &str) -> Self {
        let argv = ["sh", "-c", script, "sh"].map(OsString::from);
        let argv = argv.into_iter().chain(subject.words()).collect();
        Self::program("/bin/sh".into(), argv)
            .profile(subject)
            .no_report_flag()
    }

    /// Under the subject's seccomp profile, if it has one.
    pub fn profile(mut self, subject: &Subject) -> Self {
        self.plan.filter = subject.profile.as_ref().map(Filter::finish);
        self
    }

    /// More arguments.
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more argument.
    pub fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// `NAME=VALUE` in the environment, which otherwise holds PATH alone.
    pub fn env(mut self, entry: impl AsRef<OsStr>) -> Self {
        let entry = entry.as_ref();
        let name = |entry: &OsStr| {
            entry
                .as_bytes()
                .split(|b| *b == b'=')
                .next()
                .map(<[u8]>::to_vec)
        };
        self.env.retain(|old| name(old) != name(entry));
        self.env.push(entry.to_owned());
        self
    }

    /// Do not pass `--termination-log`.
    pub fn no_report_flag(mut self) -> Self {
        self.report_flag = false;
        self
    }

    /// Standard input is a pipe the test writes to.
    pub fn piped_input(mut self) -> Self {
        self.input = Input::Pipe;
        self
    }

    /// Descriptors 0, 1 and 2 are shut.
    pub fn closed_stdio(mut self) -> Self {
        self.input = Input::Closed;
        self.plan.close.extend([0, 1, 2]);
        self
    }

    /// Descriptor 0 is shut.
    pub fn closed_input(mut self) -> Self {
        self.input = Input::Closed;
        self.plan.close.push(0);
        self
    }

    /// In a new session with this terminal, on descriptors 0 to 2.
    pub fn terminal(mut self, pty: Pty) -> Self {
        self.terminal = Some(pty);
        self.plan.session = Some(true);
        self
    }

    /// On a terminal that is not the session's own.
    pub fn foreign_terminal(mut self, pty: Pty) -> Self {
        self.terminal = Some(pty);
        self.plan.session = Some(false);
        self
    }

    /// Passes `fd` on as descriptor `number`.
    pub fn descriptor(mut self, fd: OwnedFd, number: RawFd) -> Self {
        self.extra.push((fd, number));
        self
    }

    /// Signals the starter ignores.
    pub fn ignoring(mut self, signals: &[i32]) -> Self {
        self.plan.ignored.extend(signals);
        self
    }

    /// Signals the starter has blocked.
    pub fn blocking(mut self, signals: &[i32]) -> Self {
        self.plan.blocked.extend(signals);
        self
    }

    /// Signals that are blocked and pending when the program starts.
    pub fn pending(mut self, signals: &[i32]) -> Self {
        self.plan.pending.extend(signals);
        self.blocking(signals)
    }

    /// System calls that are refused from the exec on.
    pub fn filter(mut self, filter: &Filter) -> Self {
        self.plan.filter = Some(filter.finish());
        self
    }

    /// A resource limit, soft and hard.
    pub fn limit(mut self, resource: libc::__rlimit_resource_t, value: u64) -> Self {
        self.plan.limits.push((resource, value));
        self
    }

    /// As this user and group.
    pub fn user(mut self, id: u32) -> Self {
        self.plan.uid = Some(id);
        self
    }

    /// Without the right to signal other users' processes.
    pub fn without_cap_kill(mut self) -> Self {
        self.plan.without_cap_kill = true;
        self
    }

    /// Hides /proc behind an empty folder.
    pub fn no_proc(mut self) -> Self {
        self.plan.mounts = vec![Mount::Empty(c"/proc".into())];
        self
    }

    /// Leaves /proc as the test sees it, which saves time where nobody looks.
    pub fn shared_proc(mut self) -> Self {
        self.plan.mounts.clear();
        self
    }

    /// Mounts `from` over `to`.
    pub fn bind(mut self, from: &Path, to: &Path) -> Self {
        self.plan.mounts.push(Mount::Bind(c_path(from), c_path(to)));
        self
    }

    /// Mounts an empty file system that holds `bytes` bytes at `at`.
    pub fn small_disk(mut self, at: &Path, bytes: u32) -> Self {
        let size = c_word(OsStr::new(&format!("size={bytes}")));
        self.plan.mounts.push(Mount::Disk(c_path(at), size));
        self
    }

    /// Nothing on the root file system can be written.
    pub fn read_only_root(mut self) -> Self {
        self.plan.mounts.push(Mount::ReadOnlyRoot);
        self
    }

    /// `folder` becomes the root.
    pub fn root(mut self, folder: &Path) -> Self {
        self.plan.root = Some(c_path(folder));
        self
    }

    /// Starts inside the control group that this `tasks` or `cgroup.procs` file is of.
    pub fn cgroup(mut self, file: OwnedFd) -> Self {
        self.plan.cgroups.push(file);
        self
    }

    /// The folder of this start, removed when it is over: working directory,
    /// report and error output live in it.
    pub fn folder(&mut self) -> Result<&Path> {
        if self.folder.is_none() {
            let folder = tempfile::Builder::new()
                .prefix("podcradle-run-")
                .tempdir()?;
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
            self.folder = Some(folder);
        }
        Ok(self.folder.as_ref().map_or(Path::new("/"), TempDir::path))
    }

    /// Starts it; returns once the exec has happened.
    pub fn start(mut self) -> Result<Running> {
        let folder = self.folder()?.to_owned();
        let report = folder.join("termination-log");
        let errors = folder.join("stderr");
        for file in [&report, &errors] {
            if !file.exists() {
                fs::write(file, "")?;
                fs::set_permissions(file, fs::Permissions::from_mode(0o666))?;
            }
        }
        let (input, output) = self.wire(&errors)?;
        self.fill(&folder, &report);
        let (pid, launched) = spawn::spawn(&self.plan)?;
        let fixed = self.folder.take();
        let terminal = self.terminal.take();
        // Every descriptor that was passed on is closed here, on the drop of
        // `self`, so that the program's copies are the only ones.
        let mut run = Running::new(pid, input, output, errors, report, terminal, fixed)?;
        run.launched = launched;
        Ok(run)
    }

    fn wire(&mut self, errors: &Path) -> Result<(Option<OwnedFd>, Stream)> {
        let (reader, writer) = spawn::pipe()?;
        if let Some(pty) = &self.terminal {
            for number in 0..3 {
                self.plan.descriptors.push((pty.slave.as_raw_fd(), number));
            }
            self.plan
                .descriptors
                .extend(self.extra.iter().map(|(fd, n)| (fd.as_raw_fd(), *n)));
            return Ok((None, Stream::new(reader)));
        }
        let mut input = None;
        let mut pass = vec![(writer, 1)];
        match self.input {
            Input::Null => {
                let null = OpenOptions::new().read(true).open("/dev/null")?;
                pass.push((null.into(), 0));
            }
            Input::Pipe => {
                let (far, near) = spawn::pipe()?;
                input = Some(near);
                pass.push((far, 0));
            }
            Input::Closed => {}
        }
        let errors = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(errors)?;
        pass.push((errors.into(), 2));
        // Later entries win, so a test may replace a standard descriptor.
        pass.append(&mut self.extra);
        self.extra = pass;
        self.plan
            .descriptors
            .extend(self.extra.iter().map(|(fd, n)| (fd.as_raw_fd(), *n)));
        Ok((input, Stream::new(reader)))
    }

    fn fill(&mut self, folder: &Path, report: &Path) {
        let mut argv = std::mem::take(&mut self.argv);
        if self.report_flag {
            argv.extend(["--termination-log".into(), report.into()]);
        }
        argv.append(&mut self.args);
        let mut named = OsString::from("REPORT=");
        named.push(report);
        if !self.report_flag {
            self.env.push(named);
        }
        self.plan.file = c_path(&self.file);
        self.plan.argv = argv.iter().map(|word| c_word(word)).collect();
        self.plan.env = self.env.iter().map(|word| c_word(word)).collect();
        if self.plan.root.is_none() {
            self.plan.directory = c_path(folder);
        } else {
            self.plan.directory = c"/".into();
        }
    }
}

fn c_path(path: &Path) -> CString {
    c_word(path.as_os_str())
}

/// Cuts at a NUL, which no argument can hold.
fn c_word(word: &OsStr) -> CString {
    let bytes: Vec<u8> = word
        .as_bytes()
        .iter()
        .copied()
        .take_while(|b| *b != 0)
        .collect();
    CString::new(bytes).unwrap_or_default()
}
