//! A container that ended, and whether that ends the launch.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

use super::{COPY_HINT, Fatal, Instance, report_of};
use crate::manifest::{COPY_CONTAINER, HOST_CONTAINER};
use crate::outcome::Reason;
use crate::report::Report;

/// The failure `ended` comes to; `None` for an init container that did its work.
pub(super) fn badly(
    pod: &Pod,
    status: &ContainerStatus,
    ended: &ContainerStateTerminated,
    name: &'static str,
) -> Option<Fatal> {
    if let Some(why) = not_run(ended) {
        return Some(not_started(why, name));
    }
    let reason = ended.reason.as_deref().unwrap_or("");
    let report = report_of(ended);
    let host = name == HOST_CONTAINER;
    let mut fatal = if reason == "OOMKilled" || killed_for_memory(report.as_ref()) {
        out_of_memory(status, name)
    } else if host {
        host_ended(ended, report.as_ref())
    } else if ended.exit_code != 0 {
        init_failed(ended, report.as_ref(), name)
    } else {
        return None;
    };
    fatal.report = report;
    let instance = restarts(pod).then(|| Instance::of(status, ended));
    Some(fatal.of(name).of_instance(instance))
}

fn restarts(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
    !matches!(policy, None | Some("Never"))
}

/// The kernel may kill the host alone, and podcradle-init lives to tell.
fn killed_for_memory(report: Option<&Report>) -> bool {
    report.is_some_and(|report| {
        let number = |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_u64);
        number(report.end.rest.get("signal")) == Some(9)
            && number(report.rest.get("oomKills")).is_some_and(|kills| kills > 0)
    })
}

/// Why no program of it ever ran, when none did.
pub(super) fn not_run(ended: &ContainerStateTerminated) -> Option<&str> {
    let reason = ended.reason.as_deref().unwrap_or("");
    (reason == "StartError" || reason == "ContainerCannotRun")
        .then(|| ended.message.as_deref().unwrap_or("it does not say why"))
}

pub(super) fn not_started(text: &str, name: &'static str) -> Fatal {
    let hint = if name == COPY_CONTAINER {
        COPY_HINT
    } else if text.contains("podcradle-init") {
        "check that the image holds podcradle-init where --init-dir says, for this architecture"
    } else {
        "change what the runtime names; no program of the sandbox ran"
    };
    Fatal::new(
        Reason::StartError,
        format!(
            "the runtime could not start container {name}: {}",
            text.trim()
        ),
        hint,
    )
}

fn out_of_memory(status: &ContainerStatus, name: &'static str) -> Fatal {
    let limit = status
        .resources
        .as_ref()
        .and_then(|r| r.limits.as_ref()?.get("memory"))
        .map_or_else(String::new, |limit| format!(" of {}", limit.0));
    let hint = if name == COPY_CONTAINER {
        COPY_HINT
    } else {
        "give it more with --memory-limit"
    };
    Fatal::new(
        Reason::OutOfMemory,
        format!("container {name} was killed: it used more memory than its limit{limit}"),
        hint,
    )
}

fn host_ended(ended: &ContainerStateTerminated, report: Option<&Report>) -> Fatal {
    let how = report.map_or_else(|| format!("exit code {}", ended.exit_code), Report::summary);
    let hint = match report.map(|report| report.end.kind.as_str()) {
        Some("exec") => "check that the image holds the program named after -- HOST",
        _ => "read the host's log",
    };
    Fatal::new(
        Reason::HostEnded,
        format!("the host ended before it was ready: {how}"),
        hint,
    )
}

fn init_failed(
    ended: &ContainerStateTerminated,
    report: Option<&Report>,
    name: &'static str,
) -> Fatal {
    let exec = report.filter(|report| report.end.kind == "exec");
    let how = exec.map_or_else(|| format!("exit code {}", ended.exit_code), Report::summary);
    let hint = if name == COPY_CONTAINER {
        COPY_HINT
    } else if exec.is_some() {
        "the image has no git: name one that has with --prep-image"
    } else {
        "check --repo and --branch, and the credentials for it (--credentials-secret)"
    };
    Fatal::new(Reason::InitFailed, format!("{name} failed: {how}"), hint)
}
