//! What a launch has made, and its removal: anchor first, since from its
//! deletion on the cluster's garbage collector finishes without us.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::Preconditions;

use super::anchor::{generation_of, record_of};
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, LAUNCH_ID, Owner};

/// Longest a clean-up may take.
pub(super) const BOUND: Duration = Duration::from_secs(30);
/// The anchor's share of it: one that cannot be deleted keeps nobody from the
/// Pod and the token.
const ANCHOR: Duration = Duration::from_secs(20);
/// How long the Pod of a failed launch is kept for a look.
const KEPT: Duration = Duration::from_hours(1);

/// The objects of one launch, as far as it came. A name without a uid is one
/// whose creation was under way.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(super) launch_id: String,
    /// The attempt that made them; another one may have adopted them since.
    pub(super) attempt: String,
    /// Of the Pod this attempt makes.
    pub(super) generation: u32,
    pub(super) service: Tried<Service>,
    pub(super) pod: Tried<Owner>,
    pub(super) secret: Tried<Owner>,
    /// Another attempt handed the sandbox over: it stays, whatever becomes of
    /// this one.
    pub(super) stays: bool,
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

/// Whose the anchor was when it was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// This attempt's: it is deleted, or was.
    Ours,
    /// Another attempt has adopted it, and goes on with this generation.
    Theirs(u32),
}

impl Made {
    /// From now on there is nothing here to delete.
    pub(super) fn leave(&mut self) {
        (self.service, self.pod, self.secret) = (Tried::No, Tried::No, Tried::No);
        self.stays = true;
    }

    /// Deletes all of it within the bound, but for what another attempt at the
    /// same launch has adopted.
    ///
    /// # Errors
    /// One line for each object that may still be there, with the reason.
    pub(super) async fn delete(&mut self, cluster: &Cluster) -> Result<Held, Vec<String>> {
        let (logins, enough) = (cluster.logins(), Deadline::after(ANCHOR));
        let done = self.delete_by(cluster, Deadline::after(BOUND)).await;
        if done.is_ok() || !logins.took_all_until(enough).await {
            return done;
        }
        self.delete_by(cluster, Deadline::after(BOUND)).await
    }

    async fn delete_by(
        &mut self,
        cluster: &Cluster,
        deadline: Deadline,
    ) -> Result<Held, Vec<String>> {
        let mut left = Vec::new();
        let mut held = Held::Ours;
        match self.delete_anchor(cluster, Deadline::after(ANCHOR)).await {
            Ok(found) => held = found,
            Err(error) => left.push(error.to_string()),
        }
        if held == Held::Theirs(self.generation) {
            return Ok(held);
        }
        let (pod, secret) = tokio::join!(
            self.delete_pod(cluster, deadline),
            self.delete_secret(cluster, deadline)
        );
        left.extend(
            [pod, secret]
                .into_iter()
                .filter_map(Result::err)
                .map(|e| e.to_string()),
        );
        if left.is_empty() { Ok(held) } else { Err(left) }
    }

