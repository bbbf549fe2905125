//! `make bench`: what a launch costs, on the test cluster, beside what the
//! kubelet alone costs; and the supervisor beside tini-static. Prints one table;
//! a figure that is owed says whether it is met. Times are medians of launches
//! that take turns with plain Pods, seen by one observer.

mod cluster;
mod memory;
mod supervisor;
mod table;

use std::process::ExitCode;

use podcradle_tests::e2e::{Arch, Error};

use table::Table;

fn main() -> ExitCode {
    let mut table = Table::default();
    let filled = fill(&mut table);
    print!("{table}");
    if let Err(error) = filled {
        eprintln!("bench-launch: {error}");
        return ExitCode::FAILURE;
    }
    if table.missed() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn fill(table: &mut Table) -> Result<(), Error> {
    for arch in [Arch::Amd64, Arch::Arm64] {
        supervisor::measure(table, arch)?;
    }
    cluster::measure(table)
}

/// The middle one.
fn median<T: Copy + PartialOrd>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    sorted.get(sorted.len() / 2).copied()
}
