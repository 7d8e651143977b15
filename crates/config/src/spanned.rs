use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::ops::Range;

/// [`toml::Spanned`] with the schema of its value.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    /// Creates a value at a range of bytes of the file.
    pub(super) fn new(range: Range<usize>, value: T) -> Spanned<T> {
        Spanned(toml::Spanned::new(range, value))
    }

    pub(super) fn into_inner(self) -> T {
        self.0.into_inner()
    }

    pub(super) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// In bytes of the file.
    pub(super) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Spanned::deserialize(deserializer).map(Spanned)
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }
}
