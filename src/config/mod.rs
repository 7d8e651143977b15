//! The configuration as used: every value valid and typed. `file.rs` holds it as
//! written, with the line and the reason where it is not valid.

mod attribution;
mod bounds;
mod cost;
mod file;
mod ledger;
mod limited;
mod memory_limit;
mod objectives;
mod operators;
mod quotas;
mod receivers;
mod reference;
pub mod reload;
mod replicas;
mod resolve;
mod scalar;
mod schema;
mod sidecar;
mod source;
mod spanned;

use crate::cost::PriceList;
use crate::cost::budget::Budget;
use crate::quota::Quota;
use crate::slo::{Objective, Pattern, Receiver};
use crate::upstream_facts::UpstreamFacts;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_proxy::settings::{
    DEFAULT_EJECT_FOR, DEFAULT_IDLE_FOR, DEFAULT_MAX_IDLE, Settings, default_upgrades,
};
use tokengauge_telemetry::export::cost::Labelled;

pub use crate::meter::settings::{Measure, Workload};
pub use file::{Invalid, Problem};
pub(crate) use limited::{may_guard_metrics, may_have_token, may_limit};
pub(crate) use memory_limit::warn_of as warn_of_memory_limit;
pub(crate) use operators::{UnfitToken, check_token};
pub use reference::{json_schema, reference};
pub use resolve::{DEFAULT_ADMIN, DEFAULT_DRAIN, DEFAULT_LISTEN};
pub(crate) use source::text;
pub use tokengauge_net::endpoint::{Endpoint, Protocol};
pub use tokengauge_net::tls::{ClientTls, ServerTls};
pub use tokengauge_proxy::settings::{
    DEFAULT_MAX_PENDING, Limits, Listener, Matches, Route, Timeouts, Upstream,
};
pub use tokengauge_telemetry::engine::Scrape;
pub use tokengauge_telemetry::export::otlp::Conventions;

/// Everything the process needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where agents connect.
    pub listeners: Vec<Listener>,
    /// Where operators connect.
    pub admin: Admin,
    /// Tried in order; the first that matches wins.
    pub routes: Vec<Arc<Route>>,
    /// Upstreams whose own metrics are read.
    pub scrapes: Vec<Scrape>,
    /// Bounds of the process.
    pub limits: Limits,
    /// How calls are measured.
    pub measure: Measure,
    /// What of OTLP the standard variables do not say.
    pub otlp: Otlp,
    /// How long streams may go on after a SIGTERM.
    pub drain_timeout: Duration,
    /// What is promised; at most [`MAX_OBJECTIVES`](crate::slo::MAX_OBJECTIVES).
    pub slos: Vec<Arc<Objective>>,
    /// Who receives alerts.
    pub receivers: Vec<Receiver>,
    /// What may be spent; at most [`MAX_BUDGETS`](crate::cost::budget::MAX_BUDGETS).
    pub budgets: Vec<Budget>,
    /// What tokens and GPUs cost.
    pub prices: PriceList,
    /// What calls may take at once and by the minute; at most
    /// [`MAX_QUOTAS`](crate::quota::MAX_QUOTAS).
    pub quotas: Vec<Quota>,
    /// Where what must survive a restart is kept; nothing is without it.
    pub state_dir: Option<PathBuf>,
    /// Where finished calls are kept, if anywhere.
    pub ledger: Option<Ledger>,
    /// Why every call is refused, and what to do, in a sentence for the agent; `None` where
    /// calls are forwarded.
    pub refusal: Option<Arc<str>>,
    /// Where it was read from.
    pub origin: String,
    /// A digest of the text, for records of what changed.
    pub digest: String,
}

/// The address for operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admin {
    /// Where it listens; `None` switches it off.
    pub address: Option<SocketAddr>,
    /// A second address, for `/metrics` and health alone.
    pub metrics_address: Option<SocketAddr>,
    /// Whether `/metrics` at the second address asks for the token, too.
    pub metrics_token: bool,
    /// Whether histograms have native buckets alone.
    pub native_histograms_alone: bool,
    /// Whether `address` has `/metrics` and health alone, too: which token it should ask for is
    /// not known.
    pub restricted: bool,
    /// What operators must show to see more than health.
    pub token: Option<Token>,
    /// Names by which it may be addressed without a token, in lower case, beside those
    /// that nobody else can have.
    pub hosts: Vec<String>,
    /// TLS towards operators.
    pub tls: Option<ServerTls>,
}

/// Where a bearer token is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// In the configuration itself.
    Text(Secret),
    /// In a file, which is read again when it changes.
    File(PathBuf),
}

/// A text that is never shown.
#[derive(Clone, PartialEq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Hides `text`.
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
    /// The file.
    pub path: PathBuf,
    /// Older calls go.
    pub retention_age: Duration,
    /// The oldest calls go where the file would become larger.
    pub retention_bytes: u64,
}

/// What of OTLP the standard variables do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Otlp {
    /// Whether call records go out as logs.
    pub call_records: bool,
    /// Which version's names spans and metrics use.
    pub conventions: Conventions,
    /// Whether CLIENT spans carry what Langfuse reads, too.
    pub langfuse: bool,
}

impl Config {
    /// What requests are forwarded by.
    pub fn forwarding(&self) -> Settings {
        Settings {
            routes: self.routes.clone(),
            limits: self.limits,
            refusal: self.refusal.clone(),
        }
    }

    /// What of it gives series of costs and facts their labels.
    pub fn labelled(&self) -> Labelled<'_> {
        Labelled {
            measure: &self.measure,
            prices: &self.prices,
            budgets: &self.budgets,
        }
    }
}
