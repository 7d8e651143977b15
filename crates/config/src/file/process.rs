//! The tables of the process: addresses, limits, measuring, ledger, OTLP.

use super::super::scalar::{Size, Span, Url};
use super::super::schema_types::{Address, EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_accounting::attribution::{
    MAX_AGENT_NAMES, MAX_PAYER_KEYS, MAX_PAYERS, MAX_SOURCES,
};
use tokengauge_meter::settings;
use tokengauge_net::address::Written;
use tokengauge_proxy::settings::Limits as ProxyLimits;
use tokengauge_telemetry::export::otlp::Conventions;

pub(crate) const DEFAULT_AGE: Duration = Duration::from_secs(30 * 86_400);
pub(crate) const DEFAULT_BYTES: u64 = 2_000_000_000;
const MIN_AGE: Duration = Duration::from_secs(3_600);
/// An empty ledger with its indices and sums is a few hundred KiB.
const MIN_BYTES: u64 = 16 << 20;
pub const DEFAULT_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);
/// The most model names; each becomes a set of series.
const MAX_MODELS: usize = 10_000;
/// The least limit on heads, which ordinary requests need.
const MIN_HEAD_BYTES: usize = 8192;

/// One address or several.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "an address such as \"127.0.0.1:8080\" or \"*:8080\", or a list of them"
)]
#[schemars(inline, extend("x-type" = "address, or list of them"))]
pub(crate) enum Listen {
    One(#[schemars(with = "Address")] Written),
    Several(#[schemars(with = "Vec<Address>")] Vec<Written>),
}

/// TLS towards those who connect. The files are read again when they change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTls {
    /// The file with the certificate and its chain, PEM.
    pub(crate) certificate: PathBuf,
    /// The file with its key, PEM.
    pub(crate) key: PathBuf,
    /// A file with certificates of authorities: whoever connects must show a certificate signed by one of them.
    pub(crate) client_ca: Option<PathBuf>,
}

/// Where operators connect: the live page at `/`, `/livez`, `/readyz`, `/metrics` and `/api/v1/…`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    /// Where it listens.
    #[schemars(with = "Option<Address>", extend("default" = DEFAULT_ADMIN.to_string()))]
    pub(crate) listen: Option<Written>,
    /// A second address, with `/metrics`, `/livez` and `/readyz` alone: `listen` can stay on loopback where Prometheus
    /// and the kubelet come from elsewhere.
    #[schemars(with = "Option<Address>")]
    pub(crate) metrics_listen: Option<Spanned<Written>>,
    /// Whether `/metrics` at `metrics_listen` asks for the token, too.
    #[serde(default)]
    pub(crate) metrics_token: bool,
    /// Whether `/metrics` has classic histograms, too. Without them a Prometheus that takes native ones keeps less than a
    /// quarter of the series; a scraper that takes text alone gets no quantiles.
    #[schemars(extend("default" = true))]
    pub(crate) classic_histograms: Option<bool>,
    /// Whether there is an address for operators at all.
    #[schemars(extend("default" = true))]
    pub(crate) enabled: Option<bool>,
    /// What operators send as `authorization: Bearer …`: printable ASCII, at least 16 characters. `/livez`, `/readyz` and
    /// the page's files stay open.
    pub(crate) token: Option<Spanned<String>>,
    /// The same from a file, read again when it changes. The variable `TOKENGAUGE_ADMIN_TOKEN` goes before both.
    pub(crate) token_file: Option<Spanned<PathBuf>>,
    /// Names to answer to without a token, in addition to IP addresses, `localhost` and, where `listen` is not on
    /// loopback, names of a cluster.
    #[serde(default)]
    pub(crate) hosts: Vec<Spanned<String>>,
    /// Where the live page is for whoever gets an alert, such as "https://gauge.example.com": alerts of `[[notify]]` link to
    /// it and to its runbooks. Without it they say how to open the page.
    pub(crate) url: Option<Url>,
    /// Whether whoever has a key of the provider may ask for the use of that key at `/api/v1/me`, without the token
    /// ([showback](showback.md)).
    #[serde(default)]
    pub(crate) own_use: bool,
    /// TLS towards operators.
    pub(crate) tls: Option<ServerTls>,
}

