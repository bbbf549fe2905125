//! Overlays at random, most of them understood: good and bad values at the
//! places that count.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// A place in a Pod (`~` stands for a slash), and what an overlay says there.
pub(in crate::manifest) fn change() -> impl Strategy<Value = (String, Value)> {
    let containers = vec![
        "",
        "/command",
        "/args",
        "/env",
        "/env/name=PODCRADLE_HOST_TOKEN/value",
        "/env/name=A/valueFrom/secretKeyRef",
        "/envFrom",
        "/image",
        "/securityContext",
        "/securityContext/allowPrivilegeEscalation",
        "/securityContext/capabilities",
        "/securityContext/capabilities/add",
        "/securityContext/capabilities/drop",
        "/securityContext/privileged",
        "/securityContext/runAsNonRoot",
        "/securityContext/runAsGroup",
        "/securityContext/runAsUser",
        "/securityContext/seccompProfile/type",
        "/volumeMounts",
        "/volumeMounts/mountPath=~run~podcradle~token",
    ];
    let lists = [
        "spec/containers/name=host",
        "spec/containers/name=added",
        "spec/initContainers/name=workspace-prep",
        "spec/initContainers/name=podcradle-init",
    ];
    let mut places: Vec<String> = lists
        .iter()
        .flat_map(|list| containers.iter().map(move |field| format!("{list}{field}")))
        .collect();
    places.extend(
        [
            "metadata/name",
            "metadata/namespace",
            "metadata/labels",
            "metadata/labels/podcradle.dev~session",
            "metadata/ownerReferences",
            "spec",
            "spec/automountServiceAccountToken",
            "spec/containers",
            "spec/hostIPC",
            "spec/hostNetwork",
            "spec/hostPID",
            "spec/initContainers",
            "spec/schedulingGates",
            "spec/securityContext",
            "spec/securityContext/fsGroup",
            "spec/securityContext/runAsGroup",
            "spec/securityContext/runAsNonRoot",
            "spec/securityContext/runAsUser",
            "spec/securityContext/seccompProfile",
            "spec/securityContext/seccompProfile/type",
            "spec/securityContext/supplementalGroups",
            "spec/serviceAccountName",
            "spec/shareProcessNamespace",
            "spec/volumes",
            "spec/volumes/name=added/hostPath/path",
            "spec/volumes/name=added/secret/secretName",
            "spec/volumes/name=token",
            "spec/volumes/name=token/secret/secretName",
        ]
        .map(str::to_owned),
    );
    select(places).prop_flat_map(|place| {
        let last = place.rsplit('/').next().unwrap_or_default().to_owned();
        (Just(place), select(values(&last)))
    })
}

/// What may stand at a field of this name, good and bad.
fn values(field: &str) -> Vec<Value> {
    const SECRET: &str = "podcradle-a-000000-g1-token";
    let values = match field {
        "runAsUser" | "runAsGroup" | "fsGroup" => json!([0, 1000]),
        "supplementalGroups" => json!([[], [0], [27]]),
        "command" | "args" | "add" | "drop" => {
            json!([[], ["ALL"], ["SYS_ADMIN"], ["NET_BIND_SERVICE"]])
        }
        "env" | "envFrom" | "volumeMounts" | "volumes" | "containers" | "initContainers"
        | "schedulingGates" | "ownerReferences" => json!([
            [],
            [{"$patch": "replace"}],
            [{"name": "host", "$patch": "delete"}],
            [{"name": "token", "mountPath": "/elsewhere"}],
            [{"name": "A", "value": "b"}],
            [{"secretRef": {"name": SECRET}}],
        ]),
        "image"
        | "name"
        | "namespace"
        | "value"
        | "secretName"
        | "serviceAccountName"
        | "type"
        | "path"
        | "podcradle.dev~session" => json!(["text", "Unconfined", "Localhost", SECRET]),
        "allowPrivilegeEscalation"
        | "privileged"
        | "runAsNonRoot"
        | "automountServiceAccountToken"
        | "hostIPC"
        | "hostNetwork"
        | "hostPID"
        | "shareProcessNamespace" => json!([true, false]),
        "secretKeyRef" => json!([{"name": SECRET, "key": "token"}, {"name": "x", "key": "y"}]),
        _ => json!([
            {},
            {"$patch": "delete"},
            {"$patch": "replace"},
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            {"securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}},
            {"type": "Localhost"},
            {"emptyDir": {}},
        ]),
    };
    let values = values.as_array().cloned().unwrap_or_default();
    values.into_iter().chain([Value::Null]).collect()
}

/// One overlay of several changes; of two at one place the later one counts.
pub(in crate::manifest) fn overlay(changes: &[(String, Value)]) -> Map<String, Value> {
    let mut overlay = json!({});
    for (place, value) in changes {
        let mut at = &mut overlay;
        for step in place.split('/') {
            let step = step.replace('~', "/");
            if let Some((key, name)) = step.split_once('=') {
                if !at.is_array() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().unwrap();
                let index = list.iter().position(|item| item[key] == *name);
                let index = index.unwrap_or_else(|| {
                    list.push(json!({key: name}));
                    list.len() - 1
                });
                at = &mut list[index];
            } else {
                if !at.is_object() {
                    *at = json!({});
                }
                at = &mut at[&step];
            }
        }
        match (at, value) {
            // An element of a list keeps what it is found by.
            (Value::Object(at), Value::Object(more)) => at.extend(more.clone()),
            (Value::Object(_), _) => {}
            (at, value) => *at = value.clone(),
        }
    }
    match overlay {
        Value::Object(overlay) => overlay,
        _ => Map::new(),
    }
}