    async fn delete_anchor(
        &mut self,
        cluster: &Cluster,
        deadline: Deadline,
    ) -> Result<Held, Error> {
        let name = match &self.service {
            Tried::No => return Ok(Held::Ours),
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
                    Some(found) if found.labels().get(LAUNCH_ID) == Some(&self.launch_id) => {
                        // What cannot be read is this launch's all the same.
                        match record_of(&found).filter(|r| r.attempt != self.attempt) {
                            Some(theirs) => return Ok(Held::Theirs(theirs.generation)),
                            None => found,
                        }
                    }
                    _ => return Ok(Held::Ours),
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
                // Someone wrote to it (the hand-over, another attempt): read again.
                Err(Error::Conflict { .. }) => {}
                done => return done.map(|_| Held::Ours),
            }
        }
    }

    async fn delete_pod(&self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let (name, uid) = match &self.pod {
            Tried::No => return Ok(()),
            Tried::Yes(pod) => (pod.name.clone(), pod.uid.clone()),
            Tried::Sent(name) => match cluster.pod(name, deadline).await? {
                Some(found)
                    if found.labels().get(LAUNCH_ID) == Some(&self.launch_id)
                        && generation_of(&found) == self.generation =>
                {
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
        &self,
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
    pub(super) async fn keep(&mut self, cluster: &Cluster) -> Result<Held, Vec<String>> {
        let (logins, enough) = (cluster.logins(), Deadline::after(ANCHOR));
        let done = self.keep_by(cluster, Deadline::after(BOUND)).await;
        if done.is_ok() || !logins.took_all_until(enough).await {
            return done;
        }
        self.keep_by(cluster, Deadline::after(BOUND)).await
    }

    async fn keep_by(
        &mut self,
        cluster: &Cluster,
        deadline: Deadline,
    ) -> Result<Held, Vec<String>> {
        let mut left = Vec::new();
        match self.keep_anchor(cluster, Deadline::after(ANCHOR)).await {
            Ok(Held::Ours) => {}
            Ok(theirs) => return Ok(theirs),
            Err(error) => left.push(error.to_string()),
        }
        if let Err(error) = self.delete_secret(cluster, deadline).await {
            left.push(error.to_string());
        }
        if left.is_empty() {
            Ok(Held::Ours)
        } else {
            Err(left)
        }
    }

    async fn keep_anchor(&mut self, cluster: &Cluster, deadline: Deadline) -> Result<Held, Error> {
        let Tried::Yes(service) = &self.service else {
            return Ok(Held::Ours);
        };
        let mut seen = service.clone();
        loop {
            let until = Timestamp::now().saturating_add(KEPT).ok();
            let changes = [(EXPIRES, until.map(|t| t.to_string()))];
            match cluster.annotate(&seen, &changes, deadline).await {
                Err(Error::Conflict { .. }) => {}
                done => return done.map(|_| Held::Ours),
            }
            let found = cluster.service(&seen.name_any(), deadline).await?;
            let Some(found) = found.filter(|found| found.uid() == seen.uid()) else {
                return Ok(Held::Ours);
            };
            if let Some(theirs) = record_of(&found).filter(|r| r.attempt != self.attempt) {
                return Ok(Held::Theirs(theirs.generation));
            }
            seen = found;
        }
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
    let delete = || cluster.delete::<K>(resource, name, exactly.clone(), deadline);
    let mut done = delete().await;
    // It may be about a write in between; one that stays is about the uid.
    if matches!(done, Err(Error::Conflict { .. })) {
        done = delete().await;
    }
    match done {
        // Another uid under this name: ours is gone.
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use tokio::time::Instant;

    use super::*;

    /// All three, and a server that answers nothing.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_given_up_within_the_bound() {
        let cluster = Cluster::of(|_| std::future::pending());
        let owner = |uid: &str| {
            let (name, uid) = ("a".to_owned(), uid.to_owned());
            Tried::Yes(Owner { name, uid })
        };
        let name = Some("a".to_owned());
        let metadata = ObjectMeta {
            name,
            ..ObjectMeta::default()
        };
        let mut made = Made {
            service: Tried::Yes(Service {
                metadata,
                ..Service::default()
            }),
            pod: owner("p"),
            secret: owner("s"),
            ..Made::default()
        };
        for (keep, named) in [
            (false, &["services", "pods", "secrets"][..]),
            (true, &["services", "secrets"]),
        ] {
            let begun = Instant::now();
            let left = if keep {
                made.keep(&cluster).await
            } else {
                made.delete(&cluster).await
            };
            assert!(begun.elapsed() <= BOUND, "{:?}", begun.elapsed());
            let left = left.unwrap_err();
            assert_eq!(left.len(), named.len(), "{left:?}");
            for (line, resource) in left.iter().zip(named) {
                assert!(
                    line.contains(resource) && line.contains("no answer"),
                    "{line}"
                );
            }
        }
    }
}
