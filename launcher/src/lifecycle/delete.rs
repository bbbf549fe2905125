//! delete: the anchor goes first (the one commit point), then its Pods, for
//! speed; done when the Pods are really gone. Deleting twice is fine.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::Preconditions;
use serde::Serialize;

use super::cleanup::delete_uid;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{RECORD, Record, SESSION, secret_name};
use crate::watch::{PodEvent, PodWatch};

/// How a deletion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Deleted {
    /// It was there and is gone.
    Gone,
    /// It was not there.
    WasGone,
    /// Another object that is not ours has the name; it was left alone.
    NotOurs,
}

/// Deletes a session and waits until its Pods are gone.
///
/// # Errors
/// [`Error::StillThere`] when Pods are still there at the end of `timeout`; the
/// anchor is deleted by then, so the cluster finishes by itself.
pub async fn delete(cluster: Cluster, name: String, timeout: Duration) -> Result<Deleted, Error> {
    let deadline = Deadline::after(timeout);
    let mut deleted = Deleted::WasGone;
    let mut record = None;
    while let Some(service) = cluster
        .service(&name, deadline.unless_unreachable())
        .await?
    {
        if !service.labels().contains_key(SESSION) {
            return Ok(Deleted::NotOurs);
        }
        deleted = Deleted::Gone;
        record = service
            .annotations()
            .get(RECORD)
            .and_then(|text| Record::parse(text));
        let exactly = Preconditions {
            uid: service.uid(),
            resource_version: service.resource_version(),
        };
        match cluster
            .delete::<Service>("services", &name, exactly, deadline)
            .await
        {
            Err(Error::Conflict { .. }) => {}
            Ok(_) => break,
            Err(error) => return Err(error),
        }
    }
    let (pods, version) = cluster.pods(Some(&name), deadline).await?;
    for pod in &pods {
        deleted = Deleted::Gone;
        delete_uid::<Pod>(
            &cluster,
            "pods",
            &pod.name_any(),
            pod.uid().unwrap_or_default(),
            deadline,
        )
        .await?;
    }
    if let Some((record, uid)) = record.and_then(|r| r.secret_uid.clone().map(|uid| (r, uid))) {
        let secret = secret_name(&record.spec.sandbox, record.generation);
        delete_uid::<Secret>(&cluster, "secrets", &secret, uid, deadline).await?;
    }
    wait_gone(&cluster, &name, pods, version, deadline).await?;
    Ok(deleted)
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
