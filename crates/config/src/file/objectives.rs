//! The tables of objectives and of receivers of alerts.

use super::super::scalar::{Span, Window};
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_slo::{ReceiverKind, Severity, Weight};

pub(crate) const DEFAULT_MIN_EVENTS: u64 = 10;
/// Minutes without calls have no throughput to judge.
pub(crate) const DEFAULT_MIN_STREAMS: u32 = 1;
pub(crate) const DEFAULT_OBJECTIVE: f64 = 0.99;
pub(crate) const DEFAULT_SLICE_TARGET: f64 = 0.99;
pub(crate) const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest window, for which counts are kept in memory.
const LONGEST_WINDOW: Duration = Duration::from_secs(400 * 24 * 3600);
/// The shortest window; alerts need several windows within it.
const SHORTEST_WINDOW: Duration = Duration::from_secs(3600);

/// What is promised ([objectives](slo.md)): exactly one indicator each (`availability` to `throughput`), or a `preset` of
/// several.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slo {
    /// Becomes a label; needed without a `preset`.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// In place of an indicator: `chat`, `voice` or `analysis`.
    pub(crate) preset: Option<Spanned<String>>,
    /// The share of good events.
    #[schemars(extend(
        "default" = DEFAULT_OBJECTIVE,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(crate) objective: Option<Spanned<f64>>,
    /// The time that has just passed, or the calendar month, in UTC.
    #[schemars(extend(
        "default" = Span(DEFAULT_WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
        "x-must" = "from 1h to 400days, or \"month\"",
    ))]
    pub(crate) window: Option<Window>,
    /// `true`: calls that did not fail.
    #[schemars(extend("const" = true, "x-also" = ["error_rate", "errors", "success_rate"]))]
    pub(crate) availability: Option<Spanned<bool>>,
    /// The time to the first token.
    #[schemars(extend("x-also" = ["time_to_first_token"]))]
    pub(crate) ttft: Option<Longest>,
    /// Output tokens per second of a call.
    #[schemars(extend("x-also" = ["speed", "tokens_per_second", "tps"]))]
    pub(crate) output_tps: Option<Slowest>,
    /// Output tokens per second over the whole call.
    pub(crate) total_tps: Option<Slowest>,
    /// The time to the first token of the answer, after any reasoning.
    pub(crate) time_to_first_answer: Option<Longest>,
    /// The whole call.
    #[schemars(extend("x-also" = ["latency", "response_time"]))]
    pub(crate) duration: Option<Longest>,
    /// The time between tokens.
    #[schemars(extend("x-also" = ["itl", "tpot"]))]
    pub(crate) inter_token_latency: Option<Longest>,
    /// Stalls of a call.
    pub(crate) stalls: Option<MostStalls>,
    /// The longest gap between tokens.
    pub(crate) longest_gap: Option<Longest>,
    /// What a call costs, in US dollars.
    #[schemars(extend("x-also" = ["cost", "price"]))]
    pub(crate) cost_usd: Option<Dearest>,
    /// Output tokens per second of an upstream, minute by minute; needs `select.upstream`.
    pub(crate) throughput: Option<Spanned<Throughput>>,
    /// The calls that it is for; all by default.
    #[serde(default)]
    pub(crate) select: Select,
    /// What an event is; `token` for `output_tps` and `inter_token_latency`.
    #[schemars(with = "Option<EnumNames<Weight>>", extend("default" = "request"))]
    pub(crate) weight: Option<Spanned<Weight>>,
    /// A shorter answer is excluded.
    #[schemars(extend("default" = 0))]
    pub(crate) min_output_tokens: Option<u64>,
    /// Whether calls of an upstream that just came up count.
    #[schemars(extend("default" = true))]
    pub(crate) warm_up: Option<bool>,
    /// Slices of time as events, in whole minutes, at most a day.
    pub(crate) slice: Option<Spanned<Span>>,
    /// A slice is good when this share of its calls is; needs `slice`.
    #[schemars(extend(
        "default" = DEFAULT_SLICE_TARGET,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(crate) slice_target: Option<Spanned<f64>>,
    /// Events in its long window, for an alert to fire.
    #[schemars(extend("default" = DEFAULT_MIN_EVENTS))]
    pub(crate) min_events: Option<u64>,
    /// A sentence for alerts.
    pub(crate) description: Option<String>,
    /// A link for alerts.
    pub(crate) runbook_url: Option<String>,
    /// A link for alerts.
    pub(crate) dashboard_url: Option<String>,
}

const SHARE: &str = "a share above 0 and at most 1, such as 0.99";
const POSITIVE: &str = "a number above 0";

/// A time that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Longest {
    /// Good calls take no longer.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) at_most: Span,
}

/// A number of stalls that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MostStalls {
    /// Good calls have no more.
    pub(crate) at_most: u64,
}

/// A price that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dearest {
    /// Good calls cost no more.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_most: f64,
}

/// A speed that good calls reach.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slowest {
    /// Good calls are as fast.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_least: f64,
}

/// A speed of an upstream that good minutes reach.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Throughput {
    /// Good minutes are as fast.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_least: f64,
    /// Minutes with fewer streams at once do not count.
    #[schemars(extend("default" = DEFAULT_MIN_STREAMS))]
    pub(crate) min_streams: Option<u32>,
}

/// Which calls count: those that match everything that is named.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Select {
    /// The workload's name.
    pub(crate) workload: Option<Spanned<String>>,
    /// The route's name.
    pub(crate) route: Option<Spanned<String>>,
    /// The upstream's name.
    pub(crate) upstream: Option<Spanned<String>>,
    /// The model asked for; `*` is any run of characters.
    pub(crate) model: Option<String>,
    /// The agent; `*` is any run of characters.
    pub(crate) agent: Option<String>,
    /// The team that pays.
    pub(crate) team: Option<String>,
    /// The cost center.
    pub(crate) cost_center: Option<String>,
    /// The tenant.
    pub(crate) tenant: Option<String>,
}

/// Who receives alerts, where no Prometheus sends them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notify {
    /// What the receiver understands.
    #[schemars(with = "EnumNames<ReceiverKind>")]
    pub(crate) kind: Spanned<ReceiverKind>,
    /// Its name; its kind by default.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// Where it is; PagerDuty has a default.
    pub(crate) url: Option<Spanned<String>>,
    /// Or a file that holds the URL, since Slack's are secrets.
    pub(crate) url_file: Option<Spanned<PathBuf>>,
    /// A file with PagerDuty's integration key.
    pub(crate) routing_key_file: Option<Spanned<PathBuf>>,
    /// Only these; both by default.
    #[schemars(with = "Option<EnumNames<Severity>>")]
    pub(crate) severity: Option<Severity>,
    /// How often an alert is sent again while it fires; 4h by default, 1m for an Alertmanager, which forgets.
    pub(crate) repeat: Option<Span>,
}
