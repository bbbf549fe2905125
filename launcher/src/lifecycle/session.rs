//! list and status: sessions as their anchors, Pods and records show them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde::Serialize;

use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, HOST_CONTAINER, LAUNCH_ID, OWNER, RECORD, Record, SESSION};
use crate::report::Report;
use crate::watch::{Diagnosis, Verdict, termination_of};

/// One session.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The sandbox's and the session's name.
    pub sandbox: String,
    /// Where it is.
    pub namespace: String,
    /// In one word: `Running`, `Waiting`, `Failed`, `Ended`, `Deleting`, `NoPod`.
    pub state: String,
    /// Why it is in that state, when there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The host's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Absolute path of the workspace in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Uid of its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Node it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The caller's idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<String>,
    /// When the anchor was made, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The Lease it lives by, instead of an expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When the session expires, RFC 3339; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostState>,
    /// What the supervisor reported when the host had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// The container that runs the host.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostState {
    /// `waiting`, `running`, `terminated`.
    pub state: &'static str,
    /// Its exit code, once terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The kubelet's word for it (`Completed`, `Error`, `OOMKilled`, …).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// All sessions of the namespace, by name.
pub async fn list(cluster: Cluster, timeout: Duration) -> Result<Vec<Session>, Error> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    let anchors = cluster.anchors(deadline).await?;
    let (pods, _) = cluster.pods(None, deadline).await?;
    let mut sessions: Vec<_> = anchors
        .iter()
        .map(|anchor| {
            let name = anchor.name_any();
            let pod = pods
                .iter()
                .find(|pod| pod.labels().get(SESSION) == Some(&name));
            session(&cluster, anchor, pod)
        })
        .collect();
    sessions.sort_by(|a, b| a.sandbox.cmp(&b.sandbox));
    Ok(sessions)
}

/// One session; `None` when there is none of ours by that name.
pub async fn status(
    cluster: Cluster,
    name: String,
    timeout: Duration,
) -> Result<Option<Session>, Error> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    let ours = |s: &Service| s.labels().contains_key(SESSION);
    let Some(anchor) = cluster.service(&name, deadline).await?.filter(ours) else {
        return Ok(None);
    };
    let pod = cluster
        .pod(&name, deadline)
        .await?
        .filter(|pod| pod.labels().get(SESSION) == Some(&name));
    Ok(Some(session(&cluster, &anchor, pod.as_ref())))
}

fn session(cluster: &Cluster, anchor: &Service, pod: Option<&Pod>) -> Session {
    let record = anchor
        .annotations()
        .get(RECORD)
        .and_then(|text| Record::parse(text));
    let (state, why) = state_of(anchor, pod);
    let ended = pod.and_then(termination_of);
    Session {
        sandbox: anchor.name_any(),
        namespace: cluster.namespace().to_owned(),
        state,
        why,
        image: record.as_ref().map(|r| r.spec.image.clone()),
        workspace: record.as_ref().map(|r| r.spec.workspace()),
        pod_uid: pod.and_then(ResourceExt::uid),
        node: pod.and_then(|p| p.spec.as_ref()?.node_name.clone()),
        launch_id: anchor.labels().get(LAUNCH_ID).cloned(),
        created: anchor
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|t| t.0.to_string()),
        owner: anchor.annotations().get(OWNER).cloned(),
        expires: anchor.annotations().get(EXPIRES).cloned(),
        host: pod.and_then(host_state),
        report: ended
            .and_then(|(_, report)| report)
            .or_else(|| record?.last_report),
    }
}

fn state_of(anchor: &Service, pod: Option<&Pod>) -> (String, Option<String>) {
    let Some(pod) = pod else {
        return ("NoPod".to_owned(), None);
    };
    if anchor.metadata.deletion_timestamp.is_some() || pod.metadata.deletion_timestamp.is_some() {
        return ("Deleting".to_owned(), None);
    }
    if host_state(pod).and_then(|host| host.exit_code) == Some(0) {
        return ("Ended".to_owned(), None);
    }
    match Diagnosis::default().judge(pod) {
        Verdict::Ready => ("Running".to_owned(), None),
        Verdict::Wait(_, why) => ("Waiting".to_owned(), Some(why)),
        Verdict::Fatal(fatal) if termination_of(pod).is_some() => {
            let how = fatal
                .report
                .map_or(fatal.message, |report| report.summary());
            ("Ended".to_owned(), Some(how))
        }
        Verdict::Fatal(fatal) => ("Failed".to_owned(), Some(fatal.message)),
    }
}

fn host_state(pod: &Pod) -> Option<HostState> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let state = statuses
        .iter()
        .find(|c| c.name == HOST_CONTAINER)?
        .state
        .as_ref()?;
    let (word, exit_code, reason) = if let Some(ended) = &state.terminated {
        ("terminated", Some(ended.exit_code), ended.reason.clone())
    } else if state.running.is_some() {
        ("running", None, None)
    } else {
        (
            "waiting",
            None,
            state.waiting.as_ref().and_then(|w| w.reason.clone()),
        )
    };
    Some(HostState {
        state: word,
        exit_code,
        reason,
    })
}
