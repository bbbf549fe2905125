//! What a name given to a verb stands for.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

use super::shared::is_shared;
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{SANDBOX, SESSION};

/// What has the name.
pub(super) enum Found {
    /// A sandbox with a session of its own, whose anchor this is.
    Own(Box<Service>),
    /// A sandbox in a shared session.
    InSession(Box<Pod>),
    /// A shared session itself.
    Shared(Box<Service>),
    /// A Service that is not ours.
    NotOurs,
    /// Nothing.
    Nothing,
}

/// Looks for what is ours under that name, a sandbox first.
pub(super) async fn find(
    cluster: &Cluster,
    name: &str,
    deadline: Deadline,
) -> Result<Found, Error> {
    let service = cluster.service(name, deadline).await?.map(Box::new);
    let is_ours = |service: &Service| service.labels().contains_key(SESSION);
    if let Some(own) = service.as_ref().filter(|s| is_ours(s) && !is_shared(s)) {
        return Ok(Found::Own(own.clone()));
    }
    let pod = cluster.pod(name, deadline).await?;
    if let Some(pod) = pod.filter(is_in_session) {
        return Ok(Found::InSession(Box::new(pod)));
    }
    Ok(match service {
        Some(service) if is_ours(&service) => Found::Shared(service),
        Some(_) => Found::NotOurs,
        None => Found::Nothing,
    })
}

/// Whether it is a sandbox in a shared session.
pub(super) fn is_in_session(pod: &Pod) -> bool {
    let session = pod.labels().get(SESSION);
    session.is_some() && pod.labels().get(SANDBOX) != session
}
