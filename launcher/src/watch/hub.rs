//! One watch for all launches of a process. A single launch is watched by its
//! Pod's name, several by the label all our Pods have; what comes is handed to
//! whom it concerns, by uid. Begun at the version of a Pod just made, so without
//! a list; a place that is gone costs one. It ends with the last subscriber.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{Notify, mpsc};

use super::{PodEvent, PodWatch};
use crate::cluster::{Cluster, Deadline, Error};

/// After so long without a watch subscribers are told.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a subscriber is told about its Pod.
pub(crate) enum Seen {
    /// The Pod as it is now.
    Now(Box<Pod>),
    /// It is gone; as it was at the end, when that was seen.
    Gone(Option<Box<Pod>>),
    /// Nothing can be seen for the time being, and why.
    Trouble(String),
    /// Nothing can be seen any more.
    Failed(Box<Error>),
}

/// The watch of a process. Clones are one.
#[derive(Clone)]
pub(crate) struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// By the Pod's uid, and a number: two launches may wait for the same Pod.
    subscribers: BTreeMap<(String, u64), Subscriber>,
    count: u64,
    running: bool,
    /// The one Pod that is watched by name.
    narrow: Option<String>,
}

struct Subscriber {
    name: String,
    version: String,
    to: mpsc::UnboundedSender<Seen>,
}

/// One Pod's share of the watch.
pub(crate) struct Subscription {
    hub: Hub,
    key: (String, u64),
    from: mpsc::UnboundedReceiver<Seen>,
}

