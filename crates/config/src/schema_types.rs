//! Schemas of the types that `file.rs` uses for keys.

use super::scalar::{Size, Span, Url, Window};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use std::borrow::Cow;
use std::marker::PhantomData;

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
        Err(Error::custom("is not an enum"))
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

/// Implements `JsonSchema` with a constant schema.
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
pub(super) struct Address;

/// The syntax that `humantime` accepts.
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
