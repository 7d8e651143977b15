//! Finds unknown keys and out-of-bounds values in a file by the schema, with their lines.

use super::problems::Problem;
use super::scalar::{Size, parse_size};
use super::schema::published;
use serde_json::{Map, Value};
use std::ops::Range;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Minimum similarity, from 0 to 1, at which an unknown key counts as a misspelling.
const ALIKE: f64 = 0.8;
const THRESHOLDS: [&str; 2] = ["at_most", "at_least"];

/// Returns the values in the TOML document `text` that are out of bounds. Returns none if `text` is not valid TOML, which
/// the parser reports.
pub(super) fn problems(text: &str) -> Vec<Problem> {
    let mut check = Check {
        text,
        found: Vec::new(),
    };
    if let Ok(table) = DeTable::parse(text) {
        check.table(&published(), table.get_ref());
    }
    check.found
}

struct Check<'a> {
    text: &'a str,
    found: Vec<Problem>,
}

impl Check<'_> {
    fn at(&mut self, span: Range<usize>, reason: String) {
        self.found.push(Problem::at(self.text, span.start, reason));
    }

    fn table(&mut self, schema: &Value, table: &DeTable<'_>) {
        let Some(keys) = schema["properties"].as_object() else {
            return;
        };
        for (key, value) in table {
            match keys.get(&**key.get_ref()) {
                Some(schema) => self.value(key.get_ref(), schema, value.get_ref(), value.span()),
                None => self.at(key.span(), unknown(key.get_ref(), keys)),
            }
        }
    }

    fn value(&mut self, key: &str, schema: &Value, value: &DeValue<'_>, span: Range<usize>) {
        match value {
            _ if !is_of_type(schema, value) => {
                let reason = without_threshold(key, schema, value);
                self.at(span, reason.unwrap_or_else(|| wrong_type(schema, value)));
            }
            DeValue::Table(table) => self.table(schema, table),
            DeValue::Array(all) => {
                if let Some(most) = schema["maxItems"].as_u64()
                    && let Some(beyond) = all.get(usize::try_from(most).unwrap_or(usize::MAX))
                {
                    let reason = format!("there can be at most {most} entries");
                    self.at(beyond.span(), reason);
                }
                for item in all {
                    self.value(key, &schema["items"], item.get_ref(), item.span());
                }
            }
            _ if is_outside(schema, value) => self.at(span, must_be(schema)),
            _ => {}
        }
    }
}

/// Keys of version 0.2 without a successor, and what happens without them.
const REMOVED: [(&str, &str); 2] = [
    (
        "after_max_wait",
        "a gate that cannot decide within `max_wait` stays inconclusive",
    ),
    (
        "retries",
        "repeated calls are no longer compared; `failures` and `empty` are",
    ),
];

fn unknown(key: &str, keys: &Map<String, Value>) -> String {
    if let Some((_, instead)) = REMOVED.iter().find(|(removed, _)| *removed == key) {
        return format!("unknown field `{key}`: it was removed in 0.3; {instead}");
    }
    let is_meant = |schema: &Value| {
        let also = schema["x-also"].as_array();
        also.is_some_and(|names| names.iter().any(|name| name == key))
    };
    if let Some((name, schema)) = keys.iter().find(|(_, schema)| is_meant(schema)) {
        let name = match threshold_of(schema) {
            Some(threshold) => format!("{name}.{threshold}"),
            None => name.clone(),
        };
        return format!("unknown field `{key}`; did you mean `{name}`?");
    }
    let mut alike: Vec<_> = keys
        .keys()
        .map(|name| (strsim::jaro_winkler(key, name), name))
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0));
    match alike.first() {
        Some((alike, name)) if *alike >= ALIKE => {
            format!("unknown field `{key}`; did you mean `{name}`?")
        }
        _ => {
            let mut names: Vec<_> = alike.iter().map(|(_, name)| format!("`{name}`")).collect();
            names.sort();
            format!(
                "unknown field `{key}`, expected one of {}",
                names.join(", ")
            )
        }
    }
}

/// The threshold key in the table of an indicator.
fn threshold_of(schema: &Value) -> Option<&'static str> {
    let keys = schema["properties"].as_object()?;
    THRESHOLDS.into_iter().find(|name| keys.contains_key(*name))
}

/// The message about a threshold that was written instead of its table, such as `ttft = "500ms"`. The message quotes
/// the value only if it is a number or a duration.
fn without_threshold(key: &str, schema: &Value, value: &DeValue<'_>) -> Option<String> {
    let threshold = threshold_of(schema)?;
    let value = match value {
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::String(text) => {
            humantime::parse_duration(text).ok()?;
            format!("\"{text}\"")
        }
        _ => return None,
    };
    Some(format!(
        "must say which side is good: write `{key}.{threshold} = {value}`"
    ))
}

