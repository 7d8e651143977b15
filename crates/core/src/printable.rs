//! Makes text from traffic safe to show to people. Names of models, sessions and agents come from
//! requests. A line end in a name would forge a line, other control characters are commands to a
//! terminal, and bidirectional controls reorder the text around them. All of these are escaped,
//! such as `\u{1b}`.

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Characters that change the direction of text, end a line in some programs, or are invisible and
/// make equal-looking names differ.
const INVISIBLE: [RangeInclusive<char>; 6] = [
    '\u{61c}'..='\u{61c}',
    '\u{200e}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
    '\u{e0000}'..='\u{e007f}',
];

/// Escapes a string for use within one line.
///
/// ```
/// use tokengauge_core::printable::printable;
/// assert_eq!(printable("modèle 模型 🦀"), "modèle 模型 🦀");
/// assert_eq!(printable("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
/// ```
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, |_| false)
}

/// Escapes a string, but keeps its line feeds and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c));
    let harmful = |c: char| harmful(c) && !allowed(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if harmful(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_a_terminal_would_obey() {
        for (name, shown) in [
            ("gpt-5.1", "gpt-5.1"),
            ("modèle 模型 🦀", "modèle 模型 🦀"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("a\nb\rc\td\u{7f}", "a\\nb\\rc\\td\\u{7f}"),
            ("\u{202e}txt.exe\u{61c}", "\\u{202e}txt.exe\\u{61c}"),
            ("gpt\u{e0041}", "gpt\\u{e0041}"),
        ] {
            assert_eq!(printable(name), shown);
        }
        assert_eq!(
            printable_lines("a\tb\nc\u{1b}[0m\r\n"),
            "a\tb\nc\\u{1b}[0m\\r\n"
        );
    }
}
