//! The value of a column, and how values of calls become one.

use crate::ledger::row::{micros, millis, whole};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Text(Box<str>),
    /// A count, or milliseconds since 1970.
    Whole(i64),
    Flag(bool),
    Number(f64),
}

impl Value {
    pub fn text(text: impl Into<Box<str>>) -> Value {
        Value::Text(text.into())
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::text(text)
}

pub(super) fn optional(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::text)
}

pub(super) fn list(list: &[String]) -> Value {
    match list {
        [] => Value::Null,
        list => Value::text(serde_json::to_string(list).unwrap_or_default()),
    }
}

pub(super) fn flag(flag: Option<bool>) -> Value {
    flag.map_or(Value::Null, Value::Flag)
}

pub(super) fn count(count: Option<u64>) -> Value {
    count.map_or(Value::Null, |count| Value::Whole(whole(count)))
}

pub(super) fn whole_of(number: Option<impl Into<i64>>) -> Value {
    number.map_or(Value::Null, |number| Value::Whole(number.into()))
}

pub(super) fn number(parts: Option<i64>, of: f64) -> Value {
    parts.map_or(Value::Null, |parts| Value::Number(parts as f64 / of))
}

pub(super) fn seconds(seconds: Option<f64>) -> Value {
    number(seconds.and_then(micros), 1e6)
}

pub(super) fn speed(speed: Option<f64>) -> Value {
    number(speed.and_then(millis), 1e3)
}
