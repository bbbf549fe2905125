//! What the server orders: commands to run, orphans to leave. Each order is
//! carried out on a thread of its own, so that a slow command never holds up
//! a heartbeat; what came of it goes back with a later heartbeat.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::orphans::Orphans;

/// Most of each output stream that is sent back; the rest is read and dropped,
/// so that the command does not block on a full pipe.
const OUTPUT_LIMIT: usize = 64 << 10;

/// One order, named by the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub id: String,
    #[serde(flatten)]
    pub what: What,
}

/// The kinds of orders.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// Run a program, found in PATH, with these arguments; no shell.
    Run(Vec<String>),
    /// Leave orphans behind.
    Orphans {
        count: u32,
        #[serde(default, rename = "lifetimeMs")]
        lifetime_ms: u64,
    },
}

/// What came of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

impl Order {
    /// Carries the order out, however long that takes.
    pub fn carry_out(self, token_variable: &str) -> Done {
        let done = match self.what {
            What::Run(argv) => run(&argv, token_variable),
            What::Orphans { count, lifetime_ms } => {
                let lifetime = Duration::from_millis(lifetime_ms);
                match (Orphans { count, lifetime }).make(token_variable) {
                    Ok(()) => Done {
                        exit_code: Some(0),
                        ..Done::default()
                    },
                    Err(error) => failed(&error),
                }
            }
        };
        Done {
            id: self.id,
            ..done
        }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Run(argv) => write!(out, "run {argv:?}"),
            What::Orphans { count, lifetime_ms } => {
                write!(out, "leave {count} orphans for {lifetime_ms} ms")
            }
        }
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.exit_code, self.signal, &self.error) {
            (_, _, Some(error)) => write!(out, "failed: {error}"),
            (_, Some(signal), _) => write!(out, "killed by signal {signal}"),
            (Some(code), _, _) => write!(out, "exit code {code}"),
            _ => write!(out, "ended"),
        }
    }
}

fn failed(error: &dyn std::error::Error) -> Done {
    let text = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Done {
        error: Some(text),
        ..Done::default()
    }
}

fn run(argv: &[String], token_variable: &str) -> Done {
    let Some((program, arguments)) = argv.split_first() else {
        return Done {
            error: Some("no program to run".to_owned()),
            ..Done::default()
        };
    };
    let child = Command::new(program)
        .args(arguments)
        .env_remove(token_variable)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return failed(&error),
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || head_of(err));
    let stdout = head_of(out);
    let stderr = errors.join().unwrap_or_default();
    match child.wait() {
        Ok(status) => Done {
            stdout,
            stderr,
            ..ended(status)
        },
        Err(error) => failed(&error),
    }
}

fn ended(status: ExitStatus) -> Done {
    Done {
        exit_code: status.code(),
        signal: status.signal(),
        ..Done::default()
    }
}

fn head_of(stream: Option<impl Read>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    // An error ends the stream as an end of file does: the status tells the rest.
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        let room = OUTPUT_LIMIT - head.len();
        head.extend_from_slice(&chunk[..length.min(room)]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Done {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        Order {
            id: "o".to_owned(),
            what: What::Run(argv),
        }
        .carry_out("PATH_TO_NOTHING")
    }

    #[test]
    fn both_kinds_are_read_from_json() {
        let text = r#"[{"id":"a","run":["true"]},{"id":"b","orphans":{"count":3,"lifetimeMs":5}}]"#;
        let orders: Vec<Order> = serde_json::from_str(text).unwrap();
        assert_eq!(orders[0].what.to_string(), r#"run ["true"]"#);
        assert_eq!(orders[1].what.to_string(), "leave 3 orphans for 5 ms");
    }

    #[test]
    fn code_signal_and_output_come_back() {
        let done = sh("echo out; echo err >&2; exit 3");
        assert_eq!((done.exit_code, done.signal), (Some(3), None));
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("out\n", "err\n")
        );
        let done = sh("kill -9 $$");
        assert_eq!((done.exit_code, done.signal), (None, Some(9)));
    }

    #[test]
    fn a_flood_of_output_is_cut_and_does_not_block() {
        let done = sh("head -c 1000000 /dev/zero; exit 4");
        assert_eq!((done.exit_code, done.stdout.len()), (Some(4), OUTPUT_LIMIT));
    }

    #[test]
    fn a_missing_program_is_an_error_not_an_exit_code() {
        let what = What::Run(vec!["/nowhere/at/all".to_owned()]);
        let done = Order {
            id: "x".to_owned(),
            what,
        }
        .carry_out("T");
        assert_eq!((done.id.as_str(), done.exit_code), ("x", None));
        assert!(done.error.is_some());
    }
}
