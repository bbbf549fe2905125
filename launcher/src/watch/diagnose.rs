//! A Pod's status → what to make of it. Pure; the table "Why a launch fails"
//! of the README, row by row. Container states are read before the phase, which lags behind.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

use crate::manifest::{HOST_CONTAINER, PREP_CONTAINER, TOKEN_GATE};
use crate::outcome::Reason;
use crate::report::Report;

/// Which part of a launch is under way; each has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No node yet.
    Schedule,
    /// Volumes are mounted and images are pulled.
    Pull,
    /// workspace-prep runs.
    Init,
    /// The host is being started, or is not ready yet.
    Start,
}

/// What a Pod's status says about its launch.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Not there yet, and why.
    Wait(Stage, String),
    /// The host runs (and is ready, when it has a probe).
    Ready,
    /// It will not come to that.
    Fatal(Fatal),
}

/// Why it will not.
#[derive(Debug, Clone, PartialEq)]
pub struct Fatal {
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// What to do next.
    pub hint: &'static str,
    /// Whose log says more.
    pub container: Option<&'static str>,
    /// The instance before the current one has the log.
    pub previous: bool,
    /// What the supervisor reported.
    pub report: Option<Report>,
}

impl Fatal {
    fn new(reason: Reason, message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            reason,
            message: message.into(),
            hint,
            container: None,
            previous: false,
            report: None,
        }
    }

    fn of(mut self, container: &'static str) -> Self {
        self.container = Some(container);
        self
    }
}

/// Judges one Pod, status after status; it remembers what it has seen, since
/// some answers count only the second time.
#[derive(Debug, Default)]
pub struct Diagnosis {
    final_pull_errors: u32,
    config_errors: u32,
}

impl Diagnosis {
    /// What `pod` says now.
    pub fn judge(&mut self, pod: &Pod) -> Verdict {
        match self.fatal(pod) {
            Some(fatal) => Verdict::Fatal(fatal),
            None => waiting(pod),
        }
    }

    fn fatal(&mut self, pod: &Pod) -> Option<Fatal> {
        if let Some(fatal) = lost(pod) {
            return Some(fatal);
        }
        for (status, name) in statuses(pod) {
            let found = status.state.as_ref().and_then(|state| {
                if let Some(ended) = &state.terminated {
                    return ended_badly(status, ended, name);
                }
                let waiting = state.waiting.as_ref()?;
                let message = waiting.message.as_deref().unwrap_or("");
                self.refused(
                    status,
                    waiting.reason.as_deref().unwrap_or(""),
                    message,
                    name,
                )
            });
            if found.is_some() {
                return found;
            }
        }
        (pod.status.as_ref()?.phase.as_deref() == Some("Failed")).then(|| failed(pod))
    }

    fn refused(
        &mut self,
        status: &ContainerStatus,
        reason: &str,
        message: &str,
        name: &'static str,
    ) -> Option<Fatal> {
        let image = &status.image;
        let text = || {
            if message.is_empty() {
                reason.to_owned()
            } else {
                message.to_owned()
            }
        };
        if message.contains("no match for platform") {
            return Some(Fatal::new(
                Reason::Platform,
                format!(
                    "image {image} has no variant for the node's architecture: {}",
                    text()
                ),
                "build the image for the node's architecture, or ask for other nodes with --node-selector",
            ));
        }
        match reason {
            "ErrImagePull" | "ImagePullBackOff" | "ImageVolumeMountFailed" => {
                let lower = message.to_lowercase();
                let is_final = [
                    "not found",
                    "unauthorized",
                    "manifest unknown",
                    "denied",
                    "authorization failed",
                ]
                .iter()
                .any(|text| lower.contains(text));
                self.final_pull_errors += u32::from(is_final);
                (is_final && self.final_pull_errors >= 2).then(|| {
                    Fatal::new(
                        Reason::ImagePull,
                        format!("image {image} cannot be pulled: {}", text()),
                        "check the image's name and tag, and that the cluster may pull it",
                    )
                })
            }
            "InvalidImageName" | "ErrImageNeverPull" => Some(Fatal::new(
                Reason::ImageName,
                format!("image {image} cannot be used: {}", text()),
                "check the image's name and the pull policy",
            )),
            "CreateContainerConfigError" | "CreateContainerError" => {
                let passing = [
                    "failed to sync",
                    "timed out waiting for the condition",
                    "deadline exceeded",
                ]
                .iter()
                .any(|text| message.contains(text));
                self.config_errors += 1;
                let tolerated = passing && self.config_errors < 3;
                (!tolerated).then(|| {
                    Fatal::new(
                        Reason::ContainerConfig,
                        format!("container {name} cannot be set up: {}", text()),
                        "create what the message names, or change the spec",
                    )
                })
            }
            "CrashLoopBackOff" | "RunContainerError" => {
                let mut fatal = Fatal::new(
                    if name == HOST_CONTAINER {
                        Reason::HostEnded
                    } else {
                        Reason::InitFailed
                    },
                    format!("container {name} keeps ending: {}", text()),
                    "read the log below",
                )
                .of(name);
                fatal.previous = true;
                fatal.report = status
                    .last_state
                    .as_ref()
                    .and_then(|s| report_of(s.terminated.as_ref()?));
                Some(fatal)
            }
            _ => None,
        }
    }
}

