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
/// The default interval of scraping an upstream's metrics.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest interval; engines do not update their metrics more often.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) const MAX_WORKLOADS: usize = WORKLOADS;

/// Who answers: one `url`, or several `urls` that serve the same models.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// Becomes a label.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// Its endpoint.
    pub(crate) url: Option<Spanned<Url>>,
    /// Or its endpoints.
    #[schemars(extend("minItems" = 1))]
    pub(crate) urls: Option<Spanned<Vec<Url>>>,
    /// The HTTP version: `auto` is ALPN over TLS, else HTTP/1.1.
    #[serde(default)]
    #[schemars(with = "EnumNames<Protocol>", extend("default" = "auto"))]
    pub(crate) protocol: Protocol,
    /// TLS towards the upstream.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// How long it may take.
    #[serde(default)]
    pub(crate) timeouts: Timeouts,
    /// Idle connections kept per endpoint.
    #[schemars(extend("default" = DEFAULT_MAX_IDLE))]
    pub(crate) max_idle: Option<usize>,
    /// And for how long.
    #[schemars(extend("default" = Span(DEFAULT_IDLE_FOR)))]
    pub(crate) idle_for: Option<Span>,
    /// An endpoint that refused a connection is left alone for so long.
    #[schemars(extend("default" = Span(DEFAULT_EJECT_FOR)))]
    pub(crate) eject_for: Option<Span>,
    /// Connections open at once, to all endpoints. By default its share of the descriptors that the process may open
    /// ([reliability](reliability.md)).
    #[schemars(extend("minimum" = 1, "x-reason" = ", or no request could leave"))]
    pub(crate) max_connections: Option<usize>,
    /// Requests that wait for one; 503 beyond, and after `timeouts.connect`.
    #[schemars(extend("default" = DEFAULT_MAX_PENDING))]
    pub(crate) max_pending: Option<usize>,
    /// A request that a reused connection lost before any of its response came is sent once more, over a new
    /// connection, if what had left of its body fits in this many bytes. The upstream may get it twice: 0, the default,
    /// never sends what may have been read already ([reliability](reliability.md)).
    #[schemars(extend("default" = Size(0), "maximum" = MAX_RESEND_BYTES))]
    pub(crate) resend_bytes: Option<Size>,
    /// Of an engine of your own: US dollars that an hour of one of its GPUs costs.
    #[schemars(extend(
        "exclusiveMinimum" = 0,
        "maximum" = super::limits::HIGHEST_PRICE,
        "x-must" = "a number of US dollars above 0",
    ))]
    pub(crate) gpu_usd_per_hour: Option<f64>,
    /// And how many it has; needs `gpu_usd_per_hour`.
    #[schemars(extend("default" = 1, "minimum" = 1))]
    pub(crate) gpus: Option<Spanned<u32>>,
    /// What it runs on: kept with each call, `report --by upstream-facts`; labels of `tokengauge_upstream_info`.
    #[schemars(with = "Option<Facts>")]
    pub(crate) facts: Option<Spanned<UpstreamFacts>>,
    /// What `<think>` in the text of an answer means: `auto`, an answer that begins with it begins with reasoning;
    /// `opened`, every answer begins within the reasoning, since the prompt ends with the tag; `answer`, it is part of the
    /// answer.
    #[schemars(with = "EnumNames<ThinkTags>", extend("default" = "auto"))]
    #[serde(default)]
    pub(crate) think_tags: ThinkTags,
    /// The engine's own metrics: vLLM, SGLang, TGI, llama.cpp, Triton, trtllm-serve, Dynamo; `/metrics` where no path is
    /// named.
    pub(crate) metrics_url: Option<Url>,
    /// How often they are read.
    #[schemars(extend("default" = Span(DEFAULT_INTERVAL), "x-minimum" = Span(SHORTEST_INTERVAL)))]
    pub(crate) metrics_interval: Option<Spanned<Span>>,
}

