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
mod terminal;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podcradle_tests::harness::{Outcome, Suite, skip};
use podcradle_tests::pidns::{Arch, Subject};

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

/// Whether it took at least that long; the supervisor counts milliseconds.
pub fn lasted(since: Instant, least: Duration) -> bool {
    since.elapsed() + Duration::from_millis(2) >= least
}

fn areas() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        // The long ones first, so that they do not end up alone.
        ("reaping", reaping::cases()),
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

fn main() -> ExitCode {
    // SAFETY: asks for an identity.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("the supervisor's tests make namespaces and change users: run them as root");
        return ExitCode::from(2);
    }
    let mut suite = Suite::new().threads(8);
    for arch in [Arch::Amd64, Arch::Arm64] {
        let subject = match Subject::find(arch, Path::new(env!("CARGO_BIN_EXE_testhost"))) {
            Ok(subject) => Arc::new(subject),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        };
        for (area, cases) in areas() {
            for case in cases {
                let subject = Arc::clone(&subject);
                let name = format!("{}::{area}::{}", arch.name(), case.name);
                suite.test(name, move || case.run(&subject));
            }
        }
    }
    suite.run()
}
