//! The configuration as written: TOML, unknown keys refused.

use super::scalar::{Size, Span, Url, Window};
use super::{Config, Otlp, Protocol};
use crate::address::Written;
use crate::call::Dialect;
use crate::caller::{Mode, OnUnreadable};
use crate::cost::budget::Per;
use crate::quota;
use crate::slo::{Kind, Severity, Weight};
use crate::upstream_facts::UpstreamFacts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use toml::Spanned;

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
        let file: File =
            toml::from_str(text).map_err(|error| invalid(vec![located(text, &error)]))?;
        let config = super::resolve::config(file, text).map_err(invalid)?;
        Ok(Config {
            origin: origin.to_owned(),
            ..config
        })
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<Spanned<Listen>>,
    pub(super) tls: Option<ServerTls>,
    pub(super) drain_timeout: Option<Span>,
    #[serde(default)]
    pub(super) admin: Admin,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) measure: Measure,
    #[serde(default)]
    pub(super) attribution: Attribution,
    #[serde(default)]
    pub(super) agent: Vec<Spanned<Agent>>,
    #[serde(default)]
    pub(super) otlp: Otlp,
    #[serde(default)]
    pub(super) upstream: Vec<Spanned<Upstream>>,
    #[serde(default)]
    pub(super) route: Vec<Spanned<Route>>,
    #[serde(default)]
    pub(super) workload: Vec<Workload>,
    #[serde(default)]
    pub(super) slo: Vec<Spanned<Slo>>,
    #[serde(default)]
    pub(super) notify: Vec<Spanned<Notify>>,
    #[serde(default)]
    pub(super) price: Vec<Spanned<Price>>,
    pub(super) shipped_prices: Option<bool>,
    #[serde(default)]
    pub(super) budget: Vec<Spanned<Budget>>,
    #[serde(default)]
    pub(super) quota: Vec<Spanned<Quota>>,
    pub(super) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(super) ledger: Ledger,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    pub(super) enabled: Option<Spanned<bool>>,
    pub(super) path: Option<PathBuf>,
    pub(super) retention_age: Option<Spanned<Span>>,
    pub(super) retention_bytes: Option<Spanned<Size>>,
}

/// US dollars per million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    pub(super) model: Spanned<String>,
    pub(super) upstream: Option<Spanned<String>>,
    pub(super) above: Option<u64>,
    pub(super) input: Option<f64>,
    pub(super) cached_input: Option<f64>,
    pub(super) cache_write: Option<f64>,
    pub(super) cache_write_1h: Option<f64>,
    pub(super) output: Option<f64>,
    pub(super) reasoning: Option<f64>,
    pub(super) batch: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) per: Per,
    #[serde(default)]
    pub(super) select: Select,
    pub(super) usd: Spanned<f64>,
    pub(super) period: Option<Spanned<String>>,
    pub(super) warn_at: Option<Spanned<Vec<f64>>>,
    #[serde(default)]
    pub(super) block: bool,
    pub(super) mode: Option<Spanned<Mode>>,
    pub(super) on_unreadable: Option<Spanned<OnUnreadable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quota {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) per: quota::Per,
    #[serde(default)]
    pub(super) select: Select,
    pub(super) requests_per_minute: Option<Spanned<u32>>,
    pub(super) tokens_per_minute: Option<Spanned<u32>>,
    pub(super) concurrent: Option<u32>,
    pub(super) while_burning: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) mode: Mode,
    pub(super) on_unreadable: Option<OnUnreadable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Notify {
    pub(super) kind: Spanned<Kind>,
    pub(super) name: Option<Spanned<String>>,
    pub(super) url: Option<Spanned<String>>,
    pub(super) url_file: Option<Spanned<PathBuf>>,
    pub(super) routing_key_file: Option<Spanned<PathBuf>>,
    pub(super) severity: Option<Severity>,
    pub(super) repeat: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: Spanned<String>,
    pub(super) route: Option<Spanned<String>>,
    pub(super) model: Option<String>,
    pub(super) agent: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    pub(super) stall_threshold: Option<Span>,
}

