//! How long a launch may still wait: the clock of a stage runs only while the
//! launch is in that stage, the one of the whole launch all along.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Deadline;
use crate::spec::Budgets;
use crate::watch::{Fatal, Stage};

pub(super) struct Clock {
    stage: Stage,
    since: Instant,
    left: [Duration; 4],
    budgets: Budgets,
    /// When the time for the whole launch is over.
    end: Instant,
}

impl Clock {
    /// It begins in the first stage, of whose budget so much is gone; the whole
    /// launch began earlier.
    pub(super) fn new(budgets: Budgets, gone: Duration, launch: Deadline) -> Self {
        let mut left = of_stages(&budgets);
        let first = &mut left[Stage::Schedule as usize];
        *first = first.saturating_sub(gone);
        Self {
            stage: Stage::Schedule,
            since: Instant::now(),
            left,
            budgets,
            end: launch.instant(),
        }
    }

    /// The stage whose clock runs.
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// From now on another stage's clock runs; one that comes back goes on
    /// where it stood.
    pub(super) fn enter(&mut self, stage: Stage) {
        if stage == self.stage {
            return;
        }
        let left = &mut self.left[self.stage as usize];
        *left = left.saturating_sub(self.since.elapsed());
        self.stage = stage;
        self.since = Instant::now();
    }

    /// When there is no time left, if nothing changes until then.
    pub(super) fn runs_out(&self) -> Instant {
        self.stage_ends().min(self.end)
    }

    /// What a launch that ran out of time is called; `why` is what it waited for.
    pub(super) fn spent(&self, why: &str) -> Fatal {
        if self.end < self.stage_ends() {
            return Fatal::launch_took_too_long(self.stage, self.budgets.total, why);
        }
        let budget = of_stages(&self.budgets)[self.stage as usize];
        Fatal::stage_took_too_long(self.stage, budget, why)
    }

    fn stage_ends(&self) -> Instant {
        self.since + self.left[self.stage as usize]
    }
}

/// In the order of [`Stage`].
fn of_stages(budgets: &Budgets) -> [Duration; 4] {
    [budgets.schedule, budgets.pull, budgets.init, budgets.start]
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn clock(of_stages: [u64; 4], total: u64) -> Clock {
        let [schedule, pull, init, start] = of_stages.map(s);
        let budgets = Budgets {
            schedule,
            pull,
            init,
            start,
            total: s(total),
        };
        Clock::new(budgets, Duration::ZERO, Deadline::after(budgets.total))
    }

    fn left(clock: &Clock) -> Duration {
        clock.runs_out().duration_since(Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_one_stage_is_not_counted_against_another() {
        for (stage, name) in [
            (Stage::Schedule, "schedule"),
            (Stage::Pull, "pull"),
            (Stage::Init, "init"),
            (Stage::Start, "start"),
        ] {
            let budgets = [10, 20, 30, 40];
            let mut clock = clock(budgets, 1000);
            for other in [Stage::Schedule, Stage::Pull, Stage::Init, Stage::Start] {
                clock.enter(other);
                advance(s(budgets[other as usize] - 1)).await;
                assert_eq!(left(&clock), s(1), "{other:?}");
            }
            clock.enter(stage);
            assert_eq!(left(&clock), s(1), "{stage:?}");
            tokio::time::sleep_until(clock.runs_out()).await;
            let spent = clock.spent("as it was").message;
            let budget = s(budgets[stage as usize]);
            let said = format!("within the {name} budget of {budget:?}: as it was");
            assert!(spent.ends_with(&said), "{spent}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_quota_took_of_the_schedule_budget_is_gone() {
        let budgets = Budgets {
            schedule: s(10),
            ..Budgets::default()
        };
        for (gone, rest) in [(4, 6), (11, 0)] {
            let clock = Clock::new(budgets, s(gone), Deadline::after(s(1000)));
            assert_eq!(left(&clock), s(rest));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_comes_back_goes_on_where_it_stood() {
        let mut clock = clock([10; 4], 1000);
        clock.enter(Stage::Pull);
        advance(s(4)).await;
        // Whatever is said in a stage begins no new one.
        clock.enter(Stage::Pull);
        assert_eq!(left(&clock), s(6));
        clock.enter(Stage::Init);
        advance(s(9)).await;
        clock.enter(Stage::Pull);
        assert_eq!(left(&clock), s(6));
        // One that took longer than it had is over when it comes back.
        advance(s(60)).await;
        clock.enter(Stage::Init);
        clock.enter(Stage::Pull);
        assert_eq!(left(&clock), s(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_launch_ends_in_the_middle_of_any_stage() {
        let mut clock = clock([10; 4], 15);
        advance(s(9)).await;
        clock.enter(Stage::Pull);
        assert_eq!(left(&clock), s(6));
        tokio::time::sleep_until(clock.runs_out()).await;
        let spent = clock.spent("the image");
        assert!(
            spent.message.contains("total budget of 15s: the image"),
            "{spent:?}"
        );
        assert!(spent.hint.contains("--timeout"), "{spent:?}");
    }
}
