//! Reads the values of a row by the names of their columns.

use super::value::Value;

#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) values: &'a [Value],
    /// The place of a column.
    pub(super) place: fn(&str) -> Option<usize>,
}

impl<'a> Named<'a> {
    fn value(self, name: &str) -> &'a Value {
        let at = (self.place)(name);
        at.and_then(|at| self.values.get(at))
            .unwrap_or(&Value::Null)
    }

    pub(super) fn text(self, name: &str) -> Option<String> {
        match self.value(name) {
            Value::Text(text) => Some(text.to_string()),
            _ => None,
        }
    }

    pub(super) fn word<T: serde::de::DeserializeOwned>(self, name: &str) -> Option<T> {
        serde_json::from_value(serde_json::Value::String(self.text(name)?)).ok()
    }

    pub(super) fn json<T: serde::de::DeserializeOwned + Default>(self, name: &str) -> T {
        self.optional_json(name).unwrap_or_default()
    }

    pub(super) fn optional_json<T: serde::de::DeserializeOwned>(self, name: &str) -> Option<T> {
        serde_json::from_str(&self.text(name)?).ok()
    }

    pub(super) fn flag(self, name: &str) -> Option<bool> {
        match self.value(name) {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn count<T: TryFrom<i64>>(self, name: &str) -> Option<T> {
        match self.value(name) {
            Value::Whole(number) => T::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn number(self, name: &str) -> Option<f64> {
        match self.value(name) {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}
