//! Arguments and environment, read into a `Plan`.
//!
//! In: argv and envp as the kernel gave them, borrowed. Out: what to do, or one line naming
//! the flag, the value and what would be right. Nothing is done here. Under the name of a
//! peer its short flags and environment apply; our long flags are understood under each.

use crate::flags::{self, Flag, Persona};
use crate::policy::{CodeSet, MILLI, Nanos, Policy, Suspend};
use crate::signals::{self, Rewrite, SignalSet};
use crate::sys::memory::Entry;
use crate::text::{self, Text};
use core::ffi::CStr;

/// The longest `--grace` or `--drain`, in seconds: a year.
pub const MOST_SECONDS: u64 = 31_536_000;
/// How many `--env-from-file` there may be.
pub const MOST_SECRETS: usize = 16;
/// Descriptors `--keep-fd` can name.
pub const MOST_KEPT: u64 = 1023;

/// What went wrong: one line, without its newline.
pub type Complaint = Text<320>;

/// A variable of the host's environment that is read from a file.
#[derive(Clone, Copy, Debug)]
pub struct Secret<'a> {
    /// `NAME=PATH`, whole.
    pub text: &'a CStr,
    /// How many bytes of it are the name.
    pub name_length: usize,
}

impl<'a> Secret<'a> {
    /// The variable's name.
    pub fn name(&self) -> &'a [u8] {
        self.text.to_bytes().get(..self.name_length).unwrap_or(&[])
    }

    /// The file's path.
    pub fn path(&self) -> &'a CStr {
        tail(self.text, self.name_length.wrapping_add(1))
    }
}

/// Descriptors the host keeps beside 0 to 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept([u64; 16]);

impl Kept {
    fn add(&mut self, fd: u64) {
        if let Some(word) = usize::try_from(fd >> 6)
            .ok()
            .and_then(|at| self.0.get_mut(at))
        {
            *word |= 1 << (fd & 63);
        }
    }

    /// Whether `fd` is one of them.
    pub fn has(&self, fd: i32) -> bool {
        let word = usize::try_from(fd >> 6).ok().and_then(|at| self.0.get(at));
        word.is_some_and(|word| word >> (fd & 63) & 1 == 1)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode<'a> {
    /// Run a host.
    Run,
    /// Only make the directory of `--prepare`.
    PrepareOnly,
    /// Copy ourselves into this directory.
    CopyTo(&'a CStr),
    /// Hold the namespace open, reap, and end at SIGTERM or SIGINT.
    Pause,
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
    /// Print the licence.
    License,
}

/// Everything that was asked for.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// Whose name we were called by.
    pub persona: Persona,
    /// What to do.
    pub mode: Mode<'a>,
    /// Host and arguments.
    pub host: &'a [Entry<'a>],
    /// The environment given to us.
    pub env: &'a [Entry<'a>],
    /// The rules of `step`.
    pub policy: Policy,
    /// 0: errors and warnings; 1 and more: what is done, too.
    pub verbosity: u8,
    /// Warn of each orphan reaped.
    pub warn_on_reap: bool,
    /// Signals go to the host's process group.
    pub to_group: bool,
    /// The host starts a session of its own, and its group is told to stop when it ends.
    pub own_session: bool,
    /// Become a subreaper even as PID 1.
    pub subreaper: bool,
    /// What the kernel sends us when our parent dies; 0: nothing.
    pub parent_death: u8,
    /// The host gets 0 to 2 and the kept ones only.
    pub close_fds: bool,
    /// Descriptors the host keeps under `close_fds`.
    pub kept: Kept,
    /// No privileges to be gained by exec.
    pub no_new_privs: bool,
    /// The directory to make first.
    pub prepare: Option<&'a CStr>,
    /// Where the report goes, when said.
    pub termination_log: Option<&'a CStr>,
    /// Where control groups are mounted, when said.
    pub cgroup_root: Option<&'a CStr>,
    /// Variables from files.
    pub secrets: [Option<Secret<'a>>; MOST_SECRETS],
}

/// `text` without its first `count` bytes.
pub fn tail(text: &CStr, count: usize) -> &CStr {
    let rest = text.to_bytes_with_nul().get(count..);
    rest.and_then(|rest| CStr::from_bytes_with_nul(rest).ok())
        .unwrap_or(c"")
}

/// Starts a complaint.
pub fn complain(parts: &[&[u8]]) -> Complaint {
    let mut line = Complaint::new();
    for part in parts {
        line.push(part);
    }
    line
}

