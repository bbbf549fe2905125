//! The Pod as the API server admitted it, against the Pod that was sent. A
//! webhook may add (sidecars, tolerations, labels); it may not take away what
//! keeps the sandbox in, and the Pod runs only after this check.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec, SELinuxOptions};
use serde::Serialize;
use serde_json::Value;

use crate::quantity::Quantity;

/// Fields of volumes and variables that are quantities.
const QUANTITIES: [&str; 3] = ["sizeLimit", "storage", "divisor"];

/// The domain of our labels.
const OURS: &str = "podcradle.dev/";

type Labels = BTreeMap<String, String>;

/// Types of `SELinux` that confine a container.
const CONFINED: [&str; 4] = [
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// What an admission plug-in changed although it may not.
///
/// # Errors
/// One line for each difference, naming the field.
pub fn check(sent: &Pod, admitted: &Pod) -> Result<(), Vec<String>> {
    let mut changes = Changes::default();
    changes.same(
        "metadata.ownerReferences",
        &sent.metadata.owner_references,
        &admitted.metadata.owner_references,
    );
    changes.labels(
        sent.metadata.labels.as_ref(),
        admitted.metadata.labels.as_ref(),
    );
    let none = PodSpec::default();
    let (want, got) = (
        sent.spec.as_ref().unwrap_or(&none),
        admitted.spec.as_ref().unwrap_or(&none),
    );
    changes.pod(want, got);
    if changes.0.is_empty() {
        Ok(())
    } else {
        Err(changes.0)
    }
}

#[derive(Default)]
struct Changes(Vec<String>);

impl Changes {
    fn same<T: PartialEq + Debug>(&mut self, field: &str, want: &T, got: &T) {
        if want != got {
            self.0
                .push(format!("{field} is {got:?}, {want:?} was sent"));
        }
    }

    /// Each item sent is there; what the API server fills in is no change.
    fn kept<T: Serialize>(
        &mut self,
        field: &str,
        want: Option<&[T]>,
        got: Option<&[T]>,
        name: impl Fn(&T) -> &str,
    ) {
        let got: Vec<_> = got.unwrap_or_default().iter().map(value).collect();
        for item in want.unwrap_or_default() {
            let sent = value(item);
            if !got.iter().any(|admitted| holds(admitted, &sent)) {
                self.0
                    .push(format!("{field} {} was changed or taken away", name(item)));
            }
        }
    }

    /// By these the NetworkPolicy, the watch and a clean-up know the Pod.
    fn labels(&mut self, want: Option<&Labels>, got: Option<&Labels>) {
        for (key, value) in want.into_iter().flatten() {
            let got = got.and_then(|labels| labels.get(key));
            if key.starts_with(OURS) {
                self.same(&format!("metadata.labels.{key}"), &Some(value), &got);
            }
        }
    }

    fn pod(&mut self, want: &PodSpec, got: &PodSpec) {
        // One may be added where none was asked for, and time taken away.
        if want.runtime_class_name.is_some() {
            self.same(
                "spec.runtimeClassName",
                &want.runtime_class_name,
                &got.runtime_class_name,
            );
        }
        let (most, now) = (want.active_deadline_seconds, got.active_deadline_seconds);
        if now.is_none_or(|now| most.is_some_and(|most| now > most)) {
            self.same("spec.activeDeadlineSeconds", &most, &now);
        }
        self.same(
            "spec.serviceAccountName",
            &want.service_account_name,
            &got.service_account_name,
        );
        self.same(
            "spec.automountServiceAccountToken",
            &want.automount_service_account_token,
            &got.automount_service_account_token,
        );
        let mut context = got.security_context.clone();
        if let (Some(want), Some(got)) = (&want.security_context, &mut context) {
            forget_added(want.se_linux_options.as_ref(), &mut got.se_linux_options);
        }
        self.same("spec.securityContext", &want.security_context, &context);
        self.same(
            "spec.restartPolicy",
            &want.restart_policy,
            &got.restart_policy,
        );
        for (field, want, got) in [
            ("spec.hostPID", want.host_pid, got.host_pid),
            ("spec.hostNetwork", want.host_network, got.host_network),
            ("spec.hostIPC", want.host_ipc, got.host_ipc),
            (
                "spec.shareProcessNamespace",
                want.share_process_namespace,
                got.share_process_namespace,
            ),
        ] {
            self.same(field, &want.unwrap_or(false), &got.unwrap_or(false));
        }
        self.same(
            "spec.hostUsers",
            &want.host_users.unwrap_or(true),
            &got.host_users.unwrap_or(true),
        );
        self.kept(
            "spec.schedulingGates",
            want.scheduling_gates.as_deref(),
            got.scheduling_gates.as_deref(),
            |gate| &gate.name,
        );
        self.kept(
            "spec.volumes",
            want.volumes.as_deref(),
            got.volumes.as_deref(),
            |volume| &volume.name,
        );
        self.containers(
            "spec.initContainers",
            want.init_containers.as_deref().unwrap_or_default(),
            got.init_containers.as_deref().unwrap_or_default(),
        );
        self.containers("spec.containers", &want.containers, &got.containers);
    }

    fn containers(&mut self, field: &str, want: &[Container], got: &[Container]) {
        for sent in want {
            let Some(admitted) = got.iter().find(|c| c.name == sent.name) else {
                self.0.push(format!("{field} {} was taken away", sent.name));
                continue;
            };
            let field = format!("{field}[{}]", sent.name);
            self.same(
                &format!("{field}.command"),
                &sent.command,
                &admitted.command,
            );
            self.same(&format!("{field}.args"), &sent.args, &admitted.args);
            let mut context = admitted.security_context.clone();
            if let (Some(want), Some(got)) = (&sent.security_context, &mut context) {
                forget_added(want.se_linux_options.as_ref(), &mut got.se_linux_options);
            }
            self.same(
                &format!("{field}.securityContext"),
                &sent.security_context,
                &context,
            );
            self.kept(
                &format!("{field}.volumeMounts"),
                sent.volume_mounts.as_deref(),
                admitted.volume_mounts.as_deref(),
                |mount| &mount.mount_path,
            );
            // Plain values are nobody's secret; where one comes from is.
            let from = |container: &Container| -> Vec<EnvVar> {
                let env = container.env.iter().flatten();
                env.filter(|env| env.value_from.is_some())
                    .cloned()
                    .collect()
            };
            self.kept(
                &format!("{field}.env"),
                Some(&from(sent)),
                Some(&from(admitted)),
                |env| &env.name,
            );
        }
    }
}

/// Labels of `SELinux` may be added, such as `OpenShift`'s level of a namespace,
/// as far as Pod Security's baseline lets anyone ask for them: others take the
/// confinement away.
fn forget_added(want: Option<&SELinuxOptions>, got: &mut Option<SELinuxOptions>) {
    let confined = got.as_ref().is_some_and(|got| {
        let kind = got.type_.as_deref().unwrap_or_default();
        got.user.is_none() && got.role.is_none() && (kind.is_empty() || CONFINED.contains(&kind))
    });
    if want.is_none() && confined {
        *got = None;
    }
}

fn value(item: &impl Serialize) -> Value {
    // Kubernetes' types serialize.
    serde_json::to_value(item).unwrap_or_default()
}

/// Whether all of `part` is in `whole`.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, value)| {
            whole.get(key).is_some_and(|there| {
                holds(there, value) || QUANTITIES.contains(&key.as_str()) && equal(there, value)
            })
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| holds(w, p))
        }
        (whole, part) => whole == part,
    }
}

/// Whether two quantities mean the same: the API server writes 1024Mi as 1Gi.
fn equal(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_str(), b.as_str()) else {
        return false;
    };
    Quantity::compare(a, b) == Some(Ordering::Equal)
}

#[cfg(test)]
mod tests;
