//! launch: anchor → Pod (gated) → Secret → gate off → watch until it is ready
//! → hand-over. What was made is deleted on every way out but the last.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use tokio::time::Instant;

use super::cleanup::{Made, Tried};
use super::evidence;
use crate::cluster::{Cluster, Deadline, Error};
use crate::launcher::{Cancelled, LaunchEvent, Progress};
use crate::manifest::{self, EXPIRES, Owner, RECORD, Record, TOKEN_GATE};
use crate::outcome::{Failure, Launched, Outcome, Reason, Timings};
use crate::spec::{Budgets, SandboxSpec};
use crate::token::Token;
use crate::watch::{Diagnosis, Fatal, PodEvent, PodWatch, Stage, Verdict};

/// How much longer than its budgets a launch's anchor lives, for the sweep.
const SLACK: Duration = Duration::from_mins(5);
const GENERATION: u32 = 1;

/// Why a launch stopped short of its end.
enum Stop {
    Cancelled,
    Error(Error),
    Fatal(Box<Fatal>),
    Failure(Box<Failure>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Launches a sandbox whose spec has been validated.
pub(crate) async fn launch(
    cluster: Cluster,
    spec: SandboxSpec,
    token: Token,
    progress: Progress,
    cancelled: Cancelled,
) -> Outcome {
    let mut made = Made {
        launch_id: spec.launch_id.clone(),
        ..Made::default()
    };
    let mut run = Run {
        cluster: &cluster,
        spec: &spec,
        token: &token,
        progress: &progress,
        started: Instant::now(),
    };
    // The steps borrow `made`, so that it holds whatever exists when they are
    // dropped half-way by a cancel.
    let result = tokio::select! {
        biased;
        () = cancelled.wait() => Err(Stop::Cancelled),
        result = run.steps(&mut made) => result,
    };
    match result {
        // The caller may have gone while the hand-over was written.
        Ok(launched) if !cancelled.is_set() => Outcome::Launched(Box::new(launched)),
        Ok(_) => run.fail(Stop::Cancelled, &mut made).await,
        Err(stop) => run.fail(stop, &mut made).await,
    }
}

struct Run<'a> {
    cluster: &'a Cluster,
    spec: &'a SandboxSpec,
    token: &'a Token,
    progress: &'a Progress,
    started: Instant,
}

impl Run<'_> {
    async fn steps(&mut self, made: &mut Made) -> Result<Launched, Stop> {
        let (cluster, spec) = (self.cluster, self.spec);
        let deadline = Deadline::after(spec.budgets.total);
        let mut record = Record::launching(spec);
        let expires = after(spec.budgets.total + SLACK);

        made.service = Tried::Sent(spec.sandbox.clone());
        let wanted = manifest::service(&record, expires);
        let service = cluster
            .create("services", &wanted, deadline.unless_unreachable())
            .await;
        let service = service.inspect_err(|e| forget(&mut made.service, e))?;
        let anchor = owner_of(&service);
        made.service = Tried::Yes(service.clone());
        self.say(LaunchEvent::Created {
            kind: "service",
            name: anchor.name.clone(),
        });

        // In force before there is a Pod; it goes with the anchor, its owner.
        if let Some(policy) = manifest::network_policy(spec, GENERATION, &anchor) {
            cluster.create("networkpolicies", &policy, deadline).await?;
            self.say(LaunchEvent::Created {
                kind: "networkpolicy",
                name: anchor.name.clone(),
            });
        }

        let sent = manifest::pod(spec, GENERATION, &anchor).map_err(|problems| {
            let text = problems.to_string();
            let hint = "change the overlay";
            Stop::Failure(Box::new(Failure::new(Reason::Invalid, text, hint)))
        })?;
        made.pod = Tried::Sent(spec.sandbox.clone());
        let pod = self.create_pod(&sent, deadline).await;
        let pod = pod.inspect_err(|stop| {
            if let Stop::Error(error) = stop {
                forget(&mut made.pod, error);
            }
        })?;
        let owner = owner_of(&pod);
        made.pod = Tried::Yes(owner.clone());
        self.say(LaunchEvent::Created {
            kind: "pod",
            name: owner.name.clone(),
        });
        manifest::check_admitted(&sent, &pod)
            .map_err(|changes| Stop::Failure(Box::new(changed(&changes))))?;

        let secret = manifest::secret(spec, GENERATION, &owner, self.token);
        let name = manifest::secret_name(&spec.sandbox, GENERATION);
        made.secret = Tried::Sent(name.clone());
        let uid = cluster.create_secret(&secret, deadline).await?;
        record.pod_uid = Some(owner.uid.clone());
        record.secret_uid.clone_from(&uid);
        if let Some(uid) = uid {
            made.secret = Tried::Yes(Owner {
                name: name.clone(),
                uid,
            });
        }
        self.say(LaunchEvent::Created {
            kind: "secret",
            name,
        });

        let pod = cluster.remove_gate(&pod, TOKEN_GATE, deadline).await?;
        let gate_removed_ms = self.elapsed_ms();
        self.say(LaunchEvent::GateRemoved);

        self.watch(pod, deadline).await?;
        let started_ms = self.elapsed_ms();
        self.say(LaunchEvent::Ready);

        record.operation = None;
        let service = self.hand_over(service, &record, deadline).await?;
        let expires = service.annotations().get(EXPIRES).cloned();
        made.service = Tried::Yes(service);
        let timings = Timings {
            gate_removed_ms,
            started_ms,
        };
        Ok(self.launched(owner.uid, expires, timings))
    }

