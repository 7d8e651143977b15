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
/// Each model name becomes a set of metric series.
const MAX_MODELS: usize = 10_000;
/// Ordinary requests have heads up to this size.
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

/// TLS for incoming connections. The files are read again when they change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTls {
    /// The path of a PEM file with the server certificate, followed by its chain.
    pub(crate) certificate: PathBuf,
    /// The path of a PEM file with the private key of `certificate`.
    pub(crate) key: PathBuf,
    /// The path of a PEM file with CA certificates. If this key is set, each client must present a certificate that one
    /// of these CAs signed.
    pub(crate) client_ca: Option<PathBuf>,
}

/// The admin address for operators. It serves the live page at `/`, and `/livez`, `/readyz`, `/metrics` and
/// `/api/v1/…`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    /// The address that the admin server listens on.
    #[schemars(with = "Option<Address>", extend("default" = DEFAULT_ADMIN.to_string()))]
    pub(crate) listen: Option<Written>,
    /// A second address that serves only `/metrics`, `/livez` and `/readyz`. `listen` can then stay on loopback while
    /// Prometheus and the kubelet connect from elsewhere.
    #[schemars(with = "Option<Address>")]
    pub(crate) metrics_listen: Option<Spanned<Written>>,
    /// Whether `/metrics` on `metrics_listen` requires the admin token.
    #[serde(default)]
    pub(crate) metrics_token: bool,
    /// Whether `/metrics` includes classic histograms. With `false`, a Prometheus that ingests native histograms stores
    /// less than a quarter of the series. A scraper that reads only the text format then gets no quantiles.
    #[schemars(extend("default" = true))]
    pub(crate) classic_histograms: Option<bool>,
    /// Whether the admin server at `listen` runs.
    #[schemars(extend("default" = true))]
    pub(crate) enabled: Option<bool>,
    /// The token that operators send as `authorization: Bearer …`: at least 16 printable ASCII characters. `/livez`,
    /// `/readyz` and the static files of the live page need no token.
    pub(crate) token: Option<Spanned<String>>,
    /// The path of a file with the admin token, read again when it changes. The environment variable
    /// `TOKENGAUGE_ADMIN_TOKEN` overrides `token` and `token_file`.
    pub(crate) token_file: Option<Spanned<PathBuf>>,
    /// Additional host names that are accepted without a token, such as `gauge.example.com`. IP addresses, `localhost`
    /// and, if `listen` is not on loopback, cluster names are always accepted.
    #[serde(default)]
    pub(crate) hosts: Vec<Spanned<String>>,
    /// The URL at which readers of alerts open the live page, such as `https://gauge.example.com`. Alerts of
    /// `[[notify]]` link to the page and its runbooks. Without a URL, alerts explain how to open the page.
    pub(crate) url: Option<Url>,
    /// Whether the holder of a provider key may query the usage of that key at `/api/v1/me` without the admin token
    /// ([showback](showback.md)).
    #[serde(default)]
    pub(crate) own_use: bool,
    /// TLS for connections from operators.
    pub(crate) tls: Option<ServerTls>,
}

/// Limits on the connections, heads and requests of agents.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// How many agent connections may be open at once. A further connection replaces the one that was idle longest, or
    /// waits if none is idle. The limit is at most half of the file descriptors that are not reserved
    /// ([reliability](reliability.md)).
    #[schemars(extend(
        "default" = ProxyLimits::default().connections,
        "minimum" = 1,
        "x-reason" = ", or no agent could connect",
    ))]
    pub(crate) connections: Option<Spanned<usize>>,
    /// The largest head of a request or a response. A larger request head gets status 431, and a larger response head
    /// becomes status 502.
    #[schemars(extend(
        "default" = Size(ProxyLimits::default().head_bytes),
        "minimum" = MIN_HEAD_BYTES,
        "x-reason" = ", or ordinary requests would be refused",
    ))]
    pub(crate) head_bytes: Option<Spanned<Size>>,
    /// How many streams one HTTP/2 connection of an agent may have open at once.
    #[schemars(extend("default" = ProxyLimits::default().http2_streams))]
    pub(crate) http2_streams: Option<u32>,
    /// How many streams all HTTP/2 connections together may have open. Further streams get `REFUSED_STREAM`, which
    /// agents may retry. The default is eight per possible upstream connection, and at most one per 64KiB of the
    /// cgroup's memory limit.
    #[schemars(extend(
        "minimum" = 1,
        "x-reason" = ", or no agent could use HTTP/2",
    ))]
    pub(crate) total_http2_streams: Option<Spanned<usize>>,
    /// How long an agent may take to send a complete request head.
    #[schemars(extend("default" = Span(ProxyLimits::default().head_timeout)))]
    pub(crate) head_timeout: Option<Span>,
    /// How long an agent's connection may stay open without a request. Choose a shorter idle timeout in the agents'
    /// connection pools, so that no request meets a closing connection.
    #[schemars(extend("default" = Span(ProxyLimits::default().idle_timeout)))]
    pub(crate) idle_timeout: Option<Span>,
    /// How many requests per minute each route accepts. Further requests get status 429. There is no limit by default.
    pub(crate) requests_per_minute: Option<NonZeroU32>,
}

