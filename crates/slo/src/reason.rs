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
    /// The event spends budget.
    Bad,
    Excluded,
}

impl CallVerdict {
    /// The value of the `verdict` label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

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
    Met,
    Missed,
    /// The deadline passed before the awaited token arrived.
    Deadline,
    /// The agent closed the connection.
    ClientCancelled,
    /// The request was refused with a 4xx status other than 429.
    ClientError,
    /// A limit of tokengauge refused the request.
    Rejected,
    /// The status was 429, or 500 or above.
    HttpError,
    /// The upstream connection was lost.
    UpstreamReset,
    /// A response with status 200 contained an error event.
    ErrorEvent,
    /// A time limit passed.
    Timeout,
    /// The upstream could not be reached.
    Unreachable,
    /// The proxy stopped before the response ended.
    Drained,
    /// The upstream had just started.
    WarmUp,
    NotStreamed,
    /// There were too few tokens for a speed, or for the objective.
    TooFewTokens,
    #[serde(rename = "too_few_frames")]
    #[strum(serialize = "too_few_frames")]
    TooFewChunks,
    /// The response was buffered upstream.
    Buffered,
    /// Several choices were interleaved.
    MultipleChoices,
    HiddenOutput,
    /// The agent read too slowly.
    AgentLimited,
    /// Chunks were not measured.
    Lagged,
    /// The body could not be parsed.
    Unparsed,
    /// The call ended before it could be judged.
    EndedEarly,
    /// No token arrived, and none was required.
    NoTokens,
    /// A complete answer without text, such as a tool call without arguments.
    NoText,
    NoPrice,
    /// No calls in a slice of time.
    NoTraffic,
    /// A minute with too few calls in progress to judge throughput.
    TooFewStreams,
}

impl Reason {
    /// The value of the `reason` label.
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
