//! The overlay: the caller's strategic merge patch, laid over our Pod. What
//! comes out is a Pod that Kubernetes knows every field of, and that still is
//! ours: `guard` says what an overlay may not do, `restricted` what Pod
//! Security would say.

mod guard;
mod merge;
#[cfg(test)]
pub(super) mod random;
mod restricted;

use std::borrow::Cow;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use self::merge::Place;
use crate::spec::{self, Problem, Problems, SandboxSpec, schema};

/// Every field of a Pod; made only once something is misspelt.
static POD: LazyLock<Value> = LazyLock::new(|| Value::from(schemars::schema_for!(Pod)));

/// The Pod with the spec's overlay, and what the overlay weakens: nothing,
/// unless `allowUnsafeOverlay` is set.
///
/// # Errors
/// All that is wrong with the overlay, each with its place in the Pod.
pub(super) fn apply(
    spec: &SandboxSpec,
    generation: u32,
    pod: Pod,
) -> Result<(Pod, Vec<Problem>), Problems> {
    let Some(overlay) = &spec.overlay else {
        return Ok((pod, Vec::new()));
    };
    let before = to_value(&pod);
    let mut merged = before.clone();
    let mut problems = whole(overlay);
    if let Err(found) = merge::merge(&mut merged, overlay) {
        problems.extend(found);
    }
    let (made, wrong) = typed(&merged);
    problems.extend(wrong);
    let placed = made.as_ref().and_then(|pod| pod.spec.as_ref());
    let placed = placed.map_or_else(Vec::new, |pod| placement(overlay, pod));
    let mut found = guard::look(spec, generation, &before, &merged);
    if !spec.allow_unsafe_overlay {
        found.never.append(&mut found.weaker);
    }
    // A place is wrong once.
    for problem in found.never.into_iter().chain(placed) {
        if !problems
            .iter()
            .any(|known| overlap(&known.field, &problem.field))
        {
            problems.push(problem);
        }
    }
    match made {
        Some(made) if problems.is_empty() => Ok((made, found.weaker)),
        _ => Err(Problems(problems)),
    }
}

/// Whether one of two places is in the other, or is it.
fn overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let rest = long.strip_prefix(short);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What the API server would refuse of where the Pod is to go, as far as the
/// overlay says it.
fn placement(overlay: &Map<String, Value>, pod: &PodSpec) -> Vec<Problem> {
    let said = |field: &str| {
        overlay
            .get("spec")
            .is_some_and(|spec| !spec[field].is_null())
    };
    let affinity = pod.affinity.as_ref().filter(|_| said("affinity"));
    let spread = pod.topology_spread_constraints.as_deref();
    let spread = spread.filter(|_| said("topologySpreadConstraints"));
    spec::placement("overlay.spec", affinity, spread.unwrap_or_default())
}

/// An overlay is of a Pod, and of the parts of it that a person decides.
fn whole(overlay: &Map<String, Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, value) in overlay {
        let rule = match key.as_str() {
            "apiVersion" if value != "v1" => "must be v1",
            "kind" if value != "Pod" => "must be Pod",
            "metadata" | "spec" if !value.is_object() => "must be a map",
            "apiVersion" | "kind" | "metadata" | "spec" => continue,
            _ => {
                let rule = "is no part of an overlay; those are metadata and spec";
                problems.push(problem(key, &Value::from(key.as_str()), rule.to_owned()));
                continue;
            }
        };
        problems.push(problem(key, value, rule.to_owned()));
    }
    problems
}

/// The Pod that a value is, and all that is not as Kubernetes has it. What is of
/// a wrong type gives way to something right, so that the rest is read as well.
fn typed(value: &Value) -> (Option<Pod>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut mended = Cow::Borrowed(value);
    let made = loop {
        let (path, message) = match read(&mended) {
            Ok(pod) => break pod,
            Err(wrong) => wrong,
        };
        // What was found there stands before what is right.
        let right = message.rfind(", expected ").map_or("", |at| &message[at..]);
        let rule = format!("is not what Kubernetes has there{right}");
        let found = value.pointer(&pointer(&path)).unwrap_or(&Value::Null);
        problems.push(problem(&shown(value, &path), found, rule));
        if !mend(mended.to_mut(), &path) {
            return (None, problems);
        }
    };
    compare(&mended, &to_value(&made), &Place::default(), &mut problems);
    (Some(made), problems)
}

/// The Pod, or the keys down to what is of a wrong type, and what is wrong.
fn read(value: &Value) -> Result<Pod, (Vec<String>, String)> {
    serde_path_to_error::deserialize(value).map_err(|error: serde_path_to_error::Error<_>| {
        let keys = error.path().iter().filter_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        (keys.collect(), error.inner().to_string())
    })
}

/// Puts something of the right type at a place.
fn mend(value: &mut Value, path: &[String]) -> bool {
    let kinds = [
        json!(null),
        json!(""),
        json!(0),
        json!(false),
        json!({}),
        json!([]),
    ];
    kinds.into_iter().any(|kind| {
        let Some(place) = value.pointer_mut(&pointer(path)) else {
            return false;
        };
        *place = kind;
        read(value).err().is_none_or(|(next, _)| next != path)
    })
}

fn pointer(path: &[String]) -> String {
    path.iter().fold(String::new(), |pointer, key| {
        format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
    })
}

/// A path as a person reads it, with the names of a list's elements.
fn shown(value: &Value, path: &[String]) -> String {
    let mut at = Place::default();
    for (depth, key) in path.iter().enumerate() {
        let inside = value.pointer(&pointer(&path[..depth]));
        at = match inside {
            Some(Value::Array(list)) => {
                let element = key.parse().ok().and_then(|index: usize| list.get(index));
                let name = element.and_then(|element| element["name"].as_str());
                at.element(name.unwrap_or(key))
            }
            _ => at.field(key),
        };
    }
    at.shown
}

/// Every key that got lost: the types drop what they do not know.
fn compare(value: &Value, known: &Value, place: &Place, unknown: &mut Vec<Problem>) {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => {
            for (key, value) in value.iter().filter(|(_, value)| !value.is_null()) {
                let at = place.field(key);
                if let Some(known) = known.get(key) {
                    compare(value, known, &at, unknown);
                } else {
                    let near = schema::nearest(key, schema::keys(&POD, &place.types));
                    let near = near.map_or_else(String::new, |n| format!("; did you mean {n}?"));
                    let rule = format!("is no field of a Pod in Kubernetes 1.33{near}");
                    // Not its value, which may be what belongs into a Secret.
                    unknown.push(problem(&at.shown, &Value::from(key.as_str()), rule));
                }
            }
        }
        (Value::Array(values), Value::Array(known)) => {
            for (index, (value, known)) in values.iter().zip(known).enumerate() {
                let name = value["name"].as_str().map(str::to_owned);
                let name = name.unwrap_or_else(|| index.to_string());
                compare(value, known, &place.element(&name), unknown);
            }
        }
        _ => {}
    }
}

/// A problem at a place of the Pod. Scalars alone are told, and nothing of
/// `env`, `envFrom` and whole command lines: people write secrets there.
fn problem(at: &str, value: &Value, rule: String) -> Problem {
    let lists = ["env", "command", "args"];
    let mut parts = at.split('.');
    let secret = parts.any(|part| lists.iter().any(|list| part.starts_with(list)));
    let value = match value {
        Value::Null => "absent".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        _ if secret => "a value".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Problem {
        field: format!("overlay.{at}"),
        value,
        rule,
    }
}

fn to_value(pod: &Pod) -> Value {
    // Kubernetes' types serialize.
    serde_json::to_value(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests;