/// An objective. Exactly one indicator, or a preset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slo {
    pub(super) name: Option<Spanned<String>>,
    pub(super) preset: Option<Spanned<String>>,
    pub(super) objective: Option<Spanned<f64>>,
    pub(super) window: Option<Spanned<Window>>,
    pub(super) availability: Option<Spanned<bool>>,
    pub(super) ttft: Option<Spanned<AtMost<Span>>>,
    pub(super) output_tps: Option<Spanned<AtLeast>>,
    pub(super) total_tps: Option<Spanned<AtLeast>>,
    pub(super) time_to_first_answer: Option<Spanned<AtMost<Span>>>,
    pub(super) duration: Option<Spanned<AtMost<Span>>>,
    pub(super) inter_token_latency: Option<Spanned<AtMost<Span>>>,
    pub(super) stalls: Option<Spanned<AtMost<u64>>>,
    pub(super) longest_gap: Option<Spanned<AtMost<Span>>>,
    pub(super) cost_usd: Option<Spanned<AtMost<f64>>>,
    pub(super) throughput: Option<Spanned<Throughput>>,
    #[serde(default)]
    pub(super) select: Select,
    pub(super) weight: Option<Spanned<Weight>>,
    pub(super) min_output_tokens: Option<u64>,
    pub(super) warm_up: Option<bool>,
    pub(super) slice: Option<Spanned<Span>>,
    pub(super) slice_target: Option<Spanned<f64>>,
    pub(super) min_events: Option<u64>,
    pub(super) description: Option<String>,
    pub(super) runbook_url: Option<String>,
    pub(super) dashboard_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtMost<T> {
    pub(super) at_most: T,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtLeast {
    pub(super) at_least: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throughput {
    pub(super) at_least: f64,
    pub(super) min_streams: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Select {
    pub(super) workload: Option<Spanned<String>>,
    pub(super) route: Option<Spanned<String>>,
    pub(super) upstream: Option<Spanned<String>>,
    pub(super) model: Option<String>,
    pub(super) agent: Option<String>,
}

/// One address or several.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an address such as \"127.0.0.1:8080\" or \"*:8080\", or a list of them"
)]
pub(super) enum Listen {
    One(Written),
    Several(Vec<Written>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTls {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_ca: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) listen: Option<Written>,
    pub(super) metrics_listen: Option<Spanned<Written>>,
    #[serde(default)]
    pub(super) metrics_token: bool,
    pub(super) enabled: Option<bool>,
    pub(super) token: Option<Spanned<String>>,
    pub(super) token_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) tls: Option<ServerTls>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) connections: Option<Spanned<usize>>,
    pub(super) head_bytes: Option<Spanned<Size>>,
    pub(super) http2_streams: Option<u32>,
    pub(super) head_timeout: Option<Span>,
    pub(super) requests_per_minute: Option<NonZeroU32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measure {
    pub(super) min_output_tokens: Option<u64>,
    pub(super) buffered_above: Option<Spanned<f64>>,
    pub(super) stall_threshold: Option<Span>,
    pub(super) warm_up_calls: Option<u32>,
    pub(super) warm_up_for: Option<Span>,
    pub(super) body_bytes: Option<Size>,
    pub(super) memory_bytes: Option<Size>,
    pub(super) recent_calls: Option<usize>,
    pub(super) max_models: Option<Spanned<usize>>,
    pub(super) hash_users: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Attribution {
    pub(super) guess_sessions: bool,
    pub(super) session_headers: Vec<Spanned<String>>,
    pub(super) session_paths: Vec<Spanned<String>>,
    pub(super) agent_headers: Vec<Spanned<String>>,
    pub(super) agent_paths: Vec<Spanned<String>>,
    pub(super) user_headers: Vec<Spanned<String>>,
    pub(super) user_paths: Vec<Spanned<String>>,
}

/// A name for an agent that says none itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Agent {
    pub(super) name: Spanned<String>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub(super) name: Spanned<String>,
    pub(super) url: Option<Spanned<Url>>,
    pub(super) urls: Option<Spanned<Vec<Url>>>,
    #[serde(default)]
    pub(super) protocol: Protocol,
    #[serde(default)]
    pub(super) tls: ClientTls,
    #[serde(default)]
    pub(super) timeouts: Timeouts,
    pub(super) max_idle: Option<usize>,
    pub(super) idle_for: Option<Span>,
    pub(super) eject_for: Option<Span>,
    pub(super) max_connections: Option<Spanned<usize>>,
    pub(super) max_pending: Option<usize>,
    pub(super) gpu_usd_per_hour: Option<Spanned<f64>>,
    pub(super) gpus: Option<Spanned<u32>>,
    pub(super) facts: Option<Spanned<UpstreamFacts>>,
    pub(super) metrics_url: Option<Url>,
    pub(super) metrics_interval: Option<Spanned<Span>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientTls {
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) server_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timeouts {
    pub(super) connect: Option<Span>,
    pub(super) head: Option<Span>,
    pub(super) idle: Option<Span>,
    pub(super) send: Option<Spanned<Span>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    pub(super) name: Option<Spanned<String>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) host: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    pub(super) strip: Option<bool>,
    pub(super) upstream: Spanned<String>,
    pub(super) dialect: Option<Dialect>,
    pub(super) workload: Option<String>,
    #[serde(default)]
    pub(super) inject_usage: bool,
    #[serde(default)]
    pub(super) via: bool,
    #[serde(default)]
    pub(super) forwarded: bool,
    pub(super) upgrades: Option<Vec<Spanned<String>>>,
}
