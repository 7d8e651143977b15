//! The JSON Schema of the configuration file, made of the types that it is read into
//! (`file.rs`). The reference and the bounds that are checked come from it.
//!
//! Beyond JSON Schema it has `x-type`, what kind of text a string is; `x-minimum`,
//! `x-exclusiveMinimum` and `x-maximum`, the bounds of a duration; and `x-reason`, what a message
//! about a bound ends with.

use super::file::File;
use super::scalar::{Size, Span, Url, Window};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::marker::PhantomData;

/// The schema of the whole file.
pub(super) fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value();
    tidy(&mut schema);
    // The title comes first.
    if let Some(object) = schema.as_object_mut() {
        for name in ["description", "title", "$schema"] {
            let value = object.shift_remove(name).unwrap_or_default();
            object.shift_insert(0, name.to_owned(), value);
        }
    }
    schema
}

/// The same as [`schema`], as it is published. A running proxy reads this text: making the schema anew would bring half
/// a megabyte of code into memory that nothing else runs.
pub(super) fn published() -> Value {
    serde_json::from_str(include_str!("../../../proxy-config.schema.json")).unwrap_or_default()
}

/// Removes `null`, which TOML does not have, and the names of Rust types, and joins the lines
/// of descriptions.
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

/// The schema of an enum, with the names that its `Deserialize` accepts.
pub(super) struct EnumNames<T>(PhantomData<T>);

impl<T: DeserializeOwned> JsonSchema for EnumNames<T> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut names: &[&str] = &[];
        let _ = T::deserialize(Variants(&mut names));
        json_schema!({ "type": "string", "enum": names })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// A deserializer that records the variants of an enum and then fails.
struct Variants<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Variants<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("is no enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        Err(Error::custom("its variants are known"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A schema that is the same wherever its type is used.
macro_rules! schema_of {
    ($($type:ident: $schema:tt)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }

            fn inline_schema() -> bool {
                true
            }
        }
    )*};
}

/// A name that becomes a label.
pub(super) struct Label;
/// An address to listen on.
pub(super) struct Address;

/// What `humantime` reads.
const DURATION: &str = r"^\s*(0|([0-9]+\s*(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h|days|day|d|weeks|week|wks|wk|w|months|month|M|years|year|yrs|yr|y)\s*)+)$";

schema_of! {
    Label: { "type": "string", "x-type": "name", "minLength": 1, "maxLength": 100 }
    Address: { "type": "string", "x-type": "address", "pattern": ":[0-9]{1,5}$" }
    Url: { "type": "string", "x-type": "URL", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^@?]+$" }
    Span: { "type": "string", "x-type": "duration", "pattern": DURATION }
    Window: {
        "type": "string",
        "x-type": "duration or \"month\"",
        "anyOf": [{ "const": "month" }, { "pattern": DURATION }],
    }
    Size: {
        "type": ["integer", "string"],
        "x-type": "size",
        "minimum": 0,
        "pattern": r"^\s*[0-9]+\s*(B|kB|KB|KiB|MB|MiB|GB|GiB)?\s*$",
    }
}
