//! What a query answers: the rows of the API. Unknown is `null`, never 0. Instants are
//! RFC 3339 with milliseconds in UTC, durations seconds, costs US dollars.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokengauge_core::call::Outcome;
use tokengauge_core::pod::PodName;
use tokengauge_core::time::Timestamp;

/// A session, summed up over all its calls.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Session")]
pub struct SessionRow {
    /// The session, as the agent named it.
    pub id: String,
    /// When its first call began.
    pub started_at: Timestamp,
    /// When its last call ended.
    pub last_at: Timestamp,
    /// Calls that have ended.
    pub calls: u64,
    /// Those that did not end well; what the agent itself gave up is none.
    pub errors: u64,
    /// Its agents, by name; at most 16 of each kind of name are kept.
    pub agents: Vec<String>,
    /// Its models, by name.
    pub models: Vec<String>,
    /// The workload of its last call that had one.
    pub workload: Option<String>,
    /// The user, likewise.
    pub user: Option<String>,
    /// The experiment, likewise.
    pub experiment: Option<String>,
    /// The variant, likewise.
    pub variant: Option<String>,
    /// Tokens of all its calls.
    pub tokens: TokenSums,
    /// What its priced calls cost together.
    pub cost_usd: Option<f64>,
    /// Calls with tokens but without a price.
    pub unpriced_calls: u64,
    /// Where its time went.
    pub seconds: SessionSeconds,
    /// How fast it was.
    pub tps: SessionTps,
    /// Calls under way. The ledger knows finished calls alone: this is for those who know.
    pub in_flight: u64,
}

/// Tokens of several calls: the provider's counts where it reported them, else our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TokenSums {
    /// Input, that from a cache included.
    pub input: Option<u64>,
    /// Input read from a cache.
    pub cached_input: Option<u64>,
    /// Output, reasoning included.
    pub output: Option<u64>,
    /// Reasoning.
    pub reasoning: Option<u64>,
}

/// Where the time of a session went.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionSeconds {
    /// From the start of its first call to the end of its last.
    pub wall: f64,
    /// With at least one call under way.
    pub model: f64,
    /// The rest: between its calls.
    pub tools: f64,
    /// The median time to first token, within 1 %.
    pub ttft_p50: Option<f64>,
}

/// How fast a session was.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionTps {
    /// Tokens while decoding over the seconds of decoding, of calls with a decode speed.
    pub output: Option<f64>,
}

/// The tasks of a time. A session is one task, from the start of its first call to the end of
/// its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Tasks {
    /// Sessions whose last call so far ended within the time.
    pub tasks: u64,
    /// The same over the minutes of the time that was asked for and is kept.
    pub per_minute: Option<f64>,
    /// How long they took.
    pub seconds: TaskSeconds,
}

/// How long tasks took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TaskSeconds {
    /// The median.
    pub p50: Option<f64>,
    /// 95 of 100 took as long or less.
    pub p95: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
}

/// A session and a page of its calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SessionDetail {
    /// Its sums, over all its calls.
    #[serde(flatten)]
    pub session: SessionRow,
    /// Some of its calls, in the order of their starts.
    pub calls: Vec<WaterfallCall>,
    /// Names the next page of calls.
    pub next_cursor: Option<String>,
}

/// A call within its session.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WaterfallCall {
    /// The call.
    pub id: String,
    /// When it began.
    pub started_at: Timestamp,
    /// Seconds from the session's start.
    pub offset: f64,
    /// Seconds without any call of the session under way before this one; `null` for the
    /// first.
    pub wait_before: Option<f64>,
    /// The agent.
    pub agent: Option<String>,
    /// The agent that started this one.
    pub parent_agent: Option<String>,
    /// The model that answered, else the one asked for.
    pub model: Option<String>,
    /// The route.
    pub route: String,
    /// The upstream.
    pub upstream: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The kind of error.
    pub error_type: Option<String>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// Whether the answer was streamed.
    pub streamed: Option<bool>,
    /// Its tokens.
    pub tokens: TokenSums,
    /// What it cost.
    pub cost_usd: Option<f64>,
    /// Its decode speed, tokens per second.
    pub tps: Option<f64>,
    /// Its time to first token, seconds.
    pub ttft: Option<f64>,
    /// Gaps between its tokens that were longer than the stall threshold.
    pub stalls: u64,
    /// The longest gap between its tokens, seconds.
    pub longest_gap: Option<f64>,
    /// The pod that measured it; only where calls of several are together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
    /// Its phases, in the order of time, without gaps.
    pub phases: Vec<Phase>,
}

/// A part of a call's time.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Phase {
    /// The phase.
    pub name: PhaseName,
    /// Seconds from the session's start.
    pub start: f64,
    /// Seconds from the session's start.
    pub end: f64,
}

/// What happens in a part of a call's time.
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
    /// Until the request has been passed on.
    Upload,
    /// Until the engine begins with the prompt; known where the engine says how long the
    /// prompt took.
    Queue,
    /// Until the first token.
    Prefill,
    /// Until the first token other than reasoning.
    Reasoning,
    /// Until the last token.
    Answer,
    /// The rest; all of it where no token came.
    Other,
}