/// The value of the environment variable `name`.
pub fn variable<'a>(env: &[Entry<'a>], name: &[u8]) -> Option<&'a CStr> {
    env.iter().filter_map(|entry| entry.get()).find_map(|text| {
        text::after(text::after(text.to_bytes(), name)?, b"=")?;
        Some(tail(text, name.len().wrapping_add(1)))
    })
}

impl<'a> Plan<'a> {
    /// The plan when nothing was said.
    pub fn new(persona: Persona, env: &'a [Entry<'a>], pid1: bool) -> Plan<'a> {
        Plan {
            persona,
            mode: Mode::Run,
            host: &[],
            env,
            policy: Policy {
                grace: None,
                drain: 0,
                restart: None,
                no_restart: CodeSet::default(),
                success: CodeSet::default(),
                stop: SignalSet::STOP_REQUESTS,
                rewrite: Rewrite::none(),
                pid1,
                suspend: match persona {
                    _ if pid1 => Suspend::Never,
                    Persona::Podcradle => Suspend::WithHost,
                    Persona::DumbInit => Suspend::OnSignal,
                    Persona::Tini | Persona::Catatonit => Suspend::Never,
                },
            },
            verbosity: 0,
            warn_on_reap: false,
            to_group: persona == Persona::DumbInit,
            own_session: persona == Persona::DumbInit,
            subreaper: false,
            parent_death: 0,
            close_fds: false,
            kept: Kept::default(),
            no_new_privs: false,
            prepare: None,
            termination_log: None,
            cgroup_root: None,
            secrets: [None; MOST_SECRETS],
        }
    }

    /// Reads the arguments behind argv[0].
    ///
    /// When the rest is refused, what was read so far stands: it says where the report goes.
    pub fn parse(&mut self, argv: &'a [Entry<'a>]) -> Result<(), Complaint> {
        self.environment()?;
        let mut rest = argv.get(1..).unwrap_or(&[]);
        while let Some((text, more)) = next(rest) {
            let bytes = text.to_bytes();
            if bytes == b"--" {
                rest = more;
                break;
            }
            if bytes == b"-" || !bytes.starts_with(b"-") {
                break;
            }
            rest = more;
            if let Some(long) = text::after(bytes, b"--") {
                self.long(text, long, &mut rest)?;
            } else {
                self.cluster(text, &mut rest)?;
            }
        }
        self.host = rest;
        self.settle()
    }

    fn environment(&mut self) -> Result<(), Complaint> {
        match self.persona {
            Persona::DumbInit => {
                let is = |name: &[u8], value: &[u8]| {
                    variable(self.env, name).is_some_and(|text| text.to_bytes() == value)
                };
                let (one_child, debug) =
                    (is(b"DUMB_INIT_SETSID", b"0"), is(b"DUMB_INIT_DEBUG", b"1"));
                if one_child {
                    self.single_child();
                }
                self.verbosity = u8::from(debug);
            }
            Persona::Podcradle | Persona::Tini => {
                self.subreaper = variable(self.env, b"TINI_SUBREAPER").is_some();
                self.to_group = variable(self.env, b"TINI_KILL_PROCESS_GROUP").is_some();
                if let Some(level) = variable(self.env, b"TINI_VERBOSITY") {
                    let level = level.to_bytes();
                    // tini's own default is 1, warnings: our 0.
                    let parsed = text::number(level, 99).ok_or_else(|| {
                        complain(&[b"TINI_VERBOSITY=", level, b": not a number from 0 to 99"])
                    })?;
                    self.verbosity = u8::try_from(parsed).unwrap_or(u8::MAX).saturating_sub(1);
                }
            }
            Persona::Catatonit => {}
        }
        Ok(())
    }

    fn single_child(&mut self) {
        self.to_group = false;
        self.own_session = false;
    }

    fn long(
        &mut self,
        whole: &'a CStr,
        name: &'a [u8],
        rest: &mut &'a [Entry<'a>],
    ) -> Result<(), Complaint> {
        let (name, inline) = match text::split(name, b'=') {
            Some((name, _)) => (name, Some(tail(whole, name.len().wrapping_add(3)))),
            None => (name, None),
        };
        let flag = flags::long(name, self.persona).ok_or_else(|| unknown_long(name))?;
        if !flag.takes_value() {
            if inline.is_some() {
                return Err(complain(&[
                    b"--",
                    name,
                    b" takes no value: ",
                    whole.to_bytes(),
                ]));
            }
            return self.apply(flag, whole, c"");
        }
        let value = match inline {
            Some(value) => value,
            None => take(rest).ok_or_else(|| complain(&[b"--", name, b" needs ", flag.wants()]))?,
        };
        self.apply(flag, whole, value)
    }

    fn cluster(&mut self, whole: &'a CStr, rest: &mut &'a [Entry<'a>]) -> Result<(), Complaint> {
        let mut at = 1_usize;
        while let Some(letter) = whole.to_bytes().get(at) {
            at = at.wrapping_add(1);
            let flag = flags::short(*letter, self.persona).ok_or_else(|| {
                complain(&[
                    b"unknown flag -",
                    &[*letter],
                    b" in ",
                    whole.to_bytes(),
                    b": see --help",
                ])
            })?;
            if flag.takes_value() {
                let inline = tail(whole, at);
                let value = if inline.is_empty() {
                    take(rest)
                        .ok_or_else(|| complain(&[b"-", &[*letter], b" needs ", flag.wants()]))?
                } else {
                    inline
                };
                return self.apply(flag, whole, value);
            }
            self.apply(flag, whole, c"")?;
        }
        Ok(())
    }

    fn apply(&mut self, flag: Flag, given: &'a CStr, value: &'a CStr) -> Result<(), Complaint> {
        let refuse = || {
            let given = given.to_bytes();
            let shown = text::split(given, b'=').map_or(given, |(name, _)| name);
            complain(&[shown, b": ", value.to_bytes(), b" is not ", flag.wants()])
        };
        let signal = || signals::parse(value.to_bytes()).ok_or_else(refuse);
        let code = || {
            let code = text::number(value.to_bytes(), 255).and_then(|code| u8::try_from(code).ok());
            code.ok_or_else(refuse)
        };
        match flag {
            Flag::Subreaper => self.subreaper = true,
            Flag::ParentDeath => self.parent_death = signal()?,
            Flag::Verbose => self.verbosity = self.verbosity.saturating_add(1),
            Flag::WarnOnReap => self.warn_on_reap = true,
            Flag::Group => self.to_group = true,
            Flag::Success => self.policy.success.add(code()?),
            Flag::SingleChild => self.single_child(),
            Flag::Pause => self.mode = Mode::Pause,
            Flag::Help => self.mode = Mode::Help,
            Flag::Version => self.mode = Mode::Version,
            Flag::License => self.mode = Mode::License,
            Flag::Grace => self.policy.grace = Some(seconds(value.to_bytes()).ok_or_else(refuse)?),
            Flag::Drain => self.policy.drain = seconds(value.to_bytes()).ok_or_else(refuse)?,
            Flag::Rewrite => {
                let (from, to) = rewrite(value.to_bytes()).ok_or_else(refuse)?;
                self.policy.rewrite.set(from, to);
                // What is turned into a stop signal asks for a stop, as `is_stop` sees.
            }
            Flag::StopSignal => self.policy.stop = self.policy.stop.with(signal()?),
            Flag::NoStopSignal => self.policy.stop = self.policy.stop.without(signal()?),
            Flag::Restart => {
                self.policy.restart = Some(restart(value.to_bytes()).ok_or_else(refuse)?);
            }
            Flag::NoRestart => self.policy.no_restart.add(code()?),
            Flag::CloseFds => self.close_fds = true,
            Flag::KeepFd => self
                .kept
                .add(text::number(value.to_bytes(), MOST_KEPT).ok_or_else(refuse)?),
            Flag::NoNewPrivs => self.no_new_privs = true,
            Flag::Prepare => self.prepare = Some(not_empty(value).ok_or_else(refuse)?),
            Flag::CopyTo => self.mode = Mode::CopyTo(not_empty(value).ok_or_else(refuse)?),
            Flag::TerminationLog => self.termination_log = Some(value),
            Flag::CgroupRoot => self.cgroup_root = Some(not_empty(value).ok_or_else(refuse)?),
            Flag::EnvFromFile => {
                let secret = secret(value).ok_or_else(refuse)?;
                let same = |slot: &&mut Option<Secret<'_>>| {
                    slot.is_none_or(|known| known.name() == secret.name())
                };
                let slot = self.secrets.iter_mut().find(same);
                *slot.ok_or_else(|| complain(&[b"--env-from-file: more than 16 of them"]))? =
                    Some(secret);
            }
        }
        Ok(())
    }

    /// What only the whole of the arguments tells.
    fn settle(&mut self) -> Result<(), Complaint> {
        let has_host = !self.host.is_empty();
        match self.mode {
            Mode::Run if !has_host && self.prepare.is_some() => self.mode = Mode::PrepareOnly,
            Mode::Run if !has_host => {
                return Err(complain(&[
                    b"no HOST given: podcradle-init [OPTIONS] [--] HOST [ARG...]",
                ]));
            }
            Mode::CopyTo(_) if has_host => {
                return Err(complain(&[b"--copy-to takes no HOST: ", first(self.host)]));
            }
            Mode::CopyTo(_) if self.prepare.is_some() => {
                return Err(complain(&[
                    b"--copy-to makes its own directory: --prepare cannot go with it",
                ]));
            }
            // catatonit drops it without a word.
            Mode::Pause if has_host && self.persona == Persona::Podcradle => {
                return Err(complain(&[b"--pause takes no HOST: ", first(self.host)]));
            }
            _ => {}
        }
        if self.kept != Kept::default() && !self.close_fds {
            return Err(complain(&[
                b"--keep-fd needs --close-fds: without it HOST keeps every descriptor",
            ]));
        }
        if self.policy.no_restart != CodeSet::default() && self.policy.restart.is_none() {
            return Err(complain(&[
                b"--no-restart needs --restart on-failure[:MAX]: without it nothing is restarted",
            ]));
        }
        if self.own_session {
            // Of an orphaned group the kernel discards these; SIGSTOP always works.
            for signal in [20, 21, 22] {
                if self.policy.rewrite.of(signal) == signal {
                    self.policy.rewrite.set(signal, signals::STOP);
                }
            }
        }
        Ok(())
    }
}

