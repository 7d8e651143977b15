//! The JSON Schema of the configuration file, generated from the types in `file.rs`. The reference and the checked
//! bounds come from it.
//!
//! The schema has these extensions: `x-type`, the kind of text of a string; `x-minimum`, `x-exclusiveMinimum` and
//! `x-maximum`, the bounds of a duration; `x-reason`, the end of a message about a bound; `x-also`, wrong names that
//! people use for the key.

use super::file::File;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub(super) fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value();
    tidy(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        for name in ["description", "title", "$schema"] {
            let value = object.shift_remove(name).unwrap_or_default();
            object.shift_insert(0, name.to_owned(), value);
        }
    }
    schema
}

/// The published text of [`schema`]. A running proxy reads this text, because generating the schema would load half a
/// megabyte of code that is otherwise unused.
pub(super) fn published() -> Value {
    serde_json::from_str(include_str!("../../../proxy-config.schema.json")).unwrap_or_default()
}

/// Removes `null`, which TOML does not have, and the names of Rust types. Joins the lines of descriptions.
fn tidy(schema: &mut Value) {
    let null = |value: &Value| *value == Value::Null || value["type"] == "null" || *value == "null";
    let object = match schema {
        Value::Object(object) => object,
        Value::Array(all) => return all.iter_mut().for_each(tidy),
        _ => return,
    };
    for list in ["type", "enum", "anyOf"] {
        if let Some(Value::Array(all)) = object.get_mut(list) {
            all.retain(|value| !null(value));
            if all.len() == 1 && list == "type" {
                object[list] = object[list][0].take();
            }
        }
    }
    if let Some(Value::Array(all)) = object.get_mut("anyOf")
        && all.len() == 1
    {
        let only = all[0].take();
        object.shift_remove("anyOf");
        for (key, value) in only.as_object().into_iter().flatten() {
            object.entry(key).or_insert_with(|| value.clone());
        }
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
    if object.get("format").is_some_and(Value::is_string) {
        object.shift_remove("format");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    object.values_mut().for_each(tidy);
}
