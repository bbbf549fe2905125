//! Affinity, as the API server would check it: by then the session's anchor is
//! there.
//!
//! *Source*: `validateAffinity` in `k8s.io/kubernetes/pkg/apis/core/validation`.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Checks;
use crate::name;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub fn check(affinity: &Affinity, c: &mut Checks) {
    if let Some(nodes) = &affinity.node_affinity {
        node("affinity.nodeAffinity", nodes, c);
    }
    if let Some(near) = &affinity.pod_affinity {
        let required = &near.required_during_scheduling_ignored_during_execution;
        let preferred = &near.preferred_during_scheduling_ignored_during_execution;
        let (required, preferred) = (required.as_deref(), preferred.as_deref());
        pods("affinity.podAffinity", required, preferred, c);
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        let required = &far.required_during_scheduling_ignored_during_execution;
        let preferred = &far.preferred_during_scheduling_ignored_during_execution;
        let (required, preferred) = (required.as_deref(), preferred.as_deref());
        pods("affinity.podAntiAffinity", required, preferred, c);
    }
}

fn node(at: &str, affinity: &NodeAffinity, c: &mut Checks) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let at = format!("{at}.{REQUIRED}.nodeSelectorTerms");
        let some = !required.node_selector_terms.is_empty();
        c.require(some, &at, "", "must have a term");
        for (index, one) in required.node_selector_terms.iter().enumerate() {
            term(&format!("{at}[{index}]"), one, c);
        }
    }
    let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
    for (index, one) in preferred.iter().flatten().enumerate() {
        let at = format!("{at}.{PREFERRED}[{index}]");
        weight(&at, one.weight, c);
        term(&format!("{at}.preference"), &one.preference, c);
    }
}

fn term(at: &str, term: &NodeSelectorTerm, c: &mut Checks) {
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        requirement(&at, one, c);
    }
    for (index, one) in term.match_fields.iter().flatten().enumerate() {
        field(&format!("{at}.matchFields[{index}]"), one, c);
    }
}

fn requirement(at: &str, one: &NodeSelectorRequirement, c: &mut Checks) {
    let (operator, values) = (one.operator.as_str(), one.values.as_deref());
    let values = values.unwrap_or_default();
    if let "Gt" | "Lt" = operator {
        let whole = matches!(values, [one] if one.parse::<i64>().is_ok());
        let rule = "needs one value, a whole number";
        c.require(whole, &format!("{at}.operator"), operator, rule);
    } else {
        let more = ", Gt or Lt";
        in_or_exists(at, operator, values, more, c);
    }
    key(&format!("{at}.key"), &one.key, c);
    label_values(at, values, c);
}

/// A field of the node itself: its name is the only one there is.
fn field(at: &str, one: &NodeSelectorRequirement, c: &mut Checks) {
    let known = one.key == "metadata.name";
    c.require(
        known,
        &format!("{at}.key"),
        &one.key,
        "must be metadata.name",
    );
    let operator = one.operator.as_str();
    let right = ["In", "NotIn"].contains(&operator);
    c.require(
        right,
        &format!("{at}.operator"),
        operator,
        "must be In or NotIn",
    );
    match one.values.as_deref() {
        Some([node]) => c.name(
            &format!("{at}.values[0]"),
            node,
            name::check_rfc1123_subdomain(node),
        ),
        values => {
            let count = values.unwrap_or_default().len();
            let rule = "needs one value, a node's name";
            c.refuse(&format!("{at}.values"), count, rule);
        }
    }
}

fn pods(
    at: &str,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    c: &mut Checks,
) {
    for (index, term) in required.into_iter().flatten().enumerate() {
        pod(&format!("{at}.{REQUIRED}[{index}]"), term, c);
    }
    for (index, one) in preferred.into_iter().flatten().enumerate() {
        let at = format!("{at}.{PREFERRED}[{index}]");
        weight(&at, one.weight, c);
        pod(&format!("{at}.podAffinityTerm"), &one.pod_affinity_term, c);
    }
}

