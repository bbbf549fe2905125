//! Launches under way, as their caller holds them: one, or many at once. The
//! work itself is a task of the launcher's thread; what is here is a way to
//! hear of it and to end it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::lifecycle::{self, Engine, Lost, Order};
use crate::outcome::{Failure, Outcome, Reason};
use crate::watch::Stage;

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
pub(crate) struct Progress {
    which: usize,
    to: mpsc::UnboundedSender<(usize, LaunchEvent)>,
}

impl Progress {
    pub(crate) fn say(&self, event: LaunchEvent) {
        // Nobody listening is fine.
        let _ = self.to.send((self.which, event));
    }
}

/// Set when a launch's caller went away or asked for its end.
#[derive(Clone)]
pub(crate) struct Cancelled {
    caller: watch::Receiver<()>,
    shutdown: watch::Receiver<bool>,
}

impl Cancelled {
    pub(crate) fn new(caller: watch::Receiver<()>, shutdown: watch::Receiver<bool>) -> Self {
        Self { caller, shutdown }
    }

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

/// What happens to launches, as it happens: a stream, of [`LaunchEvent`]s for
/// one launch and of pairs with the place in the order for many.
pub struct Events<T> {
    from: mpsc::UnboundedReceiver<(usize, LaunchEvent)>,
    shape: fn((usize, LaunchEvent)) -> T,
}

impl<T> Events<T> {
    /// The next one; `None` once there will be no more.
    ///
    /// *Cancel safety*: a dropped call loses nothing.
    pub async fn recv(&mut self) -> Option<T> {
        self.from.recv().await.map(self.shape)
    }

    /// The next one, when it is there already.
    pub fn try_recv(&mut self) -> Option<T> {
        self.from.try_recv().ok().map(self.shape)
    }
}

impl<T> Stream for Events<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let shape = self.shape;
        self.from.poll_recv(context).map(|event| event.map(shape))
    }
}

/// A launch under way: a future of its [`Outcome`].
pub struct Launch {
    name: String,
    begun: Begun,
    outcome: oneshot::Receiver<Outcome>,
    events: Option<Events<LaunchEvent>>,
    cancel: Option<watch::Sender<()>>,
}

/// Whether the launcher's thread has begun it, and something may have been made.
type Begun = Arc<AtomicBool>;

/// What the launcher's thread needs to carry launches out.
pub(crate) struct Work {
    pub(crate) cancelled: Cancelled,
    begun: Begun,
    events: mpsc::UnboundedSender<(usize, LaunchEvent)>,
}

impl Launch {
    pub(crate) fn new(
        name: String,
        shutdown: watch::Receiver<bool>,
        submit: impl FnOnce(Work) -> oneshot::Receiver<Outcome>,
    ) -> Self {
        let begun = Begun::default();
        let (events, receiver) = mpsc::unbounded_channel();
        let (cancel, caller) = watch::channel(());
        let cancelled = Cancelled::new(caller, shutdown);
        Self {
            name,
            begun: Arc::clone(&begun),
            outcome: submit(Work {
                cancelled,
                begun,
                events,
            }),
            events: Some(Events {
                from: receiver,
                shape: |(_, event)| event,
            }),
            cancel: Some(cancel),
        }
    }

    /// What it goes through; `None` the second time.
    pub fn events(&mut self) -> Option<Events<LaunchEvent>> {
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
        let outcome = Pin::new(&mut self.outcome).poll(context);
        outcome.map(|outcome| outcome.unwrap_or_else(|_| shut_down(&self.name, &self.begun)))
    }
}

/// Of a launch that the launcher's thread did not carry to an outcome: its
/// clean-up, if it had begun, was cut short.
fn shut_down(name: &str, begun: &Begun) -> Outcome {
    let mut failure = Failure::new(
        Reason::Cancelled,
        "the launcher has been shut down",
        "start another",
    );
    name.clone_into(&mut failure.sandbox);
    if begun.load(Ordering::SeqCst) {
        failure.cleaned_up = false;
        failure.left = vec![format!("{name}: its clean-up was cut short")];
        failure.hint = format!("delete it: podcradle delete {name}");
    }
    Outcome::Failed(Box::new(failure))
}

/// Many launches under way. Each has its own outcome, in the order they end.
pub struct Launches {
    /// Those without an outcome so far.
    pending: BTreeMap<usize, String>,
    begun: Begun,
    outcomes: mpsc::UnboundedReceiver<(usize, Outcome)>,
    events: Option<Events<(usize, LaunchEvent)>>,
    cancel: Option<watch::Sender<()>>,
}

