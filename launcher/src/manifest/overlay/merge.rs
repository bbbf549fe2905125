//! The strategic merge patch of a Pod: maps are merged, the lists that
//! Kubernetes merges by a key are merged by it, all other lists are replaced.
//!
//! *Source*: `patchStrategy` and `patchMergeKey` in `k8s.io/api/core/v1`, and
//! `k8s.io/apimachinery/pkg/util/strategicpatch`. `$patch` and `$retainKeys`
//! are understood; the directives that only kubectl writes are refused.

use serde_json::{Map, Value};

use crate::spec::Problem;

/// Lists that are merged, as paths without their elements, and by which key.
const LISTS: [(&str, &str); 14] = [
    ("metadata.ownerReferences", "uid"),
    ("spec.containers", "name"),
    ("spec.ephemeralContainers", "name"),
    ("spec.hostAliases", "ip"),
    ("spec.imagePullSecrets", "name"),
    ("spec.initContainers", "name"),
    ("spec.resourceClaims", "name"),
    ("spec.schedulingGates", "name"),
    ("spec.topologySpreadConstraints", "topologyKey"),
    ("spec.volumes", "name"),
    ("spec.*ontainers.env", "name"),
    ("spec.*ontainers.ports", "containerPort"),
    ("spec.*ontainers.volumeDevices", "devicePath"),
    ("spec.*ontainers.volumeMounts", "mountPath"),
];

const REPLACE: &str = "replace";
const DELETE: &str = "delete";

/// Where in the Pod: as its types have it, and as a person reads it.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub(super) types: String,
    pub(super) shown: String,
}

impl Place {
    pub(super) fn field(&self, key: &str) -> Self {
        let join = |path: &str| {
            if path.is_empty() {
                key.to_owned()
            } else {
                format!("{path}.{key}")
            }
        };
        Self {
            types: join(&self.types),
            shown: join(&self.shown),
        }
    }

    pub(super) fn element(&self, name: &str) -> Self {
        Self {
            types: self.types.clone(),
            shown: format!("{}[{name}]", self.shown),
        }
    }

    /// The key this list is merged by; `None` when it is replaced.
    fn merge_key(&self) -> Option<&'static str> {
        let found = LISTS.iter().find(|(list, _)| match list.split_once('*') {
            None => *list == self.types,
            // `containers`, `initContainers`, `ephemeralContainers`.
            Some((before, after)) => {
                let inner = self.types.strip_prefix(before);
                let inner = inner.and_then(|rest| rest.strip_suffix(after));
                inner.is_some_and(|inner| !inner.contains('.'))
            }
        });
        found.map(|(_, key)| *key)
    }
}

