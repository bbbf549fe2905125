//! Spec files: YAML (or JSON), one sandbox a document, or a list of them.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::{Layer, Origin, Problem, Problems};

/// Reads a spec file; `-` is standard input. Each document is a layer that is
/// still to be resolved, with its own problems in it.
///
/// # Errors
/// The file cannot be read, is no YAML, or holds no document.
pub fn read(path: &Path) -> Result<Vec<Layer>, Problems> {
    let stdin = path == Path::new("-");
    let name = if stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    parse(&text(path, stdin, &name)?, &name)
}

fn text(path: &Path, stdin: bool, name: &str) -> Result<String, Problems> {
    let mut text = String::new();
    let read = if stdin {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map(|()| text)
        .map_err(|error| one("file", name, format!("cannot be read: {error}")))
}

/// The documents of a text; `name` is what messages call it.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, name: &str) -> Result<Vec<Layer>, Problems> {
    let documents: Vec<Value> = values(text, name)?
        .into_iter()
        .flat_map(|document| match document {
            Value::Array(list) => list,
            one => vec![one],
        })
        .collect();
    if documents.is_empty() {
        return Err(one("file", name, "holds no sandbox"));
    }
    let several = documents.len() > 1;
    let layers = documents.iter().enumerate().map(|(index, document)| {
        let name = if several {
            format!("{name}[{index}]")
        } else {
            name.to_owned()
        };
        if document.is_object() {
            return Layer::of_value(document, &Origin::File(name));
        }
        // Not what stands there: a token's file may have been taken for a spec.
        let kind = if document.is_null() { "" } else { "text" };
        Layer {
            problems: vec![Problem::new(
                name,
                kind,
                "must be a mapping of fields to values",
            )],
            ..Layer::default()
        }
    });
    Ok(layers.collect())
}

/// The YAML documents of a file, as JSON values.
///
/// # Errors
/// The file cannot be read or is no YAML.
pub fn read_values(path: &Path) -> Result<Vec<Value>, Problems> {
    let name = path.display().to_string();
    values(&text(path, false, &name)?, &name)
}

/// The YAML documents of a text, as JSON values.
///
/// # Errors
/// It is no YAML.
pub fn values(text: &str, name: &str) -> Result<Vec<Value>, Problems> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // `no` and `y` are words, a name such as 007 keeps its zeros.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let message = error.to_string();
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        // Its advice is for whoever programs with it.
        let message = message.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        one("file", name, format!("is no YAML: {message}"))
    })
}

fn one(field: &str, value: &str, rule: impl std::fmt::Display) -> Problems {
    Problems(vec![Problem::new(field, value, rule)])
}
