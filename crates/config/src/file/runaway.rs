use super::super::scalar::Span;
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_sessions::{RunawayLimits, TimesUsual};

const LONGEST_USUAL: Duration = Duration::from_secs(86_400);
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);
const SHORTEST_WINDOW: Duration = Duration::from_secs(60);

/// Ceilings above which a session counts as a runaway session ([sessions](sessions.md#runaway-sessions)): it spends too
/// fast, or one of its agents repeats a tool call. Runaway sessions are shown, counted and reported to `[[notify]]`.
/// Only a `[[quota]]` with `while_runaway` stops these sessions. A ceiling of 0 is off.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runaway {
    /// The most recent time over which rates are averaged and tool calls are counted.
    #[schemars(extend(
        "default" = Span(RunawayLimits::WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
    ))]
    pub(crate) window: Option<Span>,
    /// The highest rate of input and output tokens per minute, as an average over `window`. There is no such ceiling by
    /// default.
    #[schemars(extend("minimum" = 0, "x-must" = "a number of tokens from 0 up"))]
    pub(crate) tokens_per_minute: Option<f64>,
    /// The highest spending in US dollars per minute, as an average over `window`. With the defaults, a session may
    /// spend 50 US dollars in ten minutes.
    #[schemars(extend(
        "minimum" = 0,
        "default" = RunawayLimits::USD_PER_MINUTE,
        "x-must" = "a number of US dollars from 0 up",
    ))]
    pub(crate) usd_per_minute: Option<f64>,
    /// How many identical tool calls by one agent within `window` make its session a runaway session.
    #[schemars(extend("default" = RunawayLimits::SAME_TOOL_CALLS))]
    pub(crate) same_tool_calls: Option<u32>,
    /// Deprecated: use `tokens_per_minute` and `usd_per_minute`. An additional ceiling as a multiple of the usual rate,
    /// which is the median peak rate of sessions with the same workload and agent. There is no such ceiling by default.
    #[schemars(extend(
        "deprecated" = true,
        "exclusiveMinimum" = 1,
        "x-must" = "a multiple above 1, such as 3",
    ))]
    pub(crate) times_usual: Option<Spanned<f64>>,
    /// For `times_usual`: sessions with a call within this time determine the usual rate.
    #[schemars(extend(
        "default" = Span(TimesUsual::OVER),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_USUAL),
    ))]
    pub(crate) usual_over: Option<Span>,
    /// For `times_usual`: how many sessions of a workload and agent are needed before a usual rate is known.
    #[schemars(extend("minimum" = 2, "default" = TimesUsual::MIN_SESSIONS))]
    pub(crate) usual_sessions: Option<u64>,
}
