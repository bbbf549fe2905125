//! delete: the anchor goes first (the one commit point), then its Pods, for
//! speed; done when the Pods are really gone. Of a sandbox in a shared session
//! its Pod goes, and the session stays. Deleting twice is fine.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::Preconditions;
use serde::Serialize;
use tokio::time::Instant;

use super::cleanup::delete_uid;
use super::find::{Found, find, is_in_session};
use super::holder::Holder;
use super::owner;
use super::shared::is_shared;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{OWNER, Record, SESSION, secret_name};
use crate::watch::{PodEvent, PodWatch};

/// So many Pods of a session are deleted at a time.
const AT_ONCE: usize = 16;

/// How a deletion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Deleted {
    /// It was there and is gone.
    Gone,
    /// It was not there.
    WasGone,
    /// Another object that is not ours has the name; it was left alone.
    NotOurs,
    /// A shared session has the name of what was to be a sandbox, or the other
    /// way round; it was left alone.
    OtherKind,
}

/// Deletes a sandbox, with its session unless that is a shared one, and waits
/// until its Pods are gone.
///
/// # Errors
/// [`Error::StillThere`] when Pods are still there at the end of `timeout`; they
/// are deleted by then, so the cluster finishes by itself.
pub async fn delete(cluster: Cluster, name: String, timeout: Duration) -> Result<Deleted, Error> {
    let deadline = Deadline::after(timeout);
    match find(&cluster, &name, deadline.unless_unreachable()).await? {
        Found::InSession(pod) => in_session(&cluster, *pod, deadline).await,
        Found::Shared(_) => Ok(Deleted::OtherKind),
        Found::NotOurs => Ok(Deleted::NotOurs),
        Found::Own(anchor) => whole(&cluster, &name, Some(*anchor), false, deadline).await,
        Found::Nothing => whole(&cluster, &name, None, false, deadline).await,
    }
}

/// Deletes a shared session with all that is in it, and waits until its Pods are
/// gone.
///
/// # Errors
/// As [`delete`].
pub async fn delete_shared(
    cluster: Cluster,
    name: String,
    timeout: Duration,
) -> Result<Deleted, Error> {
    let deadline = Deadline::after(timeout);
    let found = cluster
        .service(&name, deadline.unless_unreachable())
        .await?;
    whole(&cluster, &name, found, true, deadline).await
}

/// The anchor, as it was found, and all that is below it.
async fn whole(
    cluster: &Cluster,
    name: &str,
    mut found: Option<Service>,
    shared: bool,
    deadline: Deadline,
) -> Result<Deleted, Error> {
    let mut deleted = Deleted::WasGone;
    let mut record = None;
    let mut owner = None;
    while let Some(service) = found {
        if !service.labels().contains_key(SESSION) {
            return Ok(Deleted::NotOurs);
        }
        if is_shared(&service) != shared {
            return Ok(Deleted::OtherKind);
        }
        deleted = Deleted::Gone;
        let anchor = Holder::from(&service);
        record = anchor.record();
        // Until a launch is done, its record alone says so.
        owner = anchor.annotation(OWNER).map(str::to_owned);
        owner = owner.or(record.as_ref().and_then(|record| record.spec.owner.clone()));
        let exactly = Preconditions {
            uid: service.uid(),
            resource_version: service.resource_version(),
        };
        match cluster
            .delete::<Service>("services", name, exactly, deadline)
            .await
        {
            Err(Error::Conflict { .. }) => found = cluster.service(name, deadline).await?,
            Ok(_) => break,
            Err(error) => return Err(error),
        }
    }
    let (mut pods, version) = cluster.pods(Some(name), deadline).await?;
    let of_it = |pod: &Pod| pod.labels().get(SESSION).is_some_and(|of| of == name);
    pods.retain(|pod| of_it(pod) && is_in_session(pod) == shared);
    if !pods.is_empty() {
        deleted = Deleted::Gone;
    }
    let each = futures::stream::iter(&pods).map(Ok);
    each.try_for_each_concurrent(AT_ONCE, |pod| delete_pod(cluster, pod, deadline))
        .await?;
    if let Some(record) = record {
        delete_secret(cluster, &record, deadline).await?;
    }
    let since = Instant::now();
    let lease = match owner {
        Some(owner) => lease_of(cluster, &owner, deadline).await,
        None => None,
    };
    let gone = wait_gone(cluster, name, pods, version, deadline).await;
    // Last: a process that lives sees its sandbox go, not its Lease.
    if let Some(lease) = lease {
        owner::forget(cluster, &lease, since, deadline).await;
    }
    gone.map(|()| deleted)
}

/// The Lease of the process that a session was attached to. That it cannot be
/// had is no reason to keep the sandbox.
async fn lease_of(cluster: &Cluster, owner: &str, deadline: Deadline) -> Option<Lease> {
    let found = owner::of_process(cluster, owner, deadline.unless_unreachable());
    let found = found.await;
    found.unwrap_or_else(|error| {
        tracing::warn!(%error, "lease not deleted; the sweep takes it");
        None
    })
}

/// A sandbox in a shared session, which stays.
async fn in_session(cluster: &Cluster, pod: Pod, deadline: Deadline) -> Result<Deleted, Error> {
    delete_pod(cluster, &pod, deadline).await?;
    let session = pod.labels().get(SESSION).cloned().unwrap_or_default();
    let version = pod.resource_version().unwrap_or_default();
    wait_gone(cluster, &session, vec![pod], version, deadline).await?;
    Ok(Deleted::Gone)
}

/// The Pod, and the Secret that it knows of: in a shared session it has the record.
async fn delete_pod(cluster: &Cluster, pod: &Pod, deadline: Deadline) -> Result<(), Error> {
    let uid = pod.uid().unwrap_or_default();
    delete_uid::<Pod>(cluster, "pods", &pod.name_any(), uid, deadline).await?;
    match Holder::from(pod).record() {
        Some(record) => delete_secret(cluster, &record, deadline).await,
        None => Ok(()),
    }
}

async fn delete_secret(
    cluster: &Cluster,
    record: &Record,
    deadline: Deadline,
) -> Result<(), Error> {
    let Some(uid) = record.secret_uid.clone() else {
        return Ok(());
    };
    let secret = secret_name(&record.spec.sandbox, record.generation);
    delete_uid::<Secret>(cluster, "secrets", &secret, uid, deadline).await
}

/// Waits, by one watch, for the end of the Pods of a list.
async fn wait_gone(
    cluster: &Cluster,
    session: &str,
    pods: Vec<Pod>,
    version: String,
    deadline: Deadline,
) -> Result<(), Error> {
    let mut left: Vec<_> = pods.iter().filter_map(ResourceExt::uid).collect();
    let mut watch = PodWatch::of_session(cluster, session, version);
    while !left.is_empty() {
        let event = tokio::select! {
            // First, since a watch that has no time left says something else.
            biased;
            () = tokio::time::sleep_until(deadline.instant()) => {
                let call = cluster.what("delete", "pods", session);
                return Err(Error::StillThere { call, after: deadline.given() });
            }
            event = watch.next(deadline) => event,
        };
        match event {
            Ok(PodEvent::Gone(pod)) => left.retain(|uid| Some(uid) != pod.uid().as_ref()),
            Ok(PodEvent::Now(_)) => {}
            // The watch's place is gone: begin again from what is there now.
            Err(Error::Gone { .. }) => {
                let (now, version) = cluster.pods(Some(session), deadline).await?;
                left.retain(|uid| now.iter().any(|pod| pod.uid().as_ref() == Some(uid)));
                watch = PodWatch::of_session(cluster, session, version);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
