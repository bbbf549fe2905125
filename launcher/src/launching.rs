//! Launches under way, as their caller holds them: one, or many at once. The
//! work itself is a task of the launcher's thread; what is here is a way to
//! hear of it and to end it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::lifecycle::{self, Engine, Made, Order};
use crate::outcome::{Failure, Launched, Outcome, Reason};
use crate::watch::Stage;

/// How long the clean-ups after a cancel may take, and how much longer for each
/// launch: an API server takes only so many at a time.
const CLEAN_UP: Duration = Duration::from_mins(1);
const CLEAN_UP_EACH: Duration = Duration::from_millis(200);

/// How long the clean-ups of so many launches may take.
pub(crate) fn clean_up_bound(many: usize) -> Duration {
    CLEAN_UP + CLEAN_UP_EACH.saturating_mul(u32::try_from(many).unwrap_or(u32::MAX))
}

/// What a launch goes through, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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
        /// The fields in which what is there, and stays, is not what this spec
        /// asks for.
        differs: Vec<String>,
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
    /// The host runs; not said when the spec does not wait for it.
    Ready,
}

/// Where a launch says what it goes through.
pub(crate) struct Progress {
    which: usize,
    to: mpsc::UnboundedSender<(usize, LaunchEvent)>,
}

impl Progress {
    /// Of a launch of one.
    #[cfg(test)]
    pub(crate) fn new(to: mpsc::UnboundedSender<(usize, LaunchEvent)>) -> Self {
        Self { which: 0, to }
    }

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

    /// Whether the caller says that it has read what it was told, before it goes
    /// or asks for the end.
    pub(crate) async fn is_heard(&self, mut heard: oneshot::Receiver<()>) -> bool {
        tokio::select! {
            biased;
            heard = &mut heard => heard.is_ok(),
            () = self.wait() => {
                heard.close();
                heard.try_recv().is_ok()
            }
        }
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

/// Whether the launcher's thread has begun it, and something may have been made.
type Begun = Arc<AtomicBool>;

/// What the launcher's thread needs to carry launches out.
pub(crate) struct Work {
    cancelled: Cancelled,
    begun: Begun,
    events: mpsc::UnboundedSender<(usize, LaunchEvent)>,
    answers: Answers,
}

type Answers = mpsc::UnboundedSender<(usize, Answer)>;

/// An outcome on its way to the caller.
enum Answer {
    Failed(Box<Failure>),
    /// The sandbox is the caller's once it says that it has read this.
    Launched(Box<Launched>, oneshot::Sender<()>),
}

/// A launch under way: a future of its [`Outcome`]. The sandbox is the caller's
/// once this has said so: one that is dropped, cancelled or shut down before
/// that is deleted, even if it was launched by then.
pub struct Launch {
    all: Launches,
}

impl Launch {
    /// The one of these.
    pub(crate) fn of(all: Launches) -> Self {
        Self { all }
    }

    /// What it goes through; `None` the second time.
    pub fn events(&mut self) -> Option<Events<LaunchEvent>> {
        let Events { from, .. } = self.all.events()?;
        Some(Events {
            from,
            shape: |(_, event)| event,
        })
    }

    /// Asks for its end. The outcome follows once what was made is deleted.
    pub fn cancel(&mut self) {
        self.all.cancel();
    }
}

impl Future for Launch {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match ready!(self.all.poll_next(context)) {
            Some((_, outcome)) => Poll::Ready(outcome),
            // It has been read already.
            None => Poll::Pending,
        }
    }
}

/// Of a launch that the launcher's thread did not carry to an outcome: its
/// clean-up, if it had begun, was cut short.
fn cut_short(name: &str, begun: &Begun) -> Outcome {
    let mut failure = Failure::new(
        Reason::Cancelled,
        "the launch was cancelled, or its launcher shut down",
        "launch again",
    );
    name.clone_into(&mut failure.sandbox);
    if begun.load(Ordering::SeqCst) {
        failure.cleaned_up = false;
        failure.left = vec![format!("{name}: its clean-up was cut short")];
        failure.hint = format!("delete it: podcradle delete {name}");
    }
    Outcome::Failed(Box::new(failure))
}

/// Many launches under way. Each has its own outcome, in the order they end. A
/// sandbox is the caller's once [`Launches::next`] has given it: those that were
/// launched, and not given yet, are deleted with the others.
pub struct Launches {
    /// Those without an outcome so far.
    pending: BTreeMap<usize, String>,
    begun: Begun,
    answers: mpsc::UnboundedReceiver<(usize, Answer)>,
    events: Option<Events<(usize, LaunchEvent)>>,
    cancel: Option<watch::Sender<()>>,
}

impl Launches {
    pub(crate) fn new(
        names: Vec<String>,
        shutdown: watch::Receiver<bool>,
        submit: impl FnOnce(Work),
    ) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let (cancel, caller) = watch::channel(());
        let (sender, answers) = mpsc::unbounded_channel();
        let begun = Begun::default();
        submit(Work {
            cancelled: Cancelled::new(caller, shutdown),
            begun: Arc::clone(&begun),
            events,
            answers: sender,
        });
        Self {
            pending: names.into_iter().enumerate().collect(),
            begun,
            answers,
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
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Outcome)>> {
        while let Some((which, answer)) = ready!(self.answers.poll_recv(context)) {
            let outcome = match answer {
                Answer::Failed(failure) => Outcome::Failed(failure),
                Answer::Launched(launched, read) => {
                    // It is being taken back; what became of it follows.
                    if self.cancel.is_none() || read.send(()).is_err() {
                        continue;
                    }
                    Outcome::Launched(launched)
                }
            };
            self.pending.remove(&which);
            return Poll::Ready(Some((which, outcome)));
        }
        let left = self.pending.pop_first();
        Poll::Ready(left.map(|(which, name)| (which, cut_short(&name, &self.begun))))
    }

