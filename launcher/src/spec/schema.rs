//! The JSON Schema of a [`SandboxSpec`], and what a value has that a schema
//! does not allow: unknown keys with the nearest known one, wrong types.
//!
//! Only what our own schemas use is understood; an object with named
//! properties is closed.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Problem, SandboxSpec};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| Value::from(schemars::schema_for!(SandboxSpec)));

/// The JSON Schema of a spec in its serialized form.
pub fn spec() -> &'static Value {
    &SCHEMA
}

/// Path of a member.
pub(super) fn member(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Everything in `value` that `schema` does not allow, with paths that start
/// with `path`. References are looked up in `root`.
pub fn check(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<Problem> {
    let mut walk = Walk {
        root,
        found: Vec::new(),
    };
    walk.node(schema, value, path);
    walk.found
}

/// The part of `root` that describes the field at `path`.
pub(super) fn at<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(root, |node, key| {
        let node = plain(root, node);
        node.get("properties")
            .and_then(|known| known.get(key))
            .or_else(|| {
                node.get("additionalProperties")
                    .filter(|more| more.is_object())
            })
            .or_else(|| node.get("items"))
    })
}

/// The schema as it is published.
pub fn text() -> String {
    format!("{:#}\n", spec())
}

/// What the field at a dotted path is for, and the words it may have, in one
/// line.
pub fn description(path: &str) -> Option<String> {
    let node = field(path)?;
    let text = node.get("description")?.as_str()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match words(plain(spec(), node)) {
        Some(words) => format!("{}: {}.", text.trim_end_matches('.'), either(&words)),
        None => text,
    })
}

/// The default of the field at a dotted path, when there is one to speak of.
pub fn default(path: &str) -> Option<String> {
    let value = path
        .split('.')
        .try_fold(super::resolve::defaults(), |node, key| node.get(key))?;
    match value {
        Value::Number(_) => Some(value.to_string()),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

fn field(path: &str) -> Option<&'static Value> {
    let path: Vec<_> = path.split('.').map(str::to_owned).collect();
    at(spec(), &path)
}

/// Whether the field at a dotted path of a spec may be left out for good.
pub(super) fn may_be_absent(path: &str) -> bool {
    field(path).is_some_and(|node| allows(node, "null"))
}

/// A node without its reference, and without "or null".
fn plain<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        return target.map_or(node, |target| plain(root, target));
    }
    let alternatives = node.get("anyOf").and_then(Value::as_array);
    let real = alternatives.and_then(|all| all.iter().find(|one| !allows(one, "null")));
    real.map_or(node, |real| plain(root, real))
}

fn allows(node: &Value, kind: &str) -> bool {
    match node.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(some)) => some.iter().any(|one| one == kind),
        _ => node
            .get("anyOf")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|one| allows(one, kind))),
    }
}

struct Walk<'a> {
    root: &'a Value,
    found: Vec<Problem>,
}

impl Walk<'_> {
    fn node(&mut self, schema: &Value, value: &Value, path: &str) {
        if value.is_null() && allows(schema, "null") {
            return;
        }
        let schema = plain(self.root, schema);
        if let Some(words) = words(schema) {
            if !words.contains(&value) {
                let rule = format!("must be {}", either(&words));
                self.found.push(Problem::new(path, shown(value), rule));
            }
            return;
        }
        if let Some(rule) = wrong_type(schema, value) {
            self.found.push(Problem::new(path, shown(value), rule));
            return;
        }
        match value {
            Value::Object(members) => self.object(schema, members, path),
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.node(schema, item, &format!("{path}[{index}]"));
                    }
                }
            }
            _ => (),
        }
    }

    fn object(&mut self, schema: &Value, members: &Map<String, Value>, path: &str) {
        let known = schema.get("properties").and_then(Value::as_object);
        let more = schema.get("additionalProperties");
        for (key, value) in members {
            let path = member(path, key);
            if let Some(schema) = known.and_then(|known| known.get(key)) {
                self.node(schema, value, &path);
            } else if let Some(schema) = more.filter(|more| more.is_object()) {
                self.node(schema, value, &path);
            } else if let (Some(known), None | Some(Value::Bool(false))) = (known, more) {
                // The value is not shown: it may be what belongs into a Secret.
                let rule = unknown(key, known.keys().map(String::as_str));
                self.found.push(Problem::new(path, key, rule));
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(key) {
                let path = member(path, key);
                self.found.push(Problem::new(path, "", "must be given"));
            }
        }
    }
}

