//! All I/O to the API server, but the watch's stream. Every call has a
//! deadline; what may be tried again is, within that deadline and honouring
//! Retry-After; every failure is an [`Error`] that names object and next step.

mod class;
mod client;
mod config;
mod events;
#[cfg(test)]
pub(crate) mod fake;
mod kubeconfig;
mod objects;
mod plugin;
mod policy;
mod proxy;
mod retry_after;
mod sealed;
mod throttle;
pub(crate) use objects::pods_of;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

pub use class::{Call, Error, by_status, classify};
use client::Credentials;
pub use config::{ConfigError, InCluster, Source, load};
pub(crate) use events::times;
pub use objects::{Deletion, LogOptions};
pub(crate) use policy::Policy;
use throttle::Throttle;

/// Longest a single try may take.
const TRY: Duration = Duration::from_secs(10);
/// How long an operation's first call tries to reach the API server at all.
/// A connection may take as long, so that the first one that does not come about
/// is the last.
const REACH: Duration = Duration::from_secs(5);

/// After so long a right is really missing.
const DENIED: Duration = Duration::from_secs(6);

/// The pause before the next try: each is twice the one before, up to a longest.
pub(crate) struct Pause {
    next: Duration,
    longest: Duration,
    /// Since when each try was denied.
    denied: Option<Instant>,
}

impl Pause {
    /// For a server that is busy, or a connection that broke.
    pub(crate) const SHORT: Self = Self {
        next: Duration::from_millis(100),
        longest: Duration::from_secs(5),
        denied: None,
    };
    /// For what only somebody else can make possible.
    pub(crate) const LONG: Self = Self {
        next: Duration::from_millis(500),
        longest: Duration::from_secs(10),
        denied: None,
    };

    /// How long the next one is.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Sleeps for so long; the next one is longer.
    pub(crate) async fn sleep(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
        self.next = (self.next * 2).min(self.longest);
    }
}

/// A namespace of a cluster. Cloning is cheap.
#[derive(Clone)]
pub struct Cluster {
    /// For everything but watches.
    client: Client,
    /// Watches have a connection of their own: on a shared one they delay the
    /// calls behind them.
    watches: Client,
    /// A Lease must not be lost because its renewal stood in a queue.
    renewals: Client,
    throttle: Throttle,
    /// How many wait for credentials that are being read.
    reading: watch::Receiver<usize>,
    namespace: String,
    server: String,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({} {})", self.server, self.namespace)
    }
}

/// By when something must be done.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    given: Duration,
    /// Until when an API server that cannot be reached at all is tried again.
    reach_until: Instant,
    /// Whether a denial may be that of an API server that has just started.
    under_way: bool,
}

impl Deadline {
    /// So much time from now.
    pub fn after(time: Duration) -> Self {
        let at = Instant::now() + time;
        Self {
            at,
            given: time,
            reach_until: at,
            under_way: true,
        }
    }

    /// The same, but for an operation that has not begun: a server that cannot
    /// be reached is most likely a wrong address, a denial meant, and a person
    /// waits.
    #[must_use]
    pub fn unless_unreachable(self) -> Self {
        let reach_until = self.at.min(Instant::now() + REACH);
        Self {
            reach_until,
            under_way: false,
            ..self
        }
    }

    /// How much time there was.
    pub fn given(self) -> Duration {
        self.given
    }

    /// The moment itself.
    pub fn instant(self) -> Instant {
        self.at
    }

    /// Whether there is no time left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Whether credentials are read from now on.
pub(crate) struct Logins(watch::Receiver<usize>);

impl Logins {
    /// Whether that took what there was until `deadline`, so that all may begin
    /// anew: a slow exec plugin has a bound of its own. Returns once they are read.
    pub(crate) async fn took_all_until(mut self, deadline: Deadline) -> bool {
        let read = *self.0.borrow() > 0 || self.0.has_changed().unwrap_or(false);
        if read && deadline.is_over() {
            // Fails when nobody will ever read any.
            let _ = self.0.wait_for(|readers| *readers == 0).await;
        }
        read && deadline.is_over()
    }
}

impl Cluster {
    /// Clients for the cluster that `source` leads to; nothing is sent yet. They
    /// belong to the runtime this is called on.
    ///
    /// # Errors
    /// When no cluster is configured, or its certificates, URLs or credentials
    /// cannot be used.
    pub async fn connect(source: &Source) -> Result<Self, ConfigError> {
        let (config, context) = load(source)?;
        // Whatever becomes the current one while this lasts.
        let source = &Source {
            context: context.or(source.context.clone()),
            ..source.clone()
        };
        let mut server = server_of(&config);
        if let Some(proxy) = &config.proxy_url {
            server = format!("{server} through the proxy {}", proxy::shown(proxy));
        }
        let namespace = config.default_namespace.clone();
        let credentials = Credentials::of(source, config).await?;
        Ok(Self {
            client: client::ready(&credentials, &namespace).await?,
            watches: client::lazy(&credentials, &namespace),
            renewals: client::lazy(&credentials, &namespace),
            throttle: Throttle::new(),
            reading: credentials.reading(),
            namespace,
            server,
        })
    }

    /// The namespace all calls go to.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API server's URL, and the proxy before it.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn watch_api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        Api::namespaced(self.watches.clone(), &self.namespace)
    }

