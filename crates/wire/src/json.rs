//! Tolerant JSON types and functions, shared by all readers.

use super::Malformed;
use super::repair::{repair, string_end};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// Parses a JSON object. Checking UTF-8 once for the whole text is faster than for each string.
pub fn parse<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Malformed> {
    parse_text(std::str::from_utf8(payload).map_err(|_| Malformed)?)
}

/// Parses a string that contains a JSON object. Arrays are refused, because serde would read their items as
/// members.
pub fn parse_text<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Malformed> {
    if !is_object(text.as_bytes()) {
        return Err(Malformed);
    }
    Ok(serde_json::from_str(text)?)
}

/// Parses a JSON list and keeps only its objects.
pub fn parse_list<'a, T: Deserialize<'a>>(
    payload: &'a [u8],
) -> Result<impl Iterator<Item = T> + use<'a, T>, Malformed> {
    let text = std::str::from_utf8(payload).map_err(|_| Malformed)?;
    let List(items) = serde_json::from_str::<List<Object<T>>>(text)?;
    Ok(items.into_iter().filter_map(|item| item.0))
}

/// Whether a JSON value is an object.
pub fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'{')
}

/// Deserializes a member that is an object. Any other value reads as `None`.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|object| object.0)
}

/// A JSON value without white space, with its keys in the original order and only mandatory
/// escapes.
pub fn compact(value: &RawValue) -> String {
    let bytes = value.get().as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'"' {
            let end = string_end(bytes, at);
            push_string(&value.get()[at..end], &mut out);
            at = end;
        } else {
            if !bytes[at].is_ascii_whitespace() {
                out.push(char::from(bytes[at]));
            }
            at += 1;
        }
    }
    out
}

/// The arguments of a call as text: a string unchanged, an object in compact form.
pub fn arguments(value: &RawValue) -> Cow<'_, str> {
    if value.get().starts_with(['{', '[']) {
        return Cow::Owned(compact(value));
    }
    match serde_json::from_str::<Text<'_>>(value.get()) {
        Ok(text) => text.0,
        // The string contains a lone surrogate, which a raw value may contain.
        Err(_) => repair(value.get().as_bytes())
            .and_then(|repaired| serde_json::from_slice(&repaired).ok())
            .map_or(Cow::Borrowed(""), Cow::Owned),
    }
}

fn push_string(literal: &str, out: &mut String) {
    let plain = serde_json::from_str::<String>(literal)
        .ok()
        .and_then(|text| serde_json::to_string(&text).ok());
    out.push_str(plain.as_deref().unwrap_or(literal));
}

/// A JSON string, borrowed if it has no escapes. A number reads as its digits, and any other value as
/// the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<'a>(pub(crate) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| Cow::Borrowed(""))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(entries).map(|_| Cow::Borrowed(""))
    }
}

/// A count. Some providers send `28.0`, and some gateways `"28"`. Any other value is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(pub(crate) Option<u64>);

impl Count {
    /// This count if it is known, otherwise the other.
    pub fn or(self, other: Count) -> Count {
        Count(self.0.or(other.0))
    }

    /// The count, unless it is 0.
    pub fn positive(self) -> Option<u64> {
        self.0.filter(|count| *count > 0)
    }

    /// The count as an index.
    pub fn index(self) -> Option<u32> {
        self.0.and_then(|index| u32::try_from(index).ok())
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor).map(Count)
    }
}

fn whole(number: f64) -> Option<u64> {
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Option<u64>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).ok())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(whole(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let fraction = || text.parse().ok().and_then(whole);
        Ok(text.parse().ok().or_else(fraction))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(entries).map(|_| None)
    }
}

/// Maximum size of the structures that one event or body is parsed into, in bytes: thousands of the
/// largest. Texts do not count, because they are not longer than their source.
const STRUCTURE_BYTES: usize = 1 << 20;

thread_local! {
    /// The remaining budget. Thread-local, because it cannot be passed through `Deserialize`.
    static STRUCTURE_BUDGET: Cell<usize> = const { Cell::new(STRUCTURE_BYTES) };
}

/// Resets the budget before an event or a body is read.
pub fn reset_budget() {
    STRUCTURE_BUDGET.set(STRUCTURE_BYTES);
}

/// Collects a list within the budget.
pub fn collect<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    mut items: A,
) -> Result<Vec<T>, A::Error> {
    let mut list = Vec::new();
    while let Some(item) = items.next_element()? {
        if list.len() == list.capacity() {
            let more = list.len().max(INITIAL_CAPACITY);
            let left = STRUCTURE_BUDGET
                .get()
                .checked_sub(more * size_of::<T>().max(1));
            STRUCTURE_BUDGET.set(left.ok_or_else(|| A::Error::custom("too many items"))?);
            list.reserve_exact(more);
        }
        list.push(item);
    }
    Ok(list)
}

const INITIAL_CAPACITY: usize = 1;

/// A list. Any other value reads as the empty list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ListVisitor(PhantomData))
            .map(List)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        collect(items)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(entries).map(|_| Vec::new())
    }
}

/// An object. Any other value reads as `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T>(pub(crate) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Object(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ObjectVisitor(PhantomData))
            .map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// The kind of an error in a body. Its message is never read, because messages quote prompts.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ErrorObject<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
}

