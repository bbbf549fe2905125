//! `podcradle`: arguments in, results on stdout, everything else on stderr.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
