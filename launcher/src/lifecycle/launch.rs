//! launch: anchor → Pod (gated) → Secret → gate off → watch until it is ready
//! → hand-over. A shared session has its anchor already. What was made is
//! deleted on every way out but the last.

use std::sync::Arc;
use std::time::Duration;

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::anchor::Claim;
use super::cleanup::{Held, Made, Tried};
use super::engine::Engine;
use super::evidence;
use super::holder::Kind;
use super::owner::{Lost, Owners};
use super::shared::Known;
use super::stop::{self, Stop};
use crate::cluster::{Cluster, Deadline};
use crate::launching::{Cancelled, LaunchEvent, Progress};
use crate::manifest::{self, Owner, Record};
use crate::outcome::{Failure, Launched, Outcome, Reason, Timings};
use crate::spec::{SandboxSpec, Wait};
use crate::token::TokenSource;
use crate::watch::{Hub, Subscription};

/// How much longer than its budgets a launch's anchor lives, for the sweep.
pub(super) const SLACK: Duration = Duration::from_mins(5);

/// What is to be launched; its spec has been validated.
pub(crate) struct Order {
    pub spec: Arc<SandboxSpec>,
    pub token: TokenSource,
    /// The name was generated: when it is taken, another one does as well.
    pub rename: bool,
}

/// Launches a sandbox; with the outcome comes what [`take_back`] deletes.
pub(crate) async fn launch(
    engine: &Engine,
    order: Order,
    progress: Progress,
    cancelled: Cancelled,
) -> (Outcome, Made) {
    let kind = match order.spec.session {
        Some(_) => Kind::Pod,
        None => Kind::Anchor,
    };
    let mut run = Run {
        cluster: &engine.cluster,
        hub: &engine.hub,
        writers: &engine.writers,
        turn: None,
        made: Made::new(&order.spec.launch_id, kind),
        spec: order.spec,
        token: order.token,
        rename: order.rename,
        session: None,
        owners: &engine.owners,
        waited: Duration::ZERO,
        adopted: false,
        differs: Vec::new(),
        progress: &progress,
        started: Instant::now(),
    };
    let deadline = Deadline::after(run.spec.budgets.total);
    let known = tokio::select! {
        biased;
        () = cancelled.wait() => Err(Stop::Cancelled),
        known = Box::pin(engine.sessions.of(&engine.cluster, &run.spec, deadline)) => known,
    };
    // `run.made` holds whatever exists when a cancel drops the steps half-way.
    let result = match known {
        Err(stop) => Err(stop),
        Ok(session) => {
            run.session = session;
            let lost = run.owner().and_then(|owner| engine.owners.renewed(owner));
            tokio::select! {
                biased;
                () = cancelled.wait() => Err(Stop::Cancelled),
                why = lost_owner(lost) => Err(stop::owner_lost(&why).into()),
                result = run.steps(deadline) => result,
            }
        }
    };
    let stop = match result {
        Ok(launched) if !cancelled.is_set() => {
            return (Outcome::Launched(Box::new(launched)), run.made);
        }
        // The caller went while the hand-over was written.
        Ok(_) => Stop::Cancelled,
        Err(stop) => stop,
    };
    run.turn = None;
    let _turn = engine.cleaners.acquire().await;
    let mut failure = Box::pin(run.fail(stop)).await;
    if let Some(session) = run
        .session
        .take()
        .filter(|_| failure.reason == Reason::DeletedBySomeone)
    {
        let went = Box::pin(engine.sessions.look_again(&engine.cluster, &session));
        if let Some(why) = went.await {
            (failure.message, failure.hint) = (why.message, why.hint);
        }
    }
    (Outcome::Failed(failure), run.made)
}

/// Deletes a sandbox that was launched, and that nobody has heard of.
pub(crate) async fn take_back(engine: &Engine, sandbox: String, mut made: Made) -> Failure {
    let _turn = engine.cleaners.acquire().await;
    let mut failure = stop::cancelled();
    failure.sandbox = sandbox;
    let removed = made.delete(&engine.cluster).await;
    failure.cleaned_up = removed.is_ok();
    failure.left = removed.err().unwrap_or_default();
    if made.stays {
        it_stays(&mut failure);
    }
    failure
}

/// What another attempt has handed over is not this one's to delete.
fn it_stays(failure: &mut Failure) {
    failure.cleaned_up = false;
    failure.hint = format!(
        "{}; the sandbox, which was launched before, stays: podcradle delete {}",
        failure.hint, failure.sandbox
    );
}

/// Whether a launch ends by it whoever holds the sandbox.
fn is_its_own(reason: Reason) -> bool {
    use Reason::{Denied, OwnerLost, TimedOut, Token, Unauthorized, Unreachable};
    matches!(
        reason,
        Denied | OwnerLost | TimedOut | Token | Unauthorized | Unreachable
    )
}

