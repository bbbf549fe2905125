//! Owners: one Lease each, which the sessions of a deployment or of a process
//! name. As long as it is renewed they live; the sweep takes those whose owner
//! is dead. Lease writes are per owner, never per sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{Cluster, Deadline, Error};
use crate::launching::Cancelled;
use crate::manifest::{MANAGED_BY, OWNER_KIND};

/// How long a Lease lives without a renewal, as it says itself.
pub const DURATION: Duration = Duration::from_secs(15);
/// A renewal that is lost leaves time for another one.
const EVERY: Duration = Duration::from_secs(DURATION.as_secs() / 3);

/// The kind of a Lease that ends with one process.
const PROCESS: &str = "process";

/// Why the Lease of a process is its no longer; empty while it is.
pub(crate) type Lost = watch::Receiver<Option<String>>;

/// The owners of a process' sessions, by the name of their Lease: those it
/// renews, and others it has launched under. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Owners {
    all: Arc<Mutex<HashMap<String, Lost>>>,
    others: Arc<Mutex<HashMap<String, Ensured>>>,
}

/// A Lease that is being made or renewed, or was: since when, and how it went.
type Ensured = (Instant, Shared<BoxFuture<'static, Result<(), Error>>>);

impl Owners {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Lost>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to hear that this one is lost; `None` when this process does not
    /// renew it.
    pub(crate) fn renewed(&self, name: &str) -> Option<Lost> {
        self.lock().get(name).cloned()
    }

    /// Makes the Lease of a deployment, or renews it, unless this process renews
    /// it all along: once for all that are launched while it lasts.
    pub(crate) async fn ensure(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<(), Error> {
        if self.renewed(name).is_some() {
            return Ok(());
        }
        let ensured = {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            let known = others.get(name).filter(|(since, ensured)| {
                since.elapsed() < DURATION && !matches!(ensured.peek(), Some(Err(_)))
            });
            if let Some((_, ensured)) = known {
                ensured.clone()
            } else {
                let (cluster, lease) = (cluster.clone(), name.to_owned());
                let work = async move { ensure(&cluster, &lease, false, deadline).await.map(drop) };
                let ensured = work.boxed().shared();
                others.retain(|_, (since, _)| since.elapsed() < DURATION);
                others.insert(name.to_owned(), (Instant::now(), ensured.clone()));
                ensured
            }
        };
        ensured.await
    }

    pub(crate) fn insert(&self, name: String, lost: Lost) {
        self.lock().insert(name, lost);
    }

    /// Later launches under this name are nobody's to end; a later owner stays.
    pub(crate) fn remove(&self, name: &str, lost: &Lost) {
        let mut all = self.lock();
        if all.get(name).is_some_and(|now| now.same_channel(lost)) {
            all.remove(name);
        }
    }
}

fn lease(name: &str, kind: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                [(MANAGED_BY, "podcradle"), (OWNER_KIND, kind)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(MicroTime(Timestamp::now())),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

/// Makes the Lease, or renews the one that is there.
pub(crate) async fn ensure(
    cluster: &Cluster,
    name: &str,
    attached: bool,
    deadline: Deadline,
) -> Result<ObjectMeta, Error> {
    let kind = if attached { PROCESS } else { "deployment" };
    let wanted = lease(name, kind);
    let api = cluster.renewal_api::<Lease>();
    let post = PostParams::default();
    loop {
        let call = cluster.what("create", "leases", name);
        // The same POST again is harmless: it is there, or it is not.
        let create = cluster.repeat(call, deadline, || api.create(&post, &wanted));
        match create.await {
            Ok(made) => return Ok(made.metadata),
            Err(Error::Exists { .. }) => match renew(cluster, name, None, deadline).await {
                // Deleted between the two calls.
                Err(Error::NotFound { .. }) => {}
                done => return done.map(|lease| lease.metadata),
            },
            Err(error) => return Err(error),
        }
    }
}

async fn renew(
    cluster: &Cluster,
    name: &str,
    uid: Option<&str>,
    deadline: Deadline,
) -> Result<Lease, Error> {
    let api = cluster.renewal_api::<Lease>();
    let params = PatchParams::default();
    let call = cluster.what("patch", "leases", name);
    let request = || {
        let mut patch = json!({ "spec": { "renewTime": MicroTime(Timestamp::now()) } });
        if let Some(uid) = uid {
            patch["metadata"] = json!({ "uid": uid });
        }
        let (api, params) = (&api, &params);
        async move { api.patch(name, params, &Patch::Merge(patch)).await }
    };
    cluster.repeat(call, deadline, request).await
}

/// The Lease that a session names, when it is that of an attached process.
pub(crate) async fn of_process(
    cluster: &Cluster,
    name: &str,
    deadline: Deadline,
) -> Result<Option<Lease>, Error> {
    if !crate::name::may_be_of_process(name) {
        return Ok(None);
    }
    let api = cluster.renewal_api::<Lease>();
    let (params, nothing) = (PatchParams::default(), Patch::Merge(json!({})));
    let call = cluster.what("patch", "leases", name);
    // The launcher may patch Leases, not read them: a patch of nothing writes
    // nothing, and answers with what is there.
    let read = cluster.repeat(call, deadline, || api.patch(name, &params, &nothing));
    match read.await {
        Ok(lease) => {
            let kind = lease.labels().get(OWNER_KIND);
            Ok((kind.is_some_and(|kind| kind == PROCESS)).then_some(lease))
        }
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the Lease of a process that is dead: nobody has renewed it for as long
/// as it lasts, counted from when it was seen. A process that lives may have other
/// sandboxes under it, and takes it along at its end.
pub(crate) async fn forget(cluster: &Cluster, seen: &Lease, since: Instant, deadline: Deadline) {
    loop {
        match of_process(cluster, &seen.name_any(), deadline).await {
            Ok(Some(now)) if now.metadata.resource_version == seen.metadata.resource_version => {}
            Ok(_) => return,
            Err(error) => return tracing::warn!(%error, "lease not deleted; the sweep takes it"),
        }
        let over = since + DURATION;
        if over >= deadline.instant() {
            tracing::warn!("lease not deleted, for want of time; the sweep takes it");
            return;
        }
        if Instant::now() >= over {
            break;
        }
        tokio::time::sleep_until(over.min(Instant::now() + EVERY)).await;
    }
    let exactly = Preconditions {
        uid: seen.uid(),
        resource_version: seen.resource_version(),
    };
    let name = seen.name_any();
    let deleted = cluster.delete::<Lease>("leases", &name, exactly, deadline);
    match deleted.await {
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, "lease not deleted; the sweep takes it"),
    }
}

/// Renews a Lease until `stop` is dropped, or it is somebody else's or gone;
/// deletes an attached one at the end.
pub(crate) async fn keep(
    cluster: Cluster,
    name: String,
    mut seen: ObjectMeta,
    attached: bool,
    lost: watch::Sender<Option<String>>,
    stop: Cancelled,
) {
    loop {
        tokio::select! {
            () = stop.wait() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
        let uid = seen.uid.as_deref();
        match renew(&cluster, &name, uid, Deadline::after(DURATION)).await {
            Ok(renewed) => seen = renewed.metadata,
            // Gone, or another one in its place.
            Err(
                error @ (Error::NotFound { .. } | Error::Conflict { .. } | Error::Invalid { .. }),
            ) => {
                let _ = lost.send(Some(error.to_string()));
                return;
            }
            // The next renewal may get through; whether the Lease is dead by
            // then is for those to say who watch it.
            Err(error) => tracing::warn!(%error, "lease not renewed"),
        }
    }
    if attached && let Err(error) = delete(&cluster, &name, seen).await {
        tracing::warn!(%error, "lease not deleted; the sweep takes it");
    }
}

/// Deletes a Lease as it was seen last.
async fn delete(cluster: &Cluster, name: &str, mut seen: ObjectMeta) -> Result<(), Error> {
    let deadline = Deadline::after(DURATION);
    loop {
        let exactly = Preconditions {
            uid: seen.uid.clone(),
            resource_version: seen.resource_version.clone(),
        };
        let deleted = cluster.delete::<Lease>("leases", name, exactly, deadline);
        match deleted.await {
            Err(Error::Conflict { .. }) => {}
            done => return done.map(drop),
        }
        // By a renewal whose answer was lost, or by somebody: as it is now, if it
        // is the same one.
        match renew(cluster, name, seen.uid.as_deref(), deadline).await {
            Ok(renewed) => seen = renewed.metadata,
            Err(Error::NotFound { .. } | Error::Conflict { .. } | Error::Invalid { .. }) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}