/// Values of an error member that mean that there is no error.
const NO_ERROR: [&str; 6] = ["null", "false", "\"\"", "{}", "[]", "0"];

/// Deserializes an error member. `None` if its value means that there is no error.
pub fn error<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    let error = Option::<&RawValue>::deserialize(deserializer)?;
    let said = |error: &RawValue| parse_text(error.get()).unwrap_or(ErrorMembers::OF_ANY);
    Ok(error.filter(|error| !NO_ERROR.contains(&error.get()) && said(error).is_failure()))
}

struct ErrorMembers {
    /// The code means a failure.
    failed: bool,
    /// The code means success.
    succeeded: bool,
    more: bool,
}

impl ErrorMembers {
    /// The result for an `error` whose value is not an object.
    const OF_ANY: ErrorMembers = ErrorMembers {
        failed: true,
        succeeded: false,
        more: true,
    };

    fn is_failure(&self) -> bool {
        self.failed || self.more && !self.succeeded
    }

    fn note(&mut self, name: &str, value: &str) {
        let word = value.trim_matches('"');
        if NO_ERROR.contains(&value) || word == "0" {
            return;
        }
        match name {
            "code" | "status" | "status_code" | "type" if is_success(word) => self.succeeded = true,
            "code" | "status" | "status_code" | "type" => self.failed = true,
            _ => self.more |= !is_success(word),
        }
    }
}

impl<'de> Deserialize<'de> for ErrorMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = ErrorMembers;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<ErrorMembers, A::Error> {
                let mut said = ErrorMembers {
                    failed: false,
                    succeeded: false,
                    more: false,
                };
                while let Some((name, value)) = all.next_entry::<Text<'de>, &RawValue>()? {
                    said.note(&name, value.get());
                }
                Ok(said)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Whether a code or a message means success.
pub fn is_success(word: &str) -> bool {
    let words = ["ok", "success", "succeeded"];
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
        || matches!(word.as_bytes(), [b'2', b'0'..=b'9', b'0'..=b'9'])
}

/// Deserializes a finish reason: a word, or an object with a `type`, as in SGLang.
pub fn reason<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
    #[derive(Default, Deserialize)]
    struct Reason<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let Some(raw) = Option::<&RawValue>::deserialize(deserializer)? else {
        return Ok(Text::default());
    };
    if is_object(raw.get().as_bytes()) {
        return Ok(parse_text::<Reason<'_>>(raw.get())
            .unwrap_or_default()
            .r#type);
    }
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// The kind of an error, which is an object or a plain message.
pub fn error_kind(error: &RawValue) -> Cow<'_, str> {
    let object: ErrorObject<'_> = parse_text(error.get()).unwrap_or_default();
    [object.kind, object.status, object.code]
        .into_iter()
        .find(|word| is_word(word) && !["error", "0"].contains(&&**word))
        .map_or(Cow::Borrowed("error"), |word| word.0)
}

/// Whether a string is an identifier, not prose.
pub fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:#/".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("valid JSON")
    }

    #[test]
    fn compact_keeps_order_and_numbers_and_unescapes_what_need_not_be_escaped() {
        let value = raw(r#"{ "z" : [1.0, 1e5 , "a\u00e9\/\n\u0001\"" ],  "a": "é b" }"#);
        assert_eq!(
            compact(value),
            "{\"z\":[1.0,1e5,\"aé/\\n\\u0001\\\"\"],\"a\":\"é b\"}"
        );
    }

    #[test]
    fn a_text_without_escapes_is_borrowed() {
        let text: Text<'_> = serde_json::from_str(r#""plain""#).expect("valid");
        assert!(matches!(text.0, Cow::Borrowed("plain")));
    }

    #[test]
    fn odd_types_are_read_as_far_as_they_make_sense() {
        for (json, text, count) in [
            ("28.0", "28", Some(28)),
            ("3", "3", Some(3)),
            ("-3", "-3", None),
            ("null", "", None),
            ("{\"a\":[1]}", "", None),
            ("[1,[2]]", "", None),
            ("\"7\"", "7", Some(7)),
            ("\"28.0\"", "28.0", Some(28)),
            ("\"-3\"", "-3", None),
            ("\"NaN\"", "NaN", None),
            ("\"inf\"", "inf", None),
            ("\"seven\"", "seven", None),
            ("\"\"", "", None),
        ] {
            let read: Text<'_> = serde_json::from_str(json).expect("valid");
            assert_eq!(&*read, text, "{json}");
            assert_eq!(
                serde_json::from_str::<Count>(json).expect("valid").0,
                count,
                "{json}"
            );
        }
    }

    #[test]
    fn an_error_is_named_by_its_type_then_status_then_code() {
        assert_eq!(
            error_kind(raw(r#"{"code":429,"type":"slow_down"}"#)),
            "slow_down"
        );
        assert_eq!(
            error_kind(raw(r#"{"code":404,"status":"NOT_FOUND"}"#)),
            "NOT_FOUND"
        );
        assert_eq!(error_kind(raw(r#"{"code":500,"message":"secret"}"#)), "500");
        assert_eq!(error_kind(raw(r#""secret""#)), "error");
        assert_eq!(
            error_kind(raw(r#"{"code":"You may not say secret"}"#)),
            "error"
        );
    }
}
