//! The [`Launcher`]: a thread of its own with a runtime of its own. Every
//! operation is a task there, so that it outlives the caller's future and the
//! caller's runtime: a launch that is dropped still deletes what it made.

mod sessions;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::cluster::{self, Cluster, ConfigError, Error, Source};
use crate::launching::{self, Cancelled, Launch, Launches};
use crate::lifecycle::owner::{self, DURATION, Owners};
use crate::lifecycle::{self, Deleted, Engine, ExtendError, HostEnd, Lost, Order, Session};
use crate::manifest;
use crate::outcome::Launched;
use crate::spec::{Problems, SandboxSpec};
use crate::token::TokenSource;

/// Work for the launcher's thread, and how many clean-ups it may come to.
type Task = (
    usize,
    Box<dyn FnOnce(Engine) -> BoxFuture<'static, ()> + Send>,
);

/// Launches and deletes sandboxes in one namespace of one cluster. Clones
/// share one thread.
#[derive(Clone)]
pub struct Launcher {
    inner: Arc<Inner>,
}

struct Inner {
    tasks: mpsc::UnboundedSender<Task>,
    shutdown: watch::Sender<bool>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
    owners: Owners,
    namespace: String,
    server: String,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.shutdown.send(true);
    }
}

impl Launcher {
    /// Starts the launcher's thread for the cluster that `source` leads to.
    /// Nothing is sent to it yet.
    ///
    /// # Errors
    /// When no cluster is configured or its configuration cannot be used.
    pub fn start(source: &Source) -> Result<Self, ConfigError> {
        let (tasks, queue) = mpsc::unbounded_channel();
        let (shutdown, down) = watch::channel(false);
        let (ended, wait) = watch::channel(());
        let (ready, started) = std::sync::mpsc::channel();
        let source = source.clone();
        let owners = Owners::default();
        let renewed = owners.clone();
        let failed = |message: String| ConfigError::Client {
            server: "launcher thread".to_owned(),
            message,
        };
        std::thread::Builder::new()
            .name("podcradle".to_owned())
            .spawn(move || run(&source, &ready, renewed, queue, down, ended))
            .map_err(|error| failed(error.to_string()))?;
        let cluster = started
            .recv()
            .map_err(|error| failed(error.to_string()))??;
        Ok(Self {
            inner: Arc::new(Inner {
                tasks,
                shutdown,
                ended: wait,
                owners,
                namespace: cluster.namespace().to_owned(),
                server: cluster.server().to_owned(),
            }),
        })
    }

    /// The namespace it works in.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The API server's URL.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Begins a launch. The spec is validated first, and is not to hold the
    /// token; nothing is sent before. The token is a [`crate::Token`], or what
    /// [`TokenSource::callback`] asks for one once there is a Pod.
    /// A launch with the launch id of an earlier one is the same launch.
    ///
    /// *Cancel safety*: dropping the [`Launch`] cancels it; what it made is
    /// deleted on the launcher's thread. [`Launcher::shutdown`] waits for that.
    /// So is a sandbox that was launched, but whose outcome nobody has read.
    ///
    /// # Errors
    /// All problems of the spec.
    pub fn launch(
        &self,
        spec: SandboxSpec,
        token: impl Into<TokenSource>,
    ) -> Result<Launch, Problems> {
        self.begin(spec, token.into(), false)
    }

    /// The same, for a name that [`crate::name::generate`] made: when it is
    /// taken, the sandbox gets another suffix; the result says the name.
    ///
    /// # Errors
    /// All problems of the spec.
    pub fn launch_generated(
        &self,
        spec: SandboxSpec,
        token: impl Into<TokenSource>,
    ) -> Result<Launch, Problems> {
        self.begin(spec, token.into(), true)
    }

    fn begin(
        &self,
        spec: SandboxSpec,
        token: TokenSource,
        rename: bool,
    ) -> Result<Launch, Problems> {
        Ok(Launch::of(
            self.launch_many(vec![(spec, token, rename)], 1)?,
        ))
    }

