//! The end of a host, waited for by one watch.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;

use crate::cluster::{Cluster, Deadline, Error};
use crate::report::Report;
use crate::watch::{PodEvent, PodWatch, termination_of};

/// A host may run as long as it likes; this is what a timer can take.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 10);

/// How a sandbox's host ended.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEnd {
    /// Its exit code; absent when the Pod went without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// In a sentence.
    pub how: String,
    /// What the supervisor reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// Waits until the host in the Pod with this uid has ended.
///
/// # Errors
/// What the API server does not let see.
pub async fn ended(cluster: Cluster, name: String, pod_uid: String) -> Result<HostEnd, Error> {
    let deadline = Deadline::after(FOR_EVER);
    let is_it = |pod: &Pod| pod.uid().as_ref() == Some(&pod_uid);
    let Some(pod) = cluster.pod(&name, deadline).await?.filter(is_it) else {
        return Ok(gone());
    };
    let mut watch = PodWatch::of_pod(&cluster, &pod);
    let mut now = Box::new(pod);
    loop {
        if let Some(end) = end_of(&now) {
            return Ok(end);
        }
        now = match watch.next(deadline).await {
            Ok(PodEvent::Now(pod)) if is_it(&pod) => pod,
            Ok(PodEvent::Gone(pod)) if is_it(&pod) => return Ok(end_of(&pod).unwrap_or_else(gone)),
            Ok(PodEvent::Gone(_)) => now,
            Ok(PodEvent::Now(_)) | Err(Error::NotFound { .. }) => return Ok(gone()),
            Err(error) => return Err(error),
        };
    }
}

fn gone() -> HostEnd {
    HostEnd {
        exit_code: None,
        how: "its Pod was deleted by someone else".to_owned(),
        report: None,
    }
}

fn end_of(pod: &Pod) -> Option<HostEnd> {
    let phase = pod.status.as_ref()?.phase.as_deref();
    let policy = pod.spec.as_ref()?.restart_policy.as_deref();
    // What the kubelet restarts has not ended for good.
    if policy != Some("Never") && !matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let Some((ended, report)) = termination_of(pod) else {
        let status = pod.status.as_ref()?;
        // Evicted, or its node lost: there is no container to speak of.
        let failed = phase == Some("Failed");
        return failed.then(|| HostEnd {
            exit_code: None,
            how: [&status.reason, &status.message]
                .into_iter()
                .flatten()
                .fold("its Pod failed:".to_owned(), |text, word| {
                    text + " " + word.trim()
                }),
            report: None,
        });
    };
    let how = report.as_ref().map_or_else(
        || format!("host exited with code {}", ended.exit_code),
        Report::summary,
    );
    Some(HostEnd {
        exit_code: Some(ended.exit_code),
        how,
        report,
    })
}
