//! Names with `*` for any run of characters.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A name, or several by `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// `text` as written; every `*` stands for any run of characters, also none.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` is one of those meant.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name, expected) in [
            ("gpt-4.1", "gpt-4.1", true),
            ("gpt-4.1", "gpt-4.1-mini", false),
            ("gpt-4*", "gpt-4.1-mini", true),
            ("*mini", "gpt-4.1-mini", true),
            ("*mini", "minis", false),
            ("gpt*mini*", "gpt-4.1-mini-2025", true),
            ("gpt*x*mini", "gpt-4.1-mini", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
