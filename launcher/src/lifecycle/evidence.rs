//! What is collected before a failed sandbox is deleted: its events by uid,
//! the right container's log, our report; the token is taken out of all of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;

use crate::cluster::{Cluster, Deadline, Error, LogOptions};
use crate::manifest::Owner;
use crate::outcome::{Failure, Reason};
use crate::token::Token;
use crate::watch::Fatal;

/// Collecting must not hold up the clean-up.
const BOUND: Duration = Duration::from_secs(5);
const LOG_LINES: i64 = 20;

/// A failure with all that can be found out about it.
pub(super) async fn collect(
    cluster: &Cluster,
    pod: &Owner,
    fatal: Fatal,
    token: &Token,
) -> Failure {
    let deadline = Deadline::after(BOUND).unless_unreachable();
    let mut unread = Vec::new();
    let mut failure = Failure::new(fatal.reason, &fatal.message, fatal.hint);
    if fatal.reason == Reason::Platform {
        let of = architecture(cluster, &pod.name, deadline).await;
        if let Some(of) = read(of, &mut unread).flatten() {
            failure.message = format!("{}: {of}", failure.message);
        }
    }
    let events = cluster.events(&pod.uid, deadline).await;
    failure.events = read(events, &mut unread)
        .unwrap_or_default()
        .iter()
        .map(|event| token.redact(&one_line(event)))
        .collect();
    failure.report = fatal.report.map(|report| report.redacted(token));
    if let Some(container) = fatal.container {
        let log = log_of(cluster, &pod.name, container, fatal.previous, deadline).await;
        let log = read(log, &mut unread).flatten();
        if fatal.reason == Reason::InitFailed
            && let Some(cause) = log.as_deref().and_then(last_words)
            && !failure.message.contains(cause)
        {
            failure.message = format!("{}: {cause}", failure.message);
        }
        failure.log = log.map(|text| token.redact(&text));
    }
    failure.message = token.redact(&failure.message);
    failure.unread = unread;
    failure
}

/// What was read. What may be there and could not be read is noted; that there
/// is no log yet is no such thing.
fn read<T>(found: Result<T, Error>, unread: &mut Vec<String>) -> Option<T> {
    found
        .map_err(|error| {
            if error.is_transient() {
                unread.push(error.to_string());
            }
        })
        .ok()
}

/// The tail of a container's log: of the instance before, when that is asked
/// for and there was one.
async fn log_of(
    cluster: &Cluster,
    pod: &str,
    container: &str,
    previous: bool,
    deadline: Deadline,
) -> Result<Option<String>, Error> {
    let mut options = LogOptions {
        container: container.to_owned(),
        tail: Some(LOG_LINES),
        previous,
        follow: false,
    };
    loop {
        let log = cluster.log_text(pod, &options, deadline).await;
        let log = log.map(|text| Some(text).filter(|text| !text.trim().is_empty()));
        if matches!(log, Ok(Some(_))) || !options.previous {
            return log;
        }
        options.previous = false;
    }
}

/// What git gave up with, or else the last line.
fn last_words(log: &str) -> Option<&str> {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .clone()
        .rfind(|line| line.starts_with("fatal: "))
        .or_else(|| lines.next_back())
}

/// The architecture of the Pod's node, for whoever may read nodes.
async fn architecture(
    cluster: &Cluster,
    pod: &str,
    deadline: Deadline,
) -> Result<Option<String>, Error> {
    let pod = cluster.pod(pod, deadline).await?;
    let Some(node) = pod.and_then(|pod| pod.spec?.node_name) else {
        return Ok(None);
    };
    let architecture = cluster.node_architecture(&node, deadline).await?;
    Ok(architecture.map(|of| format!("node {node} is {of}")))
}

fn one_line(event: &Event) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{} {}: {}",
        part(&event.type_),
        part(&event.reason),
        part(&event.message).trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gits_own_reason_counts_before_the_last_line() {
        let log = "Cloning into 'x'...\nfatal: repository 'u' not found\nbye\n";
        assert_eq!(last_words(log), Some("fatal: repository 'u' not found"));
        assert_eq!(last_words("one\ntwo\n\n"), Some("two"));
        assert_eq!(last_words("\n"), None);
    }
}
