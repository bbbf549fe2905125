//! What a launch that ran out of time is called: by the part it was in.

use std::time::Duration;

use super::{Fatal, Stage};
use crate::manifest::{HOST_CONTAINER, PREP_CONTAINER};
use crate::outcome::Reason;

/// A budget that ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// The part that was under way.
    pub stage: Stage,
    /// What the budget is called.
    pub budget: &'static str,
    /// How much it was.
    pub time: Duration,
}

impl Late {
    /// What it is called when it ran out over a volume: `said` are the words of
    /// the kubelet, and `token` is the Secret that we have made.
    pub fn of_a_volume(self, said: &str, token: &str) -> (String, &'static str) {
        let Self { budget, time, .. } = self;
        let message = format!("no volumes within the {budget} budget of {time:?}: {said}");
        let hint = if said.contains(&format!("secret \"{token}\" not found")) {
            "somebody deleted the token's Secret: see who, and launch again"
        } else {
            "check the volume that the kubelet names (--mount), or wait longer with --pull-timeout and --timeout"
        };
        (message, hint)
    }
}

impl Stage {
    /// What its budget is called, in the spec and in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Pull => "pull",
            Self::Init => "init",
            Self::Start => "start",
        }
    }
}

impl Fatal {
    /// The budget of `stage` ran out; `why` is what the cluster said last.
    pub fn stage_took_too_long(stage: Stage, budget: Duration, why: &str) -> Self {
        let hint = match stage {
            Stage::Schedule => {
                "free or add nodes, ask for less, check --node-selector, or wait longer with --schedule-timeout"
            }
            Stage::Pull => {
                "check volumes, the registry and the image's size, or wait longer with --pull-timeout"
            }
            Stage::Init => {
                "check the repository's server and size, or wait longer with --init-timeout"
            }
            Stage::Start => {
                "see in the host's log what it waits for, or wait longer with --start-timeout"
            }
        };
        Self::too_long(stage, stage.name(), budget, why, hint)
    }

    /// The time for the whole launch ran out in `stage`.
    pub fn launch_took_too_long(stage: Stage, total: Duration, why: &str) -> Self {
        let hint = match stage {
            Stage::Schedule => {
                "free or add nodes, ask for less, check --node-selector, or wait longer with --timeout"
            }
            _ => "wait longer with --timeout",
        };
        Self::too_long(stage, "total", total, why, hint)
    }

    fn too_long(
        stage: Stage,
        budget: &'static str,
        time: Duration,
        why: &str,
        hint: &'static str,
    ) -> Self {
        let (what, reason, container) = match stage {
            Stage::Schedule => ("no node was found", Reason::Unschedulable, None),
            Stage::Pull => (
                "the images or volumes were not there",
                Reason::TimedOut,
                None,
            ),
            Stage::Init => (
                "workspace-prep had not ended",
                Reason::TimedOut,
                Some(PREP_CONTAINER),
            ),
            Stage::Start => (
                "the host was not ready",
                Reason::TimedOut,
                Some(HOST_CONTAINER),
            ),
        };
        let message = format!("{what} within the {budget} budget of {time:?}: {why}");
        let mut fatal = Self::new(reason, message, hint);
        fatal.container = container;
        fatal.late = Some(Late {
            stage,
            budget,
            time,
        });
        fatal
    }
}
