//! The configuration as used: every value valid and typed. `file.rs` holds it as
//! written, with the line and the reason where it is not valid.

mod attribution;
mod cost;
mod file;
mod ledger;
mod limited;
mod objectives;
mod operators;
mod quotas;
mod receivers;
pub mod reload;
mod replicas;
mod resolve;
mod scalar;
mod sidecar;
mod source;

use crate::attribution::Rules;
use crate::call::Dialect;
use crate::cost::Prices;
use crate::cost::budget::{Budget, Budgets};
use crate::memory::DEFAULT_BYTES;
use crate::quota::Quotas;
use crate::slo::{Objective, Pattern, Receiver};
use crate::upstream_facts::UpstreamFacts;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use file::{Invalid, Problem};
pub(crate) use limited::{may_guard_metrics, may_have_token, may_limit};
pub(crate) use operators::check_token;
pub use resolve::{DEFAULT_ADMIN, DEFAULT_DRAIN, DEFAULT_LISTEN};
pub(crate) use source::text;

/// Idle connections kept per endpoint when nothing is named.
const DEFAULT_MAX_IDLE: usize = 256;
/// How long an idle connection is kept when nothing is named: less than the 60 s
/// after which most servers close theirs.
const DEFAULT_IDLE_FOR: Duration = Duration::from_secs(50);
/// How long a failed endpoint is left alone when nothing is named.
const DEFAULT_EJECT_FOR: Duration = Duration::from_secs(5);
/// Requests of an upstream that may wait for a connection when nothing is named, as with Envoy.
pub const DEFAULT_MAX_PENDING: usize = 1024;

/// What connections may become when nothing is named.
fn default_upgrades() -> Vec<String> {
    vec!["websocket".to_owned()]
}

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
    /// Who is told of alerts.
    pub receivers: Vec<Receiver>,
    /// What may be spent; at most [`MAX_BUDGETS`](crate::cost::budget::MAX_BUDGETS).
    pub budgets: Vec<Budget>,
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

/// Calls that belong together. The first that matches names a call's workload; a route's
/// own `workload` is for calls that none matches.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in records and labels.
    pub name: Arc<str>,
    /// The route.
    pub route: Option<Arc<str>>,
    /// The model asked for.
    pub model: Option<Pattern>,
    /// The agent, by its own name.
    pub agent: Option<Pattern>,
    /// Headers that must be present with exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its own stall threshold.
    pub stall_threshold: Option<Duration>,
}

/// An address that agents connect to.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The address; port 0 picks a free one.
    pub address: SocketAddr,
    /// TLS towards agents.
    pub tls: Option<ServerTls>,
}

/// TLS towards agents. Files are read again when they change.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTls {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Agents must show a certificate signed by one of these.
    pub client_ca: Option<PathBuf>,
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
    /// Whether `address` has `/metrics` and health alone, too: which token it should ask for is
    /// not known.
    pub restricted: bool,
    /// What operators must show to see more than health.
    pub token: Option<Token>,
    /// Names by which it may be addressed without a token, in lower case, beside those
    /// that no stranger can have.
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

/// An upstream whose own metrics are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// Where its metrics are; the base path is the whole path.
    pub endpoint: Endpoint,
    /// How often they are read.
    pub interval: Duration,
    /// TLS towards them, used where the endpoint is `https`.
    pub tls: ClientTls,
}

/// From requests to an upstream.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name in records and labels.
    pub name: Arc<str>,
    /// What a request must look like.
    pub matches: Matches,
    /// Whether the matched prefix is taken off the path.
    pub strip_prefix: bool,
    /// Where its requests go.
    pub upstream: Arc<Upstream>,
    /// The dialect, where the path does not tell it.
    pub dialect: Option<Dialect>,
    /// The workload its calls belong to.
    pub workload: Option<Arc<str>>,
    /// Whether to ask for usage on the agent's behalf.
    pub inject_usage: bool,
    /// Whether to add `via`.
    pub add_via: bool,
    /// Whether to add `x-forwarded-for`, `-host` and `-proto`.
    pub add_forwarded: bool,
    /// The protocols that an agent's connection may become, as `upgrade` names them.
    pub upgrades: Vec<String>,
}