    /// Creates the Pod; a quota may free up within the schedule budget.
    async fn create_pod(&self, pod: &Pod, deadline: Deadline) -> Result<Pod, Stop> {
        let until = Instant::now() + self.spec.budgets.schedule;
        let mut pause = Duration::from_millis(500);
        let mut refused = None;
        loop {
            match self.cluster.create("pods", pod, deadline).await {
                Err(error)
                    if error.may_pass()
                        && Instant::now() + pause < until.min(deadline.instant()) =>
                {
                    self.say(LaunchEvent::Waiting {
                        stage: Stage::Schedule,
                        why: error.to_string(),
                    });
                    refused = Some(error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(10));
                }
                // That the last try had too little time is not the reason.
                Err(error @ Error::TimedOut { .. }) => {
                    return Err(refused.unwrap_or(error).into());
                }
                done => return done.map_err(Stop::from),
            }
        }
    }

    /// Follows the Pod by one watch until its host is ready.
    async fn watch(&self, pod: Pod, deadline: Deadline) -> Result<(), Stop> {
        let uid = pod.uid();
        let mut watch = PodWatch::of_pod(self.cluster, &pod);
        let mut diagnosis = Diagnosis::default();
        let mut clock = Clock::new(&self.spec.budgets);
        let mut said: Vec<String> = Vec::new();
        let mut verdict = diagnosis.judge(&pod);
        loop {
            match verdict {
                Verdict::Ready => return Ok(()),
                Verdict::Fatal(fatal) => return Err(Stop::Fatal(Box::new(fatal))),
                Verdict::Wait(stage, why) => {
                    clock.enter(stage);
                    // A kubelet alternates between two texts while it retries.
                    if !said.contains(&why) {
                        self.say(LaunchEvent::Waiting {
                            stage,
                            why: why.clone(),
                        });
                    }
                    said.retain(|earlier| *earlier != why);
                    said.push(why);
                }
            }
            let latest = said.last().map_or("", String::as_str);
            let event = tokio::select! {
                event = watch.next(deadline) => event,
                () = tokio::time::sleep_until(clock.runs_out()) => return Err(clock.spent(latest)),
                () = tokio::time::sleep_until(deadline.instant()) => return Err(total_spent(self.spec, clock.stage, latest)),
            };
            verdict = match event {
                Ok(PodEvent::Now(pod)) if pod.uid() == uid => diagnosis.judge(&pod),
                Ok(PodEvent::Gone(pod)) if pod.uid() == uid => {
                    return Err(deleted(&mut diagnosis, &pod));
                }
                Ok(PodEvent::Now(_)) | Err(Error::NotFound { .. }) => return Err(gone()),
                Ok(PodEvent::Gone(_)) => Verdict::Wait(clock.stage, latest.to_owned()),
                Err(error) => return Err(error.into()),
            };
        }
    }