/// Whether a value has its key's type. A key without a type accepts values of several types.
fn is_of_type(schema: &Value, value: &DeValue<'_>) -> bool {
    let fits = |name: &Value| match value {
        DeValue::String(_) => name == "string",
        DeValue::Integer(_) => name == "integer" || name == "number",
        DeValue::Float(_) => name == "number",
        DeValue::Boolean(_) => name == "boolean",
        DeValue::Array(_) => name == "array",
        DeValue::Table(_) => name == "object",
        DeValue::Datetime(_) => false,
    };
    match &schema["type"] {
        Value::Array(names) => names.iter().any(fits),
        Value::Null => true,
        name => fits(name),
    }
}

/// The message about a value of the wrong type. It does not quote the value, which may be a secret.
fn wrong_type(schema: &Value, value: &DeValue<'_>) -> String {
    let kind = |name: &Value| match name.as_str().unwrap_or_default() {
        "string" => "text in quotes",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "`true` or `false`",
        "array" => "a list in brackets",
        _ => "a table",
    };
    let wanted = match schema["x-type"].as_str() {
        Some("duration") => "a duration such as \"30s\"",
        Some("duration or \"month\"") => "a duration such as \"30d\", or \"month\"",
        Some("size") => "a size such as 65536 or \"64KiB\"",
        Some("address") => "an address such as \"127.0.0.1:8080\"",
        Some("URL") => "a URL such as \"http://127.0.0.1:8000\"",
        _ => kind(&schema["type"]),
    };
    let given = match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
        DeValue::Datetime(_) => "a date",
    };
    format!("must be {wanted}, not {given}")
}

/// Whether a value is out of bounds. A value of the wrong type is not, because the reader reports it.
fn is_outside(schema: &Value, value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix());
            number.is_ok_and(|number| is_outside_numbers(schema, number as f64))
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse();
            number.is_ok_and(|number| is_outside_numbers(schema, number))
        }
        DeValue::String(text) if schema["x-type"] == "size" => {
            parse_size(text).is_some_and(|size| is_outside_numbers(schema, size as f64))
        }
        DeValue::String(text) => {
            humantime::parse_duration(text).is_ok_and(|span| is_outside_spans(schema, span))
        }
        _ => false,
    }
}

/// Infinite numbers and NaN are always out of bounds.
fn is_outside_numbers(schema: &Value, number: f64) -> bool {
    let bound = |name: &str| schema[name].as_f64();
    let bounds = [
        bound("minimum"),
        bound("exclusiveMinimum"),
        bound("maximum"),
    ];
    let [least, above, most] = bounds;
    bounds.iter().any(Option::is_some) && !number.is_finite()
        || least.is_some_and(|least| number < least)
        || above.is_some_and(|above| number <= above)
        || most.is_some_and(|most| number > most)
}

fn is_outside_spans(schema: &Value, span: Duration) -> bool {
    let bound = |name: &str| {
        let text = schema[name].as_str()?;
        humantime::parse_duration(text).ok()
    };
    bound("x-minimum").is_some_and(|least| span < least)
        || bound("x-exclusiveMinimum").is_some_and(|above| span <= above)
        || bound("x-maximum").is_some_and(|most| span > most)
}

fn must_be(schema: &Value) -> String {
    let reason = schema["x-reason"].as_str().unwrap_or_default();
    let bounds = schema["x-must"].as_str().map(str::to_owned);
    let bounds = bounds.unwrap_or_else(|| bounds_of(schema).join(" and "));
    format!("must be {bounds}{reason}")
}

pub(super) fn bounds_of(schema: &Value) -> Vec<String> {
    let shown = |name: &str| {
        let bound = schema.get(name)?;
        let bytes = bound.as_u64().filter(|_| schema["x-type"] == "size");
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        Some(match (bytes, bound) {
            (Some(bytes), _) => Size(bytes).to_string(),
            (None, Value::String(text)) => text.clone(),
            (None, number) => number
                .as_f64()
                .map_or_else(|| number.to_string(), |n| n.to_string()),
        })
    };
    let bounds = [
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("x-minimum", "at least"),
        ("x-exclusiveMinimum", "longer than"),
        ("x-maximum", "at most"),
    ];
    let bounds = bounds.iter().filter_map(|(name, word)| {
        let bound = shown(name)?;
        Some(format!("{word} {bound}"))
    });
    let mut bounds: Vec<_> = bounds.collect();
    // Every unsigned number has this bound. It is omitted if there is another.
    if bounds.len() > 1 {
        bounds.retain(|bound| bound != "at least 0");
    }
    bounds
}
