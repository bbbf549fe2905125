//! The [`Launcher`]: a thread of its own with a runtime of its own. Every
//! operation is a task there, so that it outlives the caller's future and the
//! caller's runtime: a launch that is dropped still deletes what it made.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, ConfigError, Error, Source};
use crate::lifecycle::{self, Deleted, Order, Session};
use crate::manifest;
use crate::outcome::Outcome;
use crate::spec::{Problems, SandboxSpec};
use crate::token::Token;
use crate::watch::Stage;

/// Longest [`Launcher::shutdown`] waits for clean-ups.
const SHUTDOWN: Duration = Duration::from_mins(1);

/// What a launch goes through, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchEvent {
    /// An object was created.
    Created {
        /// `service`, `networkpolicy`, `pod` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An earlier attempt with the same launch id had begun it; this one goes on.
    Adopted {
        /// The anchor's name.
        name: String,
    },
    /// The Pod may run now.
    GateRemoved,
    /// Not there yet, and why.
    Waiting {
        /// Which part of the launch.
        stage: Stage,
        /// In the cluster's words.
        why: String,
    },
    /// The host runs.
    Ready,
}

/// Where a launch says what it goes through.
pub(crate) struct Progress(mpsc::UnboundedSender<LaunchEvent>);

impl Progress {
    pub(crate) fn say(&self, event: LaunchEvent) {
        // Nobody listening is fine.
        let _ = self.0.send(event);
    }
}

/// Set when a launch's caller went away or asked for its end.
#[derive(Clone)]
pub(crate) struct Cancelled {
    caller: watch::Receiver<()>,
    shutdown: watch::Receiver<bool>,
}

impl Cancelled {
    /// Returns once the launch is to stop.
    pub(crate) async fn wait(&self) {
        let (mut caller, mut shutdown) = (self.caller.clone(), self.shutdown.clone());
        tokio::select! {
            // An error means that the sender, the caller's handle, was dropped.
            _ = caller.changed() => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    }

    /// Whether it is to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.caller.has_changed().unwrap_or(true) || *self.shutdown.borrow()
    }
}

type Task = Box<dyn FnOnce(Cluster) -> BoxFuture<'static, ()> + Send>;

/// Launches and deletes sandboxes in one namespace of one cluster. Clones
/// share one thread.
#[derive(Clone)]
pub struct Launcher {
    inner: Arc<Inner>,
}

