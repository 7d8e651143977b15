//! The cause of a missed objective, as far as it is known.

use crate::call::Dimension;
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_core::time::Timestamp;

pub const MIN_CALLS: usize = 30;
pub const MIN_BAD: usize = 10;

/// The cause of a missed objective. `CauseJson` documents the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub at: Timestamp,
    pub sentence: String,
    pub known: bool,
    pub dimension: Option<Dimension>,
    pub value: Option<String>,
    pub mechanism: Option<Mechanism>,
    /// The most frequent kind of error, if the mechanism is [`Mechanism::Errors`].
    pub error: Option<String>,
    /// The calls that `moved` and `unchanged` compare with. `None` if there are too few calls to compare with.
    pub compared_with: Option<ComparedWith>,
    pub moved: Vec<Moved>,
    pub unchanged: Vec<Signal>,
    pub load: Option<Load>,
    pub since: Option<Timestamp>,
    pub basis: CauseBasis,
}

impl Cause {
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

#[derive(Clone, Debug, PartialEq)]
pub enum CauseBasis {
    Calls(CallBasis),
    Minutes(MinuteBasis),
}

impl CauseBasis {
    pub fn bad(&self) -> usize {
        match self {
            CauseBasis::Calls(basis) => basis.bad,
            CauseBasis::Minutes(basis) => basis.bad,
        }
    }

    pub fn all(&self) -> usize {
        match self {
            CauseBasis::Calls(basis) => basis.all,
            CauseBasis::Minutes(basis) => basis.all,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallBasis {
    /// Bad calls since the onset, or in the whole period if no onset was found.
    pub bad: usize,
    pub all: usize,
    /// The shares of the kind of calls that stands out. `None` if no kind of calls stands out.
    pub shares: Option<CallShares>,
    /// The prompt length or concurrency that is also common among the calls that stand out.
    pub besides: Option<CallCandidate>,
    /// All values that have more than their share of bad calls, the best explanation first.
    pub candidates: Vec<CallCandidate>,
}

/// Shares of the kind of calls that stands out, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallShares {
    pub of_bad: f64,
    pub of_all: f64,
    /// The share of the calls before the onset that are of this kind. `None` if there are too few of these calls.
    pub before: Option<f64>,
}

/// A value of a dimension, and how much of the bad calls it explains.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCandidate {
    pub dimension: Dimension,
    /// The name, or the lowest class.
    pub value: String,
    pub share_of_bad: f64,
    pub share_of_all: f64,
    /// The share of the bad calls that would disappear if calls with the value were bad as often as other calls.
    pub explained: f64,
    /// The correlation between having the value and being bad (φ), from 0 to 1. Candidates are ranked by it.
    pub correlation: f64,
}

impl CallCandidate {
    pub(crate) fn named(&self) -> (Dimension, &str) {
        (self.dimension, &self.value)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MinuteBasis {
    /// Bad minutes since the onset, or in the whole period if no onset was found.
    pub bad: usize,
    pub all: usize,
    /// Throughput before and since the onset. `None` if no onset was found.
    pub change: Option<ThroughputChange>,
    /// The shares of the kind of calls that stands out. `None` if no kind of calls stands out.
    pub shares: Option<TokenShares>,
    /// The values that have more than their share of the lost tokens, in the order of the dimensions.
    pub candidates: Vec<TokenCandidate>,
}

/// Shares of the tokens per second that a kind of calls has, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenShares {
    /// The share of the lost tokens per second. It is above 1 if other calls gained tokens.
    pub of_lost: f64,
    pub before: f64,
}

/// A value of a dimension, and how much of the lost tokens it explains.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenCandidate {
    pub dimension: Dimension,
    /// The name, or the lowest class.
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
    /// The medians of the minutes before the fall.
    pub before: Rates,
    /// The medians of the minutes since the fall.
    pub now: Rates,
}

/// The factors of the throughput of a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseRates")]
pub struct Rates {
    /// Tokens per second of all calls together.
    pub tokens_per_second: f64,
    /// The average number of calls in flight.
    pub under_way: f64,
}

impl Rates {
    /// Tokens per second of one call. `None` if no call is in flight.
    pub fn of_each(&self) -> Option<f64> {
        (self.under_way > 0.0).then(|| self.tokens_per_second / self.under_way)
    }
}

/// The mechanism that makes calls bad.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Mechanism {
    /// Errors of the upstream.
    Errors,
    /// The upstream has just started, or is loading the model.
    ColdStart,
    /// Connections to the upstream take longer.
    Connect,
    /// The first token is later by about the same time for every prompt length.
    Queue,
    /// The first token is later in proportion to the prompt length.
    Prefill,
    /// The first token is later. A queue and a slow prefill cannot be distinguished.
    FirstToken,
    /// Prompts are longer.
    LongerPrompts,
    /// Gaps between tokens are longer.
    Decode,
    /// Streams stall.
    Stalls,
    /// There are more calls of a kind that was already bad before.
    Traffic,
    /// Fewer calls are in flight, and each is as fast as before. Only objectives on throughput have this mechanism.
    FewerCalls,
    /// Responses have fewer tokens, so the time before the first token weighs more. Only objectives on throughput have
    /// this mechanism.
    ShorterAnswers,
}

/// A figure that is compared.
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
    /// Seconds from the ready connection to the first token.
    FirstToken,
    /// Seconds between tokens.
    InterTokenGap,
    /// The share of calls with a stall.
    Stalls,
    /// Streams in flight on the upstream.
    Concurrency,
    /// Prompt tokens.
    PromptTokens,
    /// The share of calls on an upstream that has just started.
    ColdStarts,
}

/// The calls that serve as the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CauseComparedWith")]
pub enum ComparedWith {
    /// Earlier calls of the same kind, or all earlier calls.
    Before,
    /// Other calls of the same time, if there are too few earlier calls.
    Others,
}

/// A figure that changed.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseMoved")]
pub struct Moved {
    /// The figure.
    pub signal: Signal,
    /// The quantile of the figure, or `share`.
    pub of: Quantile,
    /// The value among the reference calls: seconds, tokens, streams, or a share.
    pub before: f64,
    /// The value among the calls that stand out, in the same unit as `before`.
    pub now: f64,
}

impl Moved {
    /// The factor from `before` to `now`. `None` if `before` is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.before > 0.0).then(|| self.now / self.before)
    }
}

/// The statistic of a figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// The median.
    P50,
    /// The 90th percentile, if the median did not change.
    P90,
    /// The share of calls that have the property.
    Share,
}

/// A kind of calls that grew in number.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CauseLoad")]
pub struct Load {
    /// The dimension that these calls have in common.
    pub dimension: Dimension,
    /// The value of `dimension` that these calls have.
    pub value: String,
    /// The share of the earlier calls that are of this kind.
    pub share_before: f64,
    /// The share of the present calls that are of this kind.
    pub share_now: f64,
    /// The growth of the rate of all calls, as a factor.
    pub growth: f64,
}
