//! The verbs of the tree: create, read, patch (`sealed` has delete, and all that
//! is done to a Secret). A create is never
//! repeated blindly: what became of an ambiguous one is read back first.

use std::fmt::Debug;

use futures::AsyncBufRead;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Call, Cluster, Deadline, Error, Pause, wait_before_retry};
use crate::manifest::{GENERATION, LAUNCH_ID, SESSION};

/// How an object's deletion went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The API server accepted it; a Pod still has its grace period.
    Accepted,
    /// There was nothing to delete.
    Absent,
}

/// Which part of a container's log.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Container.
    pub container: String,
    /// Go on as it grows.
    pub follow: bool,
    /// Last lines only.
    pub tail: Option<i64>,
    /// Of the instance before this one.
    pub previous: bool,
}

impl Cluster {
    /// Creates an object of ours that may be read back. When the answer leaves open whether
    /// it was made, it is read back by name and recognised by its launch id.
    ///
    /// `in_doubt` says whether an earlier try may have made it, and afterwards
    /// whether any may have: the last error alone does not.
    ///
    /// # Errors
    /// [`Error::Exists`] when the name is taken by something that is not this
    /// launch's.
    pub(crate) async fn create<K>(
        &self,
        resource: &'static str,
        object: &K,
        in_doubt: &mut bool,
        deadline: Deadline,
    ) -> Result<K, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let api = self.api::<K>();
        let name = object.name_any();
        let call = self.what("create", resource, &name);
        let post = PostParams::default();
        let mut pause = Pause::SHORT;
        loop {
            let error = match self
                .once(call.clone(), deadline, api.create(&post, object))
                .await
            {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            *in_doubt |= error.is_ambiguous();
            let exists = matches!(error, Error::Exists { .. });
            if *in_doubt && (exists || error.is_ambiguous()) {
                let read = self.what("get", resource, &name);
                let found = if exists {
                    self.repeat(read, deadline, || api.get_opt(&name)).await
                } else {
                    self.once(read, deadline, api.get_opt(&name)).await
                };
                if let Ok(Some(found)) = found {
                    // A Pod of the same launch and another generation is another attempt's.
                    let id =
                        |o: &K| [LAUNCH_ID, GENERATION].map(|label| o.labels().get(label).cloned());
                    return if id(&found) == id(object) && found.meta().deletion_timestamp.is_none()
                    {
                        Ok(found)
                    } else {
                        *in_doubt = false;
                        Err(Error::Exists { call })
                    };
                }
            }
            if !may_be_created(&error) || !wait_before_retry(&error, &mut pause, deadline).await {
                return Err(error);
            }
        }
    }