/// How speed, tokens and stalls of calls are measured.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    /// How many tokens must follow the first chunk of a call for the call to have an `output_tps`.
    #[schemars(extend("default" = settings::Measure::default().min_output_tokens))]
    pub(crate) min_output_tokens: Option<u64>,
    /// The speed in tokens per second above which a stream was buffered upstream, because no model decodes that fast.
    /// Such a stream has no `output_tps`.
    #[schemars(extend(
        "default" = settings::Measure::default().buffered_above,
        "exclusiveMinimum" = 0,
        "x-must" = "a number of tokens per second above 0",
    ))]
    pub(crate) buffered_above: Option<f64>,
    /// A gap between tokens that is longer than this counts as a stall.
    #[schemars(extend("default" = Span(settings::Measure::default().stall_threshold)))]
    pub(crate) stall_threshold: Option<Span>,
    /// How many calls are marked `warm_up` after an upstream comes up. Objectives can exclude these calls.
    #[schemars(extend("default" = settings::Measure::default().warm_up_calls))]
    pub(crate) warm_up_calls: Option<u32>,
    /// Calls within this time after an upstream comes up are marked `warm_up`, in addition to the first
    /// `warm_up_calls`.
    #[schemars(extend("default" = Span(settings::Measure::default().warm_up_for)))]
    pub(crate) warm_up_for: Option<Span>,
    /// The largest request or response body that is read as a whole, to measure the call or to decide on a quota or
    /// budget.
    #[schemars(extend("default" = Size(settings::Measure::default().body_bytes)))]
    pub(crate) body_bytes: Option<Size>,
    /// How much memory all measuring together may use. The default is 256MiB, or a quarter of the cgroup's memory limit
    /// if that is less, but at least 8MiB.
    pub(crate) memory_bytes: Option<Size>,
    /// How many finished calls stay in memory for `/api/v1/calls`.
    #[schemars(extend("default" = settings::Measure::default().recent_calls))]
    pub(crate) recent_calls: Option<usize>,
    /// Distinct model names that become labels; the rest are `other`.
    #[schemars(extend(
        "default" = settings::Measure::default().max_models,
        "maximum" = MAX_MODELS,
        "x-reason" = ": each model becomes a set of series",
    ))]
    pub(crate) max_models: Option<usize>,
    /// Whether records contain a hash of the user's name instead of the name.
    #[schemars(extend("default" = true))]
    pub(crate) hash_users: Option<bool>,
}

/// Headers and body members that name the session, agent, user and payer of a call ([sessions](sessions.md)). They
/// override everything that agents and gateways are known to send, except the `x-tokengauge-…` headers.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Attribution {
    /// Whether to guess the sessions of agents that name none. A call then joins the session of an earlier call if it
    /// repeats that call's messages and answer and adds to them.
    pub(crate) guess_sessions: bool,
    /// Request headers that contain the session's name, such as `x-conversation`. The first header that is present is
    /// used.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) session_headers: Vec<Spanned<String>>,
    /// Paths to the session's name in the JSON body of a request: member names joined by dots, such as
    /// `metadata.thread`.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) session_paths: Vec<Spanned<String>>,
    /// Request headers that contain the agent's name, such as `x-bot-name`. The first header that is present is used.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) agent_headers: Vec<Spanned<String>>,
    /// Paths to the agent's name in the JSON body of a request, such as `metadata.bot`.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) agent_paths: Vec<Spanned<String>>,
    /// Request headers that contain the user's name, such as `x-employee`. Records contain a hash of the name, unless
    /// `hash_users` in `[measure]` is `false`.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) user_headers: Vec<Spanned<String>>,
    /// Paths to the user's name in the JSON body of a request, such as `metadata.employee`.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) user_paths: Vec<Spanned<String>>,
    /// The team that pays for calls for which `[[payer]]` and headers name no team and no cost center
    /// ([showback](showback.md)). The environment variable `TOKENGAUGE_TEAM` overrides this key.
    #[schemars(with = "Option<Label>")]
    pub(crate) team: Option<Spanned<String>>,
    /// The cost center of calls for which `[[payer]]` and headers name no team and no cost center. The environment
    /// variable `TOKENGAUGE_COST_CENTER` overrides this key.
    #[schemars(with = "Option<Label>")]
    pub(crate) cost_center: Option<Spanned<String>>,
    /// The tenant of calls for which `[[payer]]` and headers name no tenant. The environment variable
    /// `TOKENGAUGE_TENANT` overrides this key.
    #[schemars(with = "Option<Label>")]
    pub(crate) tenant: Option<Spanned<String>>,
    /// Request headers that contain the team's name, such as `x-team`. Any client can send these headers, so let a
    /// trusted gateway in front of the proxy set them.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) team_headers: Vec<Spanned<String>>,
    /// Request headers that contain the cost center, such as `x-cost-center`. Let a trusted gateway in front of the
    /// proxy set these headers.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) cost_center_headers: Vec<Spanned<String>>,
    /// Request headers that contain the tenant's name, such as `x-tenant-id`. Let a trusted gateway in front of the
    /// proxy set these headers.
    #[schemars(extend("maxItems" = MAX_SOURCES))]
    pub(crate) tenant_headers: Vec<Spanned<String>>,
    /// Whether records contain `key_hash`, a digest of the provider key that the call carries. `own_use = true` in
    /// `[admin]` also enables this.
    pub(crate) record_keys: bool,
}

