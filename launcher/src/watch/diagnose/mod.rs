//! A Pod's status → what to make of it. Pure; the table "Why a launch fails" of
//! the README, row by row: `lost` (the Pod goes), `ended` (a container ended),
//! `refused` (a container does not start), and here what is only waited for.
//! Container states are read before the phase, which lags behind.

mod budget;
pub use budget::Late;
mod ended;
mod lost;
mod refused;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition};

use crate::manifest::{COPY_CONTAINER, HOST_CONTAINER, PREP_CONTAINER, TOKEN_GATE};
use crate::outcome::Reason;
use crate::report::Report;

/// What to do when the container that copies `podcradle-init` fails.
const COPY_HINT: &str =
    "check --supervisor-image: it must hold /podcradle-init, for the node's architecture";

/// Which part of a launch is under way; each has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Which instance of it, where containers are started again.
    pub instance: Option<Instance>,
    /// What the supervisor reported.
    pub report: Option<Report>,
    /// When a budget ran out, which.
    pub late: Option<Late>,
}

impl Fatal {
    fn new(reason: Reason, message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            reason,
            message: message.into(),
            hint,
            container: None,
            instance: None,
            report: None,
            late: None,
        }
    }

    /// The container concerned, whose log says more.
    fn of(mut self, container: &'static str) -> Self {
        self.container = Some(container);
        self
    }

    /// The instance concerned, which has the log.
    fn of_instance(mut self, instance: Option<Instance>) -> Self {
        if let Some(Instance { number, .. }) = instance {
            let message = self.message;
            self.message = format!("{message} (instance {number} of the container)");
        }
        self.instance = instance;
        self
    }
}

/// Of a container that is started again, one that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Counted from one.
    pub number: i32,
    /// As the runtime calls it; empty when the kubelet does not say.
    pub id: String,
}

impl Instance {
    fn of(status: &ContainerStatus, ended: &ContainerStateTerminated) -> Self {
        Self {
            number: status.restart_count + 1,
            id: ended.container_id.clone().unwrap_or_default(),
        }
    }
}

/// Judges one Pod, status after status; it remembers what it has seen, since
/// some answers count only the second time.
#[derive(Debug, Default)]
pub struct Diagnosis {
    /// How the kubelet refused a container last: any change of a Pod shows it
    /// again, and that is no second time.
    said: Option<(&'static str, String, String)>,
    pull_errors: u32,
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
        if let Some(fatal) = lost::lost(pod) {
            return Some(fatal);
        }
        for (status, name) in statuses(pod) {
            let Some(state) = &status.state else {
                continue;
            };
            let found = match (&state.terminated, &state.waiting) {
                (Some(ended), _) => ended::badly(pod, status, ended, name),
                (None, Some(waiting)) => self.refused(status, waiting, name),
                (None, None) => None,
            };
            if found.is_some() {
                return found;
            }
        }
        (pod.status.as_ref()?.phase.as_deref() == Some("Failed")).then(|| lost::failed(pod))
    }
}

/// How the host (or, when one failed, the container before it) ended, for
/// `status`.
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

/// Our containers' statuses, in the order they run.
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
        [COPY_CONTAINER, PREP_CONTAINER, HOST_CONTAINER]
            .into_iter()
            .find(|name| *name == status.name)
            .map(|name| (status, name))
    })
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|c| c.type_ == kind)
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
            // Of our own gate, which is off or about to be.
            let found = found.filter(|c| c.reason.as_deref() != Some("SchedulingGated"));
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
            // What workspace-prep ran from is there; another image may not be.
            let starting = name == HOST_CONTAINER
                && prepared
                && !reason.contains("Image")
                && image(pod, HOST_CONTAINER) == image(pod, PREP_CONTAINER);
            let stage = if starting { Stage::Start } else { Stage::Pull };
            let text = match waiting.message.filter(|m| !m.is_empty()) {
                Some(message) => message,
                // While it pulls, a kubelet does not say what.
                None if !starting => format!("{reason}, image {}", status.image),
                None => reason,
            };
            return Verdict::Wait(stage, format!("{name}: {text}"));
        }
        if name != HOST_CONTAINER {
            if now.running.is_some() {
                return Verdict::Wait(Stage::Init, format!("{name} runs"));
            }
            prepared = name == PREP_CONTAINER && now.terminated.is_some();
        } else if now.running.is_some() {
            return if is_doomed(pod) {
                let why = "the kubelet is ending the Pod".to_owned();
                Verdict::Wait(Stage::Start, why)
            } else if is_ready(pod, status) {
                Verdict::Ready
            } else {
                Verdict::Wait(Stage::Start, "the host runs but is not ready".to_owned())
            };
        }
    }
    Verdict::Wait(Stage::Pull, "waiting for the kubelet".to_owned())
}

/// The image that the container of this name is to have.
fn image<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let inits = spec.init_containers.as_ref().into_iter().flatten();
    let mut all = inits.chain(&spec.containers);
    all.find(|c| c.name == container)?.image.as_deref()
}

/// A kubelet that has given a Pod up (its deadline, an eviction) says so in a
/// condition first, and for a moment calls its containers ready: it has stopped
/// probing them.
fn is_doomed(pod: &Pod) -> bool {
    condition(pod, "ContainersReady")
        .and_then(|c| c.reason.as_deref())
        .is_some_and(|reason| reason == "PodFailed" || reason == "PodCompleted")
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
