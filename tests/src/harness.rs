//! The frame every suite of this crate runs in.
//!
//! In: named test functions that return [`Outcome`]. Out: what libtest prints
//! and its exit codes, plus one line for each test that was skipped, with the
//! reason, so that a green run says what it did not look at.
//!
//! A test fails by returning an error (`?` works on anything that can be
//! displayed) or by a failed assertion, and skips itself with `Err(skip(…))`.

use std::fmt::Display;
use std::panic::Location;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};

/// Why a test did not run to its end.
#[derive(Debug)]
pub enum Stop {
    /// It found a fault; the text says which, and where in the test.
    Failed(String),
    /// It cannot run here; the text says why.
    Skipped(String),
}

/// What a test returns.
pub type Outcome = Result<(), Stop>;

// `Stop` must not be `Display` itself, or this would overlap with `From<T> for T`.
impl<E: Display> From<E> for Stop {
    #[track_caller]
    fn from(error: E) -> Self {
        let at = Location::caller();
        Self::Failed(format!("{error} ({}:{})", at.file(), at.line()))
    }
}

/// Ends a test that this machine cannot run; `reason` is printed with its name.
pub fn skip(reason: impl Display) -> Stop {
    Stop::Skipped(reason.to_string())
}

/// Fails the test with the formatted text unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::harness::Stop::from(format!($($text)+)));
        }
    };
}

type Skipped = Arc<Mutex<Vec<(String, String)>>>;

/// A set of tests under collection.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    alone: Vec<Trial>,
    skipped: Skipped,
    threads: Option<usize>,
}

impl Suite {
    /// An empty suite.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many tests run at a time when `--test-threads` does not say: for
    /// suites that wait more than they compute.
    #[must_use]
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Some(count);
        self
    }

    /// Adds a test.
    pub fn test<F>(&mut self, name: impl Into<String>, body: F)
    where
        F: FnOnce() -> Outcome + Send + 'static,
    {
        let trial = self.trial(name.into(), body);
        self.trials.push(trial);
    }

    /// Adds a test that others would not survive: it runs after all of them.
    pub fn alone<F>(&mut self, name: impl Into<String>, body: F)
    where
        F: FnOnce() -> Outcome + Send + 'static,
    {
        let trial = self.trial(name.into(), body);
        self.alone.push(trial);
    }

    fn trial<F>(&self, name: String, body: F) -> Trial
    where
        F: FnOnce() -> Outcome + Send + 'static,
    {
        let skipped = Arc::clone(&self.skipped);
        let label = name.clone();
        Trial::ignorable_test(name, move || match body() {
            Ok(()) => Ok(Completion::Completed),
            Err(Stop::Failed(text)) => Err(Failed::from(text)),
            Err(Stop::Skipped(reason)) => {
                let mut list = skipped.lock().unwrap_or_else(PoisonError::into_inner);
                list.push((label, reason.clone()));
                Ok(Completion::ignored_with(reason))
            }
        })
    }

    /// Runs what the command line selects and prints the skipped tests last.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        if arguments.test_threads.is_none() {
            arguments.test_threads = self.threads;
        }
        let mut conclusion: Conclusion = libtest_mimic::run(&arguments, self.trials);
        if !self.alone.is_empty() {
            arguments.test_threads = Some(1);
            let alone = libtest_mimic::run(&arguments, self.alone);
            conclusion.num_failed += alone.num_failed;
        }
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.sort();
        for (name, reason) in skipped.iter() {
            println!("skipped: {name}: {reason}");
        }
        conclusion.exit_code()
    }
}
