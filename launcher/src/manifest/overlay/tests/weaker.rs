//! What weakens the sandbox.

use serde_json::json;

use super::*;

/// Refused at this place (some show at more than one; each is named), and
/// allowed by the flag.
fn weakens(overlay: &Value, field: &str) {
    let refused = fields(default(), overlay.clone());
    assert!(
        refused.iter().any(|refused| refused == field),
        "{overlay}: {refused:?}, not {field}"
    );
    let mut spec = default();
    spec.allow_unsafe_overlay = true;
    let allowed = with(spec, overlay.clone());
    assert!(allowed.is_ok(), "{overlay}: {allowed:?}");
}

#[test]
fn what_weakens_the_pod_is_refused_by_its_place_and_allowed_by_the_flag() {
    for (overlay, field) in [
        (json!({"spec": {"hostPID": true}}), "overlay.spec.hostPID"),
        (json!({"spec": {"hostIPC": true}}), "overlay.spec.hostIPC"),
        (
            json!({"spec": {"hostNetwork": true}}),
            "overlay.spec.hostNetwork",
        ),
        (
            json!({"spec": {"shareProcessNamespace": true}}),
            "overlay.spec.shareProcessNamespace",
        ),
        (
            json!({"spec": {"automountServiceAccountToken": null}}),
            "overlay.spec.automountServiceAccountToken",
        ),
        (
            json!({"spec": {"serviceAccountName": "admin"}}),
            "overlay.spec.serviceAccountName",
        ),
        (
            json!({"spec": {"serviceAccount": "admin"}}),
            "overlay.spec.serviceAccount",
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": null}}),
            "overlay.spec.activeDeadlineSeconds",
        ),
        (
            json!({"spec": {"terminationGracePeriodSeconds": 26}}),
            "overlay.spec.terminationGracePeriodSeconds",
        ),
        (
            json!({"metadata": {"finalizers": ["example.com/keep"]}}),
            "overlay.metadata.finalizers",
        ),
        (
            json!({"spec": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}}),
            "overlay.spec.volumes[node].hostPath",
        ),
        (
            json!({"spec": {"volumes": [{"name": "api", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}}]}}]}}),
            "overlay.spec.volumes[api].projected",
        ),
        (
            json!({"metadata": {"annotations":
                {"container.apparmor.security.beta.kubernetes.io/host": "unconfined"}}}),
            "overlay.metadata.annotations.container.apparmor.security.beta.kubernetes.io/host",
        ),
        (
            json!({"metadata": {"annotations":
                {"container.apparmor.security.beta.kubernetes.io/host": "localhost/p"}}}),
            "overlay.metadata.annotations.container.apparmor.security.beta.kubernetes.io/host",
        ),
        (
            json!({"spec": {"os": {"name": "windows"}}}),
            "overlay.spec.os",
        ),
    ] {
        weakens(&overlay, field);
    }
}

