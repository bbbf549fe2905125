//! What holds the record of a launch, and says until when that may take: the
//! anchor of a session of the sandbox's own, or the Pod in a shared one. A change
//! of it fails when somebody else has changed hands first: an anchor's by its
//! resource version; a Pod's by the record itself, since kubelets write to it
//! all the time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Preconditions;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Deadline, Error};
use crate::manifest::{EXPIRES, GENERATION, LAUNCH_ID, Owner, RECORD, Record};
use crate::watch::Watch;

/// Which of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Anchor,
    Pod,
}

impl Kind {
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Anchor => "services",
            Self::Pod => "pods",
        }
    }
}

/// The object, as far as that is known of it.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) kind: Kind,
    meta: ObjectMeta,
}

impl From<&Service> for Holder {
    fn from(anchor: &Service) -> Self {
        let meta = anchor.metadata.clone();
        Self {
            kind: Kind::Anchor,
            meta,
        }
    }
}

impl From<&Pod> for Holder {
    fn from(pod: &Pod) -> Self {
        let meta = pod.metadata.clone();
        Self {
            kind: Kind::Pod,
            meta,
        }
    }
}

impl Holder {
    /// Reads the one of this name; `None` when there is none.
    pub(super) async fn read(
        cluster: &Cluster,
        kind: Kind,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Self>, Error> {
        Ok(match kind {
            Kind::Anchor => cluster.service(name, deadline).await?.map(|o| (&o).into()),
            Kind::Pod => cluster.pod(name, deadline).await?.map(|o| (&o).into()),
        })
    }

    pub(super) fn owner(&self) -> Owner {
        Owner {
            name: self.name().to_owned(),
            uid: self.meta.uid.clone().unwrap_or_default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.meta.uid.as_deref()
    }

    pub(super) fn created(&self) -> Timestamp {
        let created = self.meta.creation_timestamp.as_ref();
        created.map_or_else(Timestamp::now, |t| t.0)
    }

    pub(super) fn is_going(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.meta.labels.as_ref()?.get(key).map(String::as_str)
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The record, when it has one that can be read.
    pub(super) fn record(&self) -> Option<Record> {
        Record::parse(self.annotation(RECORD)?)
    }

    pub(super) fn is_of(&self, launch_id: &str) -> bool {
        self.label(LAUNCH_ID) == Some(launch_id)
    }

    /// Whether that is the sandbox of the record: a Pod below the anchor, or the
    /// holder itself.
    pub(super) fn is_about(&self, pod: &Pod) -> bool {
        match self.kind {
            Kind::Anchor => is_owned_by(pod, self.uid()),
            Kind::Pod => pod.metadata.uid.as_deref() == self.uid(),
        }
    }

    pub(super) fn is_owned_by(&self, owner: &Owner) -> bool {
        let owners = self.meta.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|one| one.uid == owner.uid)
    }

    /// What a write needs to know of it: a process may hold a thousand.
    pub(super) fn bare(&self) -> Self {
        let needed = |key: &str| self.kind == Kind::Pod && [RECORD, EXPIRES].contains(&key);
        let annotations: BTreeMap<_, _> = self
            .meta
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| needed(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Self {
            kind: self.kind,
            meta: ObjectMeta {
                name: self.meta.name.clone(),
                uid: self.meta.uid.clone(),
                resource_version: self.meta.resource_version.clone(),
                creation_timestamp: self.meta.creation_timestamp.clone(),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
        }
    }

    /// Writes annotations, provided that nobody was first; an empty value takes
    /// one away. An anchor's label says another generation then.
    ///
    /// # Errors
    /// [`Error::Conflict`] when somebody was: read again, decide again.
    pub(super) async fn change(
        &self,
        cluster: &Cluster,
        changes: &[(&str, Option<String>)],
        generation: Option<u32>,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        match self.kind {
            Kind::Anchor => {
                let metadata = self.merged(changes, generation);
                let changed = cluster.change_anchor(self.name(), metadata, deadline);
                changed.await.map(|anchor| (&anchor).into())
            }
            Kind::Pod => {
                let operations = self.operations(changes);
                let changed = cluster.change_pod(self.name(), operations, deadline);
                match changed.await {
                    Ok(pod) => Ok((&pod).into()),
                    Err(Error::Invalid { call, message }) => {
                        let found = Self::read(cluster, self.kind, self.name(), deadline).await?;
                        let as_seen = found.is_some_and(|found| {
                            found.uid() == self.uid()
                                && found.annotation(RECORD) == self.annotation(RECORD)
                        });
                        // Of a test that failed, or of the change itself.
                        Err(if as_seen {
                            Error::Invalid { call, message }
                        } else {
                            Error::Conflict { call, message }
                        })
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn merged(&self, changes: &[(&str, Option<String>)], generation: Option<u32>) -> Value {
        let map: serde_json::Map<_, _> = changes
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let mut metadata = json!({
            "uid": self.meta.uid,
            "resourceVersion": self.meta.resource_version,
            "annotations": map,
        });
        if let Some(generation) = generation {
            metadata["labels"] = json!({ (GENERATION): generation.to_string() });
        }
        metadata
    }

    /// A JSON patch that tests before it writes.
    fn operations(&self, changes: &[(&str, Option<String>)]) -> Value {
        let path = |key: &str| format!("/metadata/annotations/{}", key.replace('/', "~1"));
        let mut operations = vec![
            json!({ "op": "test", "path": "/metadata/uid", "value": self.meta.uid }),
            json!({ "op": "test", "path": path(RECORD), "value": self.annotation(RECORD) }),
        ];
        for (key, value) in changes {
            if let Some(value) = value {
                operations.push(json!({ "op": "add", "path": path(key), "value": value }));
            } else if self.annotation(key).is_some() {
                operations.push(json!({ "op": "remove", "path": path(key) }));
            }
        }
        operations.into()
    }

    /// Deletes it as it is here.
    ///
    /// # Errors
    /// [`Error::Conflict`] when somebody has written to it since.
    pub(super) async fn delete(&self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let exactly = Preconditions {
            uid: self.meta.uid.clone(),
            resource_version: self.meta.resource_version.clone(),
        };
        let (resource, name) = (self.kind.resource(), self.name());
        let deleted = match self.kind {
            Kind::Anchor => {
                cluster
                    .delete::<Service>(resource, name, exactly, deadline)
                    .await
            }
            Kind::Pod => {
                cluster
                    .delete::<Pod>(resource, name, exactly, deadline)
                    .await
            }
        };
        deleted.map(drop)
    }

    /// Waits until it is gone.
    pub(super) async fn gone(&self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let (resource, metadata) = (self.kind.resource(), self.meta.clone());
        match self.kind {
            Kind::Anchor => {
                let anchor = Service {
                    metadata,
                    ..Service::default()
                };
                let watch = Watch::of_object(cluster, resource, &anchor);
                watch.gone(&anchor, deadline).await
            }
            Kind::Pod => {
                let pod = Pod {
                    metadata,
                    ..Pod::default()
                };
                Watch::of_object(cluster, resource, &pod)
                    .gone(&pod, deadline)
                    .await
            }
        }
    }
}

/// Whether it belongs to the object of this uid.
pub(super) fn is_owned_by<K: kube::Resource>(object: &K, uid: Option<&str>) -> bool {
    let owners = object
        .meta()
        .owner_references
        .as_deref()
        .unwrap_or_default();
    owners.iter().any(|owner| Some(owner.uid.as_str()) == uid)
}
