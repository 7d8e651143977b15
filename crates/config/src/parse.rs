//! Parses a TOML string into a configuration, or into all of its problems.

use super::problems::{Invalid, Problem};
use super::{Config, bounds, resolve, source};
use std::path::Path;

impl Config {
    /// Reads a TOML file, or values of the Helm chart (`.yaml`). Every problem names its line and key.
    pub fn load(path: &Path) -> Result<Config, Invalid> {
        Config::parse(&source::text(path)?, &path.display().to_string())
    }

    /// Parses a TOML string. `origin` is the prefix of the problems in it. Relative file names are not resolved.
    pub fn parse(text: &str, origin: &str) -> Result<Config, Invalid> {
        let invalid = |problems| Invalid::new(origin, problems);
        let mut problems = bounds::problems(text);
        let resolved = match toml::from_str(text) {
            Ok(file) => resolve::config(file, text),
            Err(error) => Err(vec![located(text, &error)]),
        };
        match resolved {
            Ok(config) if problems.is_empty() => Ok(Config {
                origin: origin.to_owned(),
                ..config
            }),
            Ok(_) => Err(invalid(problems)),
            Err(others) => {
                let known: Vec<_> = problems.iter().map(|problem| problem.line).collect();
                let new = |other: &Problem| other.line.is_none() || !known.contains(&other.line);
                problems.extend(others.into_iter().filter(new));
                problems.sort_by_key(|problem| (problem.line, problem.column));
                Err(invalid(problems))
            }
        }
    }
}

/// Finds line and key for an error of the TOML reader.
fn located(text: &str, error: &toml::de::Error) -> Problem {
    let reason = in_plain_words(error.message().trim());
    match error.span() {
        Some(span) => Problem::at(text, span.start, reason),
        None => Problem {
            reason,
            ..Problem::default()
        },
    }
}

/// Replaces the names of Rust types in messages of the reader.
fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        (
            "expected a nonzero u32",
            "expected a whole number from 1 to 4294967295",
        ),
        ("expected u16", "expected a whole number of at most 65535"),
        (
            "expected u32",
            "expected a whole number of at most 4294967295",
        ),
        ("expected u64", "expected a whole number"),
        ("expected usize", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected `true` or `false`"),
        ("expected a sequence", "expected a list"),
    ];
    let mut message = message.to_owned();
    for (type_name, words) in WORDS {
        message = message.replace(type_name, words);
    }
    message
}
