//! The supervisor as a black box: the real binary as PID 1 of a real pid
//! namespace, for amd64 and arm64, natively or under QEMU user emulation.
//!
//! One file an area; a test's name says the behaviour. The hosts are shell
//! scripts and `testhost`, always of the machine's own architecture, since it
//! is the supervisor that is tested. Nothing here asserts an upper time.
//! `PODCRADLE_INIT_AMD64` and `PODCRADLE_INIT_ARM64` name other builds.
#![allow(clippy::unwrap_used, missing_docs)]

mod arguments;
mod binary;
mod delivery;
mod descriptors;
mod drain;
mod exit;
mod filters;
mod grace;
mod host_state;
mod oom;
mod peers;
mod reaping;
mod report;
mod restart;
mod signals;
mod syscalls;
mod terminal;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podcradle_tests::harness::{Outcome, Suite, skip};
use podcradle_tests::pidns::{Arch, Filter, Result, Subject};

/// One test, for every architecture.
pub struct Case {
    name: &'static str,
    body: fn(&Subject) -> Outcome,
    /// Why emulation cannot show it.
    not_emulated: Option<&'static str>,
}

/// The cases of an area: `name` or `name: "what QEMU lacks for it"`.
#[macro_export]
macro_rules! cases {
    ($($name:ident $(: $reason:literal)?),* $(,)?) => {
        pub fn cases() -> Vec<$crate::Case> {
            vec![$($crate::Case::new(stringify!($name), $name)$(.not_emulated($reason))?),*]
        }
    };
}

impl Case {
    pub fn new(name: &'static str, body: fn(&Subject) -> Outcome) -> Self {
        Self {
            name,
            body,
            not_emulated: None,
        }
    }

    #[must_use]
    pub fn not_emulated(mut self, reason: &'static str) -> Self {
        self.not_emulated = Some(reason);
        self
    }

    fn run(&self, subject: &Subject) -> Outcome {
        match self.not_emulated {
            Some(reason) if subject.emulated() => Err(skip(reason)),
            _ => (self.body)(subject),
        }
    }
}

/// Whether it took at least that long.
pub fn lasted(since: Instant, least: Duration) -> bool {
    since.elapsed() >= least
}

fn areas() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        // The long ones first, so that they do not end up alone.
        ("reaping", reaping::cases()),
        ("syscalls", syscalls::cases()),
        ("signals", signals::cases()),
        ("exit", exit::cases()),
        ("restart", restart::cases()),
        ("grace", grace::cases()),
        ("drain", drain::cases()),
        ("terminal", terminal::cases()),
        ("host_state", host_state::cases()),
        ("descriptors", descriptors::cases()),
        ("filters", filters::cases()),
        ("report", report::cases()),
        ("oom", oom::cases()),
        ("arguments", arguments::cases()),
        ("binary", binary::cases()),
        ("delivery", delivery::cases()),
        ("peers", peers::cases()),
    ]
}

/// All areas once more, as containers live whose seccomp profile is from 2017: what came
/// after it is refused, by the one errno or the other. Natively, since under QEMU the
/// profile would be around the emulator.
fn profiles() -> Vec<(Arch, String, Filter)> {
    let native = |arch: &Arch| arch.machine() == std::env::consts::ARCH;
    let Some(arch) = [Arch::Amd64, Arch::Arm64].into_iter().find(native) else {
        return Vec::new();
    };
    let errnos = [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS)];
    errnos
        .map(|(name, errno)| {
            let world = format!("{}-2017-{name}", arch.name());
            (arch, world, Filter::of_2017(errno))
        })
        .into()
}

fn main() -> ExitCode {
    // SAFETY: asks for an identity.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("the supervisor's tests make namespaces and change users: run them as root");
        return ExitCode::from(2);
    }
    let subjects = match subjects() {
        Ok(subjects) => subjects,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut suite = Suite::new().threads(12);
    for (world, subject) in subjects {
        let subject = Arc::new(subject);
        // What brings filters of its own, or looks at the file, would only be repeated.
        let wanted = |area: &str| {
            subject.profile.is_none() || !["filters", "syscalls", "binary"].contains(&area)
        };
        for (area, cases) in areas().into_iter().filter(|(area, _)| wanted(area)) {
            for case in cases {
                let subject = Arc::clone(&subject);
                let name = format!("{world}::{area}::{}", case.name);
                suite.test(name, move || case.run(&subject));
            }
        }
    }
    suite.run()
}

/// Every build in every world it is tested in, by the world's name.
fn subjects() -> Result<Vec<(String, Subject)>> {
    let host = Path::new(env!("CARGO_BIN_EXE_testhost"));
    let mut all = Vec::new();
    for arch in [Arch::Amd64, Arch::Arm64] {
        all.push((arch.name().to_owned(), Subject::find(arch, host)?));
    }
    for (arch, name, profile) in profiles() {
        all.push((name, Subject::find(arch, host)?.under(profile)));
    }
    Ok(all)
}
