//! The launcher against exact faults, one after the other: whatever is lost,
//! late or refused, a launch ends well or leaves nothing behind.

mod again;
mod ambiguous;
mod attached;
mod cancel;
mod expiry;
mod gone;
mod log;
mod many;
mod owner;
mod program;
mod progress;
mod reach;
mod say;
mod secret;
mod shared;
mod silent;
mod support;
mod token;
mod told;
mod weather;

use std::process::ExitCode;

use podcradle_tests::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    again::add(&mut suite);
    ambiguous::add(&mut suite);
    attached::add(&mut suite);
    cancel::add(&mut suite);
    expiry::add(&mut suite);
    gone::add(&mut suite);
    many::add(&mut suite);
    owner::add(&mut suite);
    program::add(&mut suite);
    progress::add(&mut suite);
    reach::add(&mut suite);
    say::add(&mut suite);
    secret::add(&mut suite);
    shared::add(&mut suite);
    silent::add(&mut suite);
    token::add(&mut suite);
    told::add(&mut suite);
    weather::add(&mut suite);
    suite.run()
}
