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
        Err(Problems(vec![Problem {
            field,
            value: value.to_owned(),
            rule: rule.to_owned(),
        }]))
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
mod tests;
