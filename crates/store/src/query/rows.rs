//! Rows of query results in the API. Unknown values are `null`, never 0. Times are RFC 3339 with
//! milliseconds in UTC, durations are in seconds, costs in US dollars.

use super::ScoreSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokengauge_core::call::Outcome;
use tokengauge_core::pod::PodName;
use tokengauge_core::prompt::{PromptParts, PromptSums, Repetition, Wait};
use tokengauge_core::time::Timestamp;

/// A session, summed over all its calls.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Session")]
pub struct SessionRow {
    /// The name that the agent gave the session.
    pub id: String,
    /// When the first call of the session began.
    pub started_at: Timestamp,
    /// When the last call of the session ended.
    pub last_at: Timestamp,
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that failed. Calls that the agent cancelled are not counted.
    pub errors: u64,
    /// Names of the agents in the session. At most 16 names are kept.
    pub agents: Vec<String>,
    /// Names of the models in the session. At most 16 names are kept.
    pub models: Vec<String>,
    /// The workload of the last call that had one.
    pub workload: Option<String>,
    /// The user of the last call that had one.
    pub user: Option<String>,
    /// The experiment of the last call that had one.
    pub experiment: Option<String>,
    /// The variant of the last call that had one.
    pub variant: Option<String>,
    /// Tokens of all calls of the session.
    pub tokens: TokenSums,
    /// Cost of the calls with a price.
    pub cost_usd: Option<f64>,
    /// Calls with tokens but without a price.
    pub unpriced_calls: u64,
    /// Where the time of the session went.
    pub seconds: SessionSeconds,
    /// How fast the session was.
    pub tps: SessionTps,
    /// Calls in progress. The ledger contains only finished calls, so the caller fills this field.
    pub in_flight: u64,
}

/// Tokens of several calls, as reported by the provider, otherwise as counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TokenSums {
    /// Input tokens, including input read from a cache.
    pub input: Option<u64>,
    /// Input tokens read from a cache.
    pub cached_input: Option<u64>,
    /// Output tokens, including reasoning.
    pub output: Option<u64>,
    /// Reasoning tokens.
    pub reasoning: Option<u64>,
}

/// Where the time of a session went.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionSeconds {
    /// Seconds from the start of the first call to the end of the last.
    pub wall: f64,
    /// Seconds with at least one call in progress.
    pub model: f64,
    /// The remaining seconds, between calls.
    pub tools: f64,
    /// Median time to first token in seconds, within 1 %.
    pub ttft_p50: Option<f64>,
}

/// How fast a session was.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionTps {
    /// Decode tokens divided by decode seconds, over calls with a decode speed.
    pub output: Option<f64>,
}

/// The tasks in a time window. A session is one task, from the start of its first call to the end
/// of its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Tasks {
    /// Sessions whose last call so far ended within the window.
    pub tasks: u64,
    /// Tasks per minute of the requested window, as far as its calls are stored.
    pub per_minute: Option<f64>,
    /// How long tasks took.
    pub seconds: TaskSeconds,
}

/// How long tasks took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TaskSeconds {
    /// The median.
    pub p50: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
}

/// A session and a page of its calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionDetail {
    /// The session, summed over all its calls.
    #[serde(flatten)]
    pub session: SessionRow,
    /// A page of the session's calls, in the order of their starts.
    pub calls: Vec<WaterfallCall>,
    /// The cursor of the next page of calls.
    pub next_cursor: Option<String>,
}