impl Launches {
    pub(crate) fn new(
        names: Vec<String>,
        shutdown: watch::Receiver<bool>,
        submit: impl FnOnce(Work, mpsc::UnboundedSender<(usize, Outcome)>),
    ) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let (cancel, caller) = watch::channel(());
        let (answers, outcomes) = mpsc::unbounded_channel();
        let cancelled = Cancelled::new(caller, shutdown);
        let begun = Begun::default();
        let work = Work {
            cancelled,
            begun: Arc::clone(&begun),
            events,
        };
        submit(work, answers);
        Self {
            pending: names.into_iter().enumerate().collect(),
            begun,
            outcomes,
            events: Some(Events {
                from: receiver,
                shape: |event| event,
            }),
            cancel: Some(cancel),
        }
    }

    /// The next outcome, with its place in the order; `None` after the last.
    ///
    /// *Cancel safety*: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<(usize, Outcome)> {
        if let Some((which, outcome)) = self.outcomes.recv().await {
            self.pending.remove(&which);
            return Some((which, outcome));
        }
        let (which, name) = self.pending.pop_first()?;
        Some((which, shut_down(&name, &self.begun)))
    }

    /// What they go through, with the place in the order; `None` the second
    /// time.
    pub fn events(&mut self) -> Option<Events<(usize, LaunchEvent)>> {
        self.events.take()
    }

    /// Asks for the end of those that are under way or have not begun: what
    /// they made is deleted. Sandboxes that were launched already stay.
    pub fn cancel(&mut self) {
        self.cancel = None;
    }
}

/// Carries one launch out.
pub(crate) async fn one(engine: Engine, order: Order, lost: Option<Lost>, work: Work) -> Outcome {
    work.begun.store(true, Ordering::SeqCst);
    let progress = Progress {
        which: 0,
        to: work.events,
    };
    lifecycle::launch(engine, order, progress, work.cancelled, lost).await
}

/// Carries launches out, so many at a time.
pub(crate) async fn many(
    engine: Engine,
    orders: VecDeque<(Order, Option<Lost>)>,
    at_once: usize,
    work: Work,
    answers: mpsc::UnboundedSender<(usize, Outcome)>,
) {
    work.begun.store(true, Ordering::SeqCst);
    let mut running = JoinSet::new();
    for (which, (order, lost)) in orders.into_iter().enumerate() {
        while running.len() >= at_once.max(1) {
            running.join_next().await;
        }
        let progress = Progress {
            which,
            to: work.events.clone(),
        };
        let (engine, cancelled) = (engine.clone(), work.cancelled.clone());
        let answers = answers.clone();
        running.spawn(async move {
            let outcome = lifecycle::launch(engine, order, progress, cancelled, lost).await;
            // A caller that went away has cancelled them all.
            let _ = answers.send((which, outcome));
        });
    }
    drop(work);
    while running.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn failure(outcome: Outcome) -> Failure {
        match outcome {
            Outcome::Failed(failure) => *failure,
            Outcome::Launched(launched) => panic!("{launched:?}"),
        }
    }

    #[test]
    fn a_launch_whose_task_was_dropped_names_what_it_may_have_left() {
        for begun in [true, false] {
            let (_down, shutdown) = watch::channel(true);
            let launch = Launch::new("a".into(), shutdown.clone(), |work| {
                work.begun.store(begun, Ordering::SeqCst);
                oneshot::channel().1
            });
            let one = failure(launch.now_or_never().unwrap());
            let names = vec!["b".to_owned(), "c".to_owned()];
            let mut launches = Launches::new(names, shutdown, |work, answers| {
                work.begun.store(begun, Ordering::SeqCst);
                let done = Failure::new(Reason::Quota, "", "");
                answers.send((0, Outcome::Failed(Box::new(done)))).unwrap();
            });
            let mut next = || launches.next().now_or_never().unwrap();
            assert_eq!(failure(next().unwrap().1).reason, Reason::Quota);
            let (which, many) = next().unwrap();
            assert!(which == 1 && next().is_none());
            for (name, failure) in [("a", one), ("c", failure(many))] {
                assert_eq!(failure.cleaned_up, !begun);
                assert_eq!(failure.sandbox, name);
                let named = failure.left.iter().any(|left| left.starts_with(name));
                assert_eq!(named, begun, "{:?}", failure.left);
            }
        }
    }
}
