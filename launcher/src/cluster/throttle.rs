//! How hard one process may press an API server: so many requests at a time,
//! and no creates at all while it has asked for a pause. Shared by all launches
//! of the process, since the server does not tell them apart either.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::Call;

/// Requests of each kind at a time; each may have a connection of its own.
const AT_ONCE: usize = 24;

/// Longest pause for all.
const LONGEST: Duration = Duration::from_mins(1);

/// One for all clones of a cluster.
#[derive(Clone)]
pub(super) struct Throttle {
    /// What makes things and what only looks or deletes do not wait for each
    /// other, so that a clean-up gets through.
    makes: Arc<Semaphore>,
    others: Arc<Semaphore>,
    paused: Arc<watch::Sender<Option<Instant>>>,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self {
            makes: Arc::new(Semaphore::new(AT_ONCE)),
            others: Arc::new(Semaphore::new(AT_ONCE)),
            paused: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Waits for its turn; it lasts until the permit is dropped.
    pub(super) async fn turn(&self, call: &Call) -> Option<SemaphorePermit<'_>> {
        let verb = call.verb;
        // The renewal of a Lease waits for nothing.
        if call.resource == "leases" {
            return None;
        }
        if verb == "create" {
            self.pause_is_over().await;
        }
        let turns = match verb {
            "create" | "patch" => &self.makes,
            _ => &self.others,
        };
        let turn = turns.acquire().await.ok();
        if verb == "create" {
            // Somebody may have been told to pause while we waited.
            self.pause_is_over().await;
        }
        turn
    }

    /// The server has asked for this pause.
    pub(super) fn pause(&self, time: Duration) {
        // Others than the API server may ask for a day.
        let until = Instant::now() + time.min(LONGEST);
        self.paused.send_if_modified(|paused| {
            let longer = paused.is_none_or(|earlier| earlier < until);
            if longer {
                *paused = Some(until);
            }
            longer
        });
    }

    async fn pause_is_over(&self) {
        loop {
            let until = *self.paused.borrow();
            match until {
                Some(until) if Instant::now() < until => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(test);
    }

    fn call(verb: &'static str) -> Call {
        Call {
            verb,
            resource: "pods",
            namespace: String::new(),
            name: String::new(),
        }
    }

    #[test]
    fn a_pause_holds_creates_and_nothing_else() {
        run(async {
            let throttle = Throttle::new();
            let begun = Instant::now();
            throttle.pause(Duration::from_millis(200));
            // A shorter one does not cut the longer one short.
            throttle.pause(Duration::from_millis(1));
            drop(throttle.turn(&call("create")).await);
            assert!(begun.elapsed() >= Duration::from_millis(200));
            throttle.pause(Duration::from_hours(1));
            // Does not wait for anything.
            assert!(throttle.turn(&call("delete")).now_or_never().is_some());
            assert!(throttle.turn(&call("create")).now_or_never().is_none());
        });
    }

    #[test]
    fn makers_do_not_keep_a_clean_up_waiting() {
        run(async {
            let throttle = Throttle::new();
            let mut held = Vec::new();
            for _ in 0..AT_ONCE {
                held.push(throttle.turn(&call("create")).await);
            }
            drop(throttle.turn(&call("delete")).await);
            let patch = call("patch");
            let next = throttle.turn(&patch);
            tokio::pin!(next);
            assert!(next.as_mut().now_or_never().is_none());
            held.pop();
            next.await;
        });
    }
}
