//! What is collected before a failed sandbox is deleted: its events by uid,
//! the right container's log, our report; the token is taken out of all of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};

use crate::cluster::{Cluster, Deadline, Error, LogOptions, times};
use crate::manifest::Owner;
use crate::outcome::{Failure, Reason};
use crate::token::TokenSource;
use crate::watch::{Fatal, Instance, Stage};

/// Collecting must not hold up the clean-up.
const BOUND: Duration = Duration::from_secs(5);
const LOG_LINES: i64 = 20;

/// A failure with all that can be found out about it.
pub(super) async fn collect(
    cluster: &Cluster,
    pod: &Owner,
    fatal: Fatal,
    (token, secret): (&TokenSource, &str),
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
    let events = read(events, &mut unread);
    if let Some(late) = fatal.late.filter(|late| late.stage == Stage::Pull)
        && let Some(said) = events.as_deref().and_then(volume_trouble)
    {
        let (message, hint) = late.of_a_volume(said, secret);
        (failure.message, failure.hint) = (message, hint.to_owned());
    }
    failure.events = told(events, token);
    failure.report = fatal.report.map(|report| match token.known() {
        Some(token) => report.redacted(token),
        None => report,
    });
    if let Some(container) = fatal.container {
        let log = log_of(cluster, pod, container, fatal.instance.as_ref(), deadline);
        let log = read(log.await, &mut unread).flatten();
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

/// A failure that is not the Pod's own, with the events of the Pod, which
/// outlive it.
pub(super) async fn events(
    cluster: &Cluster,
    pod: &Owner,
    mut failure: Failure,
    token: &TokenSource,
) -> Failure {
    // Nobody answers, so nobody is asked.
    if !matches!(failure.reason, Reason::Unreachable | Reason::Unauthorized) {
        let deadline = Deadline::after(BOUND).unless_unreachable();
        let events = cluster.events(&pod.uid, deadline).await;
        failure.events = told(read(events, &mut failure.unread), token);
    }
    failure
}

fn told(events: Option<Vec<Event>>, token: &TokenSource) -> Vec<String> {
    let events = events.unwrap_or_default();
    let lines = events.iter().map(one_line);
    lines.map(|line| token.redact(&line)).collect()
}

/// What the kubelet says of a volume, when that is the last it complained of.
/// It pulls images once all volumes are there.
fn volume_trouble(events: &[Event]) -> Option<&str> {
    let tells = |event: &&Event| {
        event.type_.as_deref() == Some("Warning") || event.reason.as_deref() == Some("Pulling")
    };
    let last = events.iter().rfind(tells)?;
    let reason = last.reason.as_deref()?;
    let of_volume = ["FailedMount", "FailedAttachVolume"].contains(&reason);
    last.message.as_deref().map(str::trim).filter(|_| of_volume)
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

/// The tail of a container's log: that of `instance`, where there are several.
async fn log_of(
    cluster: &Cluster,
    pod: &Owner,
    container: &str,
    instance: Option<&Instance>,
    deadline: Deadline,
) -> Result<Option<String>, Error> {
    let now = match instance {
        Some(_) => cluster.pod(&pod.name, deadline).await.ok().flatten(),
        None => None,
    };
    let status = now.as_ref().and_then(|now| status_of(now, container));
    let mut log = Ok(None);
    for &previous in logs(instance, status) {
        let options = LogOptions {
            container: container.to_owned(),
            tail: Some(LOG_LINES),
            previous,
            follow: false,
        };
        let read = cluster.log_text(&pod.name, &options, deadline).await;
        log = match (read, log) {
            (Ok(text), _) => Ok(Some(text)),
            (Err(_), Ok(Some(current))) => Ok(Some(current)),
            (Err(error), _) => Err(error),
        };
        if previous && log.is_ok() {
            break;
        }
    }
    log.map(|text| text.filter(|text| !text.trim().is_empty()))
}

/// Where the log of `instance` is, to be read in this order: in that of the
/// instance before the current one (true), which counts as soon as there is
/// one, or in the current one's.
fn logs(instance: Option<&Instance>, status: Option<&ContainerStatus>) -> &'static [bool] {
    let Some(instance) = instance else {
        return &[false];
    };
    let before = status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
    match before {
        Some(before) if before.container_id.as_ref() == Some(&instance.id) => &[true],
        Some(_) => &[false],
        // It was the first, and the next one may begin at any time: the current
        // one's is it while there is none before that.
        None => &[true, false, true],
    }
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let inits = status
        .init_container_statuses
        .as_ref()
        .into_iter()
        .flatten();
    let mut all = inits.chain(status.container_statuses.as_ref().into_iter().flatten());
    all.find(|status| status.name == container)
}

/// What git gave up with, or else the last line. That it has no ssh it says one
/// line before, and gives up with less.
fn last_words(log: &str) -> Option<&str> {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .clone()
        .rfind(|line| line.contains("cannot run ssh"))
        .or_else(|| lines.clone().rfind(|line| line.starts_with("fatal: ")))
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
    let often = match times(event) {
        1 => String::new(),
        times => format!(" ({times} times)"),
    };
    format!(
        "{} {}{often}: {}",
        part(&event.type_),
        part(&event.reason),
        part(&event.message).trim()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;
    use crate::cluster::fake;

    #[test]
    fn gits_own_reason_counts_before_the_last_line() {
        let log = "Cloning into 'x'...\nfatal: repository 'u' not found\nbye\n";
        assert_eq!(last_words(log), Some("fatal: repository 'u' not found"));
        assert_eq!(last_words("one\ntwo\n\n"), Some("two"));
        assert_eq!(last_words("\n"), None);
        let no_ssh = "error: cannot run ssh: No such file or directory";
        let log = format!("Cloning into 'x'...\n{no_ssh}\nfatal: unable to fork\n");
        assert_eq!(last_words(&log), Some(no_ssh));
    }

    #[tokio::test]
    async fn a_volume_that_was_not_there_is_told_in_the_kubelets_words() {
        let event = |kind: &str, reason: &str, second: u32, message: &str| {
            serde_json::json!({
                "metadata": { "name": reason, "namespace": "ns" }, "involvedObject": {},
                "type": kind, "reason": reason, "message": message,
                "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            })
        };
        let missing = "MountVolume.SetUp failed: secret \"a-g1-token\" not found";
        let mount = event("Warning", "FailedMount", 2, missing);
        let claim = event("Warning", "FailedAttachVolume", 2, "no such disk");
        let placed = event("Normal", "Scheduled", 1, "to a node");
        let pulled = event("Normal", "Pulling", 3, "an image");
        let refused = event("Warning", "Failed", 4, "no such image");
        let pod = Owner {
            name: "a".to_owned(),
            uid: "u".to_owned(),
        };
        let token = TokenSource::from(crate::token::Token::random());
        for (items, message, hint) in [
            (vec![&placed, &mount], missing, "deleted the token's Secret"),
            (vec![&placed, &claim], "no such disk", "--mount"),
            (vec![&mount, &pulled], "as it was", "the registry"),
            (vec![&mount, &refused], "as it was", "the registry"),
            (vec![&pulled], "as it was", "the registry"),
        ] {
            let list = serde_json::json!({
                "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items,
            });
            let cluster =
                Cluster::of(move |_| std::future::ready(crate::cluster::fake::object(&list)));
            let late = Fatal::stage_took_too_long(Stage::Pull, Duration::from_mins(5), "as it was");
            let failure = collect(&cluster, &pod, late, (&token, "a-g1-token")).await;
            assert!(
                failure.message.contains("pull budget of 300s"),
                "{failure:?}"
            );
            assert!(failure.message.contains(message), "{failure:?}");
            assert!(failure.hint.contains(hint), "{failure:?}");
        }
    }

    fn status(last: &serde_json::Value) -> ContainerStatus {
        let status = serde_json::json!({
            "name": "host", "image": "i:1", "imageID": "", "ready": false, "restartCount": 0, "lastState": last,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_log_is_that_of_the_instance_that_is_spoken_of() {
        let second = Instance {
            number: 2,
            id: "containerd://2".to_owned(),
        };
        let ended = |id| serde_json::json!({ "terminated": { "exitCode": 1, "containerID": id } });
        let first_before = status(&ended("containerd://1"));
        let itself_before = status(&ended("containerd://2"));
        let none_before = status(&serde_json::json!({}));
        for (of, now, where_) in [
            (None, Some(&first_before), &[false][..]),
            (Some(&second), Some(&first_before), &[false]),
            (Some(&second), Some(&itself_before), &[true]),
            (Some(&second), Some(&none_before), &[true, false, true]),
            (Some(&second), None, &[true, false, true]),
        ] {
            assert_eq!(logs(of, now), where_, "{of:?} {now:?}");
        }
    }

    /// The kubelet says that there is one before the current one only once it
    /// was asked for the current one's log, or never.
    #[tokio::test]
    async fn an_instance_that_begins_meanwhile_lends_no_log() {
        for (began, right) in [(true, "of the first"), (false, "of the current")] {
            let asked = Arc::new(AtomicBool::new(false));
            let cluster = Cluster::of(move |request| {
                let uri = request.uri().to_string();
                let answer = if !uri.contains("/log") {
                    fake::object(&json!({ "metadata": { "name": "a" } }))
                } else if !uri.contains("previous=true") {
                    asked.store(began, Ordering::SeqCst);
                    fake::object(&json!("of the current"))
                } else if asked.load(Ordering::SeqCst) {
                    fake::object(&json!("of the first"))
                } else {
                    let mut none = fake::object(&json!({
                        "kind": "Status", "code": 400, "reason": "BadRequest",
                        "message": "previous terminated container not found",
                    }));
                    *none.status_mut() = http::StatusCode::BAD_REQUEST;
                    none
                };
                std::future::ready(answer)
            });
            let instance = Instance {
                number: 1,
                id: "containerd://1".to_owned(),
            };
            let pod = Owner {
                name: "a".to_owned(),
                uid: "u".to_owned(),
            };
            let deadline = Deadline::after(BOUND);
            let log = log_of(&cluster, &pod, "host", Some(&instance), deadline).await;
            let log = log.unwrap().unwrap();
            assert!(log.contains(right), "{log}");
        }
    }

    #[test]
    fn an_event_says_how_often_it_happened() {
        let event = |count: i32| Event {
            type_: Some("Normal".to_owned()),
            reason: Some("Pulling".to_owned()),
            message: Some("an image\n".to_owned()),
            count: Some(count),
            ..Event::default()
        };
        assert_eq!(one_line(&event(1)), "Normal Pulling: an image");
        assert_eq!(one_line(&event(2)), "Normal Pulling (2 times): an image");
    }
}
