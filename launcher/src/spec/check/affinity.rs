//! Affinity, and an overlay's spread over topologies, as the API server would
//! check them: by then the session's anchor is there.
//!
//! *Source*: `validateAffinity` and `validateTopologySpreadConstraints` in `k8s.io/kubernetes/pkg/apis/core/validation`.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Checks;
use crate::name;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub fn check(at: &str, affinity: &Affinity, c: &mut Checks) {
    if let Some(nodes) = &affinity.node_affinity {
        node(&format!("{at}.nodeAffinity"), nodes, c);
    }
    if let Some(near) = &affinity.pod_affinity {
        let required = &near.required_during_scheduling_ignored_during_execution;
        let preferred = &near.preferred_during_scheduling_ignored_during_execution;
        let (required, preferred) = (required.as_deref(), preferred.as_deref());
        pods(&format!("{at}.podAffinity"), required, preferred, c);
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        let required = &far.required_during_scheduling_ignored_during_execution;
        let preferred = &far.preferred_during_scheduling_ignored_during_execution;
        let (required, preferred) = (required.as_deref(), preferred.as_deref());
        pods(&format!("{at}.podAntiAffinity"), required, preferred, c);
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
    let (same, other) = (same.as_deref(), other.as_deref());
    let (same, other) = (same.unwrap_or_default(), other.unwrap_or_default());
    let selector = term.label_selector.as_ref();
    label_keys(at, "matchLabelKeys", same, selector, c);
    label_keys(at, "mismatchLabelKeys", other, selector, c);
    if let Some(key) = same.iter().find(|key| other.contains(key)) {
        let rule = "must not be among mismatchLabelKeys too";
        c.refuse(&format!("{at}.matchLabelKeys"), key, rule);
    }
    selects_no(at, same, selector, c);
}

/// Keys whose values are those of the Pod itself.
fn label_keys(
    at: &str,
    list: &str,
    keys: &[String],
    selector: Option<&LabelSelector>,
    c: &mut Checks,
) {
    for (index, one) in keys.iter().enumerate() {
        let at = format!("{at}.{list}[{index}]");
        key(&at, one, c);
        let rule = "needs a labelSelector beside it";
        c.require(selector.is_some(), &at, one, rule);
    }
}

/// The API server adds them to the selector, and refuses what is there already;
/// not so `mismatchLabelKeys`.
fn selects_no(at: &str, keys: &[String], selector: Option<&LabelSelector>, c: &mut Checks) {
    let labels = selector.and_then(|s| s.match_labels.as_ref());
    let expressions = selector.and_then(|s| s.match_expressions.as_ref());
    for (index, key) in keys.iter().enumerate() {
        let selected = labels.is_some_and(|labels| labels.contains_key(key))
            || expressions.is_some_and(|all| all.iter().any(|one| one.key == *key));
        let rule = match (selected, keys[..index].contains(key)) {
            (true, _) => "must not be in labelSelector too",
            (_, true) => "must not be there twice",
            _ => continue,
        };
        c.refuse(&format!("{at}.matchLabelKeys"), key, rule);
    }
}

pub fn spread(at: &str, one: &TopologySpreadConstraint, c: &mut Checks) {
    key(&format!("{at}.topologyKey"), &one.topology_key, c);
    let (skew, when) = (one.max_skew, one.when_unsatisfiable.as_str());
    c.require(
        skew > 0,
        &format!("{at}.maxSkew"),
        skew,
        "must be at least 1",
    );
    let known = ["DoNotSchedule", "ScheduleAnyway"].contains(&when);
    let rule = "must be DoNotSchedule or ScheduleAnyway";
    c.require(known, &format!("{at}.whenUnsatisfiable"), when, rule);
    if let Some(domains) = one.min_domains {
        let right = domains > 0 && when == "DoNotSchedule";
        let rule = "must be at least 1, and counts with DoNotSchedule alone";
        c.require(right, &format!("{at}.minDomains"), domains, rule);
    }
    for (field, policy) in [
        ("nodeAffinityPolicy", &one.node_affinity_policy),
        ("nodeTaintsPolicy", &one.node_taints_policy),
    ] {
        let policy = policy.as_deref().unwrap_or("Honor");
        let known = ["Honor", "Ignore"].contains(&policy);
        c.require(
            known,
            &format!("{at}.{field}"),
            policy,
            "must be Honor or Ignore",
        );
    }
    let labels = one.label_selector.as_ref();
    selector(&format!("{at}.labelSelector"), labels, c);
    let keys = one.match_label_keys.as_deref().unwrap_or_default();
    label_keys(at, "matchLabelKeys", keys, labels, c);
    selects_no(at, keys, labels, c);
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
mod tests;
