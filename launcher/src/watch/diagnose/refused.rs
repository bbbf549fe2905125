//! Containers that do not start: what the kubelet waits for, and whether it can
//! still come.

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus};

use super::ended::{not_run, not_started};
use super::{COPY_HINT, Diagnosis, Fatal, Instance, report_of};
use crate::manifest::{COPY_CONTAINER, HOST_CONTAINER};
use crate::outcome::Reason;

/// Words of registries that another try does not change.
const NOT_THERE: [&str; 2] = ["not found", "manifest unknown"];
const NO_ACCESS: [&str; 4] = [
    "unauthorized",
    "authorization failed",
    "denied",
    "forbidden",
];
/// Words of a kubelet whose caches are late, or whose runtime is slow.
const PASSING: [&str; 3] = [
    "failed to sync",
    "timed out waiting for the condition",
    "deadline exceeded",
];

impl Diagnosis {
    /// Whether what the kubelet says of a waiting container ends the launch.
    pub(super) fn refused(
        &mut self,
        status: &ContainerStatus,
        waiting: &ContainerStateWaiting,
        name: &'static str,
    ) -> Option<Fatal> {
        let reason = waiting.reason.as_deref().unwrap_or("");
        let message = waiting.message.as_deref().unwrap_or("");
        let text = if message.is_empty() {
            reason
        } else {
            plain(message)
        };
        let copies = name == COPY_CONTAINER;
        if message.contains("no match for platform") {
            let hint = if copies {
                COPY_HINT
            } else {
                "build the image for the node's architecture, or ask for nodes of another one with --arch"
            };
            return Some(Fatal::new(
                Reason::Platform,
                format!(
                    "image {} has no variant for the node's architecture: {text}",
                    status.image
                ),
                hint,
            ));
        }
        match reason {
            "ErrImagePull" | "ImagePullBackOff" | "ImageVolumeMountFailed" => {
                // A kubelet that backs off has not tried again.
                let news = self.is_news(name, reason, text);
                let tried = news && (reason != "ImagePullBackOff" || self.pull_errors == 0);
                self.not_pulled(status, reason, text, name, tried)
            }
            "InvalidImageName" => Some(Fatal::new(
                Reason::ImageName,
                format!("image {} cannot be used: {text}", status.image),
                if copies {
                    "check --supervisor-image: its name is no image's"
                } else {
                    "check --image: its name is no image's"
                },
            )),
            "ErrImageNeverPull" => Some(Fatal::new(
                Reason::ImageName,
                format!("image {} may not be pulled: {text}", status.image),
                "put the image on the node, or let it be pulled with --image-pull-policy",
            )),
            "CreateContainerConfigError" | "CreateContainerError" => {
                self.config_errors += u32::from(self.is_news(name, reason, text));
                self.not_set_up(text, message, name)
            }
            "CrashLoopBackOff" => Some(keeps_ending(status, text, name)),
            "RunContainerError" => Some(not_started(text, name)),
            _ => None,
        }
    }

    /// Whether the kubelet says something else than the last time it refused.
    fn is_news(&mut self, name: &'static str, reason: &str, text: &str) -> bool {
        let now = Some((name, reason.to_owned(), text.to_owned()));
        let news = self.said != now;
        self.said = now;
        news
    }

    fn not_pulled(
        &mut self,
        status: &ContainerStatus,
        reason: &str,
        text: &str,
        name: &'static str,
        tried: bool,
    ) -> Option<Fatal> {
        let lower = text.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let (there, access) = (!says(&NOT_THERE), !says(&NO_ACCESS));
        if there && access {
            return None;
        }
        self.pull_errors += u32::from(tried);
        // A registry may be wrong once, while an image is being pushed.
        if self.pull_errors < 2 {
            return None;
        }
        // A container waits for the images of its volumes too.
        let volume = reason == "ImageVolumeMountFailed" || !text.contains(image_name(status));
        let what = if volume {
            "the image of a volume".to_owned()
        } else {
            format!("image {}", status.image)
        };
        let (why, hint) = if access {
            let hint = if name == COPY_CONTAINER {
                COPY_HINT
            } else if volume {
                "check --supervisor-image and the image volumes of the overlay"
            } else {
                "check the name and tag of --image (and --prep-image)"
            };
            ("cannot be pulled", hint)
        } else {
            (
                "cannot be pulled without a password, or not with the one there is",
                if name == COPY_CONTAINER {
                    "name a pull secret with --image-pull-secret, and check --supervisor-image"
                } else {
                    "name a pull secret with --image-pull-secret, and check the image's name"
                },
            )
        };
        Some(Fatal::new(
            Reason::ImagePull,
            format!("{what} {why}: {text}"),
            hint,
        ))
    }

    fn not_set_up(&self, text: &str, message: &str, name: &'static str) -> Option<Fatal> {
        let passing = PASSING.iter().any(|text| message.contains(text));
        if passing && self.config_errors < 3 {
            return None;
        }
        let hint = if message.contains("secret \"") {
            "create that Secret in the namespace, or change --credentials-secret"
        } else {
            "create what the message names, or change the spec"
        };
        Some(Fatal::new(
            Reason::ContainerConfig,
            format!("container {name} cannot be set up: {text}"),
            hint,
        ))
    }
}

fn keeps_ending(status: &ContainerStatus, text: &str, name: &'static str) -> Fatal {
    let last = status.last_state.as_ref();
    let last = last.and_then(|state| state.terminated.as_ref());
    if let Some(why) = last.and_then(not_run) {
        return not_started(why, name);
    }
    let reason = if name == HOST_CONTAINER {
        Reason::HostEnded
    } else {
        Reason::InitFailed
    };
    let message = format!("container {name} keeps ending: {text}");
    let mut fatal = Fatal::new(reason, message, "read its log").of(name);
    // The one that is waited for has not written anything.
    let Some(ended) = last else {
        return fatal;
    };
    fatal.report = report_of(ended);
    fatal.of_instance(Some(Instance::of(status, ended)))
}

/// Without a tag or digest: a runtime quotes the reference in a form of its own.
fn image_name(status: &ContainerStatus) -> &str {
    let name = status.image.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}

/// Without what the layers between runtime and kubelet put in front.
fn plain(message: &str) -> &str {
    let mut text = message;
    for (mark, end) in [("ErrImagePull: ", ""), ("rpc error: code = ", "desc = ")] {
        if let Some((_, rest)) = text.split_once(mark) {
            text = rest.split_once(end).map_or(rest, |(_, rest)| rest);
        }
    }
    text
}