/// What a request must look like for a route. Absent parts match anything.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// A path prefix without a trailing slash, matched on whole segments; `""` is all.
    pub path_prefix: String,
    /// The request's host, lower case, without a port.
    pub host: Option<String>,
    /// Headers that must be present with exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A group of endpoints that serve the same models.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its name in records and labels.
    pub name: Arc<str>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// The protocol towards it.
    pub protocol: Protocol,
    /// TLS towards it, used where an endpoint is `https`.
    pub tls: ClientTls,
    /// Limits on its slowness.
    pub timeouts: Timeouts,
    /// Idle connections kept per endpoint.
    pub max_idle: usize,
    /// How long an idle connection is kept.
    pub idle_for: Duration,
    /// How long an endpoint is left alone after a failure to connect.
    pub eject_for: Duration,
    /// Connections open at once, to all its endpoints; `None` is its share of the process's
    /// file descriptors.
    pub max_connections: Option<usize>,
    /// Requests that may wait for a connection.
    pub max_pending: usize,
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and, where it is not the scheme's own, port.
    pub authority: Authority,
    /// Put before the path of every request; no trailing slash, may be empty.
    pub base_path: String,
}

/// The HTTP version towards an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// What ALPN chooses over TLS, HTTP/1.1 otherwise.
    #[default]
    Auto,
    /// HTTP/1.1 always.
    Http1,
    /// HTTP/2 always: by ALPN over TLS, by prior knowledge otherwise.
    Http2,
}

/// TLS towards an upstream. Files are read again when they change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientTls {
    /// Trusted roots, PEM, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Our own certificate chain and key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name to ask for and check, in place of the endpoint's host.
    pub server_name: Option<String>,
}

/// Limits on an upstream's slowness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// Name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the end of the request to the response head.
    pub head: Duration,
    /// Without a byte either way while a body is under way.
    pub idle: Duration,
    /// Without a byte taken of what waits to be written: to the agent, or to the upstream.
    pub send: Duration,
}

/// Bounds of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Agent connections at once; more wait in the accept queue.
    pub connections: usize,
    /// Bytes of a request head, and of a response head.
    pub head_bytes: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// How long an agent may take to send a request head.
    pub head_timeout: Duration,
    /// Requests a minute per route; `None` is no limit.
    pub requests_per_minute: Option<std::num::NonZeroU32>,
}

/// How calls are measured.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Tokens after the first frame that an `output_tps` needs.
    pub min_output_tokens: u64,
    /// Tokens per second of one stream above which it must have been held back upstream.
    pub buffered_above: f64,
    /// A longer gap between frames with tokens is a stall.
    pub stall_threshold: Duration,
    /// Calls after an upstream comes up that are marked `warm_up`, and for how long.
    pub warm_up_calls: u32,
    /// How long after an upstream comes up calls are marked `warm_up`.
    pub warm_up_for: Duration,
    /// Bytes of one request or response body that is read whole to measure it.
    pub body_bytes: usize,
    /// Bytes that all measuring together may hold.
    pub memory_bytes: usize,
    /// Finished calls kept for the API.
    pub recent_calls: usize,
    /// Distinct model names that become labels.
    pub max_models: usize,
    /// Where session, agent and user are written.
    pub attribution: Arc<Rules>,
    /// Which calls belong together; at most 64.
    pub workloads: Arc<[Workload]>,
    /// What tokens cost.
    pub prices: Arc<Prices>,
    /// What the operator says of upstreams' engines and hardware, by upstream.
    pub upstream_facts: Arc<HashMap<Arc<str>, Arc<UpstreamFacts>>>,
    /// What was spent of the budgets; of none unless it is set.
    pub budgets: Arc<Budgets>,
    /// What calls may take at once and by the minute.
    pub quotas: Arc<Quotas>,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Whether call records go out as logs.
    pub call_records: bool,
    /// Which version's names spans and metrics use.
    pub conventions: Conventions,
    /// Whether CLIENT spans carry what Langfuse reads, too.
    pub langfuse: bool,
}

/// A version of the GenAI conventions of OpenTelemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Conventions {
    /// v1.41.
    #[default]
    #[serde(rename = "v1.41")]
    Current,
    /// The draft of v1.36, before providers had a name of their own.
    #[serde(rename = "v1.36")]
    Draft,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            send: Duration::from_secs(300),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            head_bytes: 64 * 1024,
            http2_streams: 1_000,
            head_timeout: Duration::from_secs(30),
            requests_per_minute: None,
        }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            min_output_tokens: 32,
            buffered_above: 5_000.0,
            stall_threshold: Duration::from_secs(1),
            warm_up_calls: 5,
            warm_up_for: Duration::from_secs(30),
            body_bytes: 16 << 20,
            memory_bytes: DEFAULT_BYTES,
            recent_calls: 1_000,
            max_models: 200,
            attribution: Arc::default(),
            workloads: Arc::default(),
            prices: Arc::default(),
            budgets: Arc::default(),
            upstream_facts: Arc::default(),
            quotas: Arc::default(),
        }
    }
}
