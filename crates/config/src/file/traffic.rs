//! The tables of upstreams, routes and workloads.

use super::super::scalar::{Size, Span, Url};
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use crate::Protocol;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_core::call::Dialect;
use tokengauge_core::upstream_facts::UpstreamFacts;
use tokengauge_meter::settings::ThinkTags;
use tokengauge_proxy::settings::{
    self, DEFAULT_EJECT_FOR, DEFAULT_IDLE_FOR, DEFAULT_MAX_IDLE, DEFAULT_MAX_PENDING,
    MAX_RESEND_BYTES, default_upgrades,
};

const WORKLOADS: usize = 64;
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
/// Engines do not update their metrics more often.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) const MAX_WORKLOADS: usize = WORKLOADS;

/// A model backend that answers calls: one `url`, or several `urls` that serve the same models.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// The name of the upstream in routes, call records and metric labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The URL of the endpoint, such as `http://10.0.0.1:8000`. Set either `url` or `urls`.
    pub(crate) url: Option<Spanned<Url>>,
    /// The URLs of several endpoints. Each request goes to the endpoint with the fewest requests in flight.
    #[schemars(extend("minItems" = 1))]
    pub(crate) urls: Option<Spanned<Vec<Url>>>,
    /// The HTTP version of connections to the upstream. `auto` negotiates the version by ALPN over TLS, and uses
    /// HTTP/1.1 without TLS.
    #[serde(default)]
    #[schemars(with = "EnumNames<Protocol>", extend("default" = "auto"))]
    pub(crate) protocol: Protocol,
    /// TLS for connections to the upstream.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// Timeouts of calls to the upstream.
    #[serde(default)]
    pub(crate) timeouts: Timeouts,
    /// How many idle connections are kept open to each endpoint.
    #[schemars(extend("default" = DEFAULT_MAX_IDLE))]
    pub(crate) max_idle: Option<usize>,
    /// How long an idle connection to an endpoint is kept open. Set a shorter time than the idle timeout of the
    /// upstream's server.
    #[schemars(extend("default" = Span(DEFAULT_IDLE_FOR)))]
    pub(crate) idle_for: Option<Span>,
    /// How long an endpoint gets no requests after a connection to it failed.
    #[schemars(extend("default" = Span(DEFAULT_EJECT_FOR)))]
    pub(crate) eject_for: Option<Span>,
    /// How many connections may be open to all endpoints together. The default is the upstream's share of the process's
    /// file descriptors ([reliability](reliability.md)).
    #[schemars(extend("minimum" = 1, "x-reason" = ", or no request could leave"))]
    pub(crate) max_connections: Option<usize>,
    /// How many requests may wait for a free connection, each for at most `timeouts.connect`. Requests beyond either
    /// limit get status 503.
    #[schemars(extend("default" = DEFAULT_MAX_PENDING))]
    pub(crate) max_pending: Option<usize>,
    /// How many bytes of a request body are kept, to send the request again if a reused connection is lost before the
    /// response begins. The upstream may receive such a request twice. 0 never resends a request that the upstream may
    /// have read ([reliability](reliability.md)).
    #[schemars(extend("default" = Size(0), "maximum" = MAX_RESEND_BYTES))]
    pub(crate) resend_bytes: Option<Size>,
    /// The cost of one GPU in US dollars per hour, for an upstream that you run yourself. Calls without a `[[price]]`
    /// then pay for their share of the GPU time.
    #[schemars(extend(
        "exclusiveMinimum" = 0,
        "maximum" = super::limits::HIGHEST_PRICE,
        "x-must" = "a number of US dollars above 0",
    ))]
    pub(crate) gpu_usd_per_hour: Option<f64>,
    /// How many GPUs the upstream has. Works only with `gpu_usd_per_hour`.
    #[schemars(extend("default" = 1, "minimum" = 1))]
    pub(crate) gpus: Option<Spanned<u32>>,
    /// Facts about the engine and its hardware, which are stored with each call. `report --by upstream-facts` groups by
    /// them, and `tokengauge_upstream_info` has them as labels.
    #[schemars(with = "Option<Facts>")]
    pub(crate) facts: Option<Spanned<UpstreamFacts>>,
    /// What `<think>` in the text of an answer means. `auto`: an answer that begins with the tag begins with reasoning.
    /// `opened`: every answer begins within the reasoning, because the prompt ends with the tag. `answer`: the tag is
    /// text.
    #[schemars(with = "EnumNames<ThinkTags>", extend("default" = "auto"))]
    #[serde(default)]
    pub(crate) think_tags: ThinkTags,
    /// The URL of the engine's metrics; the default path is `/metrics`. vLLM, SGLang, TGI, llama.cpp, Triton,
    /// trtllm-serve and Dynamo are supported.
    pub(crate) metrics_url: Option<Url>,
    /// How often the metrics at `metrics_url` are read.
    #[schemars(extend("default" = Span(DEFAULT_INTERVAL), "x-minimum" = Span(SHORTEST_INTERVAL)))]
    pub(crate) metrics_interval: Option<Spanned<Span>>,
}