    /// What they go through, with the place in the order; `None` the second
    /// time.
    pub fn events(&mut self) -> Option<Events<(usize, LaunchEvent)>> {
        self.events.take()
    }

    /// Asks for the end of those whose outcome was not given yet: what they
    /// made is deleted. Outcomes follow within a minute (longer for many), and
    /// name what was not deleted by then.
    pub fn cancel(&mut self) {
        self.cancel = None;
    }
}

/// Carries launches out, so many at a time.
pub(crate) async fn many(engine: Engine, orders: VecDeque<Order>, at_once: usize, work: Work) {
    work.begun.store(true, Ordering::SeqCst);
    let (cancelled, bound) = (work.cancelled.clone(), clean_up_bound(orders.len()));
    let all = async move {
        let turns = Arc::new(Semaphore::new(at_once.max(1)));
        let mut running = JoinSet::new();
        for (which, order) in orders.into_iter().enumerate() {
            let turn = Arc::clone(&turns).acquire_owned().await;
            // Those that have ended take room until they are asked for.
            while running.try_join_next().is_some() {}
            let progress = Progress {
                which,
                to: work.events.clone(),
            };
            let (engine, cancelled) = (engine.clone(), work.cancelled.clone());
            let answers = work.answers.clone();
            running.spawn(async move {
                let launch = lifecycle::launch(&engine, order, progress, cancelled.clone());
                let (outcome, made) = Box::pin(launch).await;
                drop(turn);
                answer(&engine, which, (outcome, made), cancelled, answers).await;
            });
        }
        drop(work);
        while running.join_next().await.is_some() {}
    };
    until_cut_short(all, &cancelled, bound).await;
}

/// Runs to its end, or until so long after a cancel.
async fn until_cut_short(all: impl Future<Output = ()>, cancelled: &Cancelled, bound: Duration) {
    let late = async {
        cancelled.wait().await;
        tokio::time::sleep(bound).await;
    };
    tokio::select! {
        () = all => {}
        () = late => {}
    }
}

/// Tells an outcome. A sandbox that its caller has not read of when it goes, or
/// asks for the end, is deleted.
async fn answer(
    engine: &Engine,
    which: usize,
    (outcome, made): (Outcome, Made),
    cancelled: Cancelled,
    answers: Answers,
) {
    let launched = match outcome {
        Outcome::Launched(launched) => launched,
        Outcome::Failed(failure) => {
            // Whoever is gone does not want to know.
            let _ = answers.send((which, Answer::Failed(failure)));
            return;
        }
    };
    let name = launched.sandbox.clone();
    let (read, heard) = oneshot::channel();
    let _ = answers.send((which, Answer::Launched(launched, read)));
    if !cancelled.is_heard(heard).await {
        let failure = Box::pin(lifecycle::take_back(engine, name, made)).await;
        let _ = answers.send((which, Answer::Failed(Box::new(failure))));
    }
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
            let names = vec!["a".to_owned()];
            let launch = Launch::of(Launches::new(names, shutdown.clone(), |work| {
                work.begun.store(begun, Ordering::SeqCst);
            }));
            let one = failure(launch.now_or_never().unwrap());
            let names = vec!["b".to_owned(), "c".to_owned()];
            let mut launches = Launches::new(names, shutdown, |work| {
                work.begun.store(begun, Ordering::SeqCst);
                let done = Box::new(Failure::new(Reason::Quota, "", ""));
                work.answers.send((0, Answer::Failed(done))).unwrap();
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

    #[tokio::test]
    async fn what_does_not_end_after_a_cancel_is_cut_short() {
        assert_eq!(clean_up_bound(10), Duration::from_secs(62));
        let (caller, asked) = watch::channel(());
        let (_down, shutdown) = watch::channel(false);
        let cancelled = Cancelled::new(asked, shutdown);
        let work = until_cut_short(std::future::pending(), &cancelled, Duration::ZERO);
        let mut work = std::pin::pin!(work);
        assert!((&mut work).now_or_never().is_none(), "without a cancel");
        drop(caller);
        work.await;
    }
}
