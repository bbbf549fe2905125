//! The Pod as the API server admitted it, against the Pod that was sent. A
//! webhook may add (sidecars, tolerations, labels); it may not take away what
//! keeps the sandbox in, and the Pod runs only after this check.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

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

    fn kept<T: PartialEq>(
        &mut self,
        field: &str,
        want: &[T],
        got: &[T],
        name: impl Fn(&T) -> &str,
    ) {
        for item in want {
            if !got.contains(item) {
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
        self.same(
            "spec.securityContext",
            &want.security_context,
            &got.security_context,
        );
        self.same(
            "spec.restartPolicy",
            &want.restart_policy,
            &got.restart_policy,
        );
        for (field, got) in [
            ("spec.hostPID", got.host_pid),
            ("spec.hostNetwork", got.host_network),
            ("spec.hostIPC", got.host_ipc),
            ("spec.shareProcessNamespace", got.share_process_namespace),
        ] {
            self.same(field, &false, &got.unwrap_or(false));
        }
        let gates = |spec: &PodSpec| spec.scheduling_gates.clone().unwrap_or_default();
        self.kept("spec.schedulingGates", &gates(want), &gates(got), |g| {
            &g.name
        });
        let volumes = |spec: &PodSpec| spec.volumes.clone().unwrap_or_default();
        self.kept("spec.volumes", &volumes(want), &volumes(got), |v| &v.name);
        let inits = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
        self.containers("spec.initContainers", &inits(want), &inits(got));
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
            self.same(
                &format!("{field}.securityContext"),
                &sent.security_context,
                &admitted.security_context,
            );
            let mounts = |c: &Container| c.volume_mounts.clone().unwrap_or_default();
            self.kept(
                &format!("{field}.volumeMounts"),
                &mounts(sent),
                &mounts(admitted),
                |m| &m.mount_path,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Owner, pod};
    use crate::spec::SandboxSpec;

    fn sent() -> Pod {
        let owner = Owner {
            name: "a".into(),
            uid: "u".into(),
        };
        pod(&SandboxSpec::new("a", "i"), 1, &owner)
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
}
