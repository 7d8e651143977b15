//! The tables of objectives and of receivers of alerts.

use super::super::objectives::{
    DEFAULT_MIN_EVENTS, DEFAULT_MIN_STREAMS, DEFAULT_OBJECTIVE, DEFAULT_SLICE_TARGET,
    DEFAULT_WINDOW, LONGEST_WINDOW, SHORTEST_WINDOW,
};
use super::super::scalar::{Span, Window};
use super::super::schema::{EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_slo::{Kind, Severity, Weight};

/// What is promised ([objectives](slo.md)): exactly one indicator each (`availability` to `throughput`), or a `preset` of
/// several.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Slo {
    /// Becomes a label; needed without a `preset`.
    #[schemars(with = "Option<Label>")]
    pub(in crate::config) name: Option<Spanned<String>>,
    /// In place of an indicator: `chat`, `voice` or `analysis`.
    pub(in crate::config) preset: Option<Spanned<String>>,
    /// The share of good events.
    #[schemars(extend(
        "default" = DEFAULT_OBJECTIVE,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(in crate::config) objective: Option<Spanned<f64>>,
    /// The time that has just passed, or the calendar month, in UTC.
    #[schemars(extend(
        "default" = Span(DEFAULT_WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
        "x-must" = "from 1h to 400days, or \"month\"",
    ))]
    pub(in crate::config) window: Option<Window>,
    /// `true`: calls that did not fail.
    #[schemars(extend("const" = true))]
    pub(in crate::config) availability: Option<Spanned<bool>>,
    /// The time to the first token.
    pub(in crate::config) ttft: Option<Longest>,
    /// Output tokens per second of a call.
    pub(in crate::config) output_tps: Option<Slowest>,
    /// Output tokens per second over the whole call.
    pub(in crate::config) total_tps: Option<Slowest>,
    /// The time to the first token of the answer, after any reasoning.
    pub(in crate::config) time_to_first_answer: Option<Longest>,
    /// The whole call.
    pub(in crate::config) duration: Option<Longest>,
    /// The time between tokens.
    pub(in crate::config) inter_token_latency: Option<Longest>,
    /// Stalls of a call.
    pub(in crate::config) stalls: Option<MostStalls>,
    /// The longest gap between tokens.
    pub(in crate::config) longest_gap: Option<Longest>,
    /// What a call costs, in US dollars.
    pub(in crate::config) cost_usd: Option<Dearest>,
    /// Output tokens per second of an upstream, minute by minute; needs `select.upstream`.
    pub(in crate::config) throughput: Option<Spanned<Throughput>>,
    /// The calls that it is for; all by default.
    #[serde(default)]
    pub(in crate::config) select: Select,
    /// What an event is; `token` for `output_tps` and `inter_token_latency`.
    #[schemars(with = "Option<EnumNames<Weight>>", extend("default" = "request"))]
    pub(in crate::config) weight: Option<Spanned<Weight>>,
    /// A shorter answer is excluded.
    #[schemars(extend("default" = 0))]
    pub(in crate::config) min_output_tokens: Option<u64>,
    /// Whether calls of an upstream that just came up count.
    #[schemars(extend("default" = true))]
    pub(in crate::config) warm_up: Option<bool>,
    /// Slices of time as events, in whole minutes, at most a day.
    pub(in crate::config) slice: Option<Spanned<Span>>,
    /// A slice is good when this share of its calls is; needs `slice`.
    #[schemars(extend(
        "default" = DEFAULT_SLICE_TARGET,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(in crate::config) slice_target: Option<Spanned<f64>>,
    /// Events in its long window, for an alert to fire.
    #[schemars(extend("default" = DEFAULT_MIN_EVENTS))]
    pub(in crate::config) min_events: Option<u64>,
    /// A sentence for alerts.
    pub(in crate::config) description: Option<String>,
    /// A link for alerts.
    pub(in crate::config) runbook_url: Option<String>,
    /// A link for alerts.
    pub(in crate::config) dashboard_url: Option<String>,
}

const SHARE: &str = "a share above 0 and at most 1, such as 0.99";
const POSITIVE: &str = "a number above 0";

/// A time that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Longest {
    /// Good calls take no longer.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(in crate::config) at_most: Span,
}

/// A number of stalls that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct MostStalls {
    /// Good calls have no more.
    pub(in crate::config) at_most: u64,
}

/// A price that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Dearest {
    /// Good calls cost no more.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(in crate::config) at_most: f64,
}

/// A speed that good calls reach.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Slowest {
    /// Good calls are as fast.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(in crate::config) at_least: f64,
}

/// A speed of an upstream that good minutes reach.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Throughput {
    /// Good minutes are as fast.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(in crate::config) at_least: f64,
    /// Minutes with fewer streams at once do not count.
    #[schemars(extend("default" = DEFAULT_MIN_STREAMS))]
    pub(in crate::config) min_streams: Option<u32>,
}

/// Which calls count: those that match everything that is named.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Select {
    /// The workload's name.
    pub(in crate::config) workload: Option<Spanned<String>>,
    /// The route's name.
    pub(in crate::config) route: Option<Spanned<String>>,
    /// The upstream's name.
    pub(in crate::config) upstream: Option<Spanned<String>>,
    /// The model asked for; `*` is any run of characters.
    pub(in crate::config) model: Option<String>,
    /// The agent; `*` is any run of characters.
    pub(in crate::config) agent: Option<String>,
    /// The team that pays.
    pub(in crate::config) team: Option<String>,
    /// The cost center.
    pub(in crate::config) cost_center: Option<String>,
    /// The tenant.
    pub(in crate::config) tenant: Option<String>,
}

/// Who receives alerts, where no Prometheus sends them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Notify {
    /// What the receiver understands.
    #[schemars(with = "EnumNames<Kind>")]
    pub(in crate::config) kind: Spanned<Kind>,
    /// Its name; its kind by default.
    #[schemars(with = "Option<Label>")]
    pub(in crate::config) name: Option<Spanned<String>>,
    /// Where it is; PagerDuty has a default.
    pub(in crate::config) url: Option<Spanned<String>>,
    /// Or a file that holds the URL, since Slack's are secrets.
    pub(in crate::config) url_file: Option<Spanned<PathBuf>>,
    /// A file with PagerDuty's integration key.
    pub(in crate::config) routing_key_file: Option<Spanned<PathBuf>>,
    /// Only these; both by default.
    #[schemars(with = "Option<EnumNames<Severity>>")]
    pub(in crate::config) severity: Option<Severity>,
    /// How often an alert is sent again while it fires; 4h by default, 1m for an Alertmanager, which forgets.
    pub(in crate::config) repeat: Option<Span>,
}
