//! `--attach`: this process is the owner of what it launched. It stays until
//! the host has ended, then deletes the session, and ends as the host did; its
//! Lease goes at the end of the process.

use podcradle_launcher::{Launched, Launcher, Owner};
use tokio::sync::mpsc;

use super::CALLS;
use super::exit::{self, Failed};
use super::say::say;

/// What ends the stay before the host does.
pub struct Until<'a> {
    /// Its Lease, which may be lost.
    pub owner: &'a mut Owner,
    /// One that came just as the launch was done.
    pub signal: Option<i32>,
    /// Those that are to come.
    pub signals: &'a mut mpsc::UnboundedReceiver<i32>,
}

/// Stays with a sandbox until its host has ended, a signal comes, or the Lease
/// is lost. How the host ended is said through `redact`.
pub async fn stay(
    launcher: &Launcher,
    launched: &Launched,
    until: Until<'_>,
    redact: impl Fn(&str) -> String,
) -> Result<(), Failed> {
    let Until {
        owner,
        signal,
        signals,
    } = until;
    let why = tokio::select! {
        end = launcher.ended(launched) => match end {
            Ok(end) => {
                let how = format!("{}: {}", launched.sandbox, redact(&end.how));
                let code = end.exit_code.map_or(exit::LAUNCH, code_of);
                if code == 0 {
                    say(&how);
                }
                (code != 0).then(|| Failed::new(code, how))
            }
            // What was launched is on stdout already.
            Err(error) => Some(Failed::from(error).without_data()),
        },
        Some(number) = async {
            match signal {
                Some(number) => Some(number),
                None => signals.recv().await,
            }
        } => {
            say(&format!("deleting {}; once more to quit at once", launched.sandbox));
            let code = u8::try_from(128 + number).unwrap_or(exit::UNEXPECTED);
            Some(Failed::new(code, format!("{} was deleted", launched.sandbox)))
        }
        why = owner.lost() => {
            let line = format!("the lease of this process was lost, so {} is deleted: {why}", launched.sandbox);
            Some(Failed::new(exit::LAUNCH, line))
        }
    };
    end(launcher, launched).await?;
    why.map_or(Ok(()), Err)
}

/// Deletes the session.
pub async fn end(launcher: &Launcher, launched: &Launched) -> Result<(), Failed> {
    let deleted = launcher.delete(&launched.sandbox, CALLS).await;
    deleted.map(drop).map_err(|error| {
        let line = format!("may be left behind: {error}");
        Failed::new(exit::LEFT, line)
    })
}

/// As a shell would show it.
fn code_of(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(exit::UNEXPECTED)
}