    /// Begins many launches, so many of them at a time. Whether a name was
    /// generated, as for [`Launcher::launch_generated`], is said for each.
    ///
    /// *Cancel safety*: dropping [`Launches`] cancels those whose outcome
    /// [`Launches::next`] has not given.
    ///
    /// # Errors
    /// All problems of all specs, each with the place of its spec among them
    /// when they are many; nothing is sent then.
    pub fn launch_many<T: Into<TokenSource>>(
        &self,
        wanted: Vec<(SandboxSpec, T, bool)>,
        at_once: usize,
    ) -> Result<Launches, Problems> {
        let wanted: Vec<_> = wanted
            .into_iter()
            .map(|(spec, token, rename)| (spec, token.into(), rename))
            .collect();
        let mut problems = Vec::new();
        for (index, (spec, token, _)) in wanted.iter().enumerate() {
            let checked = spec.validate();
            let checked = checked.and_then(|()| match token.known() {
                Some(token) => manifest::check_token(spec, token),
                None => Ok(()),
            });
            for mut problem in checked.err().into_iter().flat_map(|found| found.0) {
                if wanted.len() > 1 {
                    problem.field = format!("[{index}]: {}", problem.field);
                }
                problems.push(problem);
            }
        }
        Problems::of(problems)?;
        let names = wanted
            .iter()
            .map(|(spec, ..)| spec.sandbox.clone())
            .collect();
        let orders: VecDeque<_> = wanted
            .into_iter()
            .map(|(spec, token, rename)| Order {
                spec: Arc::new(spec),
                token,
                rename,
            })
            .collect();
        let shutdown = self.inner.shutdown.subscribe();
        Ok(Launches::new(names, shutdown, |work| {
            let count = orders.len();
            self.submit_many(count, move |engine| {
                launching::many(engine, orders, at_once, work)
            });
        }))
    }

    /// Becomes the owner `name`, the Lease of a deployment: makes it where it
    /// is not there, and renews it until the [`Owner`] is dropped. Sessions
    /// whose spec names it live as long as it is renewed, by any process.
    ///
    /// # Errors
    /// When the Lease can be neither made nor renewed.
    pub async fn own(&self, name: &str) -> Result<Owner, Error> {
        self.hold(name.to_owned(), false).await
    }

    /// Makes a Lease of this process' own, `name` as [`crate::name::of_process`]
    /// gives it: what is launched under it is attached to the process. Dropping
    /// the [`Owner`] deletes the Lease; the sessions are then the sweep's,
    /// unless they are deleted before.
    ///
    /// # Errors
    /// When the Lease cannot be made.
    pub async fn attach(&self, name: &str) -> Result<Owner, Error> {
        self.hold(name.to_owned(), true).await
    }

    async fn hold(&self, name: String, attached: bool) -> Result<Owner, Error> {
        let lease = name.clone();
        let seen = self
            .ask(move |cluster| async move {
                let deadline = cluster::Deadline::after(DURATION).unless_unreachable();
                owner::ensure(&cluster, &lease, attached, deadline).await
            })
            .await?;
        let (lost, told) = watch::channel(None);
        let (stop, caller) = watch::channel(());
        let cancelled = Cancelled::new(caller, self.inner.shutdown.subscribe());
        self.inner.owners.insert(name.clone(), told.clone());
        let lease = name.clone();
        self.submit(move |engine| {
            owner::keep(engine.cluster, lease, seen, attached, lost, cancelled)
        });
        Ok(Owner {
            name,
            lost: told,
            launcher: Arc::downgrade(&self.inner),
            _stop: stop,
        })
    }

    /// Waits until the host of a sandbox has ended, however long that takes.
    pub async fn ended(&self, sandbox: &Launched) -> Result<HostEnd, Error> {
        let (name, uid) = (sandbox.sandbox.clone(), sandbox.pod_uid.clone());
        self.ask(move |cluster| lifecycle::ended(cluster, name, uid))
            .await
    }

    /// Moves a session's expiry to `ttl` from now; `None` takes it away. The
    /// new expiry, RFC 3339.
    ///
    /// # Errors
    /// [`ExtendError`]; nothing was changed then.
    pub async fn extend(
        &self,
        name: &str,
        ttl: Option<Duration>,
        timeout: Duration,
    ) -> Result<Option<String>, ExtendError> {
        let name = name.to_owned();
        let moved = self.ask_engine(move |engine| async move {
            let moved = lifecycle::extend(engine.cluster, name.clone(), ttl, timeout).await;
            // A launch into it is to hear of the new one.
            engine.sessions.forget(&name);
            Ok(moved)
        });
        moved.await?.map(|moment| moment.map(|m| m.to_string()))
    }

    /// Deletes a sandbox, with its session unless that is a shared one, and waits
    /// until its Pods are gone.
    pub async fn delete(&self, name: &str, timeout: Duration) -> Result<Deleted, Error> {
        let name = name.to_owned();
        self.ask(move |cluster| lifecycle::delete(cluster, name, timeout))
            .await
    }

