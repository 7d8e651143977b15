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
/// Minutes without calls have no throughput to evaluate.
pub(crate) const DEFAULT_MIN_STREAMS: u32 = 1;
pub(crate) const DEFAULT_OBJECTIVE: f64 = 0.99;
pub(crate) const DEFAULT_SLICE_TARGET: f64 = 0.99;
pub(crate) const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 24 * 3600);
/// The counts of a window are kept in memory.
const LONGEST_WINDOW: Duration = Duration::from_secs(400 * 24 * 3600);
/// Alerts divide the window into several shorter ones.
const SHORTEST_WINDOW: Duration = Duration::from_secs(3600);

/// A service level objective ([objectives](slo.md)). An objective needs exactly one indicator, from `availability` to
/// `throughput`, or a `preset` of several indicators.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slo {
    /// The name of the objective in alerts and metric labels. Required without a `preset`.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// A set of indicators: `chat`, `voice` or `analysis`. For example, `chat` requires the first token within 500 ms
    /// and 30 tokens per second.
    pub(crate) preset: Option<Spanned<String>>,
    /// The share of events that must be good, such as `0.999`.
    #[schemars(extend(
        "default" = DEFAULT_OBJECTIVE,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(crate) objective: Option<Spanned<f64>>,
    /// The period of the error budget: the most recent time of this length, or `month` for the calendar month in UTC.
    #[schemars(extend(
        "default" = Span(DEFAULT_WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
        "x-must" = "from 1h to 400days, or \"month\"",
    ))]
    pub(crate) window: Option<Window>,
    /// With `true`, a call is good unless it failed, such as by a status 5xx or 429, a reset or a timeout.
    #[schemars(extend("const" = true, "x-also" = ["error_rate", "errors", "success_rate"]))]
    pub(crate) availability: Option<Spanned<bool>>,
    /// A call is good if its first token arrives within this time, such as `500ms`.
    #[schemars(extend("x-also" = ["time_to_first_token"]))]
    pub(crate) ttft: Option<Longest>,
    /// A call is good if it decodes at least this many output tokens per second, such as `30`.
    #[schemars(extend("x-also" = ["speed", "tokens_per_second", "tps"]))]
    pub(crate) output_tps: Option<Slowest>,
    /// A call is good if it has at least this many output tokens per second over its whole duration, such as `20`.
    pub(crate) total_tps: Option<Slowest>,
    /// A call is good if its first token after any reasoning arrives within this time, such as `5s`.
    pub(crate) time_to_first_answer: Option<Longest>,
    /// A call is good if it ends within this time, such as `2m`.
    #[schemars(extend("x-also" = ["latency", "response_time"]))]
    pub(crate) duration: Option<Longest>,
    /// A call is good if the mean time between its tokens is at most this, such as `40ms`.
    #[schemars(extend("x-also" = ["itl", "tpot"]))]
    pub(crate) inter_token_latency: Option<Longest>,
    /// A call is good if it has at most this many stalls, such as `0`.
    pub(crate) stalls: Option<MostStalls>,
    /// A call is good if the longest gap between its tokens is at most this, such as `250ms`.
    pub(crate) longest_gap: Option<Longest>,
    /// A call is good if it costs at most this many US dollars, such as `0.05`.
    #[schemars(extend("x-also" = ["cost", "price"]))]
    pub(crate) cost_usd: Option<Dearest>,
    /// The output tokens per second of all calls to an upstream, minute by minute. Works only with `select.upstream`.
    pub(crate) throughput: Option<Spanned<Throughput>>,
    /// The calls that the objective applies to. The default is all calls.
    #[serde(default)]
    pub(crate) select: Select,
    /// What counts as one event: a call (`request`) or a token (`token`). `token` works only with `output_tps` and
    /// `inter_token_latency`.
    #[schemars(with = "Option<EnumNames<Weight>>", extend("default" = "request"))]
    pub(crate) weight: Option<Spanned<Weight>>,
    /// Answers with fewer output tokens than this are excluded from the objective.
    #[schemars(extend("default" = 0))]
    pub(crate) min_output_tokens: Option<u64>,
    /// Whether the objective includes calls that are marked `warm_up` because their upstream just came up.
    #[schemars(extend("default" = true))]
    pub(crate) warm_up: Option<bool>,
    /// Counts slices of time of this length as events instead of calls: whole minutes, at most a day, such as `5m`.
    pub(crate) slice: Option<Spanned<Span>>,
    /// The share of calls in a slice that must be good for the slice to be good. Works only with `slice`.
    #[schemars(extend(
        "default" = DEFAULT_SLICE_TARGET,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = SHARE,
    ))]
    pub(crate) slice_target: Option<Spanned<f64>>,
    /// How many events the long window of an alert must have for the alert to fire.
    #[schemars(extend("default" = DEFAULT_MIN_EVENTS))]
    pub(crate) min_events: Option<u64>,
    /// A sentence that alerts of this objective contain, such as `Speech must not stutter`.
    pub(crate) description: Option<String>,
    /// The URL of a runbook that alerts of this objective link to.
    pub(crate) runbook_url: Option<String>,
    /// The URL of a dashboard that alerts of this objective link to.
    pub(crate) dashboard_url: Option<String>,
}

