//! The test bed itself.

use std::process::ExitCode;

use podcradle_tests::harness::Suite;

fn main() -> ExitCode {
    Suite::new().run()
}
