//! One watch on an object or on our Pods, begun at a resource version we know,
//! so without a list. It resumes where it broke off; only a place that is gone
//! costs a read.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cluster::{
    Call, Cluster, Deadline, Error, Pause, by_status, classify, wait_before_retry,
};

/// The server ends a watch after this; a silent one is given up a little later.
const WATCH_SECONDS: u32 = 60;
const SILENCE: Duration = Duration::from_secs(65);
/// A watch that ends sooner than that is not opened again at once.
const BRIEF: Duration = Duration::from_secs(1);

type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

/// One thing the watch saw.
#[derive(Debug)]
pub enum Change<K> {
    /// The object as it is now.
    Now(Box<K>),
    /// The object is gone; as it was at the end.
    Gone(Box<K>),
}

/// What a watch on Pods saw.
pub type PodEvent = Change<Pod>;

enum Which {
    Name(String),
    Labels(String),
}

/// A watch on one object or on several.
pub struct Watch<K> {
    cluster: Cluster,
    resource: &'static str,
    which: Which,
    version: String,
    events: Option<Events<K>>,
    pause: Pause,
    opened: Option<Instant>,
}

/// A watch on one Pod or on a session's Pods.
pub type PodWatch = Watch<Pod>;

impl Watch<Pod> {
    /// Watches one Pod from the version it was last seen at.
    pub fn of_pod(cluster: &Cluster, pod: &Pod) -> Self {
        Self::of_object(cluster, "pods", pod)
    }

    /// Watches the Pod of this name from this version.
    pub fn of_name(cluster: &Cluster, name: &str, version: String) -> Self {
        Self::new(cluster, "pods", Which::Name(name.to_owned()), version)
    }

    /// Watches all Pods of a session from a list's version.
    pub fn of_session(cluster: &Cluster, session: &str, version: String) -> Self {
        let labels = crate::cluster::pods_of(Some(session));
        Self::new(cluster, "pods", Which::Labels(labels), version)
    }

    /// Watches all Pods of ours from this version.
    pub fn of_all(cluster: &Cluster, version: String) -> Self {
        let labels = crate::cluster::pods_of(None);
        Self::new(cluster, "pods", Which::Labels(labels), version)
    }
}