/// Lays `patch` over `target`.
///
/// # Errors
/// Every place where the patch cannot be understood.
pub(super) fn merge(target: &mut Value, patch: &Map<String, Value>) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    object(target, patch, &Place::default(), &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

fn object(
    target: &mut Value,
    patch: &Map<String, Value>,
    place: &Place,
    problems: &mut Vec<Problem>,
) {
    match patch.get("$patch").map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some(REPLACE)) => *target = Value::Null,
        Some(Some(DELETE)) => {
            *target = Value::Object(Map::new());
            return;
        }
        Some(_) => problems.push(wrong(
            &place.field("$patch"),
            &patch["$patch"],
            "must be replace, delete or merge",
        )),
    }
    // Another kind of value gives way to a map.
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    if let Some(keys) = patch.get("$retainKeys") {
        retain(target, patch, keys, place, problems);
    }
    for (key, value) in patch {
        let at = place.field(key);
        match value {
            _ if key == "$patch" || key == "$retainKeys" => {}
            _ if key.starts_with('$') => problems.push(wrong(
                &at,
                value,
                "is no directive of an overlay; those are $patch and $retainKeys",
            )),
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => {
                let entry = target.entry(key.as_str()).or_insert(Value::Null);
                object(entry, inner, &at, problems);
            }
            Value::Array(elements) => match at.merge_key() {
                Some(by) => {
                    let entry = target.entry(key.as_str()).or_insert(Value::Null);
                    list(entry, elements, by, &at, problems);
                }
                None => {
                    target.insert(key.clone(), value.clone());
                }
            },
            _ => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A map that is one of several kinds (a volume) keeps these keys alone.
fn retain(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: &Value,
    place: &Place,
    problems: &mut Vec<Problem>,
) {
    let words: Option<Vec<_>> = keys
        .as_array()
        .and_then(|keys| keys.iter().map(Value::as_str).collect());
    let Some(words) = words else {
        let rule = "must be a list of keys";
        problems.push(wrong(&place.field("$retainKeys"), keys, rule));
        return;
    };
    let lost = patch
        .keys()
        .find(|key| !key.starts_with('$') && !words.contains(&key.as_str()));
    if let Some(lost) = lost {
        let rule = format!("must name {lost} too, which stands beside it");
        problems.push(wrong(&place.field("$retainKeys"), keys, &rule));
    }
    target.retain(|key, _| words.contains(&key.as_str()));
}

fn list(
    target: &mut Value,
    patch: &[Value],
    key: &str,
    place: &Place,
    problems: &mut Vec<Problem>,
) {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else {
        return;
    };
    let directive = |element: &Value| {
        element
            .get("$patch")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if patch
        .iter()
        .any(|e| directive(e).as_deref() == Some(REPLACE))
    {
        target.clear();
    }
    for element in patch {
        let directive = directive(element);
        // It speaks of the whole list, and is none of its elements.
        if directive.as_deref() == Some(REPLACE) {
            continue;
        }
        let (Value::Object(element), Some(name)) = (element, element.get(key)) else {
            let rule = format!("must have {key}, by which this list is merged");
            problems.push(wrong(place, element, &rule));
            continue;
        };
        let found = target.iter().position(|there| there.get(key) == Some(name));
        if directive.as_deref() == Some(DELETE) {
            if let Some(index) = found {
                target.remove(index);
            }
            continue;
        }
        let shown = name
            .as_str()
            .map_or_else(|| name.to_string(), str::to_owned);
        let at = place.element(&shown);
        if let Some(there) = found.and_then(|index| target.get_mut(index)) {
            object(there, element, &at, problems);
        } else {
            let mut made = Value::Null;
            object(&mut made, element, &at, problems);
            target.push(made);
        }
    }
}

fn wrong(place: &Place, value: &Value, rule: &str) -> Problem {
    super::problem(&place.shown, value, rule.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(target: Value, patch: Value) -> Result<Value, Vec<String>> {
        let mut target = target;
        let Value::Object(patch) = patch else {
            panic!("a patch is a map");
        };
        match merge(&mut target, &patch) {
            Ok(()) => Ok(target),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    fn pod() -> Value {
        json!({"spec": {
            "containers": [{
                "name": "host", "image": "i",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "name": "web"}],
                "args": ["a", "b"],
            }],
            "volumes": [{"name": "home", "emptyDir": {"sizeLimit": "1Gi"}}],
            "tolerations": [{"key": "a"}],
        }})
    }

    #[test]
    fn lists_with_a_key_are_merged_and_others_replaced() {
        let merged = merged(
            pod(),
            json!({"spec": {
                "containers": [
                    {"name": "host", "env": [{"name": "B", "value": "3"}, {"name": "C"}],
                     "args": ["c"], "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                    {"name": "other", "image": "o"},
                ],
                "tolerations": [{"key": "b"}],
            }}),
        )
        .unwrap();
        let host = &merged["spec"]["containers"][0];
        assert_eq!(
            host["env"],
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C"}])
        );
        assert_eq!(host["args"], json!(["c"]));
        assert_eq!(
            host["ports"],
            json!([{"containerPort": 80, "name": "web", "protocol": "TCP"}])
        );
        assert_eq!(host["image"], "i");
        assert_eq!(merged["spec"]["containers"][1]["image"], "o");
        assert_eq!(merged["spec"]["tolerations"], json!([{"key": "b"}]));
    }

    #[test]
    fn null_takes_a_key_away_and_is_nowhere_left() {
        let patch = json!({"spec": {
            "tolerations": null,
            "containers": [{"name": "new", "image": null, "securityContext": {"runAsUser": null}}],
        }});
        let merged = merged(pod(), patch).unwrap();
        assert_eq!(merged["spec"].get("tolerations"), None);
        assert_eq!(
            merged["spec"]["containers"][1],
            json!({"name": "new", "securityContext": {}})
        );
    }

    #[test]
    fn directives_delete_and_replace() {
        let env = |patch: Value| {
            let patch = json!({"spec": {"containers": [{"name": "host", "env": patch}]}});
            merged(pod(), patch).unwrap()["spec"]["containers"][0]["env"].clone()
        };
        assert_eq!(
            env(json!([{"name": "A", "$patch": "delete"}, {"name": "Z", "$patch": "delete"}])),
            json!([{"name": "B", "value": "2"}])
        );
        assert_eq!(
            env(json!([{"$patch": "replace"}, {"name": "C", "value": "3"}])),
            json!([{"name": "C", "value": "3"}])
        );
        let volume = |patch: Value| {
            let patch = json!({"spec": {"volumes": [patch]}});
            merged(pod(), patch).unwrap()["spec"]["volumes"][0].clone()
        };
        let claim = json!({"name": "home", "persistentVolumeClaim": {"claimName": "c"}});
        for directive in [
            json!({"$retainKeys": ["name", "persistentVolumeClaim"]}),
            json!({"emptyDir": null}),
        ] {
            let mut patch = claim.clone();
            patch
                .as_object_mut()
                .unwrap()
                .extend(directive.as_object().unwrap().clone());
            assert_eq!(volume(patch), claim);
        }
        assert_eq!(
            volume(json!({"name": "home", "emptyDir": {"$patch": "replace", "medium": "Memory"}})),
            json!({"name": "home", "emptyDir": {"medium": "Memory"}})
        );
        assert_eq!(
            volume(json!({"name": "home", "emptyDir": {"$patch": "delete"}})),
            json!({"name": "home", "emptyDir": {}})
        );
    }

    #[test]
    fn what_is_not_understood_is_named_by_its_place() {
        for (patch, place) in [
            (
                json!({"spec": {"containers": [{"image": "x"}]}}),
                "overlay.spec.containers \"a mapping\"",
            ),
            (
                json!({"spec": {"containers": ["x"]}}),
                "overlay.spec.containers \"x\"",
            ),
            (
                json!({"spec": {"volumes": [{"name": "home", "$patch": "drop"}]}}),
                "overlay.spec.volumes[home].$patch",
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "host"}]}}),
                "overlay.spec.$setElementOrder/containers",
            ),
            (
                json!({"spec": {"volumes": [{"name": "home", "$retainKeys": ["name"], "secret": {}}]}}),
                "overlay.spec.volumes[home].$retainKeys",
            ),
        ] {
            let found = merged(pod(), patch.clone()).unwrap_err();
            assert!(
                found.len() == 1 && found[0].starts_with(place),
                "{patch}: {found:?}"
            );
        }
    }
}
