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
mod traffic;

pub(super) use drift::*;
pub(super) use experiments::*;
pub(super) use gate::*;
pub(super) use limits::*;
pub(super) use objectives::*;
pub(super) use process::*;
pub(super) use traffic::*;

use super::Config;
use super::drift::MAX_DRIFTS;
use super::gate::MAX_GATES;
use super::resolve::{DEFAULT_DRAIN, DEFAULT_LISTEN};
use super::scalar::Span;
use super::spanned::Spanned;
use crate::cost::budget::MAX_BUDGETS;
use crate::quota::MAX_QUOTAS;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used, with every problem found.
#[derive(Debug, thiserror::Error)]
pub struct Invalid {
    /// The file, or another name for where the text came from.
    pub origin: String,
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

/// One thing wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The key, as written; empty where none is to blame.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", self.origin)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            if !problem.key.is_empty() {
                write!(f, ": {}", problem.key)?;
            }
            write!(f, ": {}", problem.reason)?;
        }
        Ok(())
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
        let invalid = |problems| Invalid {
            origin: origin.to_owned(),
            problems,
        };
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
                problems.sort_by_key(|problem| problem.line);
                Err(invalid(problems))
            }
        }
    }
}

/// Finds line and key of an error of the TOML reader.
fn located(text: &str, error: &toml::de::Error) -> Problem {
    let at = error.span().map(|span| span.start);
    Problem {
        line: at.map(|at| line_at(text, at)),
        key: at.map(|at| key_at(text, at)).unwrap_or_default(),
        reason: error.message().trim().to_owned(),
    }
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
    pub(super) ledger: Ledger,
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