fn pod(at: &str, term: &PodAffinityTerm, c: &mut Checks) {
    let topology = &term.topology_key;
    key(&format!("{at}.topologyKey"), topology, c);
    selector(
        &format!("{at}.labelSelector"),
        term.label_selector.as_ref(),
        c,
    );
    selector(
        &format!("{at}.namespaceSelector"),
        term.namespace_selector.as_ref(),
        c,
    );
    for (index, namespace) in term.namespaces.iter().flatten().enumerate() {
        let at = format!("{at}.namespaces[{index}]");
        c.name(&at, namespace, name::check_rfc1123_label(namespace, 63));
    }
    let (same, other) = (&term.match_label_keys, &term.mismatch_label_keys);
    for (list, keys) in [("matchLabelKeys", same), ("mismatchLabelKeys", other)] {
        for (index, one) in keys.iter().flatten().enumerate() {
            let at = format!("{at}.{list}[{index}]");
            key(&at, one, c);
            let rule = "needs a labelSelector beside it";
            c.require(term.label_selector.is_some(), &at, one, rule);
        }
    }
    let both = |key: &&String| other.iter().flatten().any(|other| other == *key);
    if let Some(key) = same.iter().flatten().find(both) {
        let rule = "must not be among mismatchLabelKeys too";
        c.refuse(&format!("{at}.matchLabelKeys"), key, rule);
    }
    let selected = |key: &&String| {
        term.label_selector.as_ref().is_some_and(|selector| {
            let labels = selector.match_labels.iter().flatten();
            let expressions = selector.match_expressions.iter().flatten();
            let mut keys = labels
                .map(|(key, _)| key)
                .chain(expressions.map(|e| &e.key));
            keys.any(|selected| selected == *key)
        })
    };
    if let Some(key) = same.iter().flatten().find(selected) {
        let rule = "must not be in labelSelector too";
        c.refuse(&format!("{at}.matchLabelKeys"), key, rule);
    }
}

fn selector(at: &str, selector: Option<&LabelSelector>, c: &mut Checks) {
    let Some(selector) = selector else { return };
    for (label, value) in selector.match_labels.iter().flatten() {
        key(&format!("{at}.matchLabels"), label, c);
        let at = format!("{at}.matchLabels.{label}");
        c.name(&at, value, name::check_label_value(value));
    }
    for (index, one) in selector.match_expressions.iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let values = one.values.as_deref().unwrap_or_default();
        in_or_exists(&at, &one.operator, values, "", c);
        key(&format!("{at}.key"), &one.key, c);
        label_values(&at, values, c);
    }
}

fn in_or_exists(at: &str, operator: &str, values: &[String], more: &str, c: &mut Checks) {
    let rule = match (operator, values.len()) {
        ("In" | "NotIn", 1..) | ("Exists" | "DoesNotExist", 0) => return,
        ("In" | "NotIn", _) => "needs values".to_owned(),
        ("Exists" | "DoesNotExist", _) => "has no values".to_owned(),
        _ => format!("must be one of In, NotIn, Exists, DoesNotExist{more}"),
    };
    c.refuse(&format!("{at}.operator"), operator, rule);
}

fn key(at: &str, key: &str, c: &mut Checks) {
    c.name(at, key, name::check_label_key(key));
}

fn label_values(at: &str, values: &[String], c: &mut Checks) {
    for (index, value) in values.iter().enumerate() {
        let at = format!("{at}.values[{index}]");
        c.name(&at, value, name::check_label_value(value));
    }
}

fn weight(at: &str, weight: i32, c: &mut Checks) {
    let right = (1..=100).contains(&weight);
    c.require(right, &format!("{at}.weight"), weight, "must be 1 to 100");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{problems, refused};
    use super::*;
    use crate::spec::SandboxSpec;

    fn with(affinity: Value) -> impl FnOnce(&mut SandboxSpec) {
        move |spec| spec.affinity = serde_json::from_value(affinity).unwrap()
    }

    fn of_node(terms: &Value) -> Value {
        json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    }

    fn good_pod() -> Value {
        json!({
            "topologyKey": "kubernetes.io/hostname", "namespaces": ["a"], "namespaceSelector": {},
            "matchLabelKeys": ["pod-template-hash"], "mismatchLabelKeys": ["example.com/tenant"],
            "labelSelector": {
                "matchLabels": {"app": "a"},
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
}