/// A call within its session.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WaterfallCall {
    /// The id of the call.
    pub id: String,
    /// When the call began.
    pub started_at: Timestamp,
    /// Seconds since the start of the session.
    pub offset: f64,
    /// Seconds before this call in which no call of the session was in progress; `null` for the
    /// first call.
    pub wait_before: Option<f64>,
    /// The time between the agent's previous call and this call. `null` for the first call of a
    /// conversation, and if prompts are not analyzed.
    #[serde(default)]
    pub wait: Option<Box<Wait>>,
    /// The agent that made the call.
    pub agent: Option<String>,
    /// The agent that started this agent.
    pub parent_agent: Option<String>,
    /// The model that answered, otherwise the requested model.
    pub model: Option<String>,
    /// The route of the call.
    pub route: String,
    /// The upstream of the call.
    pub upstream: String,
    /// How the call ended.
    pub outcome: Outcome,
    /// The type of error.
    pub error_type: Option<String>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// Whether the answer was streamed.
    pub streamed: Option<bool>,
    /// Tokens of the call.
    pub tokens: TokenSums,
    /// Cost of the call in US dollars.
    pub cost_usd: Option<f64>,
    /// Decode speed of the call in tokens per second.
    pub tps: Option<f64>,
    /// Time to first token of the call in seconds.
    pub ttft: Option<f64>,
    /// Number of gaps between tokens that exceeded the stall threshold.
    pub stalls: u64,
    /// The longest gap between tokens in seconds.
    pub longest_gap: Option<f64>,
    /// The names of the tools that the response calls, joined by `+`.
    #[serde(default)]
    pub tools: Option<String>,
    /// What the prompt consists of. `null` if it was not analyzed.
    #[serde(default)]
    pub prompt: Option<Box<PromptParts>>,
    /// The id of the failed call whose request this call repeats.
    #[serde(default)]
    pub retry_of: Option<String>,
    /// The part of the response that repeats itself.
    #[serde(default)]
    pub repetition: Option<Box<Repetition>>,
    /// The pod that measured the call. Present only if calls of several pods are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
    /// The phases of the call, in the order of time, without gaps.
    pub phases: Vec<Phase>,
}

/// A phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Phase {
    /// The name of the phase.
    pub name: PhaseName,
    /// Start of the phase in seconds since the start of the session.
    pub start: f64,
    /// End of the phase in seconds since the start of the session.
    pub end: f64,
}

/// The name of a phase of a call.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PhaseName {
    /// Until an upstream connection is ready.
    Connect,
    /// Until the request has been forwarded.
    Upload,
    /// Until the engine begins with the prompt. Known only if the engine reports the time of the
    /// prompt.
    Queue,
    /// Until the first token.
    Prefill,
    /// Until the first token other than reasoning.
    Reasoning,
    /// Until the last token.
    Answer,
    /// The remaining time; the whole time if no token arrived.
    Other,
}

/// Calls with common values of dimensions, such as a model or a workload.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Group")]
pub struct GroupRow {
    /// The value of the first dimension; `null` for calls without one.
    pub name: Option<String>,
    /// The values of all dimensions, in the requested order; the first is `name`.
    #[serde(skip)]
    pub names: Vec<Option<String>>,
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Decode speeds.
    pub tps: SpeedRow,
    /// Decode speeds in the provider's tokens.
    #[serde(default)]
    pub tps_reported: SpeedRow,
    /// Times to first token.
    pub ttft: LatencyRow,
    /// Tokens of the calls.
    pub tokens: TokenSums,
    /// Cost of the calls with a price.
    pub cost_usd: Option<f64>,
    /// Calls with tokens but without a price.
    pub unpriced_calls: u64,
    /// Cost in US dollars per million output tokens of the calls with a price.
    pub usd_per_million_output: Option<f64>,
    /// Number of calls by class of decode speed.
    pub bands: Vec<Band>,
    /// Calls per second of the requested time, as far as its calls are stored.
    #[serde(default)]
    pub requests_per_second: Option<f64>,
    /// The parts of the prompts that were analyzed. `null` without any.
    #[serde(default)]
    pub prompt: Option<PromptSums>,
    /// The scores of these calls, their sessions and their traces, by name; absent without scores. At most 20 names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<ScoreSummary>,
}

