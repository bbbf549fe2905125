//! `podcradle-init`: C's `main` without Rust's runtime before it, which would bring the
//! panic machinery and ignore SIGPIPE. All else is in the library.

#![no_main]

use core::ffi::{c_char, c_int};
use podcradle_init::sys::memory::{table_from_main, table_until_null};

/// What the C library calls.
///
/// # Safety
/// The arguments must be those of C's `main`: `count` strings and a table of the environment
/// that a null ends, both alive and untouched as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(
    count: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise is the one these ask for.
    let (arguments, environment) = unsafe {
        (
            table_from_main(count, arguments),
            table_until_null(environment),
        )
    };
    podcradle_init::run(arguments, environment)
}
