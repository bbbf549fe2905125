//! Running other programs. Out: their output, or an error that names the
//! command and what it said.

use std::process::{Command, Output, Stdio};

use thiserror::Error;

/// Why a program did not do what it was called for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    #[error("{program} cannot be started{hint}")]
    Start {
        program: String,
        hint: &'static str,
        source: std::io::Error,
    },
    #[error("{command} failed ({status}){said}")]
    Failed {
        command: String,
        status: std::process::ExitStatus,
        said: String,
    },
}

/// Runs to the end, its output going where ours goes.
pub fn run(command: &mut Command) -> Result<(), ProcessError> {
    let status = command
        .status()
        .map_err(|source| start_error(command, source))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(command, status))
}

/// Runs to the end and takes what it writes to stdout.
pub fn output(command: &mut Command) -> Result<String, ProcessError> {
    let done = captured(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The same, but what it writes to stderr is shown as it comes: for what takes
/// long enough to be watched.
pub fn output_watched(command: &mut Command) -> Result<String, ProcessError> {
    let started = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output();
    let done = started.map_err(|source| start_error(command, source))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(failed(command, done.status))
}

/// Runs to the end without showing its output, unless it fails.
pub fn quietly(command: &mut Command) -> Result<(), ProcessError> {
    captured(command.stdout(Stdio::piped()).stderr(Stdio::piped())).map(drop)
}

fn captured(command: &mut Command) -> Result<Output, ProcessError> {
    let done = command
        .output()
        .map_err(|source| start_error(command, source))?;
    if done.status.success() {
        return Ok(done);
    }
    let text = [&done.stdout[..], &done.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let tail: Vec<&str> = text.lines().rev().take(20).collect();
    let said = tail
        .iter()
        .rev()
        .fold(String::new(), |said, line| format!("{said}\n  {line}"));
    Err(ProcessError::Failed {
        command: describe(command),
        status: done.status,
        said,
    })
}

/// A failure of which everybody has seen the reason.
fn failed(command: &Command, status: std::process::ExitStatus) -> ProcessError {
    let said = String::new();
    ProcessError::Failed {
        command: describe(command),
        status,
        said,
    }
}

fn start_error(command: &Command, source: std::io::Error) -> ProcessError {
    let program = command.get_program().to_string_lossy().into_owned();
    let hint = match program.as_str() {
        "debootstrap" => " (apt-get install debootstrap)",
        "docker" => " (set PODCRADLE_BUILDX to the buildx command to use)",
        _ => "",
    };
    ProcessError::Start {
        program,
        hint,
        source,
    }
}

/// The program and its first two arguments: enough to know which call it was.
fn describe(command: &Command) -> String {
    let arguments = command
        .get_args()
        .take(2)
        .map(|text| text.to_string_lossy());
    arguments.fold(
        command.get_program().to_string_lossy().into_owned(),
        |line, word| format!("{line} {word}"),
    )
}
