//! The answer.

use crate::call::Dimension;
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_core::time::Timestamp;

/// With fewer calls no cause is looked for.
pub const MIN_CALLS: usize = 30;
/// With fewer bad calls no cause is looked for.
pub const MIN_BAD: usize = 10;

/// Why an objective is missed, as far as it is known.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Cause {
    /// When this was worked out.
    pub at: Timestamp,
    /// All of it in one sentence.
    pub sentence: String,
    /// Whether calls of one kind stand out, or a phase moved. If not, the sentence says that the cause is not known.
    pub known: bool,
    /// What the bad calls have in common; `null` where nothing stands out.
    pub dimension: Option<Dimension>,
    /// Their value of it.
    pub value: Option<String>,
    /// The share of bad calls that have this value; of throughput, its share of the tokens that do not come any more.
    pub share_of_bad: Option<f64>,
    /// The share of all calls that have it; `null` of throughput.
    pub share_of_all: Option<f64>,
    /// The same among the calls before; of throughput, its share of the tokens before.
    pub share_before: Option<f64>,
    /// The prompt length or concurrency that these bad calls have in common besides.
    pub besides: Option<Candidate>,
    /// Which phase makes them bad; `null` where that is not known.
    pub mechanism: Option<Mechanism>,
    /// The kind of most errors, where errors make the calls bad.
    pub error: Option<String>,
    /// What `moved` and `unchanged` compare with; `null` where there are too few calls for it.
    pub compared_with: Option<ComparedWith>,
    /// What differs.
    pub moved: Vec<Moved>,
    /// What was compared and is as it was.
    pub unchanged: Vec<Signal>,
    /// Who sends more calls than before, where calls wait.
    pub load: Option<Load>,
    /// Since when more calls are bad; `null` where that is not known.
    pub since: Option<Timestamp>,
    /// What became of throughput, where the objective is on that and a change is seen.
    pub throughput: Option<ThroughputChange>,
    /// Bad calls since then, or of all that are kept; minutes where the objective is on throughput.
    pub bad: usize,
    /// All calls since then, or all that are kept; minutes likewise.
    pub calls: usize,
    /// All values that have more than their share of bad calls, the best explanation first.
    pub candidates: Vec<Candidate>,
}

impl Cause {
    /// Nothing is known `at` an instant.
    pub(crate) fn unknown(at: Timestamp) -> Cause {
        Cause {
            at,
            sentence: String::new(),
            known: false,
            dimension: None,
            value: None,
            share_of_bad: None,
            share_of_all: None,
            share_before: None,
            besides: None,
            mechanism: None,
            error: None,
            compared_with: None,
            moved: Vec::new(),
            unchanged: Vec::new(),
            load: None,
            since: None,
            throughput: None,
            bad: 0,
            calls: 0,
            candidates: Vec::new(),
        }
    }
}

/// The throughput of an upstream before it fell and since.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseThroughput")]
pub struct ThroughputChange {
    /// The medians of the minutes before.
    pub before: Rates,
    /// Those of the minutes since.
    pub now: Rates,
}

/// What a minute's throughput is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseRates")]
pub struct Rates {
    /// Tokens per second of all calls together.
    pub tokens_per_second: f64,
    /// Calls under way, on average.
    pub under_way: f64,
}

impl Rates {
    /// Tokens per second of a call; `None` where none is under way.
    pub fn of_each(&self) -> Option<f64> {
        (self.under_way > 0.0).then(|| self.tokens_per_second / self.under_way)
    }
}

/// A value of a dimension, and how much of the bad calls it explains. Of throughput: of the tokens that do not come any more.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseCandidate")]
pub struct Candidate {
    /// What calls are told apart by.
    pub dimension: Dimension,
    /// The name, or the least class.
    pub value: String,
    /// The share of bad calls that have it; of throughput, its share of the tokens that do not come any more.
    pub share_of_bad: f64,
    /// The share of all calls that have it; of throughput, of the tokens before.
    pub share_of_all: f64,
    /// The share of bad calls that would not be there if its calls were bad as often as the others; of throughput, its share of
    /// the tokens that do not come any more.
    pub explained: f64,
    /// The correlation of having this value and being bad (φ), from 0 to 1; of throughput, by how much its share of the loss is
    /// larger than that of the tokens before. Candidates are ranked by it, of throughput in the order of the dimensions.
    pub correlation: f64,
}

/// What makes calls bad.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Mechanism {
    /// Errors of the upstream.
    Errors,
    /// The upstream has just come up, or loads the model.
    ColdStart,
    /// Connections to the upstream take longer.
    Connect,
    /// The first token comes later by about the same time for every length of prompt.
    Queue,
    /// The first token comes later in proportion to the prompt.
    Prefill,
    /// The first token comes later; queue and prefill cannot be told apart.
    FirstToken,
    /// Prompts are longer.
    LongerPrompts,
    /// Gaps between tokens are longer.
    Decode,
    /// Streams stand still now and then.
    Stalls,
    /// More calls are of a kind that was bad before.
    Traffic,
    /// Fewer calls are under way, and each is as fast as before: of throughput.
    FewerCalls,
    /// Answers are shorter, and what is before their first token weighs more: of throughput.
    ShorterAnswers,
}

/// What is compared.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "CauseSignal")]
pub enum Signal {
    /// The share of calls with an error of the upstream.
    Errors,
    /// Seconds until a connection was ready.
    Connect,
    /// Seconds from then to the first token.
    FirstToken,
    /// Seconds between tokens.
    InterTokenGap,
    /// The share of calls with a stall.
    Stalls,
    /// Streams under way on the upstream.
    Concurrency,
    /// Prompt tokens.
    PromptTokens,
    /// The share of calls on an upstream that has just come up.
    ColdStarts,
}

/// The calls that others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CauseComparedWith")]
pub enum ComparedWith {
    /// Calls of the same kind before, or all calls before.
    Before,
    /// Other calls at the same time, where there are too few before.
    Others,
}

/// A figure that moved.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseMoved")]
pub struct Moved {
    /// Which one.
    pub signal: Signal,
    /// Which quantile of it, or whether it is a share.
    pub of: Quantile,
    /// Before, or of the others: seconds, tokens, streams, or a share.
    pub before: f64,
    /// Now, or of these calls.
    pub now: f64,
}

impl Moved {
    /// How many times as much it is now; `None` where there was none before.
    pub fn ratio(&self) -> Option<f64> {
        (self.before > 0.0).then(|| self.now / self.before)
    }
}

/// What of a signal is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// The median.
    P50,
    /// The 90th percentile, where the median has not moved.
    P90,
    /// The share of calls that have it.
    Share,
}

/// A kind of calls that there are more of than before.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseLoad")]
pub struct Load {
    /// What they have in common.
    pub dimension: Dimension,
    /// Their value of it.
    pub value: String,
    /// Their share of the calls before.
    pub share_before: f64,
    /// Their share now.
    pub share_now: f64,
    /// How many times as many calls of any kind there are by time.
    pub growth: f64,
}