/// How the host (or, when that failed, workspace-prep) ended, for `status`.
pub fn termination_of(pod: &Pod) -> Option<(ContainerStateTerminated, Option<Report>)> {
    let mut found = statuses(pod).filter_map(|(status, name)| {
        let ended = status.state.as_ref()?.terminated.as_ref()?;
        (name == HOST_CONTAINER || ended.exit_code != 0).then(|| (ended.clone(), report_of(ended)))
    });
    found.next()
}

fn report_of(ended: &ContainerStateTerminated) -> Option<Report> {
    Report::parse(ended.message.as_deref()?)
}

/// Our two containers' statuses, in the order they run.
fn statuses(pod: &Pod) -> impl Iterator<Item = (&ContainerStatus, &'static str)> {
    let status = pod.status.as_ref();
    let inits = status
        .and_then(|s| s.init_container_statuses.as_ref())
        .into_iter()
        .flatten();
    let mains = status
        .and_then(|s| s.container_statuses.as_ref())
        .into_iter()
        .flatten();
    inits.chain(mains).filter_map(|status| {
        [PREP_CONTAINER, HOST_CONTAINER]
            .into_iter()
            .find(|name| *name == status.name)
            .map(|name| (status, name))
    })
}

/// Deleted, evicted, preempted, out of time: not the host's fault.
fn lost(pod: &Pod) -> Option<Fatal> {
    let status = pod.status.as_ref();
    let reason = status.and_then(|s| s.reason.as_deref()).unwrap_or("");
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or("");
    if reason == "DeadlineExceeded" {
        return Some(Fatal::new(
            Reason::LifetimeExceeded,
            "the sandbox's maximum lifetime ran out",
            "give it more with --max-lifetime",
        ));
    }
    let disrupted = condition(pod, "DisruptionTarget").filter(|c| c.status == "True");
    let evicted = [
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeLost",
        "NodeShutdown",
        "Terminated",
        "Shutdown",
    ];
    if disrupted.is_some() || evicted.contains(&reason) {
        let why = disrupted
            .and_then(|c| c.message.clone())
            .filter(|m| !m.is_empty());
        let why = why.unwrap_or_else(|| format!("{reason} {message}").trim().to_owned());
        return Some(Fatal::new(
            Reason::Evicted,
            format!(
                "the sandbox lost its node or was evicted, through no fault of its host: {why}"
            ),
            "launch again; raise its priority or its requests if it happens often",
        ));
    }
    pod.metadata.deletion_timestamp.as_ref()?;
    Some(Fatal::new(
        Reason::DeletedBySomeone,
        "the sandbox's Pod was deleted by someone else during the launch",
        "see who deletes Pods in this namespace",
    ))
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|c| c.type_ == kind)
}

