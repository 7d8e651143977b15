//! The reference of the configuration, as docs/configuration.md has it: a table of keys for each
//! table of the file, from the schema.

use super::bounds::bounds_of;
use super::schema::schema;
use serde_json::Value;

/// The JSON Schema of the configuration file, draft 2020-12.
pub fn json_schema() -> Value {
    schema()
}

/// The reference as Markdown.
pub fn reference() -> String {
    let schema = schema();
    let keys = properties(&schema);
    let is_section = |schema: &Value| table_of(schema).is_some();
    let mut text = String::from("### At the top of the file\n\n");
    text += HEAD;
    for (name, schema, _) in keys.iter().filter(|(_, schema, _)| !is_section(schema)) {
        text += &row(name, schema, "");
    }
    for (name, schema, _) in keys.iter().filter(|(_, schema, _)| is_section(schema)) {
        let Some(table) = table_of(schema) else {
            continue;
        };
        let heading = if schema["type"] == "array" {
            format!("[[{name}]]")
        } else {
            format!("[{name}]")
        };
        let about = [&schema["description"], &table["description"]];
        let about = about
            .iter()
            .find_map(|text| text.as_str())
            .unwrap_or_default();
        text += &format!("\n### `{heading}`\n\n{about}{}\n\n{HEAD}", most(schema));
        rows("", table, &mut text);
    }
    text
}

const HEAD: &str = "| key | type | default | what it is |\n|---|---|---|---|\n";

/// The keys of a table: name, schema, and whether it must be there.
fn properties(table: &Value) -> Vec<(&str, &Value, bool)> {
    let required = |name: &str| {
        let required = table["required"].as_array();
        required.is_some_and(|names| names.iter().any(|one| one == name))
    };
    let keys = table["properties"].as_object().into_iter().flatten();
    keys.map(|(name, schema)| (name.as_str(), schema, required(name)))
        .collect()
}

/// The schema with keys, of a table or of a list of tables.
fn table_of(schema: &Value) -> Option<&Value> {
    let tables = [schema, &schema["items"]];
    tables.into_iter().find(|one| one["properties"].is_object())
}

fn most(schema: &Value) -> String {
    let most = schema["maxItems"].as_u64();
    most.map_or_else(String::new, |most| format!(" At most {most} of them."))
}

/// The rows of a table's keys; those of tables in it follow with a dot.
fn rows(prefix: &str, table: &Value, text: &mut String) {
    for (name, schema, required) in properties(table) {
        let name = format!("{prefix}{name}");
        match table_of(schema) {
            // An indicator with one key is described by the indicator, not by its threshold.
            Some(inner) if properties(inner).len() == 1 => {
                for (key, threshold, _) in properties(inner) {
                    let mut threshold = threshold.clone();
                    threshold["description"] = schema["description"].clone();
                    *text += &row(&format!("{name}.{key}"), &threshold, "");
                }
            }
            Some(inner) => rows(&format!("{name}."), inner, text),
            None => *text += &row(&name, schema, &needed(prefix, required)),
        }
    }
}

/// The text in place of a default where a key is required.
fn needed(prefix: &str, required: bool) -> String {
    match (required, prefix.trim_end_matches('.')) {
        (false, _) => String::new(),
        (true, "") => "required".to_owned(),
        (true, table) => format!("required in `{table}`"),
    }
}

/// A row; `default` is used where the schema has none.
fn row(name: &str, schema: &Value, default: &str) -> String {
    let default = match &schema["default"] {
        Value::Null => default.to_owned(),
        default => format!("`{default}`"),
    };
    let mut what = vec![type_of(schema)];
    what.extend(
        bounds_of(schema)
            .into_iter()
            .filter(|bound| !bound.starts_with("at least 0")),
    );
    let about = schema["description"].as_str().unwrap_or_default();
    // A bar would end the cell.
    let about = about.replace('|', "\\|");
    let more = if schema["type"] == "array" {
        most(schema)
    } else {
        String::new()
    };
    format!(
        "| `{name}` | {} | {default} | {about}{more} |\n",
        what.join(", ")
    )
}

fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["x-type"].as_str() {
        return name.to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    match schema["type"].as_str().unwrap_or_default() {
        "array" => format!("list of {}s", type_of(&schema["items"])),
        "object" => format!("table of {}s", type_of(&schema["additionalProperties"])),
        name => name.to_owned(),
    }
}
