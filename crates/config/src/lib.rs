#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

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
    /// Where agents connect.
    pub listeners: Vec<Listener>,
    /// The admin and metrics addresses.
    pub admin: Admin,
    /// Tried in order; the first that matches wins.
    pub routes: Vec<Arc<Route>>,
    /// The experiments; those with arms are also in their routes.
    pub experiments: Vec<tokengauge_experiments::Experiment>,
    /// The upstreams' own metrics that are scraped.
    pub scrapes: Vec<Scrape>,
    pub limits: Limits,
    pub measure: Measure,
    /// Settings of OTLP in addition to the standard variables.
    pub otlp: Otlp,
    /// How long streams may go on after a SIGTERM.
    pub drain_timeout: Duration,
    /// The objectives; at most [`MAX_OBJECTIVES`](tokengauge_slo::MAX_OBJECTIVES).
    pub slos: Vec<Arc<Objective>>,
    pub receivers: Vec<Receiver>,
    /// The budgets; at most [`MAX_BUDGETS`](tokengauge_accounting::cost::budget::MAX_BUDGETS).
    pub budgets: Vec<Budget>,
    pub prices: PriceList,
    /// The quotas on requests, tokens and concurrency; at most
    /// [`MAX_QUOTAS`](tokengauge_accounting::quota::MAX_QUOTAS).
    pub quotas: Vec<Quota>,
    /// Where quotas, budgets and alerts are shared with other processes, if they are.
    pub quota_store: Option<tokengauge_quota_store::Settings>,
    pub runaway: tokengauge_sessions::RunawayLimits,
    /// What is compared with the weeks before.
    pub drifts: Vec<tokengauge_drift::Settings>,
    pub gates: Vec<tokengauge_gate::Gate>,
    /// The folder for what survives a restart; without it nothing does.
    pub state_dir: Option<PathBuf>,
    /// The ledger of finished calls, if enabled.
    pub ledger: Option<Ledger>,
    /// The stores that get every finished call.
    pub sinks: Vec<tokengauge_sink::SinkSettings>,
    /// Why every call is refused, and what to do, in a sentence for the agent; `None` where
    /// calls are forwarded.
    pub refusal: Option<Arc<str>>,
    /// What is valid, but hardly what was meant.
    pub warnings: Vec<Problem>,
    /// The file it was read from, or another name for the source.
    pub origin: String,
    /// A digest of the text, for logs of changes.
    pub digest: String,
    /// The text without comments and secrets, to be shown.
    pub redacted: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admin {
    /// Where it listens; `None` switches it off.
    pub address: Option<SocketAddr>,
    /// The metrics address, with `/metrics` and health only.
    pub metrics_address: Option<SocketAddr>,
    /// Whether `/metrics` at the metrics address requires the token.
    pub metrics_token: bool,
    pub native_histograms_alone: bool,
    /// Whether `address` has only `/metrics` and health, too, because the token that it should
    /// require is not known.
    pub restricted: bool,
    /// The token that is required for more than health.
    pub token: Option<Token>,
    /// Host names, in lower case, that are accepted without a token in addition to addresses,
    /// `localhost` and cluster names.
    pub hosts: Vec<String>,
    /// Where operators open the live page, without a slash at its end.
    pub url: Option<String>,
    /// TLS towards operators.
    pub tls: Option<ServerTls>,
    /// Whether whoever has a key may ask for its use.
    pub own_use: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// In the configuration itself.
    Text(Secret),
    /// In a file, which is read again when it changes.
    File(PathBuf),
}

/// A text that is never printed.
#[derive(Clone, PartialEq)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text, for comparing.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// Where finished calls are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub path: PathBuf,
    /// Older calls are deleted.
    pub retention_age: Duration,
    /// The oldest calls are deleted where the file would become larger.
    pub retention_bytes: u64,
}

/// Settings of OTLP in addition to the standard variables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Otlp {
    /// Whether call records go out as logs.
    pub call_records: bool,
    /// The version of the semantic conventions in spans and metrics.
    pub conventions: Conventions,
    /// Whether CLIENT spans have Langfuse's attributes, too.
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

    /// The parts that are labels of series of costs and facts.
    pub fn labelled(&self) -> Labelled<'_> {
        Labelled {
            measure: &self.measure,
            prices: &self.prices,
            budgets: &self.budgets,
        }
    }
}
