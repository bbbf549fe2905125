//! One watch on Pods, begun at a resource version we know, so without a list.
//! It resumes where it broke off; only a place that is gone costs a read.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};

use crate::cluster::{Call, Cluster, Deadline, Error, by_status, classify, wait_before_retry};

/// The server ends a watch after this; a silent one is given up a little later.
const WATCH_SECONDS: u32 = 60;
const SILENCE: Duration = Duration::from_secs(65);
const PAUSE: Duration = Duration::from_millis(100);

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>;

/// One thing the watch saw.
#[derive(Debug)]
pub enum PodEvent {
    /// The Pod as it is now.
    Now(Box<Pod>),
    /// The Pod is gone; as it was at the end.
    Gone(Box<Pod>),
}

enum Which {
    Name(String),
    Labels(String),
}

/// A watch on one Pod or on a session's Pods.
pub struct PodWatch {
    cluster: Cluster,
    which: Which,
    version: String,
    events: Option<Events>,
    pause: Duration,
}

impl PodWatch {
    /// Watches one Pod from the version it was last seen at.
    pub fn of_pod(cluster: &Cluster, pod: &Pod) -> Self {
        let version = pod.resource_version().unwrap_or_default();
        Self::new(cluster, Which::Name(pod.name_any()), version)
    }

    /// Watches all Pods of a session from a list's version.
    pub fn of_session(cluster: &Cluster, session: &str, version: String) -> Self {
        Self::new(
            cluster,
            Which::Labels(crate::cluster::pods_of(Some(session))),
            version,
        )
    }

    fn new(cluster: &Cluster, which: Which, version: String) -> Self {
        Self {
            cluster: cluster.clone(),
            which,
            version,
            events: None,
            pause: PAUSE,
        }
    }

    fn call(&self) -> Call {
        let name = match &self.which {
            Which::Name(name) => name.as_str(),
            Which::Labels(_) => "",
        };
        self.cluster.what("watch", "pods", name)
    }

    /// The next thing that happens to the Pod or Pods.
    ///
    /// *Cancel safety*: a dropped call loses nothing; the watch goes on.
    ///
    /// *Errors*: what cannot be cured by watching again; [`Error::TimedOut`]
    /// and the like once `deadline` does not leave room for another try.
    pub async fn next(&mut self, deadline: Deadline) -> Result<PodEvent, Error> {
        loop {
            if self.events.is_none() {
                self.open(deadline).await?;
            }
            let Some(events) = self.events.as_mut() else {
                continue;
            };
            // Ended by the server, or silent for longer than it may be.
            let Ok(Some(item)) = tokio::time::timeout(SILENCE, events.next()).await else {
                self.events = None;
                continue;
            };
            let error = match item {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    self.advance(&pod);
                    return Ok(PodEvent::Now(Box::new(pod)));
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    self.advance(&pod);
                    return Ok(PodEvent::Gone(Box::new(pod)));
                }
                Ok(WatchEvent::Bookmark(mark)) => {
                    self.version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(status)) => by_status(self.call(), &status),
                Err(error) => classify(self.call(), self.cluster.server(), &error),
            };
            self.events = None;
            if let Some(event) = self.recover(error, deadline).await? {
                return Ok(event);
            }
        }
    }

    fn advance(&mut self, pod: &Pod) {
        self.pause = PAUSE;
        if let Some(version) = pod.resource_version() {
            self.version = version;
        }
    }

    async fn open(&mut self, deadline: Deadline) -> Result<(), Error> {
        let params = WatchParams {
            bookmarks: true,
            ..WatchParams::default()
        }
        .timeout(WATCH_SECONDS);
        let params = match &self.which {
            Which::Name(name) => params.fields(&format!("metadata.name={name}")),
            Which::Labels(labels) => params.labels(labels),
        };
        let api = self.cluster.watch_api::<Pod>();
        let opened = self
            .cluster
            .once(self.call(), deadline, api.watch(&params, &self.version))
            .await;
        match opened {
            Ok(stream) => self.events = Some(Box::pin(stream)),
            Err(error) => {
                self.recover(error, deadline).await?;
            }
        }
        Ok(())
    }

    /// Makes the next attempt possible, or gives the error back. A place that
    /// is gone is replaced by the Pod as it is now.
    async fn recover(
        &mut self,
        error: Error,
        deadline: Deadline,
    ) -> Result<Option<PodEvent>, Error> {
        if let (Error::Gone { .. }, Which::Name(name)) = (&error, &self.which) {
            let Some(pod) = self.cluster.pod(name, deadline).await? else {
                return Err(Error::NotFound { call: self.call() });
            };
            self.advance(&pod);
            return Ok(Some(PodEvent::Now(Box::new(pod))));
        }
        let again =
            error.is_transient() && wait_before_retry(&error, &mut self.pause, deadline).await;
        if again { Ok(None) } else { Err(error) }
    }
}
