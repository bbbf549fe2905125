//! `podcradle-init`, the PID 1 of a sandbox, as a library for its binary, tests and fuzzers.
//!
//! ```text
//! argv, envp ─ args ─→ Plan ─ supervise ─→ exit code, report
//!              flags          │  ↑ Event
//!                    Action   ↓  │
//!                             step (pure)
//! ```
//! What needs a large buffer is `inline(never)`: the stack of PID 1 stays at three pages.
//! One thread, no heap, no path to a panic; `sys` alone is unsafe.

#![deny(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "an error is one line for a person and ends the program; there is no heap to box it in"
)]

pub mod args;
mod deliver;
mod descriptors;
mod environment;
mod errors;
pub mod flags;
mod foreground;
mod log;
mod oom;
pub mod policy;
mod proc;
pub mod reap;
pub mod report;
mod search;
mod shutdown;
pub mod signals;
mod spawn;
pub mod step;
mod supervise;
#[allow(
    unsafe_code,
    reason = "the one place for it: a wrapper per system call"
)]
pub mod sys;
pub mod text;

use args::{Complaint, Mode, Plan};
use flags::Persona;
use nix::errno::Errno;
use report::Report;
use signals::SignalSet;
use spawn::Given;
use step::State;
use sys::memory::{Entry, ExecNote};

/// The whole program. `argv` and `envp` are those of C's `main`.
pub fn run(argv: &'static [Entry<'static>], envp: &'static [Entry<'static>]) -> ! {
    // First of all: from here on no signal is lost.
    let mask = sys::set_mask(SignalSet::ALL.bits()).unwrap_or(0);
    let began = sys::monotonic_nanos();
    let sigchld_ignored = sys::default_sigchld().unwrap_or(false);
    let given = Given {
        mask,
        sigchld_ignored,
    };
    let persona = Persona::of(text::base_name(args::first(argv)));
    let mut plan = Plan::new(persona, envp, sys::getpid() == 1);
    let done = plan.parse(argv).and_then(|()| before_the_host(&plan));
    if let Err(complaint) = done {
        refuse(&plan, &complaint, began);
    }
    match plan.mode {
        Mode::Run => {}
        Mode::Pause => supervise::pause(),
        _ => sys::exit(0),
    }
    match ExecNote::new() {
        Ok(note) => supervise::Supervisor::new(&plan, given, note, began).run(),
        Err(errno) => {
            let complaint = args::complain(&[b"no memory to start with: ", errors::text(errno)]);
            refuse(&plan, &complaint, began)
        }
    }
}

/// An end without a host: one line, a report, our own code.
#[inline(never)]
fn refuse(plan: &Plan<'_>, complaint: &Complaint, began: u64) -> ! {
    log::line(complaint.as_bytes());
    let code = plan.persona.own_error();
    let report = Report {
        exit_code: code,
        state: &State::new(),
        message: complaint.as_bytes(),
        oom_kills: None,
        uptime_ms: sys::monotonic_nanos().saturating_sub(began) / policy::MILLI,
        host: args::first(plan.host),
    };
    supervise::write_report(&report, plan);
    sys::exit(code)
}

/// What the plan asks for beside a host, in the order in which it may fail.
#[inline(never)]
fn before_the_host(plan: &Plan<'_>) -> Result<(), Complaint> {
    match plan.mode {
        Mode::Help => sys::file::print(flags::USAGE),
        Mode::License => sys::file::print(flags::LICENSE),
        Mode::Version => sys::file::print(version(plan.persona)),
        Mode::CopyTo(directory) => deliver::copy_to(directory)?,
        Mode::Pause => harden(plan)?,
        Mode::Run | Mode::PrepareOnly => {
            harden(plan)?;
            if let Some(directory) = plan.prepare {
                deliver::prepare(b"--prepare", directory)?;
            }
        }
    }
    Ok(())
}

fn version(persona: Persona) -> &'static [u8] {
    match persona {
        Persona::Podcradle => {
            concat!("podcradle-init ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()
        }
        // `docker info` and podman look for these words.
        Persona::Tini | Persona::Catatonit => {
            concat!("tini version ", env!("CARGO_PKG_VERSION"), "_podcradle\n").as_bytes()
        }
        Persona::DumbInit => {
            concat!("dumb-init v", env!("CARGO_PKG_VERSION"), "_podcradle\n").as_bytes()
        }
    }
}

#[inline(never)]
fn harden(plan: &Plan<'_>) -> Result<(), Complaint> {
    let refused = |flag: &[u8], errno: Errno| args::complain(&[flag, b": ", errors::text(errno)]);
    if plan.persona == Persona::Podcradle {
        // The peers stay readable to their user, whose habits may rest on it.
        let _ = sys::not_dumpable();
    }
    if plan.no_new_privs {
        sys::no_new_privileges().map_err(|errno| refused(b"--no-new-privs", errno))?;
    }
    if plan.parent_death != 0 {
        let parent = sys::getppid();
        let signal = i32::from(plan.parent_death);
        sys::parent_death_signal(signal).map_err(|errno| refused(b"-p", errno))?;
        if sys::getppid() != parent {
            // It died just before it could be watched.
            let _ = sys::kill(sys::getpid(), signal);
        }
    }
    if !plan.policy.pid1 || plan.subreaper {
        // Some kernels and emulators have none; the host runs all the same.
        if let Err(errno) = sys::become_subreaper()
            && plan.verbosity > 0
        {
            log::line(refused(b"no subreaper here", errno).as_bytes());
        }
    }
    Ok(())
}
