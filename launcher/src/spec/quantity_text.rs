//! A quantity in a file: text, or a bare number as in `cpuLimit: 2`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// The forms a quantity may have.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline, extend("type" = ["string", "number"]), transform = without_alternatives)]
pub enum QuantityText {
    Text(String),
    Number(serde_json::Number),
}

/// A type of two kinds says the same as a choice of two schemas.
fn without_alternatives(schema: &mut schemars::Schema) {
    schema.remove("anyOf");
}

impl From<QuantityText> for String {
    fn from(quantity: QuantityText) -> Self {
        match quantity {
            QuantityText::Text(text) => text,
            QuantityText::Number(number) => number.to_string(),
        }
    }
}

pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(QuantityText::deserialize(from)?.into())
}

pub fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<QuantityText>::deserialize(from)?.map(String::from))
}
