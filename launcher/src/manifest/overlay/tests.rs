mod weaker;

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
            json!({"metadata": {"annotations": {"podcradle.dev/record": "{}"}}}),
            "overlay.metadata.annotations.podcradle.dev/record",
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

/// An overlay of the host's container, and where it is refused.
fn host(change: &Value) -> Value {
    let mut container = json!({"name": "host"});
    let change = change.as_object().unwrap().clone();
    container.as_object_mut().unwrap().extend(change);
    json!({"spec": {"containers": [container]}})
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
                "volumeMounts": [{"name": "home", "mountPath": 5}],
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
        format!("{host}.volumeMounts[home].mountPath"),
        "spec.topologySpreadConstraints[0].maxSkew".to_owned(),
        "spec.topologySpreadConstraints[0].whenUnsatisfiable".to_owned(),
    ];
    for place in &mut places {
        place.insert_str(0, "overlay.");
    }
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