/// The schema of [`UpstreamFacts`], whose crate has none; a test holds that the names are the same.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only its schema is used")]
struct Facts {
    /// Accelerators and how many, such as `8xH100-SXM`.
    hardware: Option<String>,
    /// How weights are stored, such as `fp8`.
    quantization: Option<String>,
    /// Sequences that the engine decodes at once, at most; a text.
    batch_size: Option<String>,
    /// The engine, such as `vllm`.
    engine: Option<String>,
    /// Its version.
    engine_version: Option<String>,
    /// The revision of the model's weights.
    model_version: Option<String>,
}

/// TLS towards an upstream.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientTls {
    /// A file with trusted roots in place of the system's, PEM.
    pub(crate) ca: Option<PathBuf>,
    /// The file with our own certificate, PEM; needs `key`.
    pub(crate) certificate: Option<Spanned<PathBuf>>,
    /// The file with its key, PEM.
    pub(crate) key: Option<Spanned<PathBuf>>,
    /// The name to ask for and check, in place of the host.
    pub(crate) server_name: Option<String>,
}

/// How long an upstream may take.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timeouts {
    /// DNS, TCP and TLS together.
    #[schemars(extend("default" = Span(settings::Timeouts::default().connect)))]
    pub(crate) connect: Option<Span>,
    /// From the end of the request to the response head.
    #[schemars(extend("default" = Span(settings::Timeouts::default().head)))]
    pub(crate) head: Option<Span>,
    /// Without a byte either way.
    #[schemars(extend("default" = Span(settings::Timeouts::default().idle)))]
    pub(crate) idle: Option<Span>,
    /// Without a byte taken of what waits: by the agent, or by the upstream.
    #[schemars(extend(
        "default" = Span(settings::Timeouts::default().send),
        "x-exclusiveMinimum" = Span(Duration::ZERO),
        "x-reason" = ", or every agent that reads slowly would be cut off",
    ))]
    pub(crate) send: Option<Span>,
}

/// Which requests go where. The first that matches wins.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// Becomes a label; the upstream's name by default.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// A prefix of whole segments, such as `/openai`; every path matches by default.
    #[schemars(extend("pattern" = "^/[^?#]*$"))]
    pub(crate) path: Option<Spanned<String>>,
    /// The request's host, without a port; any by default.
    pub(crate) host: Option<Spanned<String>>,
    /// Headers with exactly these values.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Spanned<String>>,
    /// Whether `path` is taken off before forwarding.
    #[schemars(extend("default" = true))]
    pub(crate) strip: Option<bool>,
    /// The `name` of the upstream.
    pub(crate) upstream: Spanned<String>,
    /// The dialect, where the path does not tell.
    #[schemars(with = "Option<EnumNames<Dialect>>")]
    pub(crate) dialect: Option<Dialect>,
    /// The workload of calls that match no `[[workload]]`.
    pub(crate) workload: Option<String>,
    /// Whether to ask for usage where the agent has no opinion, and take the extra chunk out again.
    #[serde(default)]
    pub(crate) inject_usage: bool,
    /// Whether to add `via`.
    #[serde(default)]
    pub(crate) via: bool,
    /// Whether to add `x-forwarded-for`, `-host` and `-proto`.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// Whether responses say what is left of the quotas that processes share, as `x-tokengauge-ratelimit-*`.
    #[serde(default)]
    pub(crate) ratelimit_headers: bool,
    /// What `Upgrade` may ask for; anything else is not passed on.
    #[schemars(extend("default" = default_upgrades()))]
    pub(crate) upgrades: Option<Vec<Spanned<String>>>,
}

/// Which calls belong together; the first that matches. A call that matches none has its route's own `workload`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    /// Becomes a label.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The route's name.
    pub(crate) route: Option<Spanned<String>>,
    /// The model asked for; `*` is any run of characters.
    pub(crate) model: Option<String>,
    /// The agent, by its headers or user agent; `*` is any run of characters.
    pub(crate) agent: Option<String>,
    /// Headers with exactly these values.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Spanned<String>>,
    /// A longer gap between tokens is a stall: its own, in place of that of `[measure]`.
    pub(crate) stall_threshold: Option<Span>,
}
