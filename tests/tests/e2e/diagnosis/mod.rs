//! Why a launch fails, row by row of the README's table: each cause is made
//! real, and the launch has to name it, what to do about it, and leave nothing.
//!
//! `PODCRADLE_RECORD_FIXTURES=1` writes what the API server showed in each row
//! to `launcher/fixtures`, which the launcher's unit tests replay.

mod containers;
mod images;
mod lost;
mod refusals;
mod rights;
mod running;
mod support;
mod waiting;

use crate::Test;

/// Every row.
pub fn tests() -> Vec<(&'static str, Test)> {
    [
        containers::TESTS,
        images::TESTS,
        lost::TESTS,
        refusals::TESTS,
        rights::TESTS,
        running::TESTS,
        waiting::TESTS,
    ]
    .concat()
}