impl Hub {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self {
            inner: Arc::new(Inner {
                cluster: cluster.clone(),
                state: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.inner.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to this Pod from now on; what happened earlier may not be
    /// told. To be called before its gate is taken off, or before it is read.
    pub(crate) fn subscribe(&self, pod: &Pod) -> Subscription {
        let (to, from) = mpsc::unbounded_channel();
        let subscriber = Subscriber {
            name: pod.name_any(),
            version: pod.resource_version().unwrap_or_default(),
            to,
        };
        let mut state = self.state();
        state.count += 1;
        let key = (pod.uid().unwrap_or_default(), state.count);
        state.subscribers.insert(key.clone(), subscriber);
        // It must be among those that are watched before anything happens to it.
        if state.running && state.narrow.is_some() {
            self.inner.changed.notify_one();
        }
        Subscription {
            hub: self.clone(),
            key,
            from,
        }
    }

    fn start(&self) {
        let mut state = self.state();
        if !state.running {
            state.running = true;
            tokio::spawn(self.clone().run());
        }
    }

    /// The watch that is wanted now, from the oldest version anybody needs;
    /// `None` when nobody wants any.
    fn open(&self, at: Option<String>) -> Option<PodWatch> {
        let mut state = self.state();
        let oldest = || {
            let versions = state.subscribers.values().map(|s| &s.version);
            versions.min_by_key(|v| number(v)).cloned()
        };
        let Some(version) = at.or_else(oldest).filter(|_| !state.subscribers.is_empty()) else {
            state.running = false;
            return None;
        };
        let mut names = state.subscribers.values().map(|s| s.name.clone());
        state.narrow = match (names.next(), names.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        };
        let cluster = &self.inner.cluster;
        Some(match &state.narrow {
            Some(name) => PodWatch::of_name(cluster, name, version),
            None => PodWatch::of_all(cluster, version),
        })
    }

    /// Whether the watch that is open sees too little, or nobody needs it.
    fn is_wrong(&self) -> bool {
        let state = self.state();
        let mut names = state.subscribers.values().map(|s| &s.name);
        match (names.next(), names.next(), &state.narrow) {
            (Some(only), None, Some(narrow)) => only != narrow,
            (Some(_), _, None) => false,
            (None, ..) | (Some(_), Some(_), Some(_)) => true,
        }
    }

    async fn run(self) {
        let Some(mut watch) = self.open(None) else {
            return;
        };
        loop {
            let event = tokio::select! {
                biased;
                () = self.inner.changed.notified() => {
                    if self.is_wrong() {
                        match self.open(Some(watch.version().to_owned())) {
                            Some(wider) => watch = wider,
                            None => return,
                        }
                    }
                    continue;
                }
                event = watch.next_within(PATIENCE) => event,
            };
            match event {
                Ok(PodEvent::Now(pod)) => self.tell(pod, Seen::Now),
                Ok(PodEvent::Gone(pod)) => self.tell(pod, |pod| Seen::Gone(Some(pod))),
                Err(Error::NotFound { .. }) => self.tell_all(|| Seen::Gone(None)),
                Err(Error::Gone { .. }) => match self.list().await {
                    Ok(version) => watch.go_on_with_all(version),
                    Err(error) if may_end(&error) => {
                        self.tell_all(|| Seen::Trouble(error.to_string()));
                    }
                    Err(error) => return self.fail(&error),
                },
                Err(error) if may_end(&error) => {
                    self.tell_all(|| Seen::Trouble(error.to_string()));
                }
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Nobody will be told anything any more.
    fn fail(&self, error: &Error) {
        let mut state = self.state();
        state.running = false;
        for subscriber in std::mem::take(&mut state.subscribers).into_values() {
            let _ = subscriber.to.send(Seen::Failed(Box::new(error.clone())));
        }
    }

    /// All Pods as they are now, for a watch that lost its place.
    async fn list(&self) -> Result<String, Error> {
        let deadline = Deadline::after(PATIENCE);
        // Only of these does the list tell that they are gone.
        let before: Vec<_> = self.state().subscribers.keys().cloned().collect();
        let (pods, version) = self.inner.cluster.pods(None, deadline).await?;
        let there: Vec<_> = pods.iter().filter_map(ResourceExt::uid).collect();
        for pod in pods {
            self.tell(Box::new(pod), Seen::Now);
        }
        let state = self.state();
        for key in before.iter().filter(|(uid, _)| !there.contains(uid)) {
            if let Some(subscriber) = state.subscribers.get(key) {
                let _ = subscriber.to.send(Seen::Gone(None));
            }
        }
        Ok(version)
    }

    fn tell(&self, pod: Box<Pod>, what: impl Fn(Box<Pod>) -> Seen) {
        let state = self.state();
        let Some(uid) = pod.metadata.uid.as_ref() else {
            return;
        };
        let keys = (uid.clone(), 0)..=(uid.clone(), u64::MAX);
        let mut theirs = state.subscribers.range(keys).peekable();
        let mut pod = Some(pod);
        while let Some((_, subscriber)) = theirs.next() {
            // The last one gets the Pod itself.
            let theirs = if theirs.peek().is_some() {
                pod.clone()
            } else {
                pod.take()
            };
            let _ = theirs.map(|pod| subscriber.to.send(what(pod)));
        }
        // Where it is nobody's, it may have the name of one whose end was not seen.
        if let (Some(pod), Some(name)) = (pod, &state.narrow) {
            let now = number(pod.metadata.resource_version.as_deref().unwrap_or_default());
            let outlived = |s: &&Subscriber| s.name == *name && number(&s.version) < now;
            for subscriber in state.subscribers.values().filter(outlived) {
                let _ = subscriber.to.send(Seen::Gone(None));
            }
        }
    }

    fn tell_all(&self, what: impl Fn() -> Seen) {
        for subscriber in self.state().subscribers.values() {
            let _ = subscriber.to.send(what());
        }
    }
}

impl Subscription {
    /// The next thing that happens to the Pod.
    ///
    /// *Cancel safety*: a dropped call loses nothing.
    pub(crate) async fn next(&mut self) -> Seen {
        self.hub.start();
        // The sender lives in the hub until it has said that it failed.
        self.from.recv().await.unwrap_or(Seen::Gone(None))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.subscribers.remove(&self.key);
        if state.subscribers.is_empty() {
            self.hub.inner.changed.notify_one();
        }
    }
}

/// Versions are numbers since Kubernetes 1.35, and before that in all but name.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Trouble that may end by itself; a denial has been given its time already.
fn may_end(error: &Error) -> bool {
    error.is_transient() && !matches!(error, Error::Denied { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::timeout;

    use super::*;
    use crate::cluster::fake::{Answer, object, silent_for};

    fn pod() -> Pod {
        of_uid("u")
    }

    fn of_uid(uid: &str) -> Pod {
        serde_json::from_value(value(uid)).unwrap()
    }

    fn value(uid: &str) -> serde_json::Value {
        serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": format!("a-{uid}"), "namespace": "ns", "uid": uid, "resourceVersion": "1",
        } })
    }

    /// The answer to a watch whose place is gone.
    fn expired() -> Answer {
        let mut answer = object(&serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old resource version",
        }));
        *answer.status_mut() = http::StatusCode::GONE;
        answer
    }

    fn is_watch(request: &http::Request<kube::client::Body>) -> bool {
        request.uri().query().is_some_and(|q| q.contains("watch="))
    }

    const LIFE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_as_it_should_is_no_trouble() {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let cluster = Cluster::of(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(silent_for(LIFE))
        });
        let mut subscription = Hub::new(&cluster).subscribe(&pod());
        let told = timeout(Duration::from_secs(330), subscription.next()).await;
        if let Ok(Seen::Trouble(why)) = &told {
            panic!("{why}");
        }
        assert!(told.is_err());
        assert_eq!(opened.load(Ordering::Relaxed), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_trouble_and_then_none() {
        let asked = Arc::new(AtomicUsize::new(0));
        let cluster = Cluster::of(move |_| {
            let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                silent_for(LIFE)
            }
        });
        let mut subscription = Hub::new(&cluster).subscribe(&pod());
        let Seen::Trouble(why) = subscription.next().await else {
            panic!("no trouble");
        };
        assert!(
            why.contains("watch pods ns/a-u") && why.contains("within 10s"),
            "{why}"
        );
        let told = timeout(Duration::from_mins(5), subscription.next()).await;
        assert!(told.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_came_while_a_list_was_on_its_way_is_not_gone() {
        let (listing, listed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (asked, answer) = (Arc::clone(&listing), Arc::clone(&listed));
        let lists = Arc::new(AtomicUsize::new(0));
        let cluster = Cluster::of(move |request| {
            let first = !is_watch(&request) && lists.fetch_add(1, Ordering::Relaxed) == 0;
            let lost = is_watch(&request) && lists.load(Ordering::Relaxed) == 0;
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            async move {
                if first {
                    asked.notify_one();
                    answer.notified().await;
                    return object(&serde_json::json!({
                        "kind": "PodList", "apiVersion": "v1",
                        "metadata": { "resourceVersion": "9" }, "items": [value("u")],
                    }));
                }
                if lost {
                    return expired();
                }
                silent_for(LIFE)
            }
        });
        let hub = Hub::new(&cluster);
        let (mut old, mut gone) = (hub.subscribe(&pod()), hub.subscribe(&of_uid("v")));
        hub.start();
        listing.notified().await;
        let mut young = hub.subscribe(&of_uid("w"));
        listed.notify_one();
        assert!(matches!(old.next().await, Seen::Now(_)));
        assert!(matches!(gone.next().await, Seen::Gone(None)));
        let told = timeout(Duration::from_mins(1), young.next()).await;
        assert!(told.is_err(), "of a Pod that is there nothing was seen");
    }

    /// Nobody sees the end of a Pod whose watch has lost its place, but only
    /// what has its name since.
    #[tokio::test(start_paused = true)]
    async fn a_pod_whose_name_another_one_has_is_gone() {
        for (version, is_gone) in [("2", true), ("0", false)] {
            let opened = Arc::new(AtomicUsize::new(0));
            let cluster = Cluster::of(move |request| {
                let first = opened.fetch_add(1, Ordering::Relaxed) == 0;
                let mut another = value("u");
                another["metadata"]["uid"] = "v".into();
                another["metadata"]["resourceVersion"] = version.into();
                std::future::ready(match is_watch(&request) {
                    true if first => expired(),
                    true => silent_for(LIFE),
                    false => object(&another),
                })
            });
            let mut subscription = Hub::new(&cluster).subscribe(&pod());
            let told = timeout(Duration::from_mins(5), subscription.next()).await;
            // One that was there before it says nothing of it.
            assert_eq!(matches!(told, Ok(Seen::Gone(None))), is_gone, "{version}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_each_watch_at_once_is_not_asked_without_end() {
        // Ended, and with its place gone: of one Pod, and of several.
        for (gone, pods) in [(false, 1), (true, 1), (true, 2)] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let cluster = Cluster::of(move |request| {
                count.fetch_add(1, Ordering::Relaxed);
                let list = serde_json::json!({
                    "kind": "PodList", "apiVersion": "v1",
                    "metadata": { "resourceVersion": "9" }, "items": [value("u"), value("v")],
                });
                std::future::ready(match (is_watch(&request), gone, pods) {
                    (true, false, _) => silent_for(Duration::ZERO),
                    (true, true, _) => expired(),
                    (false, _, 1) => object(&value("u")),
                    (false, ..) => object(&list),
                })
            });
            let hub = Hub::new(&cluster);
            let mut one = hub.subscribe(&pod());
            let _other = (pods == 2).then(|| hub.subscribe(&of_uid("v")));
            let _ = timeout(Duration::from_mins(1), async {
                loop {
                    one.next().await;
                }
            })
            .await;
            let asked = asked.load(Ordering::Relaxed);
            assert!((5..60).contains(&asked), "{gone}, {pods}: {asked} requests");
        }
    }
}
