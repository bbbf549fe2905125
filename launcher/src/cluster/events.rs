//! An object's events, in the order a person can follow.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::ListParams;

use super::{Cluster, Deadline, Error};

impl Cluster {
    /// The events of the object with this uid, by when each happened last. A
    /// namesake's events are not ours.
    pub async fn events(&self, uid: &str, deadline: Deadline) -> Result<Vec<Event>, Error> {
        let api = self.api::<Event>();
        let ours = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let call = self.what("list", "events", "");
        let list = self.repeat(call, deadline, || api.list(&ours)).await?;
        let mut events = list.items;
        events.sort_by_key(|event| (last(event), first(event), version(event)));
        Ok(events)
    }
}

/// How often it has happened.
pub(crate) fn times(event: &Event) -> i32 {
    let of_series = event.series.as_ref().and_then(|series| series.count);
    of_series.or(event.count).unwrap_or(1).max(1)
}

/// When it happened last, to the second: most events have no finer time.
fn last(event: &Event) -> Option<i64> {
    let of_series = event.series.as_ref();
    let of_series = of_series.and_then(|series| series.last_observed_time.as_ref());
    let times = [
        of_series.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
    ];
    let last = times.into_iter().flatten().max();
    last.or(created(event)).map(Timestamp::as_second)
}

/// When it happened first.
fn first(event: &Event) -> Option<i64> {
    let times = [
        event.first_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
    ];
    let first = times.into_iter().flatten().min();
    first.or(created(event)).map(Timestamp::as_second)
}

fn created(event: &Event) -> Option<Timestamp> {
    event
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0)
}

/// As written; within a second that is mostly the order they happened in.
fn version(event: &Event) -> Option<u64> {
    event.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::fake::object;

    fn at(second: &str) -> String {
        format!("2026-01-01T00:00:{second}Z")
    }

    /// As a kubelet writes it, with times to the second.
    fn seen(reason: &str, version: u32, first: &str, last: &str, count: u32) -> Value {
        json!({
            "metadata": { "name": reason, "namespace": "ns", "resourceVersion": version.to_string() },
            "involvedObject": {}, "reason": reason, "count": count,
            "firstTimestamp": at(first), "lastTimestamp": at(last),
        })
    }

    /// As a scheduler writes it.
    fn scheduled(reason: &str, version: u32, time: &str, series: &Value) -> Value {
        json!({
            "metadata": { "name": reason, "namespace": "ns", "resourceVersion": version.to_string() },
            "involvedObject": {}, "reason": reason, "eventTime": at(time), "series": series,
        })
    }

    #[tokio::test]
    async fn they_come_by_their_last_time_then_by_their_first_and_say_how_often() {
        let list = json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [
            seen("BackOff", 8, "15", "15", 1),
            seen("Failed", 6, "02", "14", 2),
            seen("Pulling", 7, "01", "14", 2),
            // Written late, and in the same second as what follows from it.
            scheduled("Scheduled", 5, "00.900000", &Value::Null),
            seen("Mounted", 4, "00", "01", 1),
            scheduled("FailedScheduling", 3, "00.100000", &json!({
                "count": 3, "lastObservedTime": at("00.800000"),
            })),
            seen("Created", 12, "15", "15", 1),
        ] });
        let cluster = Cluster::of(move |_| std::future::ready(object(&list)));
        let deadline = Deadline::after(std::time::Duration::from_secs(100));
        let events = cluster.events("u", deadline).await.unwrap();
        let said: Vec<_> = events
            .iter()
            .map(|event| (event.reason.as_deref().unwrap_or(""), times(event)))
            .collect();
        assert_eq!(
            said,
            [
                ("FailedScheduling", 3),
                ("Scheduled", 1),
                ("Mounted", 1),
                ("Pulling", 2),
                ("Failed", 2),
                ("BackOff", 1),
                ("Created", 1),
            ]
        );
    }
}
