//! The record on the anchor: what is wanted and what is under way. It holds
//! no value of any environment variable and stays below 16 kB.

use serde::{Deserialize, Serialize};

use crate::report::Report;
use crate::spec::SandboxSpec;

/// Largest record, in bytes; annotations of one object share 256 KiB.
pub const MAX_RECORD: usize = 16 * 1024;

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
    /// Which process' attempt at the launch holds the anchor.
    #[serde(default)]
    pub attempt: String,
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
            spec: spec.clone(),
            generation,
            attempt: attempt.to_owned(),
            operation: Some(Operation::Launch),
            pod_uid: None,
            secret_uid: None,
            last_report: None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip() {
        let record = Record::launching(&SandboxSpec::new("podcradle-a-000000", "i"), 1, "a");
        assert_eq!(Record::parse(&record.to_annotation()), Some(record));
        assert_eq!(Record::parse("{}"), None);
    }
}
