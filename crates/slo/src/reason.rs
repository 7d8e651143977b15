//! Verdicts on events and the reasons for them, which are label values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::call::TpsUnavailable;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CallVerdict {
    Good,
    /// It was missed, which spends budget.
    Bad,
    Excluded,
}

impl CallVerdict {
    /// The `verdict` label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reason for a verdict.
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
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The threshold was met.
    Met,
    /// The threshold was missed.
    Missed,
    /// The deadline passed before the awaited token came.
    Deadline,
    /// The agent left.
    ClientCancelled,
    /// The request was refused for its own fault: a 4xx other than 429.
    ClientError,
    /// A limit of ours refused it.
    Rejected,
    /// A status of 429, or of 500 and above.
    HttpError,
    /// The upstream connection was lost.
    UpstreamReset,
    /// An error inside a 200.
    ErrorEvent,
    /// A time limit passed.
    Timeout,
    /// No connection to the upstream.
    Unreachable,
    /// The proxy ended before the response did.
    Drained,
    /// The upstream had just come up.
    WarmUp,
    /// The answer came as one body.
    NotStreamed,
    /// Too few tokens for a speed, or for the objective.
    TooFewTokens,
    /// Too few chunks for a speed.
    #[serde(rename = "too_few_frames")]
    #[strum(serialize = "too_few_frames")]
    TooFewChunks,
    /// Held back upstream.
    Buffered,
    /// Several choices interleave.
    MultipleChoices,
    /// Most of the output was not shown.
    HiddenOutput,
    /// The agent read too slowly.
    AgentLimited,
    /// The meter skipped chunks.
    Lagged,
    /// The body could not be read.
    Unparsed,
    /// It ended before there was enough to judge.
    EndedEarly,
    /// No token came, and none had to.
    NoTokens,
    /// Complete, and all of it without text, as a tool call without arguments.
    NoText,
    /// No price is known.
    NoPrice,
    /// A slice of time without calls.
    NoTraffic,
    /// A minute with fewer calls under way than throughput is judged by.
    TooFewStreams,
}

impl Reason {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl From<TpsUnavailable> for Reason {
    fn from(reason: TpsUnavailable) -> Reason {
        match reason {
            TpsUnavailable::NotStreamed => Reason::NotStreamed,
            TpsUnavailable::TooFewTokens => Reason::TooFewTokens,
            TpsUnavailable::TooFewChunks => Reason::TooFewChunks,
            TpsUnavailable::Buffered => Reason::Buffered,
            TpsUnavailable::MultipleChoices => Reason::MultipleChoices,
            TpsUnavailable::HiddenOutput => Reason::HiddenOutput,
            TpsUnavailable::AgentLimited => Reason::AgentLimited,
            TpsUnavailable::Lagged => Reason::Lagged,
            TpsUnavailable::Unparsed => Reason::Unparsed,
            TpsUnavailable::EndedEarly => Reason::EndedEarly,
        }
    }
}