/// Returns, if ever, when the owner is no longer this process'.
async fn lost_owner(lost: Option<Lost>) -> String {
    let Some(mut lost) = lost else {
        return std::future::pending().await;
    };
    match lost.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_) => "it was given up".to_owned(),
    }
}

/// One attempt at a launch.
pub(super) struct Run<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) hub: &'a Hub,
    writers: &'a Semaphore,
    /// This launch's turn to write, while it has it.
    turn: Option<SemaphorePermit<'a>>,
    pub(super) spec: Arc<SandboxSpec>,
    /// Known from the making of its Pod on, at the latest.
    pub(super) token: TokenSource,
    pub(super) rename: bool,
    /// The shared session it goes into.
    pub(super) session: Option<Arc<Known>>,
    owners: &'a Owners,
    /// How much of the schedule budget went for refused creations.
    pub(super) waited: Duration,
    pub(super) adopted: bool,
    /// In which fields what it adopted is not what it asks for.
    pub(super) differs: Vec<String>,
    pub(super) made: Made,
    progress: &'a Progress,
    started: Instant,
}

impl Run<'_> {
    /// A thousand of these wait at a time: what is not that wait is boxed, so
    /// that it takes memory only while it lasts.
    async fn steps(&mut self, deadline: Deadline) -> Result<Launched, Stop> {
        let mut timings = Timings::default();
        self.take_turn().await;
        if let Some(owner) = &self.spec.owner {
            // Before its first session, so that none names a Lease that is not there.
            let reach = deadline.unless_unreachable();
            Box::pin(self.owners.ensure(self.cluster, owner, reach)).await?;
        }
        let (holder, pod, seen, earlier) = match Box::pin(self.claim(deadline)).await? {
            Claim::Make(anchor) => {
                let (pod, seen) = Box::pin(self.make(&anchor.owner(), deadline)).await?;
                (anchor, pod, seen, None)
            }
            Claim::Gated(holder, pod) => {
                let session = self.session.clone().ok_or_else(stop::gone)?;
                let (pod, seen) = Box::pin(self.let_go(&session.anchor, &pod, deadline)).await?;
                (holder, pod, seen, None)
            }
            Claim::Join(holder, pod, record) => {
                self.made.pod = Tried::Yes(owner_of(&*pod));
                // Its uid is not known: it goes with its Pod.
                let name = manifest::secret_name(&record.spec.sandbox, record.generation);
                self.made.secret = Tried::Sent(name);
                let (pod, seen) = Box::pin(self.join(&pod, deadline)).await?;
                (holder, pod, seen, Some(record))
            }
            Claim::Done(holder, pod, record) => {
                let (pod, seen) = Box::pin(self.join(&pod, deadline)).await?;
                let uid = pod.uid().unwrap_or_default();
                timings.started_ms = Box::pin(self.started(pod, seen, deadline)).await?;
                let expires = match &self.session {
                    Some(session) => session.expires.map(|t| t.to_string()),
                    None => holder.annotation(manifest::EXPIRES).map(str::to_owned),
                };
                return Ok(self.launched(&record, uid, expires, timings));
            }
        };
        if earlier.is_none() {
            timings.gate_removed_ms = self.elapsed_ms();
            self.say(LaunchEvent::GateRemoved);
        }
        let uid = pod.uid().unwrap_or_default();
        timings.started_ms = self.started(pod, seen, deadline).await?;
        self.take_turn().await;
        let mut record = earlier.unwrap_or_else(|| Box::new(self.record()));
        record.operation = None;
        record.pod_uid = Some(uid.clone());
        let expires = Box::pin(self.hand_over(holder, &record, deadline)).await?;
        self.turn = None;
        Ok(self.launched(&record, uid, expires, timings))
    }

    /// Waits for what the spec wants to see, and says when that came.
    async fn started(
        &mut self,
        pod: Box<Pod>,
        seen: Subscription,
        deadline: Deadline,
    ) -> Result<Option<u64>, Stop> {
        self.turn = None;
        self.wait(pod, seen, deadline).await?;
        // Nobody has looked at the host.
        if self.spec.wait == Wait::None {
            return Ok(None);
        }
        self.say(LaunchEvent::Ready);
        Ok(Some(self.elapsed_ms()))
    }

    /// The Pod of an earlier attempt, which runs: what the watch of all saw of
    /// it before it was asked about this one is not told, so it is read again.
    async fn join(
        &mut self,
        found: &Pod,
        deadline: Deadline,
    ) -> Result<(Box<Pod>, Subscription), Stop> {
        let seen = self.hub.subscribe(found);
        let pod = self.cluster.pod(&found.name_any(), deadline).await?;
        let pod = pod.filter(|pod| pod.uid() == found.uid());
        Ok((Box::new(pod.ok_or_else(stop::gone)?), seen))
    }

    /// What the record of a sandbox that this attempt has made says.
    fn record(&self) -> Record {
        let secret_uid = match &self.made.secret {
            Tried::Yes(secret) => Some(secret.uid.clone()),
            _ => None,
        };
        Record {
            secret_uid,
            ..self.launching(self.made.generation)
        }
    }

    /// Waits for a turn to write. One that waits for others has none meanwhile.
    pub(super) async fn take_turn(&mut self) {
        self.turn = self.writers.acquire().await.ok();
    }

    pub(super) fn give_turn_back(&mut self) {
        self.turn = None;
    }

    /// Collects evidence, deletes what was made, says so.
    async fn fail(&mut self, stop: Stop) -> Box<Failure> {
        let mut failure = match (stop, &self.made.pod) {
            (Stop::Fatal(fatal), Tried::Yes(pod)) => {
                let secret = manifest::secret_name(&pod.name, self.made.generation);
                evidence::collect(self.cluster, pod, *fatal, (&self.token, &secret)).await
            }
            (stop, Tried::Yes(pod)) if !matches!(stop, Stop::Cancelled) => {
                evidence::events(self.cluster, pod, stop.into_failure(), &self.token).await
            }
            (stop, _) => stop.into_failure(),
        };
        failure.message = self.token.redact(&failure.message);
        let cancelled = failure.reason == Reason::Cancelled;
        // A Secret whose uid nobody knows goes with its Pod and only with it.
        let keep = self.spec.keep_on_failure
            && !cancelled
            && matches!(self.made.pod, Tried::Yes(_))
            && !matches!(self.made.secret, Tried::Sent(_));
        let removed = if keep {
            self.made.keep(self.cluster).await
        } else {
            self.made.delete(self.cluster).await
        };
        failure.cleaned_up = removed.is_ok() && !keep;
        let kept = keep && matches!(removed, Ok(Held::Ours));
        match removed {
            // What looked like a deletion by somebody was the other attempt's; what
            // this one was refused has nothing to do with it.
            Ok(Held::Theirs(_)) if !cancelled && !is_its_own(failure.reason) => {
                let found = stop::taken_over(&self.spec.sandbox);
                (failure.reason, failure.message, failure.hint) =
                    (found.reason, found.message, found.hint);
            }
            Ok(_) => {}
            Err(left) => failure.left = left,
        }
        if kept {
            failure.hint = format!(
                "{}; the Pod is kept for an hour, delete it with: podcradle delete {}",
                failure.hint, self.spec.sandbox
            );
        }
        failure.sandbox.clone_from(&self.spec.sandbox);
        if self.made.stays {
            it_stays(&mut failure);
        }
        Box::new(failure)
    }

    /// The Lease that its session lives by.
    fn owner(&self) -> Option<&str> {
        match &self.session {
            Some(session) => session.lease.as_deref(),
            None => self.spec.owner.as_deref(),
        }
    }

    /// As the record says: an earlier attempt may have had another spec.
    fn launched(
        &self,
        record: &Record,
        pod_uid: String,
        expires: Option<String>,
        timings: Timings,
    ) -> Launched {
        let spec = &record.spec;
        Launched {
            sandbox: spec.sandbox.clone(),
            session: spec.session_name().to_owned(),
            namespace: self.cluster.namespace().to_owned(),
            pod_uid,
            workspace: spec.workspace(),
            host_id: spec.host_id().to_owned(),
            host_name: spec.host_name().to_owned(),
            launch_id: spec.launch_id.clone(),
            generation: record.generation,
            adopted: self.adopted,
            differs: self.differs.clone(),
            owner: self.owner().map(str::to_owned),
            expires,
            timings,
        }
    }

    pub(super) fn say(&self, event: LaunchEvent) {
        // Others' words, a kubelet's for instance.
        let event = match event {
            LaunchEvent::Waiting { stage, why } => LaunchEvent::Waiting {
                stage,
                why: self.token.redact(&why),
            },
            ours => ours,
        };
        self.progress.say(event);
    }

    pub(super) fn say_created(&self, kind: &'static str, name: &str) {
        let name = name.to_owned();
        self.say(LaunchEvent::Created { kind, name });
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(super) fn owner_of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Owner {
    Owner {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    }
}

pub(super) fn after(time: Duration) -> Timestamp {
    plus(Timestamp::now(), time)
}

/// In whole seconds, as the cluster counts; never earlier than was asked for.
pub(super) fn plus(from: Timestamp, time: Duration) -> Timestamp {
    let up = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Ceil);
    let added = SignedDuration::try_from(time)
        .ok()
        .and_then(|t| from.checked_add(t).ok());
    let whole = added.and_then(|moment| moment.round(up).ok());
    whole.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_whole_second() {
        let from = "2026-01-01T00:00:00.25Z".parse().unwrap();
        for (time, moment) in [
            (Duration::from_mins(1), "2026-01-01T00:01:01Z"),
            (Duration::from_millis(750), "2026-01-01T00:00:01Z"),
        ] {
            assert_eq!(plus(from, time).to_string(), moment);
        }
        assert_eq!(plus(from, Duration::MAX), Timestamp::MAX);
    }
}
