//! The supervisor's termination report, as the launcher reads it back. The
//! schema is `supervisor/report.schema.json`; fields this version does not
//! know are kept, so that `status` shows what a newer supervisor wrote.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::token::Token;

/// One line of JSON that `podcradle-init` left in the termination log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Schema version.
    pub v: u32,
    /// What the supervisor exited with.
    pub exit_code: i32,
    /// How the host ended.
    pub end: End,
    /// Everything else, as written.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

/// How the host ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// `exit`, `signal`, `exec`, `setup`, `backoff`.
    pub kind: String,
    /// `code`, `signal`, `core`, `errno`, `message`.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

impl Report {
    /// Reads a termination message; `None` when it is not a report of ours (a
    /// runtime's own text, or a host that wrote there itself).
    pub fn parse(message: &str) -> Option<Self> {
        serde_json::from_str(message.trim_end()).ok()
    }

    /// The same without the token: a host may write a report of its own.
    #[must_use]
    pub fn redacted(mut self, token: &Token) -> Self {
        self.end.kind = token.redact(&self.end.kind);
        for rest in [&mut self.end.rest, &mut self.rest] {
            *rest = redacted(std::mem::take(rest), token);
        }
        self
    }

    /// One sentence for a person.
    pub fn summary(&self) -> String {
        let number = |key: &str| self.end.rest.get(key).and_then(serde_json::Value::as_i64);
        let text = |key: &str| self.end.rest.get(key).and_then(serde_json::Value::as_str);
        let mut line = match (self.end.kind.as_str(), number("signal")) {
            ("exit", _) => format!(
                "host exited with code {}",
                number("code").unwrap_or(self.exit_code.into())
            ),
            ("signal", Some(signal)) => format!("host was killed by signal {signal}"),
            ("exec", _) => format!(
                "host could not be executed: {}",
                text("message").unwrap_or("no reason given")
            ),
            ("setup", _) => format!(
                "supervisor refused to start: {}",
                text("message").unwrap_or("no reason given")
            ),
            ("backoff", _) => "stopped while waiting to restart the host".to_owned(),
            (other, _) => format!("host ended ({other}), exit code {}", self.exit_code),
        };
        if self.rest.contains_key("stop") {
            line.push_str(" after a stop was asked for");
        }
        if self
            .rest
            .get("graceExpired")
            .and_then(serde_json::Value::as_bool)
            == Some(true)
        {
            line.push_str("; its grace ran out");
        }
        if let Some(kills) = self
            .rest
            .get("oomKills")
            .and_then(serde_json::Value::as_u64)
            .filter(|k| *k > 0)
        {
            let _ = write!(line, "; the kernel's OOM killer struck {kills} time(s)");
        }
        line
    }
}

/// Keys are a host's words too.
fn redacted(map: Map<String, Value>, token: &Token) -> Map<String, Value> {
    fn of(value: Value, token: &Token) -> Value {
        match value {
            Value::String(text) => Value::String(token.redact(&text)),
            Value::Array(items) => items.into_iter().map(|item| of(item, token)).collect(),
            Value::Object(map) => Value::Object(redacted(map, token)),
            other => other,
        }
    }
    let fields = map.into_iter();
    fields
        .map(|(key, value)| (token.redact(&key), of(value, token)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_round_trip_with_fields_of_a_newer_schema() {
        let line = r#"{"v":1,"exitCode":143,"end":{"kind":"signal","signal":15,"core":false},"stop":{"signal":15},"new":{"a":1}}"#;
        let report = Report::parse(line).unwrap();
        assert_eq!(
            report.summary(),
            "host was killed by signal 15 after a stop was asked for"
        );
        let again: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(
            again,
            serde_json::from_str::<serde_json::Value>(line).unwrap()
        );
    }

    #[test]
    fn no_part_of_a_report_keeps_the_token() {
        let token = Token::read("x", &b"s3cret-s3cret"[..]).unwrap();
        let line = r#"{"v":1,"exitCode":3,"end":{"kind":"s3cret-s3cret","message":"a s3cret-s3cret","deep":[{"s3cret-s3cret":"s3cret-s3cret"}]},"host":"s3cret-s3cret","more":{"x":["czNjcmV0LXMzY3JldA"]}}"#;
        let report = Report::parse(line).unwrap().redacted(&token);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(text.matches("[redacted]").count(), 6, "{text}");
        assert!(
            !text.contains("s3cret-s3cret") && !text.contains("czNj"),
            "{text}"
        );
    }

    #[test]
    fn a_runtimes_own_text_is_no_report() {
        for text in ["", "OCI runtime create failed", "{}", "[1]", "{\"v\":1}"] {
            assert_eq!(Report::parse(text), None, "{text}");
        }
    }
}
