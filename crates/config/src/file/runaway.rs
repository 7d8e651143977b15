//! The table of sessions that run away.

use super::super::scalar::Span;
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_sessions::{RunawayLimits, TimesUsual};

/// The longest time in which sessions say what is usual.
const LONGEST_USUAL: Duration = Duration::from_secs(86_400);
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);
const SHORTEST_WINDOW: Duration = Duration::from_secs(60);

/// When a session runs away: it spends out of line, or an agent of it makes the same tool call over and over
/// ([sessions](sessions.md#runaway-sessions)). It is shown, counted and told to those under `[[notify]]`; a `[[quota]]`
/// with `while_runaway` stops it. 0 switches a ceiling off.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runaway {
    /// The time that is looked at, up to now.
    #[schemars(extend(
        "default" = Span(RunawayLimits::WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
    ))]
    pub(crate) window: Option<Span>,
    /// Tokens of input and output a minute, as an average over the window; no ceiling by default.
    #[schemars(extend("minimum" = 0, "x-must" = "a number of tokens from 0 up"))]
    pub(crate) tokens_per_minute: Option<f64>,
    /// US dollars a minute, as an average over the window.
    #[schemars(extend(
        "minimum" = 0,
        "default" = RunawayLimits::USD_PER_MINUTE,
        "x-must" = "a number of US dollars from 0 up",
    ))]
    pub(crate) usd_per_minute: Option<f64>,
    /// How often an agent may make one and the same tool call within the window: that often is running away.
    #[schemars(extend("default" = RunawayLimits::SAME_TOOL_CALLS))]
    pub(crate) same_tool_calls: Option<u32>,
    /// Deprecated: `tokens_per_minute` and `usd_per_minute` do not depend on what others spend. Tokens or US dollars a minute
    /// that are so many times what is usual: the median over sessions of the same workload and agent of the most that each
    /// spent a minute, over a window. It stands beside the fixed ceilings; none by default.
    #[schemars(extend(
        "deprecated" = true,
        "exclusiveMinimum" = 1,
        "x-must" = "a number of times above 1",
    ))]
    pub(crate) times_usual: Option<Spanned<f64>>,
    /// Sessions with a call within this time say what is usual.
    #[schemars(extend(
        "default" = Span(TimesUsual::OVER),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_USUAL),
    ))]
    pub(crate) usual_over: Option<Span>,
    /// With fewer sessions of a workload and agent nothing is known to be usual.
    #[schemars(extend("minimum" = 2, "default" = TimesUsual::MIN_SESSIONS))]
    pub(crate) usual_sessions: Option<u64>,
}
