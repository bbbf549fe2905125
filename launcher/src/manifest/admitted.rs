//! The Pod as the API server admitted it, against the Pod that was sent. A
//! webhook may add (sidecars, tolerations, labels); it may not take away what
//! keeps the sandbox in, and the Pod runs only after this check.

use std::cmp::Ordering;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec, SELinuxOptions};
use serde::Serialize;
use serde_json::Value;

use crate::quantity::Quantity;

/// Fields of volumes and variables that are quantities.
const QUANTITIES: [&str; 3] = ["sizeLimit", "storage", "divisor"];

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

    fn pod(&mut self, want: &PodSpec, got: &PodSpec) {
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
mod tests {
    use k8s_openapi::api::core::v1::Volume;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use serde_json::json;

    use super::{Container, Pod, PodSpec, SELinuxOptions, check};
    use crate::manifest::{Owner, pod};
    use crate::spec::{Inject, Mount, SandboxSpec, TokenDelivery};

    fn sent() -> Pod {
        let owner = Owner {
            name: "a".into(),
            uid: "u".into(),
        };
        let mut spec = SandboxSpec::new("a", "i");
        spec.host_users = Some(false);
        spec.inject = Inject::ImageVolume;
        spec.supervisor_image = Some("s".into());
        spec.home_size_limit = Some("1024Mi".into());
        spec.mounts = vec![Mount {
            path: "/data".into(),
            claim: Some("data".into()),
            secret: None,
            writable: false,
        }];
        pod(&spec, 1, &owner).unwrap()
    }

    fn after(change: impl FnOnce(&mut Pod)) -> Vec<String> {
        let mut admitted = sent();
        change(&mut admitted);
        check(&sent(), &admitted).err().unwrap_or_default()
    }

    #[test]
    fn an_injected_sidecar_and_another_gate_are_allowed() {
        let found = after(|p| {
            let spec = p.spec.as_mut().unwrap();
            spec.containers.push(Container {
                name: "proxy".into(),
                ..Container::default()
            });
            spec.scheduling_gates.as_mut().unwrap().push(
                k8s_openapi::api::core::v1::PodSchedulingGate {
                    name: "kueue.x-k8s.io/admission".into(),
                },
            );
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_label_of_selinux_may_be_added_and_confinement_not_taken_away() {
        for (options, allowed) in [
            (json!({ "level": "s0:c26,c5" }), true),
            (json!({ "level": "s0:c1", "type": "container_t" }), true),
            (json!({ "type": "spc_t" }), false),
            (json!({ "user": "system_u" }), false),
        ] {
            let options: SELinuxOptions = serde_json::from_value(options).unwrap();
            let found = after(|p| {
                let spec = p.spec.as_mut().unwrap();
                let whole = spec.security_context.as_mut().unwrap();
                whole.se_linux_options = Some(options.clone());
                let host = spec.containers[0].security_context.as_mut().unwrap();
                host.se_linux_options = Some(options.clone());
            });
            let expected = if allowed { 0 } else { 2 };
            assert_eq!(found.len(), expected, "{options:?}: {found:?}");
        }
        let found = after(|p| {
            let spec = p.spec.as_mut().unwrap();
            let host = spec.containers[0].security_context.as_mut().unwrap();
            host.se_linux_options = Some(SELinuxOptions::default());
            host.allow_privilege_escalation = Some(true);
        });
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn what_keeps_the_sandbox_in_may_not_be_taken_away() {
        let spec = |p: &mut Pod, f: fn(&mut PodSpec)| f(p.spec.as_mut().unwrap());
        for (name, change) in [
            (
                "securityContext",
                (|s: &mut PodSpec| s.containers[0].security_context = None) as fn(&mut PodSpec),
            ),
            ("spec.securityContext", |s| s.security_context = None),
            ("command", |s| s.containers[0].command = None),
            ("volumes", |s| {
                s.volumes.as_mut().unwrap().pop();
            }),
            ("hostPID", |s| s.host_pid = Some(true)),
            ("spec.hostUsers", |s| s.host_users = None),
            ("shareProcessNamespace", |s| {
                s.share_process_namespace = Some(true);
            }),
            ("serviceAccountName", |s| {
                s.service_account_name = Some("admin".into());
            }),
            ("schedulingGates", |s| s.scheduling_gates = None),
            ("volumeMounts", |s| {
                s.containers[0].volume_mounts.as_mut().unwrap().pop();
            }),
        ] {
            let found = after(|p| spec(p, change));
            assert!(
                found.len() == 1 && found[0].contains(name),
                "{name}: {found:?}"
            );
        }
        assert_eq!(after(|p| p.metadata.owner_references = None).len(), 1);
    }

    fn volume<'a>(pod: &'a mut Pod, name: &str) -> &'a mut Volume {
        let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
        volumes.iter_mut().find(|v| v.name == name).unwrap()
    }

    #[test]
    fn what_the_api_server_fills_in_or_writes_another_way_is_no_change() {
        let found = after(|p| {
            let image = volume(p, "podcradle").image.as_mut().unwrap();
            image.pull_policy = Some("IfNotPresent".into());
            let home = volume(p, "home").empty_dir.as_mut().unwrap();
            home.size_limit = Some(Quantity("1Gi".into()));
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_volume_that_became_another_is_named() {
        for (name, change) in [
            (
                "home",
                (|v: &mut Volume| v.empty_dir.as_mut().unwrap().size_limit = None)
                    as fn(&mut Volume),
            ),
            ("home", |v| v.empty_dir = None),
            ("token", |v| {
                v.secret.as_mut().unwrap().secret_name = Some("other".into());
            }),
            ("podcradle", |v| {
                v.image.as_mut().unwrap().reference = Some("evil".into());
            }),
            ("mount-0", |v| {
                v.persistent_volume_claim.as_mut().unwrap().read_only = None;
            }),
        ] {
            let found = after(|p| change(volume(p, name)));
            assert!(
                found.len() == 1 && found[0].contains(&format!("spec.volumes {name} ")),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn a_token_that_would_come_from_elsewhere_is_named() {
        let owner = Owner {
            name: "a".into(),
            uid: "u".into(),
        };
        let mut spec = SandboxSpec::new("a", "i");
        spec.token_delivery = TokenDelivery::SecretKeyRef;
        let sent = pod(&spec, 1, &owner).unwrap();
        let mut admitted = sent.clone();
        let env = admitted.spec.as_mut().unwrap().containers[0].env.as_mut();
        for variable in env.unwrap() {
            if let Some(from) = &mut variable.value_from {
                from.secret_key_ref.as_mut().unwrap().name = "other".into();
            }
        }
        let found = check(&sent, &admitted).unwrap_err();
        assert!(
            found.len() == 1 && found[0].contains("PODCRADLE_HOST_TOKEN"),
            "{found:?}"
        );
    }
}
