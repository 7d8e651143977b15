//! The configuration as written: TOML, unknown keys refused.
//!
//! Each key is defined once, here or in a file below: its name and type by the field, its text by
//! the field's comment, its default and bounds by `extend`. The JSON Schema, the reference and the
//! messages about unknown keys and bounds come from that.

mod drift;
mod experiments;
mod gate;
mod limits;
mod objectives;
mod process;
mod quota_store;
mod runaway;
mod sinks;
mod traffic;

pub(super) use drift::*;
pub(super) use experiments::*;
pub(super) use gate::*;
pub(super) use limits::*;
pub(super) use objectives::*;
pub(super) use process::*;
pub(super) use quota_store::*;
pub(super) use runaway::*;
pub(super) use sinks::*;
pub(super) use traffic::*;

use super::Config;
use super::drift::MAX_DRIFTS;
use super::gate::MAX_GATES;
use super::resolve::{DEFAULT_DRAIN, DEFAULT_LISTEN};
use super::scalar::Span;
use super::sinks::MAX_SINKS;
use super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tokengauge_meter::cost::budget::MAX_BUDGETS;
use tokengauge_meter::quota::MAX_QUOTAS;

/// A configuration that cannot be used, with every problem found.
#[derive(Debug, thiserror::Error)]
pub struct Invalid {
    /// The file, or another name for where the text came from.
    pub origin: String,
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

/// One thing wrong with a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The character of the line, counted from 1, where it is known.
    pub column: Option<usize>,
    /// The key, as written; empty where none is to blame.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl Problem {
    /// A problem of what begins at a byte of the text.
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
    /// The problems of a text. A text that is within a file of values is indented there, so its
    /// columns would be wrong.
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

impl Config {
    /// Reads a file: TOML, or values of the chart (`.yaml`). Every problem names its line
    /// and key.
    pub fn load(path: &Path) -> Result<Config, Invalid> {
        Config::parse(&super::source::text(path)?, &path.display().to_string())
    }

    /// Reads a text; `origin` is what its problems are prefixed with. Relative file
    /// names in it are taken as they are.
    pub fn parse(text: &str, origin: &str) -> Result<Config, Invalid> {
        let invalid = |problems| Invalid::new(origin, problems);
        let mut problems = super::bounds::problems(text);
        let resolved = match toml::from_str(text) {
            Ok(file) => super::resolve::config(file, text),
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

/// Finds line and key of an error of the TOML reader.
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

/// What the reader expected, without the names of Rust's types.
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

/// The character of its line at which a byte is, counted from 1.
fn column_at(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    before[start..].chars().count() + 1
}

/// The line that holds a byte, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// The key on the line that holds a byte, or the table's name.
pub(super) fn key_at(text: &str, at: usize) -> String {
    let line = text
        .lines()
        .nth(line_at(text, at) - 1)
        .unwrap_or_default()
        .trim();
    let key = line.split_once('=').map_or(line, |(key, _)| key);
    key.trim().trim_matches(['[', ']']).trim().to_owned()
}

/// The configuration of tokengauge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tokengauge configuration")]
pub(super) struct File {
    /// Where agents connect: one address or a list of them. `*:8080` is all addresses of this host, IPv4 and IPv6.
    #[schemars(extend("default" = DEFAULT_LISTEN.to_string()))]
    pub(super) listen: Option<Spanned<Listen>>,
    /// How long streams may go on after a SIGTERM.
    #[schemars(extend("default" = Span(DEFAULT_DRAIN)))]
    pub(super) drain_timeout: Option<Span>,
    /// A folder for what must survive a restart: counts and calls.
    pub(super) state_dir: Option<PathBuf>,
    /// Whether the carried list of prices counts.
    #[schemars(extend("default" = true))]
    pub(super) shipped_prices: Option<bool>,
    /// TLS towards agents. The files are read again when they change.
    pub(super) tls: Option<ServerTls>,
    #[serde(default)]
    pub(super) admin: Admin,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) measure: Measure,
    #[serde(default)]
    pub(super) attribution: Attribution,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_AGENTS))]
    pub(super) agent: Vec<Spanned<Agent>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_PAYER_TABLES))]
    pub(super) payer: Vec<Spanned<Payer>>,
    #[serde(default)]
    pub(super) ledger: Ledger,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_SINKS))]
    pub(super) sink: Vec<Spanned<Sink>>,
    #[serde(default)]
    pub(super) otlp: Otlp,
    #[serde(default)]
    pub(super) upstream: Vec<Spanned<Upstream>>,
    #[serde(default)]
    pub(super) route: Vec<Spanned<Route>>,
    #[serde(default)]
    pub(super) experiment: Vec<Spanned<Experiment>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_WORKLOADS))]
    pub(super) workload: Vec<Workload>,
    #[serde(default)]
    pub(super) price: Vec<Spanned<Price>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_BUDGETS))]
    pub(super) budget: Vec<Spanned<Budget>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_QUOTAS))]
    pub(super) quota: Vec<Spanned<Quota>>,
    pub(super) quota_store: Option<QuotaStore>,
    #[serde(default)]
    pub(super) runaway: Runaway,
    #[serde(default)]
    pub(super) slo: Vec<Spanned<Slo>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_DRIFTS))]
    pub(super) drift: Vec<Spanned<Drift>>,
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_GATES))]
    pub(super) gate: Vec<Spanned<Gate>>,
    #[serde(default)]
    pub(super) notify: Vec<Spanned<Notify>>,
}