    /// Asks what would become of a creation, without creating anything.
    pub(crate) async fn would_create<K>(
        &self,
        resource: &'static str,
        object: &K,
        deadline: Deadline,
    ) -> Result<K, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let api = self.api::<K>();
        let call = self.what("create", resource, &object.name_any());
        let post = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.repeat(call, deadline, || api.create(&post, object))
            .await
    }

    /// Takes our gate, and only ours, off the Pod with this uid. A patch of a
    /// list goes by the place in it, which moves when a queue takes its own gate
    /// off meanwhile: the Pod is read again then.
    pub(crate) async fn remove_gate(
        &self,
        pod: &Pod,
        gate: &str,
        deadline: Deadline,
    ) -> Result<Pod, Error> {
        let name = pod.name_any();
        let call = self.what("patch", "pods", &name);
        let api = self.api::<Pod>();
        let params = PatchParams::default();
        let mut pause = Pause::SHORT;
        let mut read_again = None;
        loop {
            let now = read_again.as_ref().unwrap_or(pod);
            let Some(index) = place_of(gate, now) else {
                return Ok(now.clone());
            };
            let patch = without_gate(now, gate, index);
            let patch = patch.map_err(|e| super::classify(call.clone(), self.server(), &e))?;
            let error = match self
                .once(call.clone(), deadline, api.patch(&name, &params, &patch))
                .await
            {
                Ok(patched) => return Ok(patched),
                Err(error) => error,
            };
            if matches!(error, Error::Invalid { .. }) {
                // Off already, by a try whose answer was lost, or elsewhere.
                let read = self.what("get", "pods", &name);
                let now = self.repeat(read, deadline, || api.get(&name)).await?;
                if now.uid() != pod.uid() || place_of(gate, &now) == Some(index) {
                    return Err(error);
                }
                read_again = Some(now);
            } else if !error.is_transient()
                || !wait_before_retry(&error, &mut pause, deadline).await
            {
                return Err(error);
            }
        }
    }

    /// Merges this into an anchor's metadata: with a uid and a resource version in
    /// it only as long as these are its own.
    ///
    /// # Errors
    /// [`Error::Conflict`] when they are not: read again, decide again.
    pub(crate) async fn change_anchor(
        &self,
        name: &str,
        metadata: Value,
        deadline: Deadline,
    ) -> Result<Service, Error> {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = self.api::<Service>();
        let params = PatchParams::default();
        self.repeat(self.what("patch", "services", name), deadline, || {
            api.patch(name, &params, &patch)
        })
        .await
    }

    /// Changes a Pod by a JSON patch, whose tests say when it may be done, and
    /// done again.
    ///
    /// # Errors
    /// [`Error::Invalid`] when one does not hold.
    pub(crate) async fn change_pod(
        &self,
        name: &str,
        operations: Value,
        deadline: Deadline,
    ) -> Result<Pod, Error> {
        let call = self.what("patch", "pods", name);
        let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError);
        let patch = patch.map_err(|e| super::classify(call.clone(), self.server(), &e))?;
        let patch = Patch::<()>::Json(patch);
        let api = self.api::<Pod>();
        let params = PatchParams::default();
        self.repeat(call, deadline, || api.patch(name, &params, &patch))
            .await
    }

    /// Reads one Service; `None` when it does not exist.
    pub async fn service(&self, name: &str, deadline: Deadline) -> Result<Option<Service>, Error> {
        let api = self.api::<Service>();
        self.repeat(self.what("get", "services", name), deadline, || {
            api.get_opt(name)
        })
        .await
    }

    /// Reads one Pod; `None` when it does not exist.
    pub async fn pod(&self, name: &str, deadline: Deadline) -> Result<Option<Pod>, Error> {
        let api = self.api::<Pod>();
        self.repeat(self.what("get", "pods", name), deadline, || {
            api.get_opt(name)
        })
        .await
    }

    /// All anchors of ours in the namespace.
    pub async fn anchors(&self, deadline: Deadline) -> Result<Vec<Service>, Error> {
        let api = self.api::<Service>();
        let ours = ListParams::default().labels(SESSION);
        let list = self
            .repeat(self.what("list", "services", ""), deadline, || {
                api.list(&ours)
            })
            .await?;
        Ok(list.items)
    }

    /// All Pods of ours in the namespace, or of one session, and the resource
    /// version a watch may begin at.
    pub async fn pods(
        &self,
        session: Option<&str>,
        deadline: Deadline,
    ) -> Result<(Vec<Pod>, String), Error> {
        let api = self.api::<Pod>();
        let ours = ListParams::default().labels(&pods_of(session));
        let list = self
            .repeat(self.what("list", "pods", ""), deadline, || api.list(&ours))
            .await?;
        Ok((
            list.items,
            list.metadata.resource_version.unwrap_or_default(),
        ))
    }

    /// A node's architecture. Nodes are the cluster's, and a launcher may only
    /// read them where somebody has granted it.
    pub async fn node_architecture(
        &self,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<String>, Error> {
        let api = kube::Api::<Node>::all(self.client.clone());
        let call = Call {
            namespace: String::new(),
            ..self.what("get", "nodes", name)
        };
        let node = self.once(call, deadline, api.get(name)).await?;
        let info = node.status.and_then(|status| status.node_info);
        Ok(info.map(|info| info.architecture))
    }

    /// A container's log as text, at most 64 KiB.
    pub async fn log_text(
        &self,
        pod: &str,
        options: &LogOptions,
        deadline: Deadline,
    ) -> Result<String, Error> {
        let api = self.api::<Pod>();
        let params = LogParams {
            limit_bytes: Some(64 * 1024),
            ..log_params(options)
        };
        self.once(
            self.what("get", "pods/log", pod),
            deadline,
            api.logs(pod, &params),
        )
        .await
    }

    /// A container's log as a stream; only its opening has a deadline.
    pub async fn log_stream(
        &self,
        pod: &str,
        options: &LogOptions,
        deadline: Deadline,
    ) -> Result<impl AsyncBufRead + use<>, Error> {
        let api = self.watch_api::<Pod>();
        let params = log_params(options);
        self.once(
            self.what("get", "pods/log", pod),
            deadline,
            api.log_stream(pod, &params),
        )
        .await
    }
}

/// Where among the gates of the Pod this one is.
fn place_of(gate: &str, pod: &Pod) -> Option<usize> {
    let gates = pod.spec.as_ref()?.scheduling_gates.as_ref()?;
    gates.iter().position(|g| g.name == gate)
}

/// The patch that takes the gate at this place off this very Pod.
fn without_gate(pod: &Pod, gate: &str, index: usize) -> kube::Result<Patch<()>> {
    let path = format!("/spec/schedulingGates/{index}");
    let operations = json!([
        { "op": "test", "path": "/metadata/uid", "value": pod.uid() },
        { "op": "test", "path": format!("{path}/name"), "value": gate },
        { "op": "remove", "path": path },
    ]);
    let operations = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    Ok(Patch::Json(operations))
}

fn log_params(options: &LogOptions) -> LogParams {
    LogParams {
        container: Some(options.container.clone()),
        follow: options.follow,
        tail_lines: options.tail,
        previous: options.previous,
        ..LogParams::default()
    }
}

pub(crate) fn pods_of(session: Option<&str>) -> String {
    match session {
        Some(name) => format!("{SESSION}={name}"),
        None => SESSION.to_owned(),
    }
}

/// Whether the same POST may succeed: what is created has no earlier version,
/// so a conflict is about something else, such as a quota's count.
pub(super) fn may_be_created(error: &Error) -> bool {
    error.is_transient() || matches!(error, Error::Conflict { .. })
}