    pub(crate) fn renewal_api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.renewals.clone(), &self.namespace)
    }

    pub(crate) fn logins(&self) -> Logins {
        let mut reading = self.reading.clone();
        reading.mark_unchanged();
        Logins(reading)
    }

    pub(crate) fn what(&self, verb: &'static str, resource: &'static str, name: &str) -> Call {
        Call {
            verb,
            resource,
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// Tries once, within the deadline.
    pub(crate) async fn once<T>(
        &self,
        call: Call,
        deadline: Deadline,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let timed_out = |call, after| Error::TimedOut {
            call,
            server: self.server.clone(),
            after,
        };
        let waited = deadline.left();
        if waited.is_zero() {
            return Err(timed_out(call, waited));
        }
        let turn = self.throttle.turn(&call);
        let Ok(_turn) = tokio::time::timeout(waited, turn).await else {
            return Err(timed_out(call, waited));
        };
        let waited = deadline.left();
        let request = Box::pin(request);
        let (answer, after) = tokio::select! {
            biased;
            answer = request => (Some(answer), Duration::ZERO),
            () = tokio::time::sleep_until(deadline.at) => (None, waited),
            () = self.a_try() => (None, TRY),
        };
        match answer {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => {
                let error = classify(call, &self.server, &error);
                if let Error::Busy {
                    code: 429,
                    retry_after: Some(time),
                    ..
                } = &error
                {
                    self.throttle.pause(*time);
                }
                Err(error)
            }
            None => Err(timed_out(call, after)),
        }
    }

    /// The time of a try, which begins anew when credentials have been read: a
    /// slow exec plugin is no slow API server, and has a bound of its own.
    async fn a_try(&self) {
        let mut reading = self.reading.clone();
        loop {
            // Fails when nobody will ever read any.
            let _ = reading.wait_for(|readers| *readers == 0).await;
            tokio::select! {
                Ok(()) = reading.changed() => {}
                () = tokio::time::sleep(TRY) => return,
            }
        }
    }

    /// Tries until it succeeds, fails for good, or the deadline is near. Only
    /// for what may be repeated: reads, deletes, and writes with a
    /// precondition.
    pub(crate) async fn repeat<T, F>(
        &self,
        call: Call,
        deadline: Deadline,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let mut pause = Pause::SHORT;
        loop {
            let error = match self.once(call.clone(), deadline, request()).await {
                Err(error) if error.is_transient() => error,
                // Of a webhook that is down: it was not done, and is worth another try.
                Err(error @ Error::Webhook { .. }) if call.verb != "create" => error,
                done => return done,
            };
            if !wait_before_retry(&error, &mut pause, deadline).await {
                return Err(error);
            }
        }
    }
}

fn server_of(config: &kube::Config) -> String {
    let url = config.cluster_url.to_string();
    url.trim_end_matches('/').to_owned()
}

/// Pauses before the next try; false when the deadline would pass meanwhile.
pub(crate) async fn wait_before_retry(
    error: &Error,
    pause: &mut Pause,
    deadline: Deadline,
) -> bool {
    let wait = error.retry_after().unwrap_or(pause.next());
    if !matches!(error, Error::Denied { .. }) {
        pause.denied = None;
    }
    let given_up = match error {
        Error::Unreachable { .. } => Instant::now() + wait >= deadline.reach_until,
        // An API server that has just started knows no Roles yet.
        Error::Denied { .. } => {
            let since = pause.denied.get_or_insert_with(Instant::now);
            !deadline.under_way || since.elapsed() >= DENIED
        }
        _ => false,
    };
    if given_up || wait >= deadline.left() {
        return false;
    }
    tracing::debug!(%error, ?wait, "trying again");
    pause.sleep(wait).await;
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use fake::Answer;

    fn refusal(code: u16, message: &str) -> Answer {
        let mut answer = fake::object(&serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": code, "reason": "Fault", "message": message,
        }));
        *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
        answer
    }

    /// Reads a Pod of an API server that refuses with these, one by one.
    async fn read(verb: &'static str, refusals: Vec<(u16, &'static str)>) -> Result<Pod, Error> {
        let asked = Arc::new(AtomicUsize::new(0));
        let cluster = Cluster::of(move |_| {
            let next = refusals.get(asked.fetch_add(1, Ordering::Relaxed));
            std::future::ready(next.map_or_else(
                || {
                    fake::object(&serde_json::json!({
                        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a" },
                    }))
                },
                |(code, message)| refusal(*code, message),
            ))
        });
        let api = cluster.api::<Pod>();
        let call = cluster.what(verb, "pods", "a");
        let deadline = Deadline::after(Duration::from_mins(5));
        cluster.repeat(call, deadline, || api.get("a")).await
    }

    const RBAC: &str = r#"pods "a" is forbidden: User "u" cannot get resource "pods""#;

    #[tokio::test(start_paused = true)]
    async fn a_denial_after_an_outage_is_given_its_time() {
        let mut refusals = vec![(503, "starting"); 12];
        refusals.push((403, RBAC));
        assert!(read("get", refusals).await.is_ok());
        let denied = read("get", vec![(403, RBAC); 100]).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_is_never_answered_takes_ten_seconds() {
        let cluster = Cluster::of(|_| std::future::pending());
        let api = cluster.api::<Pod>();
        for (given, taken) in [(300, 10), (4, 4)] {
            let begun = Instant::now();
            let call = cluster.what("get", "pods", "a");
            let deadline = Deadline::after(Duration::from_secs(given));
            let read = cluster.once(call, deadline, api.get("a")).await;
            assert!(matches!(read, Err(Error::TimedOut { .. })), "{read:?}");
            assert_eq!(begun.elapsed().as_secs(), taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_is_down_is_asked_again_but_for_what_it_would_create() {
        let down = "Internal error occurred: failed calling webhook \"w\"";
        assert!(read("patch", vec![(500, down); 3]).await.is_ok());
        let created = read("create", vec![(500, down)]).await;
        assert!(matches!(created, Err(Error::Webhook { .. })), "{created:?}");
    }
}