impl<K> Watch<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches one object from the version it was last seen at.
    pub fn of_object(cluster: &Cluster, resource: &'static str, object: &K) -> Self {
        let version = object.resource_version().unwrap_or_default();
        Self::new(cluster, resource, Which::Name(object.name_any()), version)
    }

    fn new(cluster: &Cluster, resource: &'static str, which: Which, version: String) -> Self {
        Self {
            cluster: cluster.clone(),
            resource,
            which,
            version,
            events: None,
            pause: Pause::SHORT,
            opened: None,
        }
    }

    fn call(&self) -> Call {
        let name = match &self.which {
            Which::Name(name) => name.as_str(),
            Which::Labels(_) => "",
        };
        self.cluster.what("watch", self.resource, name)
    }

    /// One that has lost its place goes on from a list of all our Pods.
    pub fn go_on_with_all(&mut self, version: String) {
        self.which = Which::Labels(crate::cluster::pods_of(None));
        self.version = version;
        self.events = None;
    }

    /// How far it has come: where another watch could go on.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Waits until the object is gone, or another one has its name.
    ///
    /// *Errors*: as [`Watch::next`].
    pub async fn gone(mut self, object: &K, deadline: Deadline) -> Result<(), Error> {
        let uid = object.uid();
        loop {
            match self.next(deadline).await {
                Ok(Change::Gone(last)) if last.uid() == uid => return Ok(()),
                Ok(Change::Now(now)) if now.uid() != uid => return Ok(()),
                Ok(_) => {}
                Err(Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next thing that happens to what is watched.
    ///
    /// *Cancel safety*: a dropped call loses nothing; the watch goes on.
    ///
    /// *Errors*: what cannot be cured by watching again; [`Error::TimedOut`]
    /// and the like once `deadline` does not leave room for another try.
    pub async fn next(&mut self, deadline: Deadline) -> Result<Change<K>, Error> {
        self.follow(|| deadline).await
    }

    /// The same, however long nothing happens: `patience` counts only while
    /// there is no watch, not while an open one has nothing to tell.
    ///
    /// *Cancel safety* and *Errors*: as [`Watch::next`].
    pub async fn next_within(&mut self, patience: Duration) -> Result<Change<K>, Error> {
        self.follow(|| Deadline::after(patience)).await
    }

    /// `limit` is asked by when the watch must be open, from now on.
    async fn follow(&mut self, limit: impl Fn() -> Deadline) -> Result<Change<K>, Error> {
        let mut deadline = limit();
        loop {
            if self.events.is_none()
                && let Some(event) = self.open(deadline).await?
            {
                return Ok(event);
            }
            let Some(events) = self.events.as_mut() else {
                continue;
            };
            // Ended by the server, or silent for longer than it may be.
            let Ok(Some(item)) = tokio::time::timeout(SILENCE, events.next()).await else {
                self.ended();
                deadline = limit();
                continue;
            };
            let error = match item {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    return Ok(Change::Now(Box::new(self.advance(object))));
                }
                Ok(WatchEvent::Deleted(object)) => {
                    return Ok(Change::Gone(Box::new(self.advance(object))));
                }
                Ok(WatchEvent::Bookmark(mark)) => {
                    self.version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(status)) => by_status(self.call(), &status),
                Err(error) => classify(self.call(), self.cluster.server(), &error),
            };
            self.ended();
            // One that breaks again and again is trouble, one that broke late is not yet.
            if deadline.is_over() {
                deadline = limit();
            }
            if let Some(event) = self.recover(error, deadline).await? {
                return Ok(event);
            }
        }
    }

    /// Who wrote which field is half of an object, and of no use here.
    fn advance(&mut self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        if let Some(version) = object.resource_version() {
            self.version = version;
        }
        object
    }

    /// Keeps a server that ends every watch at once from being asked without
    /// end. A dropped call begins no new pause.
    async fn not_too_often(&mut self) {
        if let Some(opened) = self.opened {
            let again = opened + self.pause.next();
            let wait = again.saturating_duration_since(Instant::now());
            self.pause.sleep(wait).await;
        }
        self.opened = Some(Instant::now());
    }

    fn ended(&mut self) {
        self.events = None;
        if self.opened.is_some_and(|opened| opened.elapsed() >= BRIEF) {
            self.opened = None;
            self.pause = Pause::SHORT;
        }
    }

    async fn open(&mut self, deadline: Deadline) -> Result<Option<Change<K>>, Error> {
        self.not_too_often().await;
        let params = WatchParams {
            bookmarks: true,
            ..WatchParams::default()
        }
        .timeout(WATCH_SECONDS);
        let params = match &self.which {
            Which::Name(name) => params.fields(&format!("metadata.name={name}")),
            Which::Labels(labels) => params.labels(labels),
        };
        let api = self.cluster.watch_api::<K>();
        let opened = self
            .cluster
            .once(self.call(), deadline, api.watch(&params, &self.version))
            .await;
        match opened {
            Ok(stream) => {
                self.events = Some(Box::pin(stream));
                Ok(None)
            }
            Err(error) => self.recover(error, deadline).await,
        }
    }

    /// Makes the next attempt possible, or gives the error back. A place that
    /// is gone is replaced by the object as it is now.
    async fn recover(
        &mut self,
        error: Error,
        deadline: Deadline,
    ) -> Result<Option<Change<K>>, Error> {
        if let (Error::Gone { .. }, Which::Name(name)) = (&error, &self.which) {
            let api = self.cluster.api::<K>();
            let call = self.cluster.what("get", self.resource, name);
            let found = self.cluster.repeat(call, deadline, || api.get_opt(name));
            let Some(object) = found.await? else {
                return Err(Error::NotFound { call: self.call() });
            };
            return Ok(Some(Change::Now(Box::new(self.advance(object)))));
        }
        let again =
            error.is_transient() && wait_before_retry(&error, &mut self.pause, deadline).await;
        if !again {
            return Err(error);
        }
        // That was a pause.
        self.opened = None;
        Ok(None)
    }
}
