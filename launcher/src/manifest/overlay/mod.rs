//! The overlay: the caller's strategic merge patch, laid over our Pod. What
//! comes out is a Pod that Kubernetes knows every field of, and that still is
//! ours: `guard` says what an overlay may not do, `restricted` what Pod
//! Security would say.

mod guard;
mod merge;
#[cfg(test)]
pub(super) mod random;
mod restricted;

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};

use self::merge::Place;
use crate::spec::{Problem, Problems, SandboxSpec, schema};

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
    let made = typed(&merged).unwrap_or_else(|found| {
        problems.extend(found);
        pod
    });
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let found = guard::look(spec, generation, &before, &merged);
    problems.extend(found.never);
    if !spec.allow_unsafe_overlay {
        problems.extend(found.weaker);
        return done(problems, (made, Vec::new()));
    }
    done(problems, (made, found.weaker))
}

fn done<T>(problems: Vec<Problem>, made: T) -> Result<T, Problems> {
    if problems.is_empty() {
        Ok(made)
    } else {
        Err(Problems(problems))
    }
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

/// The Pod that a value is, provided that all of it is known.
fn typed(value: &Value) -> Result<Pod, Vec<Problem>> {
    let pod: Pod = match serde_path_to_error::deserialize(value) {
        Ok(pod) => pod,
        Err(error) => {
            let at = error.path().to_string();
            let value = value.pointer(&pointer(&at)).unwrap_or(&Value::Null);
            let inner = error.inner().to_string();
            // What was found there stands before what is right.
            let right = inner.rfind(", expected ").map_or("", |at| &inner[at..]);
            let rule = format!("is not what Kubernetes has there{right}");
            return Err(vec![problem(&at, value, rule)]);
        }
    };
    let mut unknown = Vec::new();
    compare(value, &to_value(&pod), &Place::default(), &mut unknown);
    done(unknown, pod).map_err(|problems| problems.0)
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

/// `a.b[0].c` as a JSON pointer.
fn pointer(path: &str) -> String {
    let path = path.replace('[', ".").replace(']', "");
    format!("/{}", path.replace('.', "/"))
}

/// A problem at a place of the Pod. Scalars alone are told, and nothing of
/// `env`, `envFrom` and whole command lines: people write secrets there.
fn problem(at: &str, value: &Value, rule: String) -> Problem {
    let secret = at.split('.').any(|part| part.starts_with("env"))
        || ["command", "args"].iter().any(|list| at.ends_with(list));
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
