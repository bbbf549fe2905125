//! What a launch has made, and its removal: anchor first, since from its
//! deletion on the cluster's garbage collector finishes without us. Of a shared
//! session only the sandbox's own Pod and Secret.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::Preconditions;

use super::anchor::generation_of;
use super::holder::{Holder, Kind};
use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, LAUNCH_ID, Owner};
use crate::name;

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
    /// What holds the record.
    pub(super) kind: Kind,
    /// Never that of a shared session.
    pub(super) anchor: Tried<Holder>,
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

/// Whose the record was when its holder was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// This attempt's: it is deleted, or was.
    Ours,
    /// Another attempt has taken it over, and goes on with this generation.
    Theirs(u32),
}

impl Made {
    /// Nothing yet, of an attempt that begins.
    pub(super) fn new(launch_id: &str, kind: Kind) -> Self {
        Self {
            launch_id: launch_id.to_owned(),
            attempt: name::random_hex(8),
            generation: 1,
            kind,
            ..Self::default()
        }
    }

    /// What holds the record may be this attempt's under that name, or is not.
    pub(super) fn has_begun(&mut self, name: Option<&str>) {
        let name = name.map(str::to_owned);
        match self.kind {
            Kind::Anchor => self.anchor = name.map_or(Tried::No, Tried::Sent),
            Kind::Pod => self.pod = name.map_or(Tried::No, Tried::Sent),
        }
    }

    /// From now on there is nothing here to delete.
    pub(super) fn leave(&mut self) {
        (self.anchor, self.pod, self.secret) = (Tried::No, Tried::No, Tried::No);
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
        // The others wait only so long for an anchor. Whether they are to go, the
        // Pod says itself in a shared session.
        let of_holder = match self.kind {
            Kind::Anchor => Deadline::after(ANCHOR),
            Kind::Pod => deadline,
        };
        match self.delete_holder(cluster, of_holder).await {
            Ok(found) => held = found,
            Err(error) => left.push(error.to_string()),
        }
        if held == Held::Theirs(self.generation) {
            return Ok(held);
        }
        let pod = async {
            match self.kind {
                Kind::Anchor => self.delete_pod(cluster, deadline).await,
                Kind::Pod => Ok(()),
            }
        };
        let secret = async {
            // Whose it is now, nobody knows.
            if self.kind == Kind::Pod && !left.is_empty() {
                return Ok(());
            }
            self.delete_secret(cluster, deadline).await
        };
        let (pod, secret) = tokio::join!(pod, secret);
        left.extend(
            [pod, secret]
                .into_iter()
                .filter_map(Result::err)
                .map(|e| e.to_string()),
        );
        if left.is_empty() { Ok(held) } else { Err(left) }
    }

    async fn delete_holder(&self, cluster: &Cluster, deadline: Deadline) -> Result<Held, Error> {
        let mut known = self.known();
        loop {
            let holder = match known.take() {
                Some(holder) => holder,
                None => match self.find(cluster, deadline).await? {
                    Found::Ours(holder) => *holder,
                    Found::Not(held) => return Ok(held),
                },
            };
            match holder.delete(cluster, deadline).await {
                // Someone wrote to it (the hand-over, another attempt, of a Pod
                // its kubelet): read again.
                Err(Error::Conflict { .. }) => {}
                done => return done.map(|()| Held::Ours),
            }
        }
    }

    /// As it was written last. A Pod has been written to since.
    fn known(&self) -> Option<Holder> {
        match &self.anchor {
            Tried::Yes(anchor) => Some(anchor.clone()),
            _ => None,
        }
    }

    /// Reads what holds the record, to see whose it is now.
    async fn find(&self, cluster: &Cluster, deadline: Deadline) -> Result<Found, Error> {
        let name = match (self.kind, &self.anchor, &self.pod) {
            (Kind::Anchor, Tried::Sent(name), _) | (Kind::Pod, _, Tried::Sent(name)) => name,
            (Kind::Anchor, Tried::Yes(anchor), _) => anchor.name(),
            (Kind::Pod, _, Tried::Yes(pod)) => &pod.name,
            (Kind::Anchor, Tried::No, _) | (Kind::Pod, _, Tried::No) => {
                return Ok(Found::Not(Held::Ours));
            }
        };
        let found = Holder::read(cluster, self.kind, name, deadline).await?;
        let Some(found) = found.filter(|found| found.is_of(&self.launch_id)) else {
            return Ok(Found::Not(Held::Ours));
        };
        // What cannot be read is this launch's all the same.
        Ok(match found.record().filter(|r| r.attempt != self.attempt) {
            Some(theirs) => Found::Not(Held::Theirs(theirs.generation)),
            None => Found::Ours(Box::new(found)),
        })
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
        match self.keep_holder(cluster, Deadline::after(ANCHOR)).await {
            Ok(Held::Ours) => {}
            Ok(theirs) => return Ok(theirs),
            Err(error) => left.push(error.to_string()),
        }
        // In a shared session nobody knows then whether another attempt has it.
        let may_be_theirs = self.kind == Kind::Pod && !left.is_empty();
        if !may_be_theirs && let Err(error) = self.delete_secret(cluster, deadline).await {
            left.push(error.to_string());
        }
        if left.is_empty() {
            Ok(Held::Ours)
        } else {
            Err(left)
        }
    }

    async fn keep_holder(&self, cluster: &Cluster, deadline: Deadline) -> Result<Held, Error> {
        let mut known = self.known();
        loop {
            let holder = match known.take() {
                Some(holder) => holder,
                None => match self.find(cluster, deadline).await? {
                    Found::Ours(holder) => *holder,
                    Found::Not(held) => return Ok(held),
                },
            };
            let until = Timestamp::now().saturating_add(KEPT).ok();
            let changes = [(EXPIRES, until.map(|t| t.to_string()))];
            match holder.change(cluster, &changes, None, deadline).await {
                Err(Error::Conflict { .. }) => {}
                done => return done.map(|_| Held::Ours),
            }
        }
    }
}

/// What has become of the holder of the record.
enum Found {
    /// It is there, and this attempt's.
    Ours(Box<Holder>),
    /// It is not there, or another attempt's.
    Not(Held),
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
    use k8s_openapi::api::core::v1::Service;
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
        let anchor = Service {
            metadata,
            ..Service::default()
        };
        let mut made = Made {
            anchor: Tried::Yes((&anchor).into()),
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
