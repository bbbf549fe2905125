//! What is collected before a failed sandbox is deleted: its events by uid,
//! the right container's log, our report; the token is taken out of all of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;

use crate::cluster::{Cluster, Deadline, LogOptions};
use crate::manifest::Owner;
use crate::outcome::Failure;
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
    let deadline = Deadline::after(BOUND);
    let events = cluster.events(&pod.uid, deadline).await.unwrap_or_default();
    let mut failure = Failure::new(fatal.reason, token.redact(&fatal.message), fatal.hint);
    failure.events = events
        .iter()
        .map(|event| token.redact(&one_line(event)))
        .collect();
    failure.report = fatal.report;
    if let Some(container) = fatal.container {
        let options = LogOptions {
            container: container.to_owned(),
            tail: Some(LOG_LINES),
            previous: fatal.previous,
            follow: false,
        };
        let log = cluster.log_text(&pod.name, &options, deadline).await;
        failure.log = log
            .ok()
            .filter(|text| !text.trim().is_empty())
            .map(|text| token.redact(&text));
    }
    failure
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
