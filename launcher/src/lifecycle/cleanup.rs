//! What a launch has made, and its removal: anchor first, since from its
//! deletion on the cluster's garbage collector finishes without us.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::Preconditions;

use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, LAUNCH_ID, Owner};

/// Longest a clean-up may take.
pub(super) const BOUND: Duration = Duration::from_secs(30);
/// How long the Pod of a failed launch is kept for a look.
const KEPT: Duration = Duration::from_hours(1);

/// The objects of one launch, as far as it came. A name without a uid is one
/// whose creation was under way.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub launch_id: String,
    pub service: Tried<Service>,
    pub pod: Tried<Owner>,
    pub secret: Tried<Owner>,
}

/// How far a creation came.
#[derive(Debug, Default)]
pub(super) enum Tried<T> {
    /// Not begun.
    #[default]
    No,
    /// Sent; the answer was not seen.
    Sent(String),
    /// Made.
    Yes(T),
}

impl Made {
    /// Deletes all of it within the bound.
    ///
    /// # Errors
    /// One line for each object that may still be there, with the reason.
    pub(super) async fn delete(&mut self, cluster: &Cluster) -> Result<(), Vec<String>> {
        let deadline = Deadline::after(BOUND);
        let mut left = Vec::new();
        if let Err(error) = self.delete_anchor(cluster, deadline).await {
            left.push(error.to_string());
        }
        if let Err(error) = self.delete_pod(cluster, deadline).await {
            left.push(error.to_string());
        }
        if let Err(error) = self.delete_secret(cluster, deadline).await {
            left.push(error.to_string());
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    }

    async fn delete_anchor(&mut self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let name = match &self.service {
            Tried::No => return Ok(()),
            Tried::Sent(name) => name.clone(),
            Tried::Yes(service) => service.name_any(),
        };
        let mut known = match &self.service {
            Tried::Yes(service) => Some(service.clone()),
            _ => None,
        };
        loop {
            let service = match known.take() {
                Some(service) => service,
                None => match cluster.service(&name, deadline).await? {
                    Some(found) if found.labels().get(LAUNCH_ID) == Some(&self.launch_id) => found,
                    _ => return Ok(()),
                },
            };
            let exactly = Preconditions {
                uid: service.uid(),
                resource_version: service.resource_version(),
            };
            match cluster
                .delete::<Service>("services", &name, exactly, deadline)
                .await
            {
                // Someone wrote to it (the hand-over, for instance): read again.
                Err(Error::Conflict { .. }) => {}
                done => return done.map(|_| ()),
            }
        }
    }

    async fn delete_pod(&mut self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let (name, uid) = match &self.pod {
            Tried::No => return Ok(()),
            Tried::Yes(pod) => (pod.name.clone(), pod.uid.clone()),
            Tried::Sent(name) => match cluster.pod(name, deadline).await? {
                Some(found) if found.labels().get(LAUNCH_ID) == Some(&self.launch_id) => {
                    (name.clone(), found.uid().unwrap_or_default())
                }
                _ => return Ok(()),
            },
        };
        delete_uid::<Pod>(cluster, "pods", &name, uid, deadline).await
    }

    /// Deletes the token's Secret, but not what else may have its name: where
    /// its uid is not known, the collector takes it with its Pod.
    pub(super) async fn delete_secret(
        &mut self,
        cluster: &Cluster,
        deadline: Deadline,
    ) -> Result<(), Error> {
        match &self.secret {
            Tried::Yes(secret) => {
                delete_uid::<Secret>(
                    cluster,
                    "secrets",
                    &secret.name,
                    secret.uid.clone(),
                    deadline,
                )
                .await
            }
            _ => Ok(()),
        }
    }

    /// Keeps Pod and anchor for an hour, for a look; the token goes.
    pub(super) async fn keep(&mut self, cluster: &Cluster) -> Result<(), Vec<String>> {
        let deadline = Deadline::after(BOUND);
        let mut left = Vec::new();
        if let Err(error) = self.delete_secret(cluster, deadline).await {
            left.push(error.to_string());
        }
        if let Tried::Yes(service) = &self.service {
            let until = Timestamp::now()
                .saturating_add(KEPT)
                .map(|t| t.to_string())
                .ok();
            if let Err(error) = cluster
                .annotate(service, &[(EXPIRES, until)], deadline)
                .await
            {
                left.push(error.to_string());
            }
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    }
}

pub(super) async fn delete_uid<K>(
    cluster: &Cluster,
    resource: &'static str,
    name: &str,
    uid: String,
    deadline: Deadline,
) -> Result<(), Error>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let exactly = Preconditions {
        uid: Some(uid),
        resource_version: None,
    };
    match cluster.delete::<K>(resource, name, exactly, deadline).await {
        // Another uid under this name: ours is gone.
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
