//! Reads the members and items of a JSON value without copying or decoding them.

use super::super::json::arguments;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Calls `each` with the key and the value of each member of a JSON object, up to a syntax error.
/// Calls nothing if the text is another value.
pub(super) fn members<'a>(json: &'a str, each: impl FnMut(&str, &'a RawValue)) {
    let visitor = MembersVisitor(each);
    let _ = serde_json::Deserializer::from_str(json).deserialize_map(visitor);
}

/// Calls `each` with each item of a JSON array, up to a syntax error.
pub(super) fn items<'a>(json: &'a str, each: impl FnMut(&'a RawValue)) {
    let visitor = ItemsVisitor(each);
    let _ = serde_json::Deserializer::from_str(json).deserialize_seq(visitor);
}

/// A JSON string without its escapes; `None` if the value is not a string.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let literal = value.get();
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return Some(arguments(value));
    }
    Some(Cow::Borrowed(inner))
}

struct MembersVisitor<F>(F);

impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for MembersVisitor<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key_seed(KeySeed)? {
            (self.0)(&key, entries.next_value()?);
        }
        Ok(())
    }
}

struct ItemsVisitor<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for ItemsVisitor<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }
}

/// A key, which has escapes only in unusual bodies.
struct Key<'a>(Cow<'a, str>);

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Key<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}
