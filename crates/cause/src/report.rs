//! Why an objective is missed, as far as it is known.

use crate::call::Dimension;
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_core::time::Timestamp;

/// With fewer calls no cause is looked for.
pub const MIN_CALLS: usize = 30;
/// With fewer bad calls no cause is looked for.
pub const MIN_BAD: usize = 10;

/// Why an objective is missed. The API writes it as `CauseJson`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// When this was worked out.
    pub at: Timestamp,
    /// All of it in one sentence.
    pub sentence: String,
    /// Whether calls of one kind stand out, or a phase moved.
    pub known: bool,
    /// The dimension of the kind of calls that stands out.
    pub dimension: Option<Dimension>,
    /// The value of `dimension` that these calls have.
    pub value: Option<String>,
    pub mechanism: Option<Mechanism>,
    /// The kind of most errors, if the mechanism is [`Mechanism::Errors`].
    pub error: Option<String>,
    /// What `moved` and `unchanged` compare with. `None` if there are too few calls to compare with.
    pub compared_with: Option<ComparedWith>,
    pub moved: Vec<Moved>,
    pub unchanged: Vec<Signal>,
    /// Who sends more calls than before, if calls wait.
    pub load: Option<Load>,
    /// Since when more calls or minutes are bad.
    pub since: Option<Timestamp>,
    /// What was judged, and the shares of what stands out.
    pub basis: CauseBasis,
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
            mechanism: None,
            error: None,
            compared_with: None,
            moved: Vec::new(),
            unchanged: Vec::new(),
            load: None,
            since: None,
            basis: CauseBasis::Calls(CallBasis::default()),
        }
    }
}

/// What an objective judges.
#[derive(Clone, Debug, PartialEq)]
pub enum CauseBasis {
    Calls(CallBasis),
    /// The objective is on throughput, which is judged by the minute.
    Minutes(MinuteBasis),
}

impl CauseBasis {
    /// The number of bad calls or minutes.
    pub fn bad(&self) -> usize {
        match self {
            CauseBasis::Calls(basis) => basis.bad,
            CauseBasis::Minutes(basis) => basis.bad,
        }
    }

    /// The number of all calls or minutes.
    pub fn all(&self) -> usize {
        match self {
            CauseBasis::Calls(basis) => basis.all,
            CauseBasis::Minutes(basis) => basis.all,
        }
    }
}

/// The calls that an objective judges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallBasis {
    /// Bad calls since the onset, or bad calls in the whole time looked at.
    pub bad: usize,
    /// All calls of the same time.
    pub all: usize,
    /// The shares of the kind of calls that stands out. `None` if no kind of calls stands out.
    pub shares: Option<CallShares>,
    /// The prompt length or concurrency that the calls that stand out also have in common.
    pub besides: Option<CallCandidate>,
    /// All values that have more than their share of bad calls, the best explanation first.
    pub candidates: Vec<CallCandidate>,
}

/// Shares of the kind of calls that stands out, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallShares {
    /// Its share of the bad calls.
    pub of_bad: f64,
    /// Its share of all calls.
    pub of_all: f64,
    /// Its share of the calls before the onset. `None` if there are too few of them.
    pub before: Option<f64>,
}

/// A value of a dimension, and how much of the bad calls it explains.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCandidate {
    pub dimension: Dimension,
    /// The name, or the least class.
    pub value: String,
    /// The share of the bad calls that have the value.
    pub share_of_bad: f64,
    /// The share of all calls that have the value.
    pub share_of_all: f64,
    /// The share of the bad calls that would be missing if calls with the value were bad as often as other calls.
    pub explained: f64,
    /// The correlation of having the value and being bad (φ), from 0 to 1. Candidates are ranked by it.
    pub correlation: f64,
}

impl CallCandidate {
    pub(crate) fn named(&self) -> (Dimension, &str) {
        (self.dimension, &self.value)
    }
}

/// The minutes that an objective on throughput judges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MinuteBasis {
    /// Bad minutes since the onset, or bad minutes in the whole time looked at.
    pub bad: usize,
    /// All minutes of the same time.
    pub all: usize,
    /// Throughput before and since the onset. `None` if no onset is seen.
    pub change: Option<ThroughputChange>,
    /// The shares of the kind of calls that stands out. `None` if no kind of calls stands out.
    pub shares: Option<TokenShares>,
    /// The values that have more than their share of the lost tokens, in the order of the dimensions.
    pub candidates: Vec<TokenCandidate>,
}

/// Shares of a kind of calls, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenShares {
    /// The share of the lost tokens per second. It is above 1 if other calls make more tokens than before.
    pub of_lost: f64,
    /// Its share of the tokens per second before the loss.
    pub before: f64,
}

/// A value of a dimension, and how much of the lost tokens it explains.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenCandidate {
    pub dimension: Dimension,
    /// The name, or the least class.
    pub value: String,
    pub shares: TokenShares,
}

impl TokenCandidate {
    pub(crate) fn named(&self) -> (Dimension, &str) {
        (self.dimension, &self.value)
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
    /// Fewer calls are in flight, and each is as fast as before. Only objectives on throughput have this mechanism.
    FewerCalls,
    /// Responses have fewer tokens, so the time before the first token weighs more. Only objectives on throughput have
    /// this mechanism.
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
