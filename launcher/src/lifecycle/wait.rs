//! The wait between gate and host: one watch, and a clock.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::clock::Clock;
use super::holder::Holder;
use super::launch::Run;
use super::stop::{self, Stop};
use crate::cluster::Deadline;
use crate::launching::LaunchEvent;
use crate::manifest;
use crate::spec::Wait;
use crate::watch::{Diagnosis, Seen, Subscription, Verdict};

/// Longest for one look at the Pod.
const LOOK: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Follows the Pod until its host is what the spec waits for.
    pub(super) async fn wait(
        &self,
        pod: Box<Pod>,
        mut seen: Subscription,
        deadline: Deadline,
    ) -> Result<(), Stop> {
        if self.spec.wait == Wait::None {
            return Ok(());
        }
        let mut diagnosis = Diagnosis::default();
        let mut clock = Clock::new(self.spec.budgets, self.waited, deadline);
        let mut said: Vec<String> = Vec::new();
        let mut verdict = self.judge(&mut diagnosis, &pod);
        let uid = pod.uid();
        drop(pod);
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
                event = seen.next() => event,
                () = tokio::time::sleep_until(clock.runs_out()) => {
                    // A watch that fell silent may have kept something back: nobody's
                    // time is over before the Pod was looked at.
                    let found = Box::pin(self.cluster.pod(&self.spec.sandbox, Deadline::after(LOOK)));
                    let now = match found.await {
                        Ok(Some(pod)) if pod.uid() == uid => self.judge(&mut diagnosis, &pod),
                        Ok(_) => return Err(stop::gone().into()),
                        Err(_) => Verdict::Wait(clock.stage(), String::new()),
                    };
                    match now {
                        Verdict::Wait(stage, why) if stage == clock.stage() || deadline.is_over() => {
                            // Not the trouble of a watch that is over since.
                            let why = if why.is_empty() { latest } else { &why };
                            return Err(Stop::Fatal(Box::new(clock.spent(why))));
                        }
                        untold => verdict = untold,
                    }
                    continue;
                }
            };
            verdict = match event {
                Seen::Now(pod) => self.judge(&mut diagnosis, &pod),
                Seen::Gone(Some(pod)) => {
                    return Err(self
                        .taken(&pod)
                        .unwrap_or_else(|| deleted(&mut diagnosis, &pod)));
                }
                Seen::Gone(None) => return Err(stop::gone().into()),
                Seen::Trouble(why) => Verdict::Wait(clock.stage(), why),
                Seen::Failed(error) => return Err(Stop::Error(*error)),
            };
        }
    }

    /// In a shared session the Pod itself says who has it.
    fn taken(&self, pod: &Pod) -> Option<Stop> {
        self.session.as_ref()?;
        let record = Holder::from(pod).record()?;
        let taken = record.attempt != self.made.attempt;
        taken.then(|| stop::taken_over(&self.spec.sandbox).into())
    }

    fn judge(&self, diagnosis: &mut Diagnosis, pod: &Pod) -> Verdict {
        match diagnosis.judge(pod) {
            Verdict::Wait(..) if self.spec.wait == Wait::Started && host_runs(pod) => {
                Verdict::Ready
            }
            verdict => verdict,
        }
    }
}

/// Whether the host's container is seen running, ready or not.
fn host_runs(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    statuses.is_some_and(|statuses| {
        statuses.iter().any(|status| {
            let running = status.state.as_ref().and_then(|s| s.running.as_ref());
            status.name == manifest::HOST_CONTAINER && running.is_some()
        })
    })
}

fn deleted(diagnosis: &mut Diagnosis, pod: &Pod) -> Stop {
    match diagnosis.judge(pod) {
        Verdict::Fatal(fatal) => Stop::Fatal(Box::new(fatal)),
        _ => stop::gone().into(),
    }
}