/// Why a key is not known, and what it may have been meant to be.
pub fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(key, known.clone()) {
        Some(near) => format!("unknown key; did you mean {near}?"),
        None => format!(
            "unknown key; known are {}",
            known.collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The known name that looks most like `name`, when one does.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    known
        .map(|known| (strsim::jaro_winkler(&plain(name), &plain(known)), known))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// The words that an enumeration allows.
fn words(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return Some(words.iter().collect());
    }
    let all = schema.get("oneOf").and_then(Value::as_array)?;
    Some(
        all.iter()
            .flat_map(|one| match one.get("enum").and_then(Value::as_array) {
                Some(words) => words.iter().collect(),
                None => one.get("const").into_iter().collect::<Vec<_>>(),
            })
            .collect(),
    )
}

fn either(words: &[&Value]) -> String {
    let words: Vec<_> = words.iter().map(|word| shown(word)).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn wrong_type(schema: &Value, value: &Value) -> Option<String> {
    schema.get("type")?;
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if allows(schema, is) || (is == "integer" && allows(schema, "number")) {
        let small = schema
            .get("format")
            .is_some_and(|format| format == "uint32");
        if small && value.as_u64().is_some_and(|value| value > u32::MAX.into()) {
            return Some(format!("must not be above {}", u32::MAX));
        }
        let least = schema.get("minimum").and_then(Value::as_f64);
        let below = least.filter(|least| value.as_f64().is_some_and(|value| value < *least));
        return below.map(|least| format!("must be a whole number from {least} on"));
    }
    let rules = [
        ("string", "must be text"),
        ("integer", "must be a whole number"),
        ("boolean", "must be true or false"),
        ("array", "must be a list"),
        ("object", "must be a mapping"),
    ];
    let rule = rules.iter().find(|(kind, _)| allows(schema, kind));
    let rule = rule.map_or("must be left out", |(_, rule)| rule);
    let scalar = matches!(value, Value::Number(_) | Value::Bool(_));
    let quotes = if rule == "must be text" && scalar {
        "; put it in quotes"
    } else {
        ""
    };
    Some(format!("{rule}{quotes}"))
}

/// A value as a message shows it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_specs_own() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/sandbox.schema.json");
        if std::env::var_os("PODCRADLE_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            published == text(),
            "PODCRADLE_UPDATE_SNAPSHOTS=1 writes {path} for review"
        );
    }

    #[test]
    fn a_misspelt_name_leads_to_the_nearest() {
        let known = [
            "cpuLimit",
            "cpuRequest",
            "memoryLimit",
            "nodeSelector",
            "image",
        ];
        for (name, near) in [
            ("cpuLimt", Some("cpuLimit")),
            ("cpu_limit", Some("cpuLimit")),
            ("cpu-request", Some("cpuRequest")),
            ("nodeselector", Some("nodeSelector")),
            ("imgae", Some("image")),
            ("zzz", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), near, "{name}");
        }
    }

    #[test]
    fn unknown_keys_are_found_at_any_depth() {
        let affinity = serde_json::json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "valeus": ["b"]}]}]}}}});
        let found = check(spec(), spec(), &affinity, "");
        assert_eq!(found.len(), 1, "{found:?}");
        let start = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].valeus";
        assert_eq!(found[0].field, start);
        assert!(found[0].rule.ends_with("did you mean values?"), "{found:?}");
    }

    #[test]
    fn the_value_of_an_unknown_key_is_not_shown() {
        let value = serde_json::json!({"token": "hunter2", "mounts": [{"password": "hunter2", "path": "/a"}]});
        let found = check(spec(), spec(), &value, "");
        assert_eq!(found.len(), 2);
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }

    #[test]
    fn a_value_of_another_type_is_told_what_would_be_right() {
        for (value, rule) in [
            (
                serde_json::json!({"grace": 5_000_000_000_u64}),
                "must not be above 4294967295",
            ),
            (
                serde_json::json!({"grace": -1}),
                "must be a whole number from 0 on",
            ),
            (serde_json::json!({"grace": 1.5}), "must be a whole number"),
            (
                serde_json::json!({"loginShell": "yes"}),
                "must be true or false",
            ),
            (
                serde_json::json!({"image": 1}),
                "must be text; put it in quotes",
            ),
            (serde_json::json!({"env": "LANG"}), "must be a list"),
            (serde_json::json!({"budgets": null}), "must be a mapping"),
            (
                serde_json::json!({"wait": "soon"}),
                "must be none, started or ready",
            ),
        ] {
            let found = check(spec(), spec(), &value, "");
            assert_eq!(found.len(), 1, "{value}: {found:?}");
            assert_eq!(found[0].rule, rule, "{value}");
        }
        let quantities = serde_json::json!({"resources": {"cpuLimit": 1.5, "memoryLimit": "2Gi", "ephemeralStorageLimit": null}});
        assert_eq!(check(spec(), spec(), &quantities, ""), []);
    }

    #[test]
    fn an_overlay_may_hold_anything() {
        let value = serde_json::json!({"overlay": {"spec": {"no": ["schema", {"of": 1}]}}});
        assert_eq!(check(spec(), spec(), &value, ""), []);
    }
}