/// Decode speeds in tokens per second; the percentiles are within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Speeds")]
pub struct SpeedRow {
    /// The median.
    pub p50: Option<f64>,
    /// The 10th percentile: 90 % of the calls are as fast or faster.
    pub p10: Option<f64>,
    /// The 5th percentile: 95 % of the calls are as fast or faster. Other tools call it the p95 of
    /// TPS.
    #[serde(default)]
    pub p5: Option<f64>,
    /// The 1st percentile: 99 % of the calls are as fast or faster. Other tools call it the p99 of
    /// TPS.
    pub p1: Option<f64>,
    /// Decode tokens of all calls divided by their decode seconds.
    pub mean: Option<f64>,
    /// Calls with a decode speed.
    #[serde(default)]
    pub calls: u64,
}

/// Times to first token in seconds, within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Latencies")]
pub struct LatencyRow {
    /// The median.
    pub p50: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// Calls with a first token.
    #[serde(default)]
    pub calls: u64,
    /// Times to first token divided by the durations of these calls, from 0 to 1.
    #[serde(default)]
    pub share: Option<f64>,
}

/// The number of calls in one class of decode speed, counted exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Band {
    /// Lower bound of the class in tokens per second, inclusive.
    pub from: f64,
    /// Upper bound of the class in tokens per second, exclusive; `null` for the last class.
    pub to: Option<f64>,
    /// Number of calls.
    pub calls: u64,
}

/// Percentiles over time.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Timeseries {
    /// The length of each point in seconds.
    pub step: u64,
    /// Points in the order of time, including points without calls.
    pub points: Vec<Point>,
    /// Bounds of the classes in the points' `counts`, ascending. Each bound is 27 % above the
    /// previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<f64>,
}

impl Timeseries {
    /// Removes the counts by class and their bounds.
    pub fn leave_out_counts(&mut self) {
        self.bounds.clear();
        self.points
            .iter_mut()
            .for_each(|point| point.counts.clear());
    }
}

/// The calls that began within one step.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Point {
    /// When the step begins.
    pub at: Timestamp,
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that began in the step and are in progress. The percentiles exclude them, and so
    /// favour quick calls. The ledger contains only finished calls, so the caller fills this field.
    #[serde(default)]
    pub in_flight: u64,
    /// Calls that failed.
    #[serde(default)]
    pub errors: u64,
    /// Calls per second of the step, including calls in progress.
    #[serde(default)]
    pub requests_per_second: f64,
    /// The 10th percentile.
    pub p10: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// Number of ended calls by class of the metric: class `i` is above `bounds[i]`, up to
    /// `bounds[i + 1]`. Present only on request; empty if no call has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// Tokens per second that all calls generated in the step, regardless of when they began;
    /// `null` for a time that has calls but no sums.
    pub tokens_per_second: Option<f64>,
    /// The part of `tokens_per_second` from whole answers, spread over the time of their
    /// generation.
    #[serde(default)]
    pub spread_tokens_per_second: Option<f64>,
}

/// The throughput of an upstream by concurrency.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Capacity")]
pub struct CapacityRow {
    /// The name of the upstream.
    pub name: String,
    /// Points by ascending concurrency.
    pub points: Vec<CapacityPoint>,
    /// The concurrency above which throughput does not grow.
    pub knee: Option<Knee>,
    /// Why there is no knee.
    pub reason: Option<String>,
    /// When the upstream became faster or slower for a reason other than its load. The points are
    /// from the time since then, because earlier points in effect describe another upstream.
    #[serde(default)]
    pub changed_at: Option<Timestamp>,
}

/// Throughput at one concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CapacityPoint {
    /// Average number of streams within a second, each from its request to its last token.
    pub concurrency: u32,
    /// Output tokens per second of all streams together.
    pub system_tps: f64,
    /// Output tokens per second of one stream while it streams.
    pub request_tps: Option<f64>,
    /// Number of observed seconds at this concurrency.
    pub seconds: u64,
}

/// The point at which a capacity curve becomes flat.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Knee {
    /// Number of concurrent streams.
    pub concurrency: u32,
    /// Output tokens per second of all streams together.
    pub system_tps: f64,
}
