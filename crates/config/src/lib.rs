#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod analysis;
mod attribution;
mod bounds;
mod common;
mod cost;
#[cfg(test)]
mod documented;
mod drift;
pub mod environment;
mod experiments;
mod file;
mod gate;
mod ledger;
mod limited;
mod memory_limit;
mod named_files;
mod objectives;
mod operators;
mod parse;
mod payers;
mod problems;
mod quota_store;
mod quotas;
mod receivers;
mod redacted;
mod reference;
pub mod reload;
mod replicas;
mod resolve;
mod runaway;
mod scalar;
mod schema;
mod schema_types;
mod sidecar;
mod sinks;
mod source;
mod spanned;
mod unreachable;

use http::uri::Scheme;
use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_accounting::cost::PriceList;
use tokengauge_accounting::cost::budget::Budget;
use tokengauge_accounting::quota::Quota;
use tokengauge_core::upstream_facts::UpstreamFacts;
use tokengauge_proxy::settings::{
    DEFAULT_EJECT_FOR, DEFAULT_IDLE_FOR, DEFAULT_MAX_IDLE, Settings, default_upgrades,
};
use tokengauge_slo::{Objective, Pattern, Receiver};
use tokengauge_telemetry::export::cost::Labelled;

pub use analysis::block_key;
pub use file::{DEFAULT_ADMIN, DEFAULT_DRAIN, DEFAULT_LISTEN};
pub use limited::{may_guard_metrics, may_have_token, may_limit};
pub use memory_limit::{limit as memory_limit, warn_of as warn_of_memory_limit};
pub use named_files::check as check_named_files;
pub use operators::{InvalidToken, check_token};
pub use problems::{Invalid, Problem};
pub use reference::{Key, json_schema, keys, reference};
pub use source::{BUILT_IN, is_values, text};
pub use tokengauge_accounting::attribution::Workload;
pub use tokengauge_meter::settings::Measure;
pub use tokengauge_net::endpoint::{Endpoint, Protocol};
pub use tokengauge_net::tls::{ClientTls, ServerTls};
pub use tokengauge_proxy::settings::{
    DEFAULT_MAX_PENDING, Limits, Listener, Matches, Route, Timeouts, Upstream,
};
pub use tokengauge_telemetry::engine::Scrape;
pub use tokengauge_telemetry::export::otlp::Conventions;

#[derive(Clone, Debug)]
pub struct Config {
    pub listeners: Vec<Listener>,
    pub admin: Admin,
    /// The routes, tried in order. The first match wins.
    pub routes: Vec<Arc<Route>>,
    /// Experiments with arms are also part of their routes.
    pub experiments: Vec<tokengauge_experiments::Experiment>,
    /// The upstreams' own metrics endpoints to scrape.
    pub scrapes: Vec<Scrape>,
    pub limits: Limits,
    pub measure: Measure,
    /// The configured key of block hashes.
    pub block_key: Option<Token>,
    /// Supplements the standard OTLP environment variables.
    pub otlp: Otlp,
    /// How long streams may continue after a SIGTERM.
    pub drain_timeout: Duration,
    /// At most [`MAX_OBJECTIVES`](tokengauge_slo::MAX_OBJECTIVES).
    pub slos: Vec<Arc<Objective>>,
    pub receivers: Vec<Receiver>,
    /// At most [`MAX_BUDGETS`](tokengauge_accounting::cost::budget::MAX_BUDGETS).
    pub budgets: Vec<Budget>,
    pub prices: PriceList,
    /// At most [`MAX_QUOTAS`](tokengauge_accounting::quota::MAX_QUOTAS).
    pub quotas: Vec<Quota>,
    /// Shares quotas, budgets and alerts with other processes.
    pub quota_store: Option<tokengauge_quota_store::Settings>,
    pub runaway: tokengauge_sessions::RunawayLimits,
    pub drifts: Vec<tokengauge_drift::Settings>,
    pub gates: Vec<tokengauge_gate::Gate>,
    /// The directory for data that must survive a restart.
    pub state_dir: Option<PathBuf>,
    pub ledger: Option<Ledger>,
    pub sinks: Vec<tokengauge_sink::SinkSettings>,
    /// If set, every call is refused with this sentence, which tells the agent why and what to do.
    pub refusal: Option<Arc<str>>,
    /// Settings that are valid but probably not intended.
    pub warnings: Vec<Problem>,
    /// The file that was read, or another name for the source.
    pub origin: String,
    /// A digest of the text, to log changes.
    pub digest: String,
    /// The text without comments and secrets, for display.
    pub redacted: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admin {
    /// `None` disables the admin address.
    pub address: Option<SocketAddr>,
    /// Serves only `/metrics` and health.
    pub metrics_address: Option<SocketAddr>,
    /// Whether `/metrics` at the metrics address requires the token.
    pub metrics_token: bool,
    pub native_histograms_alone: bool,
    /// Whether `address` also serves only `/metrics` and health, because its token is unknown.
    pub restricted: bool,
    /// Required for everything except health.
    pub token: Option<Token>,
    /// Host names in lower case that are accepted without a token, in addition to IP addresses, `localhost` and cluster
    /// names.
    pub hosts: Vec<String>,
    /// Where operators open the live page, without a trailing slash.
    pub url: Option<String>,
    pub tls: Option<ServerTls>,
    /// Whether the holder of an API key may query its usage.
    pub own_use: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Text(Secret),
    /// Read again when the file changes.
    File(PathBuf),
}

/// A secret string. It is never printed.
#[derive(Clone, PartialEq)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text, for comparisons.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// Where finished calls are stored, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub path: PathBuf,
    pub retention_age: Duration,
    /// The oldest calls are deleted if the file would exceed this size.
    pub retention_bytes: u64,
}

/// Settings that supplement the standard OTLP environment variables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Otlp {
    /// Whether call records are exported as logs.
    pub call_records: bool,
    /// The version of the semantic conventions in spans and metrics.
    pub conventions: Conventions,
    /// Whether CLIENT spans also have Langfuse's attributes.
    pub langfuse: bool,
}

impl Config {
    pub fn forwarding(&self) -> Settings {
        Settings {
            routes: self.routes.clone(),
            limits: self.limits,
            refusal: self.refusal.clone(),
        }
    }

    /// The settings that become labels of cost and fact series.
    pub fn labelled(&self) -> Labelled<'_> {
        Labelled {
            measure: &self.measure,
            prices: &self.prices,
            budgets: &self.budgets,
        }
    }
}