    /// From the launch's deadline to the session's own expiry, in one write.
    /// The expiry counts from the anchor's creation, by the server's clock.
    async fn hand_over(
        &self,
        seen: Service,
        record: &Record,
        deadline: Deadline,
    ) -> Result<Service, Stop> {
        let created = seen
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or_else(Timestamp::now, |t| t.0);
        let expires = self.spec.ttl.map(|ttl| plus(created, ttl).to_string());
        let uid = seen.uid();
        let mut seen = seen;
        loop {
            let changes = [
                (EXPIRES, expires.clone()),
                (RECORD, Some(record.to_annotation())),
            ];
            match self.cluster.annotate(&seen, &changes, deadline).await {
                Ok(service) => return Ok(service),
                Err(Error::Conflict { .. }) => {
                    let found = self.cluster.service(&self.spec.sandbox, deadline).await?;
                    seen = found
                        .filter(|s| s.uid() == uid && s.metadata.deletion_timestamp.is_none())
                        .ok_or_else(gone)?;
                }
                Err(Error::NotFound { .. }) => return Err(gone()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Collects evidence, deletes what was made, says so.
    async fn fail(&self, stop: Stop, made: &mut Made) -> Outcome {
        let mut failure = match stop {
            Stop::Cancelled => Failure::new(
                Reason::Cancelled,
                "the launch was cancelled",
                "launch again",
            ),
            Stop::Error(error) => Failure::from_error(&error),
            Stop::Failure(failure) => *failure,
            Stop::Fatal(fatal) => match &made.pod {
                Tried::Yes(pod) => evidence::collect(self.cluster, pod, *fatal, self.token).await,
                _ => Failure::new(fatal.reason, fatal.message, fatal.hint),
            },
        };
        failure.message = self.token.redact(&failure.message);
        let cancelled = failure.reason == Reason::Cancelled;
        // A Secret whose uid nobody knows goes with its Pod and only with it.
        let keep = self.spec.keep_on_failure
            && !cancelled
            && matches!(made.pod, Tried::Yes(_))
            && !matches!(made.secret, Tried::Sent(_));
        let removed = if keep {
            made.keep(self.cluster).await
        } else {
            made.delete(self.cluster).await
        };
        failure.cleaned_up = removed.is_ok() && !keep;
        failure.left = removed.err().unwrap_or_default();
        if keep {
            failure.hint = format!(
                "{}; the Pod is kept for an hour, delete it with: podcradle delete {}",
                failure.hint, self.spec.sandbox
            );
        }
        Outcome::Failed(Box::new(failure))
    }

    fn launched(&self, pod_uid: String, expires: Option<String>, timings: Timings) -> Launched {
        let spec = self.spec;
        Launched {
            sandbox: spec.sandbox.clone(),
            session: spec.sandbox.clone(),
            namespace: self.cluster.namespace().to_owned(),
            pod_uid,
            workspace: spec.workspace(),
            host_id: spec.host_id().to_owned(),
            host_name: spec.host_name().to_owned(),
            launch_id: spec.launch_id.clone(),
            generation: GENERATION,
            expires,
            timings,
        }
    }

    fn say(&self, event: LaunchEvent) {
        self.progress.say(event);
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Each stage's clock runs only while the launch is in that stage.
struct Clock {
    stage: Stage,
    since: Instant,
    left: [Duration; 4],
    budgets: [Duration; 4],
}

impl Clock {
    fn new(budgets: &Budgets) -> Self {
        let budgets = [budgets.schedule, budgets.pull, budgets.init, budgets.start];
        Self {
            stage: Stage::Schedule,
            since: Instant::now(),
            left: budgets,
            budgets,
        }
    }

    fn enter(&mut self, stage: Stage) {
        if stage == self.stage {
            return;
        }
        let left = &mut self.left[self.stage as usize];
        *left = left.saturating_sub(self.since.elapsed());
        self.stage = stage;
        self.since = Instant::now();
    }

    fn runs_out(&self) -> Instant {
        self.since + self.left[self.stage as usize]
    }

    fn spent(&self, why: &str) -> Stop {
        let budget = self.budgets[self.stage as usize];
        Stop::Fatal(Box::new(Fatal::stage_took_too_long(
            self.stage, budget, why,
        )))
    }
}

fn total_spent(spec: &SandboxSpec, stage: Stage, why: &str) -> Stop {
    let total = spec.budgets.total;
    Stop::Fatal(Box::new(Fatal::launch_took_too_long(stage, total, why)))
}

fn deleted(diagnosis: &mut Diagnosis, pod: &Pod) -> Stop {
    match diagnosis.judge(pod) {
        Verdict::Fatal(fatal) => Stop::Fatal(Box::new(fatal)),
        _ => gone(),
    }
}

fn gone() -> Stop {
    Stop::Failure(Box::new(Failure::new(
        Reason::DeletedBySomeone,
        "the sandbox was deleted by someone else during the launch",
        "see who deletes Pods and Services in this namespace",
    )))
}

fn changed(changes: &[String]) -> Failure {
    Failure::new(
        Reason::AdmissionChanged,
        format!(
            "an admission plug-in of the cluster changed the Pod: {}",
            changes.join("; ")
        ),
        "exempt the namespace from that plug-in; the Pod was not run",
    )
}

/// An error that proves that nothing was made leaves nothing to clean up.
fn forget<T>(tried: &mut Tried<T>, error: &Error) {
    if !error.is_ambiguous() {
        *tried = Tried::No;
    }
}

fn owner_of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Owner {
    Owner {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    }
}

fn after(time: Duration) -> Timestamp {
    plus(Timestamp::now(), time)
}

fn plus(from: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time)
        .ok()
        .and_then(|t| from.checked_add(t).ok())
        .unwrap_or(Timestamp::MAX)
}