struct Inner {
    tasks: mpsc::UnboundedSender<Task>,
    shutdown: watch::Sender<bool>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
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
        let (ended, wait) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let source = source.clone();
        let failed = |message: String| ConfigError::Client {
            server: "launcher thread".to_owned(),
            message,
        };
        std::thread::Builder::new()
            .name("podcradle".to_owned())
            .spawn(move || run(&source, &ready, queue, down, ended))
            .map_err(|error| failed(error.to_string()))?;
        let cluster = started
            .recv()
            .map_err(|error| failed(error.to_string()))??;
        Ok(Self {
            inner: Arc::new(Inner {
                tasks,
                shutdown,
                ended: Mutex::new(Some(wait)),
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

    /// Begins a launch. The spec is validated first; nothing is sent before.
    /// A launch with the launch id of an earlier one is the same launch.
    ///
    /// *Cancel safety*: dropping the [`Launch`] cancels it; what it made is
    /// deleted on the launcher's thread. [`Launcher::shutdown`] waits for that.
    ///
    /// # Errors
    /// All problems of the spec.
    pub fn launch(&self, spec: SandboxSpec, token: Token) -> Result<Launch, Problems> {
        self.begin(spec, token, false)
    }

    /// The same, for a name that [`crate::name::generate`] made: when it is
    /// taken, the sandbox gets another suffix; the result says the name.
    ///
    /// # Errors
    /// All problems of the spec.
    pub fn launch_generated(&self, spec: SandboxSpec, token: Token) -> Result<Launch, Problems> {
        self.begin(spec, token, true)
    }

    fn begin(&self, spec: SandboxSpec, token: Token, rename: bool) -> Result<Launch, Problems> {
        spec.validate()?;
        manifest::check(&spec)?;
        let spec = Arc::new(spec);
        let order = Order {
            spec,
            token,
            rename,
        };
        let (events, receiver) = mpsc::unbounded_channel();
        let (cancel, caller) = watch::channel(());
        let shutdown = self.inner.shutdown.subscribe();
        let cancelled = Cancelled { caller, shutdown };
        let outcome = self
            .submit(move |cluster| lifecycle::launch(cluster, order, Progress(events), cancelled));
        Ok(Launch {
            outcome,
            events: Some(receiver),
            cancel: Some(cancel),
        })
    }

    /// Deletes a session and waits until its Pods are gone.
    pub async fn delete(&self, name: &str, timeout: Duration) -> Result<Deleted, Error> {
        let name = name.to_owned();
        self.ask(move |cluster| lifecycle::delete(cluster, name, timeout))
            .await
    }

    /// All sessions of the namespace.
    pub async fn list(&self, timeout: Duration) -> Result<Vec<Session>, Error> {
        self.ask(move |cluster| lifecycle::list(cluster, timeout))
            .await
    }

    /// One session, if there is one.
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
        self.submit(operation).await.unwrap_or_else(|_| {
            let call = crate::cluster::Call {
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
        operation: impl FnOnce(Cluster) -> F + Send + 'static,
    ) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let task: Task = Box::new(move |cluster| {
            let work = operation(cluster);
            Box::pin(async move {
                let _ = answer.send(work.await);
            })
        });
        // A thread that has ended drops the task, and the receiver says so.
        let _ = self.inner.tasks.send(task);
        receiver
    }

    /// Cancels what is under way and waits (at most a minute) until all that
    /// it made is deleted.
    pub async fn shutdown(&self) {
        let _ = self.inner.shutdown.send(true);
        let ended = self
            .inner
            .ended
            .lock()
            .ok()
            .and_then(|mut slot| slot.take());
        if let Some(ended) = ended {
            let _ = ended.await;
        }
    }
}

/// A launch under way: a future of its [`Outcome`].
pub struct Launch {
    outcome: oneshot::Receiver<Outcome>,
    events: Option<mpsc::UnboundedReceiver<LaunchEvent>>,
    cancel: Option<watch::Sender<()>>,
}

impl Launch {
    /// What it goes through; `None` the second time.
    pub fn events(&mut self) -> Option<mpsc::UnboundedReceiver<LaunchEvent>> {
        self.events.take()
    }

    /// Asks for its end. The outcome follows once what was made is deleted.
    pub fn cancel(&mut self) {
        self.cancel = None;
    }
}

impl Future for Launch {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.outcome).poll(context).map(|outcome| {
            outcome.unwrap_or_else(|_| {
                Outcome::Failed(Box::new(crate::outcome::Failure::new(
                    crate::outcome::Reason::Cancelled,
                    "the launcher has been shut down",
                    "start another",
                )))
            })
        })
    }
}

/// The thread: a runtime, the clients made on it, and tasks until shutdown.
fn run(
    source: &Source,
    ready: &std::sync::mpsc::Sender<Result<Cluster, ConfigError>>,
    mut queue: mpsc::UnboundedReceiver<Task>,
    mut down: watch::Receiver<bool>,
    ended: oneshot::Sender<()>,
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
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                task = queue.recv() => match task {
                    Some(task) => { running.spawn(task(cluster.clone())); }
                    None => break,
                },
                Some(_) = running.join_next() => {}
                _ = down.wait_for(|down| *down) => break,
            }
        }
        // What came in before the shutdown still runs (and is cancelled).
        queue.close();
        while let Ok(task) = queue.try_recv() {
            running.spawn(task(cluster.clone()));
        }
        let _ = tokio::time::timeout(SHUTDOWN, async {
            while running.join_next().await.is_some() {}
        })
        .await;
        let _ = ended.send(());
    });
}