/// Names agents whose SDK sends no name, such as `OpenAI/Python`. An entry needs `port`, `path` or `key`; the first
/// entry whose conditions all match is used. Names from `[attribution]` take precedence. The environment variable
/// `TOKENGAUGE_AGENT` names all remaining agents.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// The name of the agent in call records and reports.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The port that the agent connects to, which must be a port of `listen`.
    pub(crate) port: Option<Spanned<u16>>,
    /// A prefix of the request path as the agent sends it, in whole segments, such as `/billing`.
    pub(crate) path: Option<Spanned<String>>,
    /// The digest of the agent's provider key, never the key itself. `tokengauge print key-hash` computes the digest.
    pub(crate) key: Option<Spanned<String>>,
}

/// Says who pays for calls ([showback](showback.md)). An entry needs `team`, `cost_center` or `tenant`, and at least
/// one of the conditions `keys`, `path`, `port` and `route`. The first entry whose conditions all match is used.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payer {
    /// The team that pays for the matching calls.
    #[schemars(with = "Option<Label>")]
    pub(crate) team: Option<Spanned<String>>,
    /// The cost center of the matching calls, such as `4711`.
    #[schemars(with = "Option<Label>")]
    pub(crate) cost_center: Option<Spanned<String>>,
    /// The tenant of the matching calls: the customer for whom they are made.
    #[schemars(with = "Option<Label>")]
    pub(crate) tenant: Option<Spanned<String>>,
    /// Digests of provider keys, never the keys themselves. A call matches if it carries one of the keys.
    /// `tokengauge print key-hash` computes the digests.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_PAYER_KEYS))]
    pub(crate) keys: Vec<Spanned<String>>,
    /// A prefix of the request path as the agent sends it, in whole segments, such as `/search`.
    pub(crate) path: Option<Spanned<String>>,
    /// The port that the agent connects to, which must be a port of `listen`.
    pub(crate) port: Option<Spanned<u16>>,
    /// The name of the route that the call takes.
    pub(crate) route: Option<Spanned<String>>,
}

pub(crate) const MAX_PAYER_TABLES: usize = MAX_PAYERS;

pub(crate) const MAX_AGENTS: usize = MAX_AGENT_NAMES;

/// The ledger keeps finished calls and their sessions in an SQLite file ([ledger](ledger.md)). The ledger is enabled if
/// `path` or `state_dir` is set.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    /// Whether to keep a ledger. The default is `true` if `path` or `state_dir` is set.
    pub(crate) enabled: Option<Spanned<bool>>,
    /// The path of the ledger file. The default is `ledger.sqlite` in `state_dir`.
    pub(crate) path: Option<PathBuf>,
    /// Calls that are older than this are deleted from the ledger.
    #[schemars(extend(
        "default" = Span(DEFAULT_AGE),
        "x-minimum" = Span(MIN_AGE),
        "x-reason" = ", or nothing would be left to look at",
    ))]
    pub(crate) retention_age: Option<Span>,
    /// The largest size of the ledger file. The oldest calls are deleted to stay below this size.
    #[schemars(extend(
        "default" = Size(DEFAULT_BYTES as usize),
        "minimum" = MIN_BYTES,
        "x-reason" = ", which the indices need",
    ))]
    pub(crate) retention_bytes: Option<Size>,
}

/// The standard environment variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, configure the export of traces, metrics
/// and logs ([OpenTelemetry](opentelemetry.md)). This table has settings for which no standard variable exists.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Otlp {
    /// Whether call records are also exported as OTLP logs.
    pub(crate) call_records: bool,
    /// The version of the GenAI semantic conventions that names of attributes and metrics follow. `v1.36` is an older
    /// draft with `gen_ai.system`.
    #[schemars(with = "EnumNames<Conventions>", extend("default" = "v1.41"))]
    pub(crate) conventions: Conventions,
    /// Whether spans also carry the attributes `gen_ai.usage.cost` and `langfuse.observation.completion_start_time`,
    /// which Langfuse reads.
    pub(crate) langfuse: bool,
}