/// The first of a table, as text.
pub fn first<'a>(table: &[Entry<'a>]) -> &'a [u8] {
    next(table).map_or(&[], |(text, _)| text.to_bytes())
}

fn next<'a, 't>(table: &'t [Entry<'a>]) -> Option<(&'a CStr, &'t [Entry<'a>])> {
    let (entry, rest) = table.split_first()?;
    Some((entry.get()?, rest))
}

fn take<'a>(rest: &mut &'a [Entry<'a>]) -> Option<&'a CStr> {
    let (text, more) = next(rest)?;
    *rest = more;
    Some(text)
}

fn unknown_long(name: &[u8]) -> Complaint {
    match flags::nearest(name) {
        Some(near) => complain(&[b"unknown flag --", name, b": did you mean --", near, b"?"]),
        None => complain(&[b"unknown flag --", name, b": see --help"]),
    }
}

fn not_empty(value: &CStr) -> Option<&CStr> {
    (!value.is_empty()).then_some(value)
}

/// Seconds, with up to three decimals.
fn seconds(value: &[u8]) -> Option<Nanos> {
    let (whole, decimals) = text::split(value, b'.').unwrap_or((value, b"0"));
    let whole = text::number(whole, MOST_SECONDS)?;
    let digits = text::number(decimals, 999)?;
    let milliseconds = match decimals.len() {
        1 => digits.wrapping_mul(100),
        2 => digits.wrapping_mul(10),
        3 => digits,
        _ => return None,
    };
    let milliseconds = whole.wrapping_mul(1_000).wrapping_add(milliseconds);
    Some(milliseconds.wrapping_mul(MILLI))
}

fn rewrite(value: &[u8]) -> Option<(u8, u8)> {
    let (from, to) = text::split(value, b':')?;
    let from = signals::parse(from)?;
    let to = if to == b"0" { 0 } else { signals::parse(to)? };
    (from != signals::CHLD).then_some((from, to))
}

fn restart(value: &[u8]) -> Option<u32> {
    match text::after(value, b"on-failure")? {
        b"" => Some(u32::MAX),
        rest => {
            let most = text::number(text::after(rest, b":")?, u64::from(u32::MAX) - 1)?;
            u32::try_from(most).ok()
        }
    }
}

fn secret(value: &CStr) -> Option<Secret<'_>> {
    let (name, path) = text::split(value.to_bytes(), b'=')?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let starts_well = name.first().is_some_and(|byte| !byte.is_ascii_digit());
    let good = starts_well && name.iter().all(plain) && !path.is_empty();
    good.then_some(Secret {
        text: value,
        name_length: name.len(),
    })
}
