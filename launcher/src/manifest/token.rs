//! The token is in its Secret and nowhere else: a spec that holds it is refused
//! before anything is made of it.

use serde_json::{Value, json};

use super::Tree;
use crate::spec::{Problem, Problems, SandboxSpec};
use crate::token::Token;

/// Refuses a spec that would put the token, as text or as base64, into an
/// object that others may read.
///
/// # Errors
/// The field that holds it, without its value.
pub fn check_token(spec: &SandboxSpec, token: &Token) -> Result<(), Problems> {
    let found = |field: String, rule: &str| {
        let value = "[redacted]";
        Err(Problems(vec![Problem { field, value: value.to_owned(), rule: rule.to_owned() }]))
    };
    // The values of variables are in the Pod, but not in the serialized spec.
    let variables = spec.env.iter().find(|(_, value)| token.is_in(value));
    let field = variables.map(|(name, _)| format!("env.{name}"));
    if let Some(field) = field.or_else(|| place(&json!(spec), "", token)) {
        let rule = "holds the token, which the host finds in its environment; others may read what is here";
        return found(field, rule);
    }
    let objects = Tree::of(spec)?.without_secret();
    if place(&objects, "", token).is_some() {
        let rule = "is part of what every Pod says, and no secret; take a longer one, such as 32 random bytes in hex";
        return found("token".to_owned(), rule);
    }
    Ok(())
}

/// Where the token stands, in a key or in a text.
fn place(value: &Value, at: &str, token: &Token) -> Option<String> {
    match value {
        Value::String(text) => token.is_in(text).then(|| at.to_owned()),
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            // The path of a key that holds it would tell it.
            if token.is_in(key) {
                return Some(at.to_owned());
            }
            let dot = if at.is_empty() { "" } else { "." };
            place(value, &format!("{at}{dot}{key}"), token)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| place(item, &format!("{at}[{index}]"), token)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(token: &str, change: impl FnOnce(&mut SandboxSpec)) -> String {
        let token = Token::read("a test", token.as_bytes()).unwrap();
        let mut spec = SandboxSpec::new("podcradle-a-000000", "image:1");
        change(&mut spec);
        let found = check_token(&spec, &token).err();
        found.map(|found| found.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_field_that_holds_the_token_is_named_and_its_value_is_not() {
        let token = "0123456789abcdef-secret";
        let encoded = "MDEyMzQ1Njc4OWFiY2RlZi1zZWNyZXQ=";
        assert_eq!(refused(token, |_| ()), "");
        let key = |spec: &mut SandboxSpec| drop(spec.labels.insert(token.into(), "a".into()));
        let value = |spec: &mut SandboxSpec| drop(spec.env.insert("A".into(), token.into()));
        for (field, line) in [
            ("host[1]", refused(token, |s| s.host = vec!["a".into(), format!("--t={token}")])),
            ("host[0]", refused(token, |s| s.host = vec![encoded.into()])),
            ("env.A", refused(token, value)),
            ("labels", refused(token, key)),
            ("sandbox", refused("podcradle-a", |_| ())),
        ] {
            assert!(line.starts_with(&format!("{field} \"[redacted]\": holds the token")), "{line}");
            assert!(!line.contains(token) && !line.contains(encoded), "{line}");
        }
    }

    #[test]
    fn a_token_that_every_pod_says_is_none() {
        let line = refused("workspace-prep", |_| ());
        assert!(line.starts_with("token \"[redacted]\": is part of what every Pod says"), "{line}");
    }
}
