//! list and status: sandboxes as their anchors, Pods and records show them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde::Serialize;

use super::anchor::is_going;
use super::find::{Found, find, is_in_session};
use super::holder::{Holder, is_owned_by};
use super::shared::is_shared;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, HOST_CONTAINER, LAUNCH_ID, OWNER, SESSION};
use crate::report::Report;
use crate::watch::{Diagnosis, Verdict, termination_of};

/// One sandbox, and the session it is in.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The sandbox.
    pub sandbox: String,
    /// Its session: a shared one, or its own, which has its name.
    pub session: String,
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
    /// When the anchor, or the Pod in a shared session, was made, RFC 3339.
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

/// All sandboxes of the namespace, by name.
pub async fn list(cluster: Cluster, timeout: Duration) -> Result<Vec<Session>, Error> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    let anchors = cluster.anchors(deadline).await?;
    let (pods, _) = cluster.pods(None, deadline).await?;
    let (shared, own): (Vec<_>, Vec<_>) = anchors.iter().partition(|anchor| is_shared(anchor));
    let of_own = own.into_iter().map(|anchor| {
        let name = anchor.name_any();
        let mut pods = pods.iter().filter(|pod| !is_in_session(pod));
        let pod = pods.find(|pod| pod.labels().get(SESSION) == Some(&name));
        session(&cluster, &anchor.into(), Some(anchor), pod)
    });
    let of_shared = pods.iter().filter(|pod| is_in_session(pod)).map(|pod| {
        let mut shared = shared.iter();
        let anchor = shared.find(|anchor| is_owned_by(pod, anchor.uid().as_deref()));
        session(&cluster, &pod.into(), anchor.copied(), Some(pod))
    });
    let mut sessions: Vec<_> = of_own.chain(of_shared).collect();
    sessions.sort_by(|a, b| a.sandbox.cmp(&b.sandbox));
    Ok(sessions)
}

/// One sandbox; `None` when there is none of ours by that name.
pub async fn status(
    cluster: Cluster,
    name: String,
    timeout: Duration,
) -> Result<Option<Session>, Error> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    Ok(match find(&cluster, &name, deadline).await? {
        Found::Own(anchor) => {
            let pod = cluster.pod(&name, deadline).await?;
            let pod = pod.filter(|pod| pod.labels().get(SESSION) == Some(&name));
            let holder = Holder::from(&*anchor);
            Some(session(&cluster, &holder, Some(&anchor), pod.as_ref()))
        }
        Found::InSession(pod) => {
            let of = pod.labels().get(SESSION).cloned().unwrap_or_default();
            let anchor = cluster.service(&of, deadline).await?;
            let anchor = anchor.filter(|anchor| is_owned_by(&*pod, anchor.uid().as_deref()));
            let holder = Holder::from(&*pod);
            Some(session(&cluster, &holder, anchor.as_ref(), Some(&pod)))
        }
        Found::Shared(_) | Found::NotOurs | Found::Nothing => None,
    })
}

/// As its record says, the session's anchor, and its Pod.
fn session(
    cluster: &Cluster,
    holder: &Holder,
    anchor: Option<&Service>,
    pod: Option<&Pod>,
) -> Session {
    let record = holder.record();
    let going = anchor.is_some_and(is_going);
    let (state, why) = state_of(going, pod);
    let ended = pod.and_then(termination_of);
    let annotation = |key: &str| anchor?.annotations().get(key).cloned();
    // A launch that is under way in a shared session has a deadline of its own.
    let expires = holder.annotation(EXPIRES).map(str::to_owned);
    Session {
        sandbox: holder.name().to_owned(),
        session: holder.label(SESSION).unwrap_or_default().to_owned(),
        namespace: cluster.namespace().to_owned(),
        state,
        why,
        image: record.as_ref().map(|r| r.spec.image.clone()),
        workspace: record.as_ref().map(|r| r.spec.workspace()),
        pod_uid: pod.and_then(ResourceExt::uid),
        node: pod.and_then(|p| p.spec.as_ref()?.node_name.clone()),
        launch_id: holder.label(LAUNCH_ID).map(str::to_owned),
        created: Some(holder.created().to_string()),
        owner: annotation(OWNER),
        expires: expires.or_else(|| annotation(EXPIRES)),
        host: pod.and_then(host_state),
        report: ended
            .and_then(|(_, report)| report)
            .or_else(|| record?.last_report),
    }
}

fn state_of(going: bool, pod: Option<&Pod>) -> (String, Option<String>) {
    let Some(pod) = pod else {
        return ("NoPod".to_owned(), None);
    };
    if going || is_going(pod) {
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
