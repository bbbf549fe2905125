//! Pods that go as a whole: deleted, evicted, preempted, out of time, refused
//! by their node. None of it is their host's fault, but for a full disk.

use k8s_openapi::api::core::v1::Pod;

use super::{Fatal, condition};
use crate::outcome::Reason;

/// What a kubelet or controller calls a Pod that it gave up.
const EVICTED: [&str; 7] = [
    "Evicted",
    "Preempting",
    "Preempted",
    "NodeLost",
    "NodeShutdown",
    "Terminated",
    "Shutdown",
];

/// Whether `pod` is lost, and how.
pub(super) fn lost(pod: &Pod) -> Option<Fatal> {
    let status = pod.status.as_ref();
    let reason = status.and_then(|s| s.reason.as_deref()).unwrap_or("");
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or("");
    if reason == "DeadlineExceeded" {
        return Some(Fatal::new(
            Reason::LifetimeExceeded,
            "the sandbox's maximum lifetime ran out",
            "give it more with --max-lifetime",
        ));
    }
    let disrupted = condition(pod, "DisruptionTarget").filter(|c| c.status == "True");
    if disrupted.is_some() || EVICTED.contains(&reason) {
        let said = disrupted
            .and_then(|c| c.message.clone())
            .filter(|m| !m.is_empty());
        let why = said.unwrap_or_else(|| format!("{reason} {message}").trim().to_owned());
        return Some(evicted(pod, &why));
    }
    if rejected(reason) {
        return Some(Fatal::new(
            Reason::Evicted,
            format!("the node did not take the Pod: {reason} {message}"),
            "launch again",
        ));
    }
    pod.metadata.deletion_timestamp.as_ref()?;
    Some(Fatal::new(
        Reason::DeletedBySomeone,
        "the sandbox's Pod was deleted by someone else during the launch",
        "see who deletes Pods in this namespace",
    ))
}

/// A kubelet checks a Pod again that the scheduler gave it.
fn rejected(reason: &str) -> bool {
    reason.starts_with("OutOf")
        || ["NodeAffinity", "NodePorts", "UnexpectedAdmissionError"].contains(&reason)
}

fn evicted(pod: &Pod, why: &str) -> Fatal {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    let on = node.map_or_else(String::new, |node| format!(" on node {node}"));
    // The kubelet's words for an emptyDir, a container and a whole Pod.
    let over_limit = [
        "exceeds the limit",
        "exceeds the total limit",
        "exceeded its local",
    ]
    .iter()
    .any(|text| why.contains(text));
    if over_limit {
        return Fatal::new(
            Reason::Evicted,
            format!("the sandbox was evicted{on}: it used more disk than its limit: {why}"),
            "give it more with --ephemeral-storage-limit or --home-size-limit",
        );
    }
    Fatal::new(
        Reason::Evicted,
        format!(
            "the sandbox lost its node or was evicted{on}, through no fault of its host: {why}"
        ),
        "launch again; raise its priority (--priority-class) or its requests if it happens often",
    )
}

/// A Pod whose phase alone says that it failed.
pub(super) fn failed(pod: &Pod) -> Fatal {
    let status = pod.status.as_ref();
    let reason = status
        .and_then(|s| s.reason.as_deref())
        .unwrap_or("no reason given");
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or("");
    Fatal::new(
        Reason::StartError,
        format!("the Pod failed: {reason} {message}")
            .trim()
            .to_owned(),
        "see its events",
    )
}
