//! The record on the anchor, or on the Pod in a shared session: what is wanted and what is under way. It holds
//! no value of any environment variable and stays below 16 kB.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{EXPIRES, RECORD};
use crate::report::Report;
use crate::spec::{Problem, Problems, SandboxSpec};

/// Largest record, in bytes; annotations of one object share 256 KiB.
pub const MAX_RECORD: usize = 16 * 1024;
/// What is left of it for what comes later: uids, and a report of 4 KiB.
const LATER: usize = 5 * 1024;

/// The record annotation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Schema version.
    pub v: u32,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// Which Pod of the sandbox is meant, counted from 1.
    pub generation: u32,
    /// Which process' attempt at the launch holds it.
    #[serde(default)]
    pub attempt: String,
    /// By what the token is told from another one; absent where a callback gave
    /// it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token_check: Option<String>,
    /// What is under way; absent once it is done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<Operation>,
    /// The Pod's uid, once known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod_uid: Option<String>,
    /// The token Secret's uid, so that it can be deleted without reading it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret_uid: Option<String>,
    /// Why the last host ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_report: Option<Report>,
}

/// An operation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Service, Pod and Secret are being made.
    Launch,
}

impl Record {
    /// The record an attempt at a launch begins with.
    pub fn launching(spec: &SandboxSpec, generation: u32, attempt: &str) -> Self {
        Self {
            v: 1,
            spec: without_values(spec),
            generation,
            attempt: attempt.to_owned(),
            token_check: None,
            operation: Some(Operation::Launch),
            pod_uid: None,
            secret_uid: None,
            last_report: None,
        }
    }

    /// The fields in which the sandbox is another one than `wanted`. How long a
    /// launch waits for it, and for what, is that launch's own.
    pub fn differences(&self, wanted: &SandboxSpec) -> Vec<String> {
        let (is, wanted) = (json!(self.spec), json!(without_values(wanted)));
        let keys = [&is, &wanted].map(|spec| spec.as_object().into_iter().flatten());
        let keys: BTreeSet<_> = keys.into_iter().flatten().map(|(key, _)| key).collect();
        let of_the_launch = ["sandbox", "launchId", "wait", "budgets", "keepOnFailure"];
        keys.into_iter()
            .filter(|key| !of_the_launch.contains(&key.as_str()) && is[*key] != wanted[*key])
            .cloned()
            .collect()
    }

    /// Whether the record of this spec has room on its anchor.
    ///
    /// # Errors
    /// When the spec is too large.
    pub fn check(spec: &SandboxSpec) -> Result<(), Problems> {
        let size = Self::launching(spec, 1, "").to_annotation().len();
        let most = MAX_RECORD - LATER;
        if size <= most {
            return Ok(());
        }
        Err(Problems(vec![Problem {
            field: "spec".to_owned(),
            value: format!("{size} bytes"),
            rule: format!(
                "must be at most {most} bytes as JSON, since the session's anchor keeps it; move long arguments and overlays into the image or a Secret"
            ),
        }]))
    }

    /// The annotations of the object that holds it while a launch is under way.
    pub fn annotations(&self, expires: Timestamp) -> BTreeMap<String, String> {
        BTreeMap::from([
            (RECORD.to_owned(), self.to_annotation()),
            (EXPIRES.to_owned(), expires.to_string()),
        ])
    }

    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        // A struct of strings, numbers and maps with string keys serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads an annotation; `None` when it is absent or not readable, which is
    /// never taken for "gone".
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }
}

/// The spec without the values of variables that its overlay sets; the spec's
/// own are not serialized anyway.
fn without_values(spec: &SandboxSpec) -> SandboxSpec {
    let mut spec = spec.clone();
    for value in spec.overlay.iter_mut().flat_map(|o| o.values_mut()) {
        forget_values(value);
    }
    spec
}

/// Takes the values of the variables out of an overlay.
pub fn forget_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_array_mut() {
                    Some(variables) if key == "env" => {
                        for variable in variables.iter_mut().filter_map(Value::as_object_mut) {
                            variable.remove("value");
                        }
                    }
                    _ => forget_values(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget_values),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip() {
        let record = Record::launching(&SandboxSpec::new("podcradle-a-000000", "i"), 1, "a");
        assert_eq!(Record::parse(&record.to_annotation()), Some(record));
        assert_eq!(Record::parse("{}"), None);
    }

    #[test]
    fn no_value_of_a_variable_is_recorded_an_overlays_neither() {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "i");
        spec.env.insert("COLOUR".into(), "ultramarine".into());
        let overlay = serde_json::json!({ "spec": { "containers": [{
            "name": "host",
            "env": [{ "name": "SHADE", "value": "vermilion" }],
        }] } });
        spec.overlay = overlay.as_object().cloned();
        let text = Record::launching(&spec, 1, "a").to_annotation();
        assert!(text.contains("COLOUR") && text.contains("SHADE"), "{text}");
        assert!(!text.contains("ultramarine") && !text.contains("vermilion"));
    }

    #[test]
    fn a_spec_whose_record_has_no_room_is_refused() {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "i");
        assert_eq!(Record::check(&spec), Ok(()));
        spec.host = vec!["x".repeat(MAX_RECORD - LATER)];
        let problems = Record::check(&spec).unwrap_err().to_string();
        assert!(problems.contains("at most 11264 bytes"), "{problems}");
    }
}
