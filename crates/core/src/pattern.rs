//! Patterns for names, in which `*` matches any run of characters. The case of ASCII letters is
//! ignored, because some upstreams ignore the case of model names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A pattern for names: `*` matches any run of characters, and the case of ASCII letters is
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches all of `name`.
    pub fn matches(&self, name: &str) -> bool {
        // In a long list, such as the price list, most patterns already differ in the first letter.
        let first = |text: &str| text.as_bytes().first().map(u8::to_ascii_lowercase);
        let wanted = first(&self.0);
        if wanted != Some(b'*') && wanted.is_some() && wanted != first(name) {
            return false;
        }
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let (first, name) = (first.as_bytes(), name.as_bytes());
        let Some(mut rest) = begins(name, first).then(|| &name[first.len()..]) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts.map(str::as_bytes) {
            let found = (0..=rest.len()).find(|at| begins(&rest[*at..], part));
            match found {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        let end = rest.len().checked_sub(last.len());
        end.is_some_and(|at| begins(&rest[at..], last.as_bytes()))
    }
}

fn begins(name: &[u8], part: &[u8]) -> bool {
    let start = name.get(..part.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(part))
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
            ("gpt-4*", "GPT-4.1-Mini", true),
            ("*Mini*5", "gpt-4.1-mini-2025", true),
            ("é*é", "éé", true),
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
