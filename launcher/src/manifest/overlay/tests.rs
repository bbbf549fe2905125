use serde_json::json;

use super::*;
use crate::manifest::{Owner, pod, snapshots};

/// Every example, each of which an overlay may be laid over.
fn examples() -> impl Iterator<Item = SandboxSpec> {
    snapshots::examples().into_iter().map(|(_, mut spec)| {
        spec.overlay = None;
        spec
    })
}

fn with(mut spec: SandboxSpec, overlay: Value) -> Result<Pod, Vec<String>> {
    let Value::Object(overlay) = overlay else {
        panic!("an overlay is a map");
    };
    spec.overlay = Some(overlay);
    let owner = Owner {
        name: spec.sandbox.clone(),
        uid: "u".into(),
    };
    pod(&spec, 1, &owner).map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

fn default() -> SandboxSpec {
    SandboxSpec::new("podcradle-a-000000", "image:1")
}

/// What the overlay is refused for, field by field.
fn fields(spec: SandboxSpec, overlay: Value) -> Vec<String> {
    let refused = with(spec, overlay).err().unwrap_or_default();
    let field = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
    refused.into_iter().map(field).collect()
}

#[test]
fn what_adds_is_allowed() {
    for spec in examples() {
        let made = with(
            spec,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}},
                "spec": {
                    "hostUsers": false,
                    "dnsPolicy": "Default",
                    "restartPolicy": "OnFailure",
                    "terminationGracePeriodSeconds": 60,
                    "activeDeadlineSeconds": 3600,
                    "schedulingGates": [{"name": "queue.example/gate"}],
                    "containers": [{
                        "name": "host",
                        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
                        "securityContext": {"readOnlyRootFilesystem": true},
                        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    }],
                    "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
                },
            }),
        );
        let spec = made.unwrap().spec.unwrap();
        assert_eq!(spec.scheduling_gates.unwrap().len(), 2);
        let host = &spec.containers[0];
        assert!(host.readiness_probe.is_some() && host.command.is_some());
    }
}

#[test]
fn what_the_launcher_knows_its_pod_by_is_kept_whatever_is_allowed() {
    for (overlay, field) in [
        (
            json!({"metadata": {"name": "other"}}),
            "overlay.metadata.name",
        ),
        (
            json!({"metadata": {"namespace": "other"}}),
            "overlay.metadata.namespace",
        ),
        (
            json!({"metadata": {"generateName": "x-"}}),
            "overlay.metadata.generateName",
        ),
        (
            json!({"metadata": {"ownerReferences": null}}),
            "overlay.metadata.ownerReferences",
        ),
        (
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "other"}]}}),
            "overlay.metadata.ownerReferences",
        ),
        (
            json!({"metadata": {"labels": {"podcradle.dev/session": "other"}}}),
            "overlay.metadata.labels.podcradle.dev/session",
        ),
        (
            json!({"metadata": {"labels": {"podcradle.dev/more": "x"}}}),
            "overlay.metadata.labels.podcradle.dev/more",
        ),
        (
            json!({"spec": {"schedulingGates": null}}),
            "overlay.spec.schedulingGates",
        ),
        (json!({"spec": {"nodeName": "n"}}), "overlay.spec.nodeName"),
        (
            json!({"spec": {"ephemeralContainers": [{"name": "e"}]}}),
            "overlay.spec.ephemeralContainers",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "workspace-prep", "$patch": "delete"}]}}),
            "overlay.spec.initContainers[workspace-prep]",
        ),
        (
            json!({"spec": {"volumes": [{"name": "token", "secret": {"secretName": "s"}}]}}),
            "overlay.spec.volumes[token].secret.secretName",
        ),
    ] {
        let mut spec = default();
        spec.allow_unsafe_overlay = true;
        assert_eq!(fields(spec, overlay), [field]);
    }
}

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

/// An overlay of the host's container, and where it is refused.
fn host(change: &Value) -> Value {
    let mut container = json!({"name": "host"});
    let change = change.as_object().unwrap().clone();
    container.as_object_mut().unwrap().extend(change);
    json!({"spec": {"containers": [container]}})
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
            json!({"spec": {"securityContext": {"appArmorProfile":
                {"type": "Localhost", "localhostProfile": "p"}}}}),
            "overlay.spec.securityContext.appArmorProfile",
        ),
        (
            json!({"spec": {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}}),
            "overlay.spec.securityContext.seLinuxOptions",
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
fn what_the_api_server_would_refuse_of_a_place_is_named_before() {
    let pods = json!([{"topologyKey": "zone", "matchLabelKeys": ["a"],
        "labelSelector": {"matchLabels": {"a": "b"}}}]);
    let overlay = json!({"spec": {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pods}},
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"],
            "labelSelector": {"matchLabels": {"a": "b"}}}],
    }});
    let place = "overlay.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(
        fields(default(), overlay),
        [
            format!("{place}[0].matchLabelKeys"),
            "overlay.spec.topologySpreadConstraints[0].matchLabelKeys".to_owned(),
        ]
    );
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
fn a_key_or_value_that_kubernetes_does_not_know_is_named() {
    for (overlay, field) in [
        (json!({"spec": {"hostPid": true}}), "overlay.spec.hostPid"),
        (
            json!({"spec": {"containers": [{"name": "host", "imagee": "x"}]}}),
            "overlay.spec.containers[host].imagee",
        ),
        (
            json!({"spec": {"tolerations": [{"kee": "x"}]}}),
            "overlay.spec.tolerations[0].kee",
        ),
        (
            json!({"spec": {"terminationGracePeriodSeconds": "long"}}),
            "overlay.spec.terminationGracePeriodSeconds",
        ),
        (
            json!({"spec": {"containers": [{"name": "host", "env": [{"name": "A", "value": 5}]}]}}),
            "overlay.spec.containers[host].env[A].value",
        ),
        (json!({"status": {}}), "overlay.status"),
        (json!({"kind": "Job"}), "overlay.kind"),
        (json!({"spec": []}), "overlay.spec"),
    ] {
        let refused = fields(default(), overlay.clone());
        assert!(
            refused.contains(&field.to_owned()),
            "{overlay}: {refused:?}"
        );
    }
}

