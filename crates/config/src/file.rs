//! The configuration file as written. Unknown keys are refused.
//!
//! Each key is defined once, here or in a submodule: the field gives its name and type, the field's comment gives its
//! description, and `extend` gives its default and bounds. The JSON Schema, the reference and the error messages are
//! generated from that.

mod analysis;
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

pub(super) use analysis::*;
pub(super) use drift::*;
pub(super) use experiments::*;
pub(super) use gate::*;
pub(super) use limits::*;
pub(super) use objectives::*;
pub use process::*;
pub(super) use quota_store::*;
pub(super) use runaway::*;
pub(super) use sinks::*;
pub(super) use traffic::*;

use super::scalar::Span;
use super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_accounting::cost::budget::MAX_BUDGETS;
use tokengauge_accounting::quota::MAX_QUOTAS;

/// Each entry is evaluated every few minutes.
const MAX_DRIFTS: usize = 16;
const MAX_GATES: usize = 16;
/// Kubernetes' default grace period of 30 s minus a margin.
pub const DEFAULT_DRAIN: Duration = Duration::from_secs(25);
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Each sink uses a thread.
const MAX_SINKS: usize = 8;

/// The configuration of tokengauge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tokengauge configuration")]
pub(super) struct File {
    /// The addresses that agents connect to: one address or a list of them. `*:8080` listens on all IPv4 and IPv6
    /// addresses of this host.
    #[schemars(extend("default" = DEFAULT_LISTEN.to_string()))]
    pub(super) listen: Option<Spanned<Listen>>,
    /// How long calls in flight may continue after a SIGTERM before the proxy ends them. On Kubernetes, set a shorter
    /// time than the grace period of the pod.
    #[schemars(extend("default" = Span(DEFAULT_DRAIN)))]
    pub(super) drain_timeout: Option<Span>,
    /// A directory for data that must survive a restart, such as `/var/lib/tokengauge`: the ledger, the counts of
    /// objectives and budgets, and the key of block hashes. Without a directory, counts start from zero after a restart.
    pub(super) state_dir: Option<PathBuf>,
    /// Whether the list prices in the binary apply to models that have no other price.
    #[schemars(extend("default" = true))]
    pub(super) shipped_prices: Option<bool>,
    /// TLS for connections from agents. The files are read again when they change.
    pub(super) tls: Option<ServerTls>,
    #[serde(default)]
    pub(super) admin: Admin,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) measure: Measure,
    #[serde(default)]
    pub(super) analysis: Analysis,
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
