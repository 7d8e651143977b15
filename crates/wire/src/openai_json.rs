//! Shapes of JSON that only the OpenAI family needs.

use super::json::{Text, collect};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Annotation<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
}

pub(super) fn is_of_web(annotations: &[Annotation<'_>]) -> bool {
    let mut all = annotations.iter();
    all.any(|annotation| &*annotation.r#type == "url_citation")
}

/// A JSON string or array. Any other value reads as an empty string.
#[derive(Clone, Debug)]
pub(super) enum TextOrList<'a, T> {
    Text(Text<'a>),
    List(Vec<T>),
}

impl<T> Default for TextOrList<'_, T> {
    fn default() -> Self {
        TextOrList::Text(Text::default())
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for TextOrList<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrListVisitor(PhantomData))
    }
}

struct TextOrListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrListVisitor<T> {
    type Value = TextOrList<'de, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TextOrList::Text(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrList::Text(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        collect(items).map(TextOrList::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(entries).map(|_| TextOrList::default())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(TextOrList::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(TextOrList::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(TextOrList::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(TextOrList::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(TextOrList::default())
    }
}