fn ended_badly(
    status: &ContainerStatus,
    ended: &ContainerStateTerminated,
    name: &'static str,
) -> Option<Fatal> {
    let reason = ended.reason.as_deref().unwrap_or("");
    let text = ended.message.as_deref().unwrap_or("").trim();
    if reason == "OOMKilled" {
        let limit = status
            .resources
            .as_ref()
            .and_then(|r| r.limits.as_ref()?.get("memory").map(|q| q.0.clone()))
            .map_or_else(String::new, |limit| format!(" of {limit}"));
        let mut fatal = Fatal::new(
            Reason::OutOfMemory,
            format!("container {name} was killed: it used more memory than its limit{limit}"),
            "give it more with --memory-limit",
        )
        .of(name);
        fatal.report = report_of(ended);
        return Some(fatal);
    }
    if reason == "StartError" || reason == "ContainerCannotRun" {
        return Some(Fatal::new(
            Reason::StartError,
            format!("the runtime could not start container {name}: {text}"),
            "check that the image holds podcradle-init where the spec says (--init-dir)",
        ));
    }
    let host = name == HOST_CONTAINER;
    if !host && ended.exit_code == 0 {
        return None;
    }
    let report = report_of(ended);
    let how = report
        .as_ref()
        .map_or_else(|| format!("exit code {}", ended.exit_code), Report::summary);
    let missing_git = !host && ended.exit_code == 127;
    let (reason, message, hint) = if host {
        (
            Reason::HostEnded,
            format!("the host ended before it was ready: {how}"),
            "read the host's log below",
        )
    } else if missing_git {
        (
            Reason::InitFailed,
            format!("workspace-prep failed: {how}"),
            "the image has no git: name one that has with --prep-image",
        )
    } else {
        (
            Reason::InitFailed,
            format!("workspace-prep failed: exit code {}", ended.exit_code),
            "read its log below",
        )
    };
    let mut fatal = Fatal::new(reason, message, hint).of(name);
    fatal.report = report;
    Some(fatal)
}

fn failed(pod: &Pod) -> Fatal {
    let status = pod.status.as_ref();
    let reason = status
        .and_then(|s| s.reason.as_deref())
        .unwrap_or("no reason given");
    let message = status.and_then(|s| s.message.as_deref()).unwrap_or("");
    Fatal::new(
        Reason::StartError,
        format!("the Pod failed: {reason} {message}")
            .trim()
            .to_owned(),
        "see the events below",
    )
}

fn waiting(pod: &Pod) -> Verdict {
    let foreign = pod
        .spec
        .as_ref()
        .and_then(|s| s.scheduling_gates.as_ref())
        .and_then(|gates| {
            gates
                .iter()
                .find(|g| g.name != TOKEN_GATE)
                .map(|g| g.name.clone())
        });
    if let Some(gate) = foreign {
        return Verdict::Wait(
            Stage::Schedule,
            format!("held back by the scheduling gate {gate}"),
        );
    }
    match condition(pod, "PodScheduled") {
        Some(c) if c.status == "True" => {}
        found => {
            let why = found.and_then(|c| c.message.clone()).unwrap_or_default();
            let why = if why.is_empty() {
                "no node yet".to_owned()
            } else {
                why
            };
            return Verdict::Wait(Stage::Schedule, why);
        }
    }
    let mut prepared = false;
    for (status, name) in statuses(pod) {
        let now = status.state.clone().unwrap_or_default();
        if let Some(waiting) = now.waiting {
            let reason = waiting.reason.unwrap_or_default();
            let starting = name == HOST_CONTAINER && prepared && !reason.contains("Image");
            let stage = if starting { Stage::Start } else { Stage::Pull };
            let text = waiting.message.filter(|m| !m.is_empty()).unwrap_or(reason);
            return Verdict::Wait(stage, format!("{name}: {text}"));
        }
        if name == PREP_CONTAINER {
            if now.running.is_some() {
                return Verdict::Wait(Stage::Init, "workspace-prep runs".to_owned());
            }
            prepared = now.terminated.is_some();
        } else if now.running.is_some() {
            return if is_ready(pod, status) {
                Verdict::Ready
            } else {
                Verdict::Wait(Stage::Start, "the host runs but is not ready".to_owned())
            };
        }
    }
    Verdict::Wait(Stage::Pull, "waiting for the kubelet".to_owned())
}

fn is_ready(pod: &Pod, status: &ContainerStatus) -> bool {
    let probed = pod.spec.as_ref().is_some_and(|spec| {
        spec.containers.iter().any(|c| {
            c.name == HOST_CONTAINER && (c.readiness_probe.is_some() || c.startup_probe.is_some())
        })
    });
    !probed || status.ready
}

#[cfg(test)]
mod tests;
