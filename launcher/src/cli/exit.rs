//! Exit codes, stable, as the README's table lists them.

use std::process::ExitCode;

use podcradle_launcher::cluster::Error;
use podcradle_launcher::outcome::{Failure, Reason};
use serde_json::json;

use super::args::Output;
use super::{output, say};

/// Something that was not foreseen.
pub const UNEXPECTED: u8 = 1;
/// Bad input: a flag, a name, a file, the kubeconfig.
pub const INPUT: u8 = 2;
/// The API server cannot be reached or refuses the credentials.
pub const UNREACHABLE: u8 = 3;
/// RBAC or a policy of the cluster does not allow it.
pub const FORBIDDEN: u8 = 4;
/// The object does not exist, or its name is taken.
pub const NAME: u8 = 5;
/// The launch failed.
pub const LAUNCH: u8 = 6;
/// A budget or `--timeout` ran out.
pub const TIMEOUT: u8 = 7;
/// Something may be left behind; it is named.
pub const LEFT: u8 = 8;
/// Some of many sandboxes were not launched.
pub const SOME: u8 = 9;

/// Why the program ends without success.
#[derive(Debug)]
pub struct Failed {
    code: u8,
    lines: Vec<String>,
    /// For programs, unless they have had it.
    failure: Option<Box<Failure>>,
}

impl Failed {
    pub fn new(code: u8, line: impl Into<String>) -> Self {
        Self {
            code,
            lines: vec![line.into()],
            failure: None,
        }
    }

    pub fn unexpected(line: impl Into<String>) -> Self {
        Self::new(UNEXPECTED, line)
    }

    /// Bad input, one line a problem.
    pub fn input(text: impl Into<String>) -> Self {
        let text = text.into();
        let lines = text.lines().map(str::to_owned).collect();
        let hint = "change what the message names; nothing was created";
        Self {
            code: INPUT,
            lines,
            failure: Some(Box::new(Failure::new(Reason::Invalid, text, hint))),
        }
    }

    /// As a launch that fails like this, of which nothing was told yet.
    pub fn of(failure: Failure) -> Self {
        let line = format!("{} ({})", failure.message, failure.hint);
        let failed = Self::new(of_failure(&failure, None), line);
        Self {
            failure: Some(Box::new(failure)),
            ..failed
        }
    }

    /// This, which came first, and what came after it.
    pub fn and(mut self, later: Self) -> Self {
        self.lines.extend(later.lines);
        self
    }

    /// The end of launches whose failures were told one by one: programs have
    /// had all of it then.
    pub fn told(code: u8, line: String) -> Self {
        let mut told = Self::new(code, line);
        if say::is_json() {
            told.lines.clear();
        }
        told
    }

    /// Stdout has its result.
    pub fn without_data(mut self) -> Self {
        self.failure = None;
        self
    }

    /// Says on stdout too why nothing was launched, when data was asked for.
    pub fn with_data(self, format: Output) -> Self {
        if let Some(failure) = &self.failure
            && matches!(format, Output::Json | Output::Yaml)
            && let Err(failed) = output::data(format, &json!({ "error": failure }))
        {
            return failed;
        }
        self
    }

    /// Says why on stderr.
    pub fn report(self) -> ExitCode {
        for line in self.lines {
            say::error(&line);
        }
        ExitCode::from(self.code)
    }
}

/// The exit code of a failed launch; `signal` when one interrupted it.
pub fn of_failure(failure: &Failure, signal: Option<i32>) -> u8 {
    if !failure.left.is_empty() {
        return LEFT;
    }
    match failure.reason {
        Reason::Cancelled => signal
            .and_then(|s| u8::try_from(128 + s).ok())
            .unwrap_or(UNEXPECTED),
        Reason::NameTaken
        | Reason::AlreadyLaunched
        | Reason::TakenOver
        | Reason::Session
        | Reason::Namespace => NAME,
        Reason::Policy | Reason::Quota | Reason::Denied | Reason::AdmissionChanged => FORBIDDEN,
        Reason::Unauthorized | Reason::Unreachable => UNREACHABLE,
        Reason::Invalid => INPUT,
        Reason::Unschedulable | Reason::TimedOut => TIMEOUT,
        _ => LAUNCH,
    }
}

/// The exit code of many launches: theirs when they all ended alike.
pub fn of_many(codes: &[u8], signal: Option<i32>) -> u8 {
    let failed = || codes.iter().copied().filter(|code| *code != 0);
    let first = failed().next().unwrap_or(0);
    let interrupted = signal.and_then(|s| u8::try_from(128 + s).ok());
    if failed().any(|code| code == LEFT) {
        LEFT
    } else if let Some(code) = interrupted.filter(|code| failed().any(|other| other == *code)) {
        code
    } else if codes.iter().all(|code| *code == first) || first == 0 {
        first
    } else {
        SOME
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unreachable { .. }
            | Error::Untrusted { .. }
            | Error::Unauthorized { .. }
            | Error::Busy { .. }
            | Error::Unreadable { .. } => UNREACHABLE,
            Error::TimedOut { .. } | Error::StillThere { .. } => TIMEOUT,
            Error::Denied { .. }
            | Error::Policy { .. }
            | Error::Webhook { .. }
            | Error::Quota { .. } => FORBIDDEN,
            Error::NotFound { .. } | Error::Exists { .. } | Error::Namespace { .. } => NAME,
            Error::Invalid { .. } | Error::Missing { .. } => INPUT,
            _ => UNEXPECTED,
        };
        Self {
            failure: Some(Box::new(Failure::from_error(&error))),
            ..Self::new(code, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_launches_end_as_each_does_when_all_do_alike() {
        for (codes, signal, code) in [
            (&[0, 0][..], None, 0),
            (&[6, 6], None, LAUNCH),
            (&[0, 6], None, SOME),
            (&[6, 7], None, SOME),
            (&[0, LEFT, 6], Some(2), LEFT),
            (&[0, 6, 130], Some(2), 130),
            (&[0, 0], Some(2), 0),
        ] {
            assert_eq!(of_many(codes, signal), code, "{codes:?}");
        }
    }
}
