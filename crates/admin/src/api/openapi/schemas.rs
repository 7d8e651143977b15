//! Generates the schemas of the document from types.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

pub(super) fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.with_transform(tidy).into_generator()
}

/// Forbids additional properties, and merges string alternatives into one enumeration, which generators of clients need.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut tidy, schema);
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    let choice = schema.get("oneOf").and_then(Value::as_array);
    let words: Option<Vec<Value>> =
        choice.and_then(|any| any.iter().map(|word| word.get("const").cloned()).collect());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words.into());
    }
}