const SHARE: &str = "a share above 0 and at most 1, such as 0.99";
const POSITIVE: &str = "a number above 0";

/// A time that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Longest {
    /// The longest time of a good call, such as `500ms`.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) at_most: Span,
}

/// A number of stalls that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MostStalls {
    /// The largest number of stalls in a good call, such as `0`.
    pub(crate) at_most: u64,
}

/// A cost that good calls do not exceed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dearest {
    /// The highest cost of a good call in US dollars, such as `0.05`.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_most: f64,
}

/// A speed that good calls reach.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slowest {
    /// The lowest speed of a good call in tokens per second, such as `30`.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_least: f64,
}

/// The throughput that an upstream reaches in a good minute.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Throughput {
    /// A minute is good if all calls to `select.upstream` together have at least this many output tokens per second,
    /// such as `900`.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = POSITIVE))]
    pub(crate) at_least: f64,
    /// A minute counts only if at least this many streams are in flight throughout it.
    #[schemars(extend("default" = DEFAULT_MIN_STREAMS))]
    pub(crate) min_streams: Option<u32>,
}

/// Selects calls. A call must match all keys that are set.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Select {
    /// Only calls of the workload with this name count.
    pub(crate) workload: Option<Spanned<String>>,
    /// Only calls of the route with this name count.
    pub(crate) route: Option<Spanned<String>>,
    /// Only calls to the upstream with this name count.
    pub(crate) upstream: Option<Spanned<String>>,
    /// Only calls that request a model of this pattern count, such as `gpt-4*`. `*` matches any characters.
    pub(crate) model: Option<String>,
    /// Only calls of agents with a name of this pattern count, such as `my-phone/*`. `*` matches any characters.
    pub(crate) agent: Option<String>,
    /// Only calls that the team with this name pays for count.
    pub(crate) team: Option<String>,
    /// Only calls of the cost center with this name count.
    pub(crate) cost_center: Option<String>,
    /// Only calls of the tenant with this name count.
    pub(crate) tenant: Option<String>,
}

/// A receiver of alerts, for deployments in which Prometheus does not send them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notify {
    /// The type of the receiver.
    #[schemars(with = "EnumNames<ReceiverKind>")]
    pub(crate) kind: Spanned<ReceiverKind>,
    /// The name of the receiver. Two receivers of the same kind need different names. The default is `kind`.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// The URL of the receiver, such as `http://alertmanager:9093`. PagerDuty has a default. All other kinds need `url`
    /// or `url_file`.
    pub(crate) url: Option<Spanned<String>>,
    /// The path of a file with the URL of the receiver. Use a file instead of `url` if the URL is secret, as URLs from
    /// Slack are.
    pub(crate) url_file: Option<Spanned<PathBuf>>,
    /// The path of a file with the integration key of PagerDuty. Required for `kind = "pagerduty"`.
    pub(crate) routing_key_file: Option<Spanned<PathBuf>>,
    /// Sends only alerts of this severity. By default, the receiver gets both pages and tickets.
    #[schemars(with = "Option<EnumNames<Severity>>")]
    pub(crate) severity: Option<Severity>,
    /// How often an alert is sent again while it fires. The default is `4h`, and `1m` for Alertmanager, which forgets
    /// alerts that are not repeated.
    pub(crate) repeat: Option<Span>,
}
