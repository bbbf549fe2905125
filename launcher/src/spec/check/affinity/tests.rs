use serde_json::{Value, json};

use super::*;
use crate::spec::SandboxSpec;
use crate::spec::check::tests::{problems, refused};

fn with(affinity: Value) -> impl FnOnce(&mut SandboxSpec) {
    move |spec| spec.affinity = serde_json::from_value(affinity).unwrap()
}

fn of_node(terms: &Value) -> Value {
    json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
}

fn good_pod() -> Value {
    json!({
        "topologyKey": "kubernetes.io/hostname", "namespaces": ["a"], "namespaceSelector": {},
        "matchLabelKeys": ["pod-template-hash"], "mismatchLabelKeys": ["example.com/tenant", "tier", "tier"],
        "labelSelector": {
            "matchLabels": {"app": "a", "tier": "b"},
            "matchExpressions": [{"key": "team", "operator": "Exists"}],
        },
    })
}

#[test]
fn what_the_api_server_takes_is_taken() {
    let term = json!({
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "example.com/gpu", "operator": "DoesNotExist"},
            {"key": "cores", "operator": "Gt", "values": ["8"]},
        ],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1.a"]}],
    });
    let pods = json!({
        REQUIRED: [good_pod()],
        PREFERRED: [{"weight": 100, "podAffinityTerm": good_pod()}],
    });
    let all = json!({
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [term]},
            PREFERRED: [{"weight": 1, "preference": term}],
        },
        "podAffinity": pods,
        "podAntiAffinity": pods,
    });
    assert_eq!(problems(with(all)), Vec::<String>::new());
}

#[test]
fn a_node_s_term_is_refused_where_it_is_wrong() {
    let at = format!("affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    refused(&at, "must have a term", with(of_node(&json!([]))));
    for (wrong, field, rule) in [
        (
            json!({"key": "zone", "operator": "Equals", "values": ["a"]}),
            "operator",
            "one of In",
        ),
        (
            json!({"key": "zone", "operator": "In"}),
            "operator",
            "needs values",
        ),
        (
            json!({"key": "zone", "operator": "Exists", "values": ["a"]}),
            "operator",
            "has no values",
        ),
        (
            json!({"key": "zone", "operator": "Gt", "values": ["1", "2"]}),
            "operator",
            "one value",
        ),
        (
            json!({"key": "zone", "operator": "Lt", "values": ["few"]}),
            "operator",
            "whole number",
        ),
        (json!({"key": "a b", "operator": "Exists"}), "key", "63"),
        (
            json!({"key": "zone", "operator": "In", "values": ["a b"]}),
            "values[0]",
            "63",
        ),
    ] {
        let field = format!("{at}[0].matchExpressions[0].{field}");
        let terms = json!([{"matchExpressions": [wrong]}]);
        refused(&field, rule, with(of_node(&terms)));
    }
    for (wrong, field, rule) in [
        (
            json!({"key": "metadata.uid", "operator": "In", "values": ["a"]}),
            "key",
            "metadata.name",
        ),
        (
            json!({"key": "metadata.name", "operator": "Exists", "values": ["a"]}),
            "operator",
            "In or NotIn",
        ),
        (
            json!({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}),
            "values",
            "one value",
        ),
        (
            json!({"key": "metadata.name", "operator": "In", "values": ["A"]}),
            "values[0]",
            "subdomain",
        ),
    ] {
        let field = format!("{at}[0].matchFields[0].{field}");
        let terms = json!([{"matchFields": [wrong]}]);
        refused(&field, rule, with(of_node(&terms)));
    }
    for weight in [0, 101, -1] {
        let preferred = json!([{"weight": weight, "preference": {}}]);
        let field = format!("affinity.nodeAffinity.{PREFERRED}[0].weight");
        refused(
            &field,
            "1 to 100",
            with(json!({"nodeAffinity": {PREFERRED: preferred}})),
        );
    }
}

#[test]
fn a_pod_s_term_is_refused_where_it_is_wrong() {
    for (pointer, wrong, field, rule) in [
        ("/topologyKey", json!(""), "topologyKey", "label key"),
        (
            "/namespaces/0",
            json!("A"),
            "namespaces[0]",
            "RFC 1123 label",
        ),
        (
            "/labelSelector/matchLabels",
            json!({"a b": "c"}),
            "labelSelector.matchLabels",
            "63",
        ),
        (
            "/labelSelector/matchLabels",
            json!({"a": "b c"}),
            "labelSelector.matchLabels.a",
            "63",
        ),
        (
            "/labelSelector/matchExpressions/0/operator",
            json!("Gt"),
            "labelSelector.matchExpressions[0].operator",
            "one of In",
        ),
        (
            "/namespaceSelector",
            json!({"matchLabels": {"a": "b c"}}),
            "namespaceSelector.matchLabels.a",
            "63",
        ),
        ("/matchLabelKeys", json!(["a b"]), "matchLabelKeys[0]", "63"),
        (
            "/matchLabelKeys",
            json!(["example.com/tenant"]),
            "matchLabelKeys",
            "mismatchLabelKeys too",
        ),
        (
            "/matchLabelKeys",
            json!(["team"]),
            "matchLabelKeys",
            "labelSelector too",
        ),
        (
            "/matchLabelKeys",
            json!(["app"]),
            "matchLabelKeys",
            "labelSelector too",
        ),
        (
            "/matchLabelKeys",
            json!(["hash", "hash"]),
            "matchLabelKeys",
            "twice",
        ),
    ] {
        let mut term = good_pod();
        *term.pointer_mut(pointer).unwrap() = wrong;
        for (kind, list, inner) in [
            (
                "podAffinity",
                json!({REQUIRED: [term.clone()]}),
                format!("{REQUIRED}[0]"),
            ),
            (
                "podAntiAffinity",
                json!({PREFERRED: [{"weight": 5, "podAffinityTerm": term.clone()}]}),
                format!("{PREFERRED}[0].podAffinityTerm"),
            ),
        ] {
            let field = format!("affinity.{kind}.{inner}.{field}");
            refused(&field, rule, with(json!({kind: list})));
        }
    }
    let alone = json!({"topologyKey": "a", "matchLabelKeys": ["b"]});
    let field = format!("affinity.podAffinity.{REQUIRED}[0].matchLabelKeys[0]");
    refused(
        &field,
        "needs a labelSelector",
        with(json!({"podAffinity": {REQUIRED: [alone]}})),
    );
    let field = format!("affinity.podAffinity.{PREFERRED}[0].weight");
    let heavy = json!([{"weight": 101, "podAffinityTerm": good_pod()}]);
    refused(
        &field,
        "1 to 100",
        with(json!({"podAffinity": {PREFERRED: heavy}})),
    );
}
