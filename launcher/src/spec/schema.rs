//! The JSON Schema of a [`SandboxSpec`], and what a value has that a schema
//! does not allow: unknown keys with the nearest known one, wrong types.
//!
//! Only what our own schemas use is understood; an object with named
//! properties is closed.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{Problem, SandboxSpec, redact_url};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = Value::from(schemars::schema_for!(SandboxSpec));
    let sections = ["Repo", "Resources", "Budgets", "NetworkPolicy"];
    let sections = sections.map(|name| format!("/$defs/{name}/properties"));
    for fields in ["/properties".to_owned()].into_iter().chain(sections) {
        let fields = schema.pointer_mut(&fields).and_then(Value::as_object_mut);
        fields
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(or_null);
    }
    schema
});

/// In a file `null` takes away what lower layers set, whatever the field; of
/// labels one by one too.
fn or_null(node: &mut Value) {
    if let Some(members) = node
        .get_mut("additionalProperties")
        .filter(|m| m.is_object())
    {
        or_null(members);
    }
    if allows(node, "null") {
        return;
    }
    if let Some(reference) = node.as_object_mut().and_then(|node| node.remove("$ref")) {
        node["anyOf"] = json!([{ "$ref": reference }, { "type": "null" }]);
        return;
    }
    let kinds = match node.get("type") {
        Some(Value::Array(kinds)) => kinds.clone(),
        Some(kind) => vec![kind.clone()],
        None => return,
    };
    node["type"] = kinds.into_iter().chain(["null".into()]).collect();
}

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

/// The keys that an object of `root` may have at a dotted path; the elements of
/// a list are passed through.
pub(crate) fn keys<'a>(root: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    let keys = path.split('.').filter(|key| !key.is_empty());
    let node = keys
        .into_iter()
        .try_fold(elements(root, root), |node, key| {
            let node = node.get("properties")?.get(key)?;
            Some(elements(root, node))
        });
    let known = node.and_then(|node| node.get("properties")?.as_object());
    known.into_iter().flatten().map(|(key, _)| key.as_str())
}

/// What the elements of a list are, or a list's elements' elements.
fn elements<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let node = plain(root, node);
    node.get("items")
        .map_or(node, |items| elements(root, items))
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
                self.found.push(Problem::new(path, told(path, value), rule));
            }
            return;
        }
        if let Some(rule) = wrong_type(schema, value) {
            self.found.push(Problem::new(path, told(path, value), rule));
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

/// A value as a problem of the field at `path` tells it: whole mappings and
/// lists say little, and what may be a secret is not told.
pub(super) fn told(path: &str, value: &Value) -> String {
    let variable = path.strip_prefix("env");
    match value {
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        // A whole command line, where a list is wanted.
        Value::String(_) if path == "host" => "a text".to_owned(),
        _ if variable.is_some_and(|rest| rest.is_empty() || rest.starts_with('[')) => String::new(),
        Value::String(url) if ["repo", "repo.url", "server"].contains(&path) => redact_url(url),
        other => shown(other),
    }
}

/// A scalar as text.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // As people write 1e20.
        other => other.to_string().replace("e+", "e"),
    }
}

#[cfg(test)]
mod tests;
