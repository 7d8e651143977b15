//! The words that schemas are written in.

use serde_json::{Map, Value, json};

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn number() -> Value {
    json!({"type": "number"})
}

/// A whole number from 0 on.
pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn instant() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub(super) fn words(all: &[&str]) -> Value {
    json!({"type": "string", "enum": all})
}

pub(super) fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// A schema by its name.
pub(super) fn of(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The same, or unknown.
pub(super) fn maybe(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Any names, each with the same kind of value.
pub(super) fn map_of(schema: Value) -> Value {
    json!({"type": "object", "additionalProperties": schema})
}

/// Exactly these members, all of them always there.
pub(super) fn object(members: &[(&str, Value, &str)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, ..)| *name).collect();
    let described = members.iter().map(|(name, schema, description)| {
        let mut schema = schema.clone();
        schema["description"] = (*description).into();
        ((*name).to_owned(), schema)
    });
    json!({
        "type": "object",
        "properties": described.collect::<Map<_, _>>(),
        "required": names,
        "additionalProperties": false,
    })
}
