//! `bench-supervisor [--quick]`: the supervisor beside its peers, in one table.
//!
//! Every contender takes its turn in every round, so that what disturbs the
//! machine disturbs all of them; the figures are medians over the rounds, and
//! what was promised is flagged as met or missed. Root, for the namespaces.
#![allow(missing_docs)]

mod measure;
mod orphans;
mod subjects;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use podcradle_tests::pidns::{Setup, Subject};

use measure::Memory;
use subjects::Contender;
use table::{Bare, Figures, Table};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often what is measured.
struct Effort {
    starts: usize,
    signal_rounds: usize,
    signals: usize,
    bursts: usize,
    sizes: [usize; 2],
}

const FULL: Effort = Effort {
    starts: 200,
    signal_rounds: 9,
    signals: 300,
    bursts: 3,
    sizes: [20_000, 100_000],
};

const QUICK: Effort = Effort {
    starts: 30,
    signal_rounds: 3,
    signals: 100,
    bursts: 1,
    sizes: [2_000, 10_000],
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => bench(&FULL),
        ["--quick"] => bench(&QUICK),
        ["--make-orphans", count] => orphans::make(count.parse().unwrap_or(0)).map_err(Into::into),
        _ => Err("usage: bench-supervisor [--quick]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(effort: &Effort) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let contenders = subjects::all(folder.path())?;
    let stamp = subjects::stamp(folder.path())?;
    let mut figures: Vec<Figures> = contenders.iter().map(Figures::new).collect();
    let mut bare = Bare::default();

    warn_of_load();
    take_precedence();
    eprintln!("starts: {} rounds", effort.starts);
    for _ in 0..effort.starts {
        let words: Vec<OsString> = vec![stamp.clone().into()];
        let alone = || Setup::program(stamp.clone(), words.clone()).no_report_flag();
        bare.life.push(measure::life(alone())?);
        bare.start.push(measure::first_instruction(alone())?);
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            figures.life.push(measure::life(contender.run(&words))?);
            figures
                .start
                .push(measure::first_instruction(contender.run(&words))?);
        }
    }
    eprintln!(
        "signals: {} rounds of {}",
        effort.signal_rounds, effort.signals
    );
    for _ in 0..effort.signal_rounds {
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            let all = measure::latencies(contender, &stamp, effort.signals)?;
            figures.latency.push(all);
        }
    }
    for (index, size) in effort.sizes.into_iter().enumerate() {
        eprintln!("orphans: {} rounds of {size}", effort.bursts);
        for _ in 0..effort.bursts {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                let burst = measure::burst(contender, size)?;
                figures.bursts[index].push(burst);
            }
        }
    }
    for (contender, figures) in contenders.iter().zip(&mut figures) {
        figures.memory = measure::memory(contender)?;
    }
    let foreign = Subject::locate(subjects::foreign())?;
    let foreign = (subjects::foreign(), std::fs::metadata(foreign)?.len());
    print!("{}", Table::new(&figures, &bare, effort.sizes, foreign));
    Ok(())
}

/// Takes precedence over the neighbours; what is started inherits it.
fn take_precedence() {
    // SAFETY: a plain system call on this process. Best effort: without it the
    // figures are the same, with more noise.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// The tail of a latency and a backlog are the first to suffer from neighbours.
fn warn_of_load() {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|one| one.parse().ok());
    let load: f64 = first.unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a count of processors")]
    if load > 0.5 * cpus as f64 {
        eprintln!("the machine is busy (load {load} on {cpus} processors): expect noise");
    }
}

impl Figures {
    fn new(contender: &Contender) -> Self {
        let size = contender
            .file
            .as_ref()
            .and_then(|file| std::fs::metadata(file).ok());
        Self {
            name: contender.name,
            size: size.map(|size| size.len()),
            linked: contender.linked(),
            memory: Memory::default(),
            life: Vec::new(),
            start: Vec::new(),
            latency: Vec::new(),
            bursts: [Vec::new(), Vec::new()],
        }
    }
}
