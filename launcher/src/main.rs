//! `podcradle`: arguments in, results on stdout, everything else on stderr.

// They panic where nobody reads any more; `say` and `output` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod cli;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