#[test]
fn what_weakens_the_pod_s_context_is_refused_by_its_place_and_allowed_by_the_flag() {
    for (overlay, field) in [
        (
            json!({"spec": {"securityContext": {"runAsNonRoot": null}}}),
            "overlay.spec.securityContext.runAsNonRoot",
        ),
        (
            json!({"spec": {"securityContext": {"runAsUser": 0}}}),
            "overlay.spec.securityContext.runAsUser",
        ),
        (
            json!({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
            "overlay.spec.securityContext.seccompProfile",
        ),
        (
            json!({"spec": {"securityContext": {"seccompProfile":
                {"type": "Localhost", "localhostProfile": "p.json"}}}}),
            "overlay.spec.securityContext.seccompProfile",
        ),
        (
            json!({"spec": {"securityContext": {"runAsUser": null}}}),
            "overlay.spec.securityContext.runAsUser",
        ),
        (
            json!({"spec": {"securityContext": {"runAsGroup": 0}}}),
            "overlay.spec.securityContext.runAsGroup",
        ),
        (
            json!({"spec": {"securityContext": {"runAsGroup": null}}}),
            "overlay.spec.securityContext.runAsGroup",
        ),
        (
            json!({"spec": {"securityContext": {"fsGroup": 0}}}),
            "overlay.spec.securityContext.fsGroup",
        ),
        (
            json!({"spec": {"securityContext": {"supplementalGroups": [27]}}}),
            "overlay.spec.securityContext.supplementalGroups",
        ),
        (
            json!({"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}),
            "overlay.spec.securityContext.sysctls",
        ),
        (
            json!({"spec": {"securityContext": {"appArmorProfile":
                {"type": "Localhost", "localhostProfile": "p"}}}}),
            "overlay.spec.securityContext.appArmorProfile",
        ),
        (
            json!({"spec": {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}}),
            "overlay.spec.securityContext.seLinuxOptions",
        ),
    ] {
        weakens(&overlay, field);
    }
}

#[test]
fn what_weakens_a_container_is_refused_by_its_place_and_allowed_by_the_flag() {
    for (change, field) in [
        (
            json!({"securityContext": {"privileged": true}}),
            "securityContext.privileged",
        ),
        (
            json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
            "securityContext.capabilities.add",
        ),
        (
            json!({"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}}),
            "securityContext.capabilities.add",
        ),
        (
            json!({"securityContext": {"runAsGroup": 0}}),
            "securityContext.runAsGroup",
        ),
        (
            json!({"securityContext": {"seccompProfile":
                {"type": "Localhost", "localhostProfile": "p.json"}}}),
            "securityContext.seccompProfile",
        ),
        (
            json!({"securityContext": {"capabilities": {"drop": null}}}),
            "securityContext.capabilities.drop",
        ),
        (
            json!({"securityContext": {"allowPrivilegeEscalation": null}}),
            "securityContext.allowPrivilegeEscalation",
        ),
        (
            json!({"securityContext": {"procMount": "Unmasked"}}),
            "securityContext.procMount",
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
            "securityContext.seLinuxOptions",
        ),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
            "securityContext.appArmorProfile",
        ),
        (
            json!({"securityContext": {"appArmorProfile":
                {"type": "Localhost", "localhostProfile": "p"}}}),
            "securityContext.appArmorProfile",
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}),
            "securityContext.seLinuxOptions",
        ),
        (
            json!({"ports": [{"containerPort": 80, "hostPort": 80}]}),
            "ports[80].hostPort",
        ),
        (
            json!({"livenessProbe": {"httpGet": {"port": 1, "host": "10.0.0.1"}}}),
            "livenessProbe.httpGet.host",
        ),
    ] {
        weakens(
            &host(&change),
            &format!("overlay.spec.containers[host].{field}"),
        );
    }
}

#[test]
fn what_leads_to_the_token_or_to_pid_1_is_refused_by_its_place() {
    for (change, field) in [
        (json!({"command": ["bash"]}), "command"),
        (
            json!({"env": [{"name": "PODCRADLE_HOST_TOKEN", "value": "mine"}]}),
            "env[PODCRADLE_HOST_TOKEN]",
        ),
        (
            json!({"envFrom": [{"secretRef": {"name": "podcradle-a-000000-g1-token"}}]}),
            "envFrom[0].secretRef.name",
        ),
        (
            json!({"volumeMounts": [{"name": "home", "mountPath": "/usr/local"}]}),
            "volumeMounts[/usr/local]",
        ),
        (
            json!({"volumeMounts": [{"name": "home", "mountPath": "/home/../run/podcradle"}]}),
            "volumeMounts[/home/../run/podcradle]",
        ),
        (
            json!({"volumeMounts": [{"name": "token", "mountPath": "/again"}]}),
            "volumeMounts[/again]",
        ),
        (
            json!({"volumeMounts": [
                {"mountPath": "/run/podcradle/token", "$patch": "delete"}]}),
            "volumeMounts[/run/podcradle/token]",
        ),
    ] {
        weakens(
            &host(&change),
            &format!("overlay.spec.containers[host].{field}"),
        );
    }
    for (overlay, field) in [
        (
            json!({"spec": {"volumes": [{"name": "token", "secret": {"defaultMode": 511}}]}}),
            "overlay.spec.volumes[token]",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "workspace-prep",
                "volumeMounts": [{"name": "token", "mountPath": "/t"}]}]}}),
            "overlay.spec.initContainers[workspace-prep].volumeMounts[/t]",
        ),
    ] {
        weakens(&overlay, field);
    }
}

#[test]
fn a_container_that_is_added_has_the_same_limits() {
    let added = |more: Value| {
        let mut container = json!({
            "name": "added", "image": "i",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            },
        });
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"spec": {"containers": [container]}})
    };
    let at = "overlay.spec.containers[added]";
    assert_eq!(fields(default(), added(json!({}))), [""; 0]);
    for (more, field) in [
        (
            json!({"securityContext": null}),
            "securityContext.allowPrivilegeEscalation",
        ),
        (
            json!({"volumeMounts": [{"name": "token", "mountPath": "/t"}]}),
            "volumeMounts[/t]",
        ),
        (
            json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef":
                {"name": "podcradle-a-000000-g1-token", "key": "token"}}}]}),
            "env[X].valueFrom.secretKeyRef.name",
        ),
    ] {
        let refused = fields(default(), added(more));
        assert!(
            refused.contains(&format!("{at}.{field}")),
            "{field}: {refused:?}"
        );
    }
    let (_, copying) = snapshots::examples()
        .into_iter()
        .find(|(name, _)| *name == "copy")
        .unwrap();
    let mount = json!({"volumeMounts": [{"name": "podcradle", "mountPath": "/p"}]});
    assert_eq!(
        fields(copying, added(mount)),
        [format!("{at}.volumeMounts[/p]")]
    );
}

#[test]
fn the_runtime_that_was_asked_for_keeps_the_sandbox_in() {
    let mut spec = default();
    spec.runtime_class = Some("gvisor".to_owned());
    for other in [json!(null), json!("runc")] {
        let overlay = json!({"spec": {"runtimeClassName": other}});
        assert_eq!(
            fields(spec.clone(), overlay),
            ["overlay.spec.runtimeClassName"]
        );
    }
    let asked = json!({"spec": {"runtimeClassName": "gvisor"}});
    assert_eq!(fields(default(), asked), [""; 0]);
}

#[test]
fn each_weakening_that_is_allowed_is_named() {
    let mut spec = default();
    spec.allow_unsafe_overlay = true;
    let overlay = json!({"spec": {"hostPID": true, "hostIPC": true}});
    spec.overlay = overlay.as_object().cloned();
    let named = crate::manifest::weakenings(&spec).unwrap();
    let fields: Vec<_> = named.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["overlay.spec.hostPID", "overlay.spec.hostIPC"]);
}