/// The schema of [`UpstreamFacts`], whose crate has none; a test holds that the names are the same.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only its schema is used")]
struct Facts {
    /// The type and number of accelerators, such as `8xH100-SXM`.
    hardware: Option<String>,
    /// The format of the model's weights, such as `fp8`.
    quantization: Option<String>,
    /// The largest number of sequences that the engine decodes at once, as a string such as `"256"`.
    batch_size: Option<String>,
    /// The name of the engine, such as `vllm`.
    engine: Option<String>,
    /// The version of the engine, such as `0.11.0`.
    engine_version: Option<String>,
    /// The revision of the model's weights, such as `2026-01-01`.
    model_version: Option<String>,
}

/// TLS for outgoing connections.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientTls {
    /// The path of a PEM file with trusted root certificates, which replace the roots of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The path of a PEM file with the client certificate of the proxy. Works only with `key`.
    pub(crate) certificate: Option<Spanned<PathBuf>>,
    /// The path of a PEM file with the private key of the client certificate.
    pub(crate) key: Option<Spanned<PathBuf>>,
    /// The server name that TLS requests and verifies. The default is the host of the URL.
    pub(crate) server_name: Option<String>,
}

/// Timeouts of calls to an upstream.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timeouts {
    /// How long DNS, TCP and TLS together may take. After this time, the call gets status 504.
    #[schemars(extend("default" = Span(settings::Timeouts::default().connect)))]
    pub(crate) connect: Option<Span>,
    /// How long the response head may take, from the end of the request. After this time, the call gets status 504.
    #[schemars(extend("default" = Span(settings::Timeouts::default().head)))]
    pub(crate) head: Option<Span>,
    /// How long a call may continue without a byte in either direction while a body is transferred.
    #[schemars(extend("default" = Span(settings::Timeouts::default().idle)))]
    pub(crate) idle: Option<Span>,
    /// How long the agent or the upstream may accept none of the bytes that wait to be written to it. A slow reader is
    /// not cut off.
    #[schemars(extend(
        "default" = Span(settings::Timeouts::default().send),
        "x-exclusiveMinimum" = Span(Duration::ZERO),
        "x-reason" = ", or every agent that reads slowly would be cut off",
    ))]
    pub(crate) send: Option<Span>,
}

/// Sends matching requests to an upstream. The first route that matches a request is used.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The name of the route in call records and metric labels. The default is the name of the upstream.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// A prefix of the request path in whole segments, such as `/openai`. Without a prefix, the route matches every
    /// path.
    #[schemars(extend("pattern" = "^/[^?#]*$"))]
    pub(crate) path: Option<Spanned<String>>,
    /// The host of the request without a port, such as `llm.example`. Without a host, the route matches every host.
    pub(crate) host: Option<Spanned<String>>,
    /// Headers that the request must have with exactly these values, such as `{ x-team = "search" }`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Spanned<String>>,
    /// Whether the prefix `path` is removed from the request path before forwarding.
    #[schemars(extend("default" = true))]
    pub(crate) strip: Option<bool>,
    /// The `name` of the upstream that receives the requests.
    pub(crate) upstream: Spanned<String>,
    /// The API dialect of requests whose path does not show it.
    #[schemars(with = "Option<EnumNames<Dialect>>")]
    pub(crate) dialect: Option<Dialect>,
    /// The workload of calls on this route that match no `[[workload]]`.
    pub(crate) workload: Option<String>,
    /// Whether to ask the upstream for token usage if the agent does not say. The extra chunk with the usage is removed
    /// from the response.
    #[serde(default)]
    pub(crate) inject_usage: bool,
    /// Whether to add a `via` header to requests and responses.
    #[serde(default)]
    pub(crate) via: bool,
    /// Whether to add `x-forwarded-for`, `x-forwarded-host` and `x-forwarded-proto` to requests.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// Whether responses have `x-tokengauge-ratelimit-…` headers, which say what remains of the quotas that processes
    /// share.
    #[serde(default)]
    pub(crate) ratelimit_headers: bool,
    /// The protocols that agents may request with an `Upgrade` header. Any other `Upgrade` is removed from the request.
    #[schemars(extend("default" = default_upgrades()))]
    pub(crate) upgrades: Option<Vec<Spanned<String>>>,
}

/// Groups calls for objectives, budgets and reports. The first workload that matches a call is used. A call that
/// matches none has the `workload` of its route.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    /// The name of the workload in call records and metric labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The name of the route that the call takes.
    pub(crate) route: Option<Spanned<String>>,
    /// A pattern for the requested model, such as `gpt-4*`. `*` matches any characters.
    pub(crate) model: Option<String>,
    /// A pattern for the agent's name, such as `my-phone/*`. `*` matches any characters.
    pub(crate) agent: Option<String>,
    /// Headers that the request must have with exactly these values, such as `{ x-workload = "voice" }`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Spanned<String>>,
    /// A gap between tokens that is longer than this counts as a stall of this workload. The default is
    /// `stall_threshold` in `[measure]`.
    pub(crate) stall_threshold: Option<Span>,
}
