//! `podcradle-init`: C's `main` without Rust's runtime before it, which would bring the
//! panic machinery and ignore SIGPIPE. All else is in the library.

#![no_main]

use core::ffi::{c_char, c_int};
use podcradle_init::sys::memory::{table_from_main, table_until_null};

/// Called by the C library with the memory the kernel set up.
#[unsafe(no_mangle)]
pub extern "C" fn main(
    argc: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: these are the tables of C's main: argc strings, a null-terminated environment,
    // both alive and untouched as long as the process.
    let (argv, envp) = unsafe { (table_from_main(argc, argv), table_until_null(envp)) };
    podcradle_init::run(argv, envp)
}