/// Bounds of the process.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Agent connections at once. A further one takes the place of the longest idle one, or waits if none is idle. At
    /// most half of the descriptors that are not set apart ([reliability](reliability.md)).
    #[schemars(extend(
        "default" = ProxyLimits::default().connections,
        "minimum" = 1,
        "x-reason" = ", or no agent could connect",
    ))]
    pub(crate) connections: Option<Spanned<usize>>,
    /// Bytes of a request head, and of a response head.
    #[schemars(extend(
        "default" = Size(ProxyLimits::default().head_bytes),
        "minimum" = MIN_HEAD_BYTES,
        "x-reason" = ", or ordinary requests would be refused",
    ))]
    pub(crate) head_bytes: Option<Spanned<Size>>,
    /// Streams at once on one HTTP/2 connection.
    #[schemars(extend("default" = ProxyLimits::default().http2_streams))]
    pub(crate) http2_streams: Option<u32>,
    /// Streams at once on all HTTP/2 connections together; more get `REFUSED_STREAM`, which agents may send again. By default
    /// eight for every connection to upstreams that the process may open, and at most one for every 64KiB of memory that
    /// a cgroup allows.
    #[schemars(extend(
        "minimum" = 1,
        "x-reason" = ", or no agent could use HTTP/2",
    ))]
    pub(crate) total_http2_streams: Option<Spanned<usize>>,
    /// How long an agent may take to send a request head.
    #[schemars(extend("default" = Span(ProxyLimits::default().head_timeout)))]
    pub(crate) head_timeout: Option<Span>,
    /// How long an agent's connection without a request is kept. Let the agents' pools keep theirs for a shorter time, or a
    /// request may be sent while the connection is being closed.
    #[schemars(extend("default" = Span(ProxyLimits::default().idle_timeout)))]
    pub(crate) idle_timeout: Option<Span>,
    /// Requests a minute on each route; no limit by default.
    pub(crate) requests_per_minute: Option<NonZeroU32>,
}

/// How calls are measured.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    /// Fewer tokens after the first chunk give no `output_tps`.
    #[schemars(extend("default" = settings::Measure::default().min_output_tokens))]
    pub(crate) min_output_tokens: Option<u64>,
    /// Tokens per second of one stream that no model reaches: what is faster was held back upstream.
    #[schemars(extend(
        "default" = settings::Measure::default().buffered_above,
        "exclusiveMinimum" = 0,
        "x-must" = "a number of tokens per second above 0",
    ))]
    pub(crate) buffered_above: Option<f64>,
    /// A longer gap between tokens is a stall.
    #[schemars(extend("default" = Span(settings::Measure::default().stall_threshold)))]
    pub(crate) stall_threshold: Option<Span>,
    /// So many first calls after an upstream came up are marked `warm_up`.
    #[schemars(extend("default" = settings::Measure::default().warm_up_calls))]
    pub(crate) warm_up_calls: Option<u32>,
    /// And those within this time of it.
    #[schemars(extend("default" = Span(settings::Measure::default().warm_up_for)))]
    pub(crate) warm_up_for: Option<Span>,
    /// Bytes of one body that is read whole: to measure it, or to decide on a limit.
    #[schemars(extend("default" = Size(settings::Measure::default().body_bytes)))]
    pub(crate) body_bytes: Option<Size>,
    /// What all measuring may hold. By default 256MiB, or a quarter of the memory that a cgroup allows where that is
    /// less, at least 8MiB.
    pub(crate) memory_bytes: Option<Size>,
    /// Finished calls that are kept for `/api/v1/calls`.
    #[schemars(extend("default" = settings::Measure::default().recent_calls))]
    pub(crate) recent_calls: Option<usize>,
    /// Distinct model names that become labels; the rest are `other`.
    #[schemars(extend(
        "default" = settings::Measure::default().max_models,
        "maximum" = MAX_MODELS,
        "x-reason" = ": each model becomes a set of series",
    ))]
    pub(crate) max_models: Option<usize>,
    /// Whether user names are hashed in records.
    #[schemars(extend("default" = true))]
    pub(crate) hash_users: Option<bool>,
}

/// Where session, agent and user are written, beyond what agents and gateways are known to send
/// ([sessions](sessions.md)). The first that says something wins, before all that is known but our own headers.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Attribution {
    /// Of agents that name no session: whether a call that begins with all that another one sent, its answer and more,
    /// goes on with its session.
    pub(crate) guess_sessions: bool,
    /// Headers with the session.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) session_headers: Vec<Spanned<String>>,
    /// Where a request's JSON body has the session: the names of objects, with dots between them.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) session_paths: Vec<Spanned<String>>,
    /// Headers with the agent.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) agent_headers: Vec<Spanned<String>>,
    /// Where a request's JSON body has the agent.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) agent_paths: Vec<Spanned<String>>,
    /// Headers with the user; hashed in records, unless `hash_users` is false.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) user_headers: Vec<Spanned<String>>,
    /// Where a request's JSON body has the user.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) user_paths: Vec<Spanned<String>>,
    /// The team that pays for what no `[[payer]]` and no header says more of ([showback](showback.md)). `TOKENGAUGE_TEAM`
    /// in the environment goes before it.
    #[schemars(with = "Option<Label>")]
    pub(crate) team: Option<Spanned<String>>,
    /// The cost center, likewise; `TOKENGAUGE_COST_CENTER`.
    #[schemars(with = "Option<Label>")]
    pub(crate) cost_center: Option<Spanned<String>>,
    /// The tenant, likewise; `TOKENGAUGE_TENANT`.
    #[schemars(with = "Option<Label>")]
    pub(crate) tenant: Option<Spanned<String>>,
    /// Headers with the team. Whoever sends requests can write them: a gateway in front of this one should.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) team_headers: Vec<Spanned<String>>,
    /// Headers with the cost center.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) cost_center_headers: Vec<Spanned<String>>,
    /// Headers with the tenant.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) tenant_headers: Vec<Spanned<String>>,
    /// Whether records have a digest of the key that calls carry for the provider, as `key_hash`; always with
    /// `admin.own_use`.
    pub(crate) record_keys: bool,
}

