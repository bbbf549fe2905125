//! What is collected before a failed sandbox is deleted: its events by uid,
//! the right container's log, our report; the token is taken out of all of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;

use crate::cluster::{Cluster, Deadline, LogOptions};
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
    // What is not granted is left out.
    let deadline = Deadline::after(BOUND).unless_unreachable();
    let events = cluster.events(&pod.uid, deadline).await.unwrap_or_default();
    let mut failure = Failure::new(fatal.reason, &fatal.message, fatal.hint);
    if fatal.reason == Reason::Platform
        && let Some(of) = architecture(cluster, &pod.name, deadline).await
    {
        failure.message = format!("{}: {of}", failure.message);
    }
    failure.events = events
        .iter()
        .map(|event| token.redact(&one_line(event)))
        .collect();
    failure.report = fatal.report.map(|report| report.redacted(token));
    if let Some(container) = fatal.container {
        let log = log_of(cluster, &pod.name, container, fatal.previous, deadline).await;
        if fatal.reason == Reason::InitFailed
            && let Some(cause) = log.as_deref().and_then(last_words)
            && !failure.message.contains(cause)
        {
            failure.message = format!("{}: {cause}", failure.message);
        }
        failure.log = log.map(|text| token.redact(&text));
    }
    failure.message = token.redact(&failure.message);
    failure
}

/// The tail of a container's log: of the instance before, when that is asked
/// for and there was one.
async fn log_of(
    cluster: &Cluster,
    pod: &str,
    container: &str,
    previous: bool,
    deadline: Deadline,
) -> Option<String> {
    let mut options = LogOptions {
        container: container.to_owned(),
        tail: Some(LOG_LINES),
        previous,
        follow: false,
    };
    loop {
        let log = cluster.log_text(pod, &options, deadline).await;
        let log = log.ok().filter(|text| !text.trim().is_empty());
        if log.is_some() || !options.previous {
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
async fn architecture(cluster: &Cluster, pod: &str, deadline: Deadline) -> Option<String> {
    let pod = cluster.pod(pod, deadline).await.ok()??;
    let node = pod.spec?.node_name?;
    let architecture = cluster.node_architecture(&node, deadline).await?;
    Some(format!("node {node} is {architecture}"))
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