/// Calls that have a model or a workload in common.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Group")]
pub struct GroupRow {
    /// The model or the workload; `null` for calls without.
    pub name: Option<String>,
    /// Everything they have in common, in the order asked for; the first is `name`.
    #[serde(skip)]
    pub names: Vec<Option<String>>,
    /// Calls that have ended.
    pub calls: u64,
    /// Those that did not end well.
    pub errors: u64,
    /// Decode speeds.
    pub tps: SpeedRow,
    /// Decode speeds in the provider's own tokens.
    #[serde(default)]
    pub tps_reported: SpeedRow,
    /// Times to first token.
    pub ttft: LatencyRow,
    /// Tokens.
    pub tokens: TokenSums,
    /// What the priced calls cost.
    pub cost_usd: Option<f64>,
    /// Calls with tokens but without a price.
    pub unpriced_calls: u64,
    /// Cost of the priced calls over a million of their output tokens.
    pub usd_per_million_output: Option<f64>,
    /// Calls with a decode speed by class of it.
    pub bands: Vec<Band>,
    /// Calls over the seconds of the time that was asked for and is kept.
    #[serde(default)]
    pub requests_per_second: Option<f64>,
}

/// Decode speeds in tokens per second; the percentiles are within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Speeds")]
pub struct SpeedRow {
    /// The median.
    pub p50: Option<f64>,
    /// Nine of ten calls are as fast or faster.
    pub p10: Option<f64>,
    /// 95 of 100 calls are; what others write as the p95 of TPS.
    #[serde(default)]
    pub p5: Option<f64>,
    /// 99 of 100 calls are; what others write as the p99 of TPS.
    pub p1: Option<f64>,
    /// All tokens over all seconds of decoding.
    pub mean: Option<f64>,
    /// Calls with a decode speed, which all of this is of.
    #[serde(default)]
    pub calls: u64,
}

/// Times to first token in seconds, within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Latencies")]
pub struct LatencyRow {
    /// The median.
    pub p50: Option<f64>,
    /// 95 of 100 calls are as fast or faster.
    pub p95: Option<f64>,
    /// 99 of 100 calls are.
    pub p99: Option<f64>,
    /// Calls with a first token, which all of this is of.
    #[serde(default)]
    pub calls: u64,
    /// All seconds until first tokens over all seconds of these calls, from 0 to 1.
    #[serde(default)]
    pub share: Option<f64>,
}

/// Calls whose decode speed is of one class; counted exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Band {
    /// Tokens per second, this included.
    pub from: f64,
    /// Tokens per second, this excluded; `null` is without end.
    pub to: Option<f64>,
    /// Calls.
    pub calls: u64,
}

/// Percentiles over time.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Timeseries {
    /// Seconds of each point.
    pub step: u64,
    /// In the order of time; points without calls are there, too.
    pub points: Vec<Point>,
    /// The bounds of the classes of the points' `counts`, ascending; each is 27 % above the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<f64>,
}

impl Timeseries {
    /// Leaves the counts by class out, and their bounds.
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
    /// Those that began in the step and are under way. The percentiles are without them: those that
    /// have ended by then are the quick ones. The stores know finished calls alone: this is for those
    /// who know.
    #[serde(default)]
    pub in_flight: u64,
    /// Those that did not end well.
    #[serde(default)]
    pub errors: u64,
    /// Calls over the step's length, those under way included.
    #[serde(default)]
    pub requests_per_second: f64,
    /// A tenth of the calls are below.
    pub p10: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// Nine tenths are below.
    pub p90: Option<f64>,
    /// 99 hundredths are below.
    pub p99: Option<f64>,
    /// Ended calls by the class of the metric: of class `i` are those above `bounds[i]`, up to `bounds[i + 1]`. Only
    /// where they are asked for; empty where no call has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// Tokens of all calls that were generated in the step, whichever began when, over its
    /// length; `null` for a time of which only the calls are known.
    pub tokens_per_second: Option<f64>,
    /// What of it is of whole answers, spread over the time in which they were generated.
    #[serde(default)]
    pub spread_tokens_per_second: Option<f64>,
}

/// What an upstream gave at which number of calls at once.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Capacity")]
pub struct CapacityRow {
    /// The upstream.
    pub name: String,
    /// By concurrency, ascending.
    pub points: Vec<CapacityPoint>,
    /// Beyond it more calls at once bring no more tokens.
    pub knee: Option<Knee>,
    /// Why there is no knee.
    pub reason: Option<String>,
    /// When the upstream became faster or slower by itself: the points are of the time since then,
    /// as those before are of another upstream, in effect.
    #[serde(default)]
    pub changed_at: Option<Timestamp>,
}

/// Throughput at one concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CapacityPoint {
    /// Streams under way in the mean of a second, from their requests to their last tokens.
    pub concurrency: u32,
    /// Output tokens per second of all of them together.
    pub system_tps: f64,
    /// Output tokens per second of one of them while it streams.
    pub request_tps: Option<f64>,
    /// Seconds that were seen at this concurrency.
    pub seconds: u64,
}

/// Where a capacity curve turns flat.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Knee {
    /// Calls under way.
    pub concurrency: u32,
    /// Output tokens per second of all of them together.
    pub system_tps: f64,
}
