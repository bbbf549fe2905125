//! The wait between gate and host: one watch, one clock a stage, and what a
//! budget that ran out is called.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::launch::Run;
use super::stop::{self, Stop};
use crate::cluster::Deadline;
use crate::launching::LaunchEvent;
use crate::manifest;
use crate::spec::{Budgets, SandboxSpec, Wait};
use crate::watch::{Diagnosis, Fatal, Seen, Stage, Subscription, Verdict};

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
        let mut clock = Clock::new(&self.spec.budgets, self.waited);
        let mut said: Vec<String> = Vec::new();
        let mut verdict = self.judge(&mut diagnosis, &pod);
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
                () = tokio::time::sleep_until(clock.runs_out()) => return Err(clock.spent(latest)),
                () = tokio::time::sleep_until(deadline.instant()) => return Err(total_spent(&self.spec, clock.stage, latest)),
            };
            verdict = match event {
                Seen::Now(pod) => self.judge(&mut diagnosis, &pod),
                Seen::Gone(Some(pod)) => return Err(deleted(&mut diagnosis, &pod)),
                Seen::Gone(None) => return Err(stop::gone().into()),
                Seen::Trouble(why) => Verdict::Wait(clock.stage, why),
                Seen::Failed(error) => return Err(Stop::Error(*error)),
            };
        }
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

/// Each stage's clock runs only while the launch is in that stage.
struct Clock {
    stage: Stage,
    since: Instant,
    left: [Duration; 4],
    budgets: [Duration; 4],
}

impl Clock {
    /// Of the schedule budget so much is `spent`.
    fn new(budgets: &Budgets, spent: Duration) -> Self {
        let budgets = [budgets.schedule, budgets.pull, budgets.init, budgets.start];
        let mut left = budgets;
        left[Stage::Schedule as usize] = budgets[0].saturating_sub(spent);
        Self {
            stage: Stage::Schedule,
            since: Instant::now(),
            left,
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
        let fatal = Fatal::stage_took_too_long(self.stage, budget, why);
        Stop::Fatal(Box::new(fatal))
    }
}

fn total_spent(spec: &SandboxSpec, stage: Stage, why: &str) -> Stop {
    let fatal = Fatal::launch_took_too_long(stage, spec.budgets.total, why);
    Stop::Fatal(Box::new(fatal))
}

fn deleted(diagnosis: &mut Diagnosis, pod: &Pod) -> Stop {
    match diagnosis.judge(pod) {
        Verdict::Fatal(fatal) => Stop::Fatal(Box::new(fatal)),
        _ => stop::gone().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_quota_took_of_the_schedule_budget_is_gone() {
        let budgets = Budgets::default();
        let clock = Clock::new(&budgets, budgets.schedule / 4);
        assert_eq!(clock.runs_out() - clock.since, budgets.schedule * 3 / 4);
    }
}
