//! `host`, the reference host of a sandbox: the small program that shows what
//! a real one does. It dials its server back with its token, keeps a
//! heartbeat, carries out what the server orders, and leaves when told to.
//!
//! In: flags, `<PREFIX>_*` environment. Out: one line on stdout per thing that
//! happened, and an exit code (`exit.rs`). The token never reaches a line, an
//! argument, or the environment of a command.

mod args;
mod client;
mod exit;
mod orders;
mod orphans;
mod session;
mod surroundings;
mod token;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let flags = match args::Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            // Help and version are no errors, but come the same way.
            let _ = error.print();
            return if error.use_stderr() {
                exit::Exit::Usage
            } else {
                exit::Exit::Done
            }
            .into();
        }
    };
    if let Some(orphans) = flags.leave_orphans() {
        return orphans::leave(&orphans).into();
    }
    match args::Plan::resolve(flags, |name| std::env::var(name).ok()) {
        Ok(plan) => session::run(plan).into(),
        Err(problem) => {
            eprintln!("host: {problem}");
            exit::Exit::Usage.into()
        }
    }
}
