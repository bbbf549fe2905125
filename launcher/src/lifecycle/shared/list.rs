//! session list: the shared sessions of a namespace, as their anchors say.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::super::holder::{Holder, is_owned_by};
use super::is_shared;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, MAKING, OWNER};

/// One shared session.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedSession {
    /// Its name.
    pub session: String,
    /// Where it is.
    pub namespace: String,
    /// In one word: `Open` to launches, `Making`, `Expired`, `Deleting`.
    pub state: &'static str,
    /// How many sandboxes there are in it.
    pub sandboxes: usize,
    /// When its anchor was made, RFC 3339.
    pub created: String,
    /// The Lease it lives by, instead of an expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it expires, RFC 3339; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl SharedSession {
    pub(super) fn of(cluster: &Cluster, anchor: &Holder, sandboxes: usize) -> Self {
        let annotation = |key: &str| anchor.annotation(key).map(str::to_owned);
        let expires = annotation(EXPIRES);
        let end = expires
            .as_ref()
            .and_then(|text| text.parse::<Timestamp>().ok());
        let state = if anchor.is_going() {
            "Deleting"
        } else if end.is_some_and(|end| end <= Timestamp::now()) {
            "Expired"
        } else if annotation(MAKING).is_some() {
            "Making"
        } else {
            "Open"
        };
        Self {
            session: anchor.name().to_owned(),
            namespace: cluster.namespace().to_owned(),
            state,
            sandboxes,
            created: anchor.created().to_string(),
            owner: annotation(OWNER),
            expires,
        }
    }
}

/// All shared sessions of the namespace, by name.
pub async fn list(cluster: Cluster, timeout: Duration) -> Result<Vec<SharedSession>, Error> {
    let deadline = Deadline::after(timeout).unless_unreachable();
    let anchors = cluster.anchors(deadline).await?;
    let (pods, _) = cluster.pods(None, deadline).await?;
    let shared = anchors.iter().filter(|anchor| is_shared(anchor));
    let mut sessions: Vec<_> = shared
        .map(|anchor| {
            let uid = anchor.metadata.uid.as_deref();
            let sandboxes = pods.iter().filter(|pod| is_owned_by(*pod, uid)).count();
            SharedSession::of(&cluster, &anchor.into(), sandboxes)
        })
        .collect();
    sessions.sort_by(|a, b| a.session.cmp(&b.session));
    Ok(sessions)
}
