use super::spanned::Spanned;
use serde::Serialize;
use std::fmt;

/// A configuration that cannot be used, with every problem found.
#[derive(Debug, thiserror::Error)]
pub struct Invalid {
    /// The file, or another name for the source of the text.
    pub origin: String,
    /// In the order of the file.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Counted from 1. `None` if it is unknown.
    pub line: Option<usize>,
    /// Counted from 1 in characters. `None` if it is unknown.
    pub column: Option<usize>,
    /// The key as written. Empty if the problem is not in one key.
    pub key: String,
    /// What is wrong and how to fix it.
    pub reason: String,
}

impl Problem {
    /// A problem of the value that starts at byte `start` of the text.
    pub(super) fn at(text: &str, start: usize, reason: impl Into<String>) -> Problem {
        Problem {
            line: Some(line_at(text, start)),
            column: Some(column_at(text, start)),
            key: key_at(text, start),
            reason: reason.into(),
        }
    }
}

/// `:LINE:COLUMN: KEY: REASON`, to follow the name of the file.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.line.iter().chain(&self.column) {
            write!(f, ":{number}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}{problem}", self.origin)?;
        }
        Ok(())
    }
}

impl Invalid {
    /// Collects the problems of a TOML string. In a YAML file of chart values the string is indented, so columns are omitted.
    pub(super) fn new(origin: &str, mut problems: Vec<Problem>) -> Invalid {
        if origin.ends_with(".yaml") || origin.ends_with(".yml") {
            for problem in &mut problems {
                problem.column = None;
            }
        }
        Invalid {
            origin: origin.to_owned(),
            problems,
        }
    }
}

pub(super) struct Problems<'a> {
    text: &'a str,
    pub(super) found: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl<'a> Problems<'a> {
    pub(super) fn of(text: &'a str) -> Problems<'a> {
        Problems {
            text,
            found: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn at<T>(&mut self, place: &Spanned<T>, reason: impl Into<String>) {
        let problem = Problem::at(self.text, place.span().start, reason);
        self.found.push(problem);
    }

    /// Adds a warning about a setting that is valid but probably not intended.
    pub(super) fn warn<T>(&mut self, place: &Spanned<T>, reason: impl Into<String>) {
        let problem = Problem::at(self.text, place.span().start, reason);
        self.warnings.push(problem);
    }

    pub(super) fn line_of<T>(&self, place: &Spanned<T>) -> usize {
        line_at(self.text, place.span().start)
    }

    pub(super) fn nowhere(&mut self, key: &str, reason: impl Into<String>) {
        self.found.push(Problem {
            key: key.to_owned(),
            reason: reason.into(),
            ..Problem::default()
        });
    }
}

/// Checks a name that becomes a label: it must be short and printable.
pub(super) fn check_label(name: &Spanned<String>, problems: &mut Problems<'_>) {
    let text = name.get_ref();
    if text.is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
        problems.at(
            name,
            "a name must have 1 to 100 printable characters, because it becomes a label",
        );
    }
}

/// Position of a byte within its line, counted in characters from 1.
fn column_at(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    before[start..].chars().count() + 1
}

/// Line of a byte, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// The key on the line of a byte, or the table's name.
pub(super) fn key_at(text: &str, at: usize) -> String {
    let line = text
        .lines()
        .nth(line_at(text, at) - 1)
        .unwrap_or_default()
        .trim();
    let key = line.split_once('=').map_or(line, |(key, _)| key);
    key.trim().trim_matches(['[', ']']).trim().to_owned()
}