/// Names for agents whose SDK says none (`OpenAI/Python`): by `port`, `path` or `key`, at least one of them; the first
/// that has all that is set. After what `[attribution]` names, before what agents are known to send. `TOKENGAUGE_AGENT`
/// in the environment names all the rest, in place of their user agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// Its name in records and labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The port that it connects to, one of `listen`.
    pub(crate) port: Option<Spanned<u16>>,
    /// A prefix of the path of whole segments, as the agent sends it.
    pub(crate) path: Option<Spanned<String>>,
    /// The digest of its key, never the key: what `tokengauge print key-hash` prints for it, or
    /// `printf 'tokengauge key\0%s' "$KEY" | sha256sum | cut -c1-16`.
    pub(crate) key: Option<Spanned<String>>,
}

/// Who pays for calls ([showback](showback.md)): `team`, `cost_center`, `tenant`, at least one of them, by `keys`, `path`,
/// `port` and `route`, at least one of these; the first that has all that is set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payer {
    /// The team.
    #[schemars(with = "Option<Label>")]
    pub(crate) team: Option<Spanned<String>>,
    /// The team's cost center.
    #[schemars(with = "Option<Label>")]
    pub(crate) cost_center: Option<Spanned<String>>,
    /// The tenant, that is the customer for whom calls are made.
    #[schemars(with = "Option<Label>")]
    pub(crate) tenant: Option<Spanned<String>>,
    /// Digests of keys, never keys: what `tokengauge print key-hash` prints for a key; a call that carries one of them.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_PAYER_KEYS))]
    pub(crate) keys: Vec<Spanned<String>>,
    /// A prefix of the path of whole segments, as the agent sends it.
    pub(crate) path: Option<Spanned<String>>,
    /// The port that the agent connects to, one of `listen`.
    pub(crate) port: Option<Spanned<u16>>,
    /// The route's name.
    pub(crate) route: Option<Spanned<String>>,
}

pub(crate) const MAX_PAYER_TABLES: usize = MAX_PAYERS;

pub(crate) const MAX_AGENTS: usize = MAX_AGENT_NAMES;

/// Finished calls and their sessions are kept in an SQLite file where `path` is named, or a `state_dir`
/// ([ledger](ledger.md)).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    /// Whether it is kept; by default where there is a `path` or a `state_dir`.
    pub(crate) enabled: Option<Spanned<bool>>,
    /// The file; `ledger.sqlite` in `state_dir` by default.
    pub(crate) path: Option<PathBuf>,
    /// Older calls go.
    #[schemars(extend(
        "default" = Span(DEFAULT_AGE),
        "x-minimum" = Span(MIN_AGE),
        "x-reason" = ", or nothing would be left to look at",
    ))]
    pub(crate) retention_age: Option<Span>,
    /// The oldest calls go where the file would become larger.
    #[schemars(extend(
        "default" = Size(DEFAULT_BYTES as usize),
        "minimum" = MIN_BYTES,
        "x-reason" = ", which the indices need",
    ))]
    pub(crate) retention_bytes: Option<Size>,
}

/// Traces, metrics and logs go out by the standard variables of OpenTelemetry, such as `OTEL_EXPORTER_OTLP_ENDPOINT`
/// ([OpenTelemetry](opentelemetry.md)). Here is what those do not say.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Otlp {
    /// Whether call records go out as logs, too.
    pub(crate) call_records: bool,
    /// The version of the GenAI names; `v1.36` is the draft with `gen_ai.system`.
    #[schemars(with = "EnumNames<Conventions>", extend("default" = "v1.41"))]
    pub(crate) conventions: Conventions,
    /// Whether spans carry `gen_ai.usage.cost` and `langfuse.observation.completion_start_time`, too.
    pub(crate) langfuse: bool,
}