#[test]
fn all_that_is_wrong_with_an_overlay_is_named_at_once() {
    let overlay = json!({
        "metadata": {"annotations": {"a.b/c": 5, "d": {}}, "finalizers": "none"},
        "spec": {
            "hostPid": true,
            "hostIPC": true,
            "hostNetwork": "yes",
            "terminationGracePeriodSeconds": "long",
            "securityContext": {"runAsNonRoot": "yes", "sysctls": [5, {"name": "kernel.msgmax"}]},
            "volumes": [{"name": "token", "secret": {"defaultMode": "0777"}}],
            "containers": [{
                "name": "host", "args": ["a", 1, {}], "command": 2, "stdin": 3,
                "env": [{"name": "A", "value": 5}, {"name": "B", "value": true}],
                "ports": [{"containerPort": 80, "hostPort": 80, "nam": "x"}],
                "resources": {"limits": {"cpu": []}},
                "$retainKeys": 5,
            }],
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": "one"}],
        },
    });
    let mut found = fields(default(), overlay);
    found.sort();
    let host = "spec.containers[host]";
    let mut places = vec![
        "metadata.annotations.a.b/c".to_owned(),
        "metadata.annotations.d".to_owned(),
        "metadata.finalizers".to_owned(),
        "spec.hostPid".to_owned(),
        "spec.hostIPC".to_owned(),
        "spec.hostNetwork".to_owned(),
        "spec.terminationGracePeriodSeconds".to_owned(),
        "spec.securityContext.runAsNonRoot".to_owned(),
        "spec.securityContext.sysctls[0]".to_owned(),
        "spec.volumes[token].secret.defaultMode".to_owned(),
        format!("{host}.args[1]"),
        format!("{host}.args[2]"),
        format!("{host}.command"),
        format!("{host}.stdin"),
        format!("{host}.env[A].value"),
        format!("{host}.env[B].value"),
        format!("{host}.ports[0].nam"),
        format!("{host}.ports[80].hostPort"),
        format!("{host}.resources.limits.cpu"),
        format!("{host}.$retainKeys"),
        "spec.topologySpreadConstraints[0].maxSkew".to_owned(),
        "spec.topologySpreadConstraints[0].whenUnsatisfiable".to_owned(),
    ];
    places
        .iter_mut()
        .for_each(|place| place.insert_str(0, "overlay."));
    places.sort();
    assert_eq!(found, places);
}

#[test]
fn a_misspelt_key_leads_to_the_nearest_at_any_depth() {
    for (overlay, near) in [
        (json!({"spec": {"hostPid": true}}), "hostPID"),
        (json!({"metadata": {"anotations": {}}}), "annotations"),
        (
            json!({"spec": {"containers": [{"name": "host", "readynessProbe": {}}]}}),
            "readinessProbe",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "projected": {"sources": [
                {"secrets": {}}]}}]}}),
            "secret",
        ),
    ] {
        let refused = with(default(), overlay.clone()).unwrap_err();
        let rule = format!("in Kubernetes 1.33; did you mean {near}?");
        assert!(
            refused.len() == 1 && refused[0].ends_with(&rule),
            "{overlay}: {refused:?}"
        );
    }
}

#[test]
fn no_secret_in_an_overlay_is_told() {
    let variable = |value: Value| host(&json!({"env": [value]}));
    for overlay in [
        variable(json!({"name": "PODCRADLE_HOST_TOKEN", "value": "hunter2"})),
        variable(json!({"name": "A", "valeu": "hunter2"})),
        variable(json!({"name": "A", "value": {"is": "hunter2"}})),
        variable(json!({"name": "A", "valueFrom": "hunter2"})),
        variable(json!({"value": "hunter2"})),
        variable(json!("A=hunter2")),
        variable(json!({"name": "A", "$patch": "hunter2"})),
        host(&json!({"environment": {"A": "hunter2"}})),
        host(&json!({"envFrom": "hunter2"})),
        host(&json!({"command": ["sh", "-c", "A=hunter2 agent"]})),
        json!({"spec": {"secret": "hunter2"}}),
        json!({"stringData": {"token": "hunter2"}}),
        json!({"token": "hunter2"}),
    ] {
        let refused = with(default(), overlay.clone()).unwrap_err().join("\n");
        assert!(!refused.contains("hunter2"), "{overlay}: {refused}");
    }
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
