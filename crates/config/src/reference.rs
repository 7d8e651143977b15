//! Generates the reference of keys in docs/configuration.md from the schema: a table of keys for each table of the
//! file.

use super::bounds::bounds_of;
use super::schema::schema;
use serde::Serialize;
use serde_json::Value;

/// The JSON Schema of the configuration file, draft 2020-12.
pub fn json_schema() -> Value {
    schema()
}

#[derive(Clone, Debug, Serialize)]
pub struct Key {
    /// The table of the key as the file has it, such as `[[slo]]`. Empty for a key at the top of the file.
    pub table: String,
    /// The name of the key in the table, such as `ttft.at_most`.
    pub key: String,
    /// The type and the bounds of the value.
    #[serde(rename = "type")]
    pub kind: String,
    /// The default value as JSON, if there is one.
    pub default: Option<Value>,
    /// Whether the table must have the key.
    pub required: bool,
    /// The description of the key, as Markdown.
    pub description: String,
}

struct Section {
    heading: String,
    about: String,
    keys: Vec<Key>,
}

pub fn keys() -> Vec<Key> {
    sections()
        .into_iter()
        .flat_map(|section| section.keys)
        .collect()
}

pub fn reference() -> String {
    let mut text = String::new();
    for section in sections() {
        text += &match section.heading.as_str() {
            "" => format!("### At the top of the file\n\n{HEAD}"),
            heading => format!("\n### `{heading}`\n\n{}\n\n{HEAD}", section.about),
        };
        section.keys.iter().for_each(|key| text += &row(key));
    }
    text
}

fn sections() -> Vec<Section> {
    let schema = schema();
    let all = properties(&schema);
    let is_section = |schema: &Value| table_of(schema).is_some();
    let top = all.iter().filter(|(_, schema, _)| !is_section(schema));
    let mut sections = vec![Section {
        heading: String::new(),
        about: String::new(),
        keys: top
            .map(|(name, schema, _)| key("", name, schema, false))
            .collect(),
    }];
    for (name, schema, _) in all {
        let Some(table) = table_of(schema) else {
            continue;
        };
        let heading = if schema["type"] == "array" {
            format!("[[{name}]]")
        } else {
            format!("[{name}]")
        };
        let about = [&schema["description"], &table["description"]];
        let about = about.iter().find_map(|text| text.as_str());
        let limit = most(schema, &format!("`{heading}` tables"));
        let about = about.unwrap_or_default().to_owned() + &limit;
        let mut keys = Vec::new();
        keys_of(&heading, "", table, &mut keys);
        sections.push(Section {
            heading,
            about,
            keys,
        });
    }
    sections
}

const HEAD: &str = "| key | type | default | what it is |\n|---|---|---|---|\n";

/// The keys of a table: name, schema, and whether the key is required.
fn properties(table: &Value) -> Vec<(&str, &Value, bool)> {
    let required = |name: &str| {
        let required = table["required"].as_array();
        required.is_some_and(|names| names.iter().any(|one| one == name))
    };
    let keys = table["properties"].as_object().into_iter().flatten();
    keys.map(|(name, schema)| (name.as_str(), schema, required(name)))
        .collect()
}

/// The schema with keys, for a table or for a list of tables.
fn table_of(schema: &Value) -> Option<&Value> {
    let tables = [schema, &schema["items"]];
    tables.into_iter().find(|one| one["properties"].is_object())
}

/// The sentence with the largest number of `items`, if there is a limit.
fn most(schema: &Value, items: &str) -> String {
    let most = schema["maxItems"].as_u64();
    most.map_or_else(String::new, |most| format!(" At most {most} {items}."))
}

/// Adds the keys of a table. Keys of nested tables have a dotted name.
fn keys_of(heading: &str, prefix: &str, table: &Value, found: &mut Vec<Key>) {
    for (name, schema, required) in properties(table) {
        let name = format!("{prefix}{name}");
        match table_of(schema) {
            // An indicator with one key is described by the indicator's text, not by its threshold's.
            Some(inner) if properties(inner).len() == 1 => {
                for (inner, threshold, _) in properties(inner) {
                    let mut threshold = threshold.clone();
                    threshold["description"] = schema["description"].clone();
                    found.push(key(heading, &format!("{name}.{inner}"), &threshold, false));
                }
            }
            Some(inner) => keys_of(heading, &format!("{name}."), inner, found),
            None => found.push(key(heading, &name, schema, required)),
        }
    }
}

fn key(table: &str, name: &str, schema: &Value, required: bool) -> Key {
    let mut kind = vec![type_of(schema)];
    let bounds = bounds_of(schema).into_iter();
    kind.extend(bounds.filter(|bound| !bound.starts_with("at least 0")));
    let about = schema["description"].as_str().unwrap_or_default();
    let more = if schema["type"] == "array" {
        most(schema, "entries")
    } else {
        String::new()
    };
    Key {
        table: table.to_owned(),
        key: name.to_owned(),
        kind: kind.join(", "),
        default: schema.get("default").filter(|one| !one.is_null()).cloned(),
        required,
        description: format!("{about}{more}"),
    }
}

fn row(key: &Key) -> String {
    let default = match (&key.default, key.key.rsplit_once('.')) {
        (Some(default), _) => format!("`{default}`"),
        (None, _) if !key.required => String::new(),
        (None, None) => "required".to_owned(),
        (None, Some((table, _))) => format!("required in `{table}`"),
    };
    // An unescaped bar would end the cell.
    let about = key.description.replace('|', "\\|");
    format!("| `{}` | {} | {default} | {about} |\n", key.key, key.kind)
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