    /// All sandboxes of the namespace.
    pub async fn list(&self, timeout: Duration) -> Result<Vec<Session>, Error> {
        self.ask(move |cluster| lifecycle::list(cluster, timeout))
            .await
    }

    /// One sandbox, if there is one.
    pub async fn status(&self, name: &str, timeout: Duration) -> Result<Option<Session>, Error> {
        let name = name.to_owned();
        self.ask(move |cluster| lifecycle::status(cluster, name, timeout))
            .await
    }

    /// Runs an operation of one's own on the launcher's thread.
    ///
    /// # Errors
    /// The operation's, or that the launcher has been shut down.
    pub async fn ask<T, F>(
        &self,
        operation: impl FnOnce(Cluster) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.ask_engine(move |engine| operation(engine.cluster))
            .await
    }

    async fn ask_engine<T, F>(
        &self,
        operation: impl FnOnce(Engine) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = self.submit(operation);
        answer.await.unwrap_or_else(|_| {
            let call = cluster::Call {
                verb: "call",
                resource: "the launcher",
                namespace: self.inner.namespace.clone(),
                name: String::new(),
            };
            Err(Error::Unreachable {
                call,
                server: self.inner.server.clone(),
                message: "it has been shut down".to_owned(),
                sent: false,
            })
        })
    }

    fn submit<T, F>(
        &self,
        operation: impl FnOnce(Engine) -> F + Send + 'static,
    ) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.submit_many(1, operation)
    }

    /// What may come to so many clean-ups.
    fn submit_many<T, F>(
        &self,
        count: usize,
        operation: impl FnOnce(Engine) -> F + Send + 'static,
    ) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let task = Box::new(move |engine| {
            let work = operation(engine);
            let done = async move {
                let _ = answer.send(work.await);
            };
            Box::pin(done) as BoxFuture<'static, ()>
        });
        // A thread that has ended drops the task, and the receiver says so.
        let _ = self.inner.tasks.send((count, task));
        receiver
    }

    /// Cancels what is under way and waits (a minute, longer for many) until all
    /// that it made is deleted, sandboxes included whose outcome was not read.
    pub async fn shutdown(&self) {
        let _ = self.inner.shutdown.send(true);
        // Nothing is ever sent: it closes.
        let _ = self.inner.ended.clone().changed().await;
    }
}

/// A Lease this process renews, for as long as this is not dropped.
pub struct Owner {
    name: String,
    lost: Lost,
    launcher: Weak<Inner>,
    _stop: watch::Sender<()>,
}

impl Owner {
    /// The Lease's name: what `owner` of a spec is to say.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until a renewal finds the Lease gone, or somebody else's, and says
    /// what it found. No launch under this owner succeeds from then on, and its
    /// sessions are to be deleted.
    pub async fn lost(&mut self) -> String {
        match self.lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The renewal ended in good order; it never will be lost.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher.upgrade() {
            launcher.owners.remove(&self.name, &self.lost);
        }
    }
}

/// The thread: a runtime, the clients made on it, and tasks until shutdown.
fn run(
    source: &Source,
    ready: &std::sync::mpsc::Sender<Result<Cluster, ConfigError>>,
    owners: Owners,
    mut queue: mpsc::UnboundedReceiver<Task>,
    mut down: watch::Receiver<bool>,
    ended: watch::Sender<()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(ConfigError::Client {
                server: "runtime".to_owned(),
                message: error.to_string(),
            }));
            return;
        }
    };
    runtime.block_on(async move {
        let connected = Cluster::connect(source).await;
        let Ok(cluster) = connected.as_ref().map(Clone::clone) else {
            let _ = ready.send(connected);
            return;
        };
        let _ = ready.send(connected);
        let engine = Engine::new(cluster, owners);
        let mut running = JoinSet::new();
        let mut count = 0;
        let spawn = |running: &mut JoinSet<usize>, (of, task): Task| {
            let work = task(engine.clone());
            running.spawn(async move {
                work.await;
                of
            });
            of
        };
        loop {
            tokio::select! {
                task = queue.recv() => match task {
                    Some(task) => count += spawn(&mut running, task),
                    None => break,
                },
                Some(done) = running.join_next() => count -= done.unwrap_or(0),
                _ = down.wait_for(|down| *down) => break,
            }
        }
        // What came in before the shutdown still runs (and is cancelled).
        queue.close();
        while let Ok(task) = queue.try_recv() {
            count += spawn(&mut running, task);
        }
        let _ = tokio::time::timeout(launching::clean_up_bound(count), async {
            while running.join_next().await.is_some() {}
        })
        .await;
        drop(ended);
    });
}
