//! The signals of a series, and their distributions in the store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::concurrency::CONCURRENCIES;
use tokengauge_core::lengths::PROMPT_LENGTHS;
use tokengauge_store::query::{Distribution, Distributions, Signal, UNKNOWN_BUCKET};

/// A figure that is compared.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "DriftSignal")]
pub enum SignalName {
    /// Input tokens of a call.
    InputTokens,
    /// Input tokens that were read from a cache.
    CachedInputTokens,
    /// Output tokens of a call.
    OutputTokens,
    /// Seconds to the first token.
    Ttft,
    /// Tokens per second while decoding.
    Tps,
    /// Reported output tokens divided by counted output tokens.
    TokenRatio,
    /// How calls ended.
    Outcome,
    /// Finish reasons.
    FinishReason,
}

impl SignalName {
    pub const ALL: [SignalName; 8] = [
        SignalName::InputTokens,
        SignalName::CachedInputTokens,
        SignalName::OutputTokens,
        SignalName::Ttft,
        SignalName::Tps,
        SignalName::TokenRatio,
        SignalName::Outcome,
        SignalName::FinishReason,
    ];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the signal consists of counts of kinds, without values.
    pub(crate) fn is_mix(self) -> bool {
        matches!(self, SignalName::Outcome | SignalName::FinishReason)
    }

    pub(crate) fn stored(self) -> Signal {
        match self {
            SignalName::InputTokens => Signal::InputTokens,
            SignalName::CachedInputTokens => Signal::CachedInputTokens,
            SignalName::OutputTokens => Signal::OutputTokens,
            SignalName::Ttft => Signal::Ttft,
            SignalName::Tps => Signal::Tps,
            SignalName::TokenRatio => Signal::TokenRatio,
            SignalName::Outcome => Signal::Outcome,
            SignalName::FinishReason => Signal::FinishReason,
        }
    }

    pub(crate) fn classes(self) -> &'static [&'static str] {
        match self {
            SignalName::Ttft => &PROMPT_LENGTHS,
            SignalName::Tps => &CONCURRENCIES,
            _ => &[],
        }
    }

    pub(crate) fn class(self, place: usize) -> String {
        let known = self.classes().get(place).copied();
        known.unwrap_or("unknown").to_owned()
    }

    /// The indexes of the classes, the unknown one last. Empty if the signal has no classes.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        let classes = self.classes().len();
        let unknown = (classes > 0).then_some(UNKNOWN_BUCKET);
        (0..classes).chain(unknown)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) signal: SignalName,
    pub(crate) place: Option<usize>,
}

impl Cell {
    pub(crate) fn all_of(signal: SignalName) -> Cell {
        Cell {
            signal,
            place: None,
        }
    }

    pub(crate) fn of(self, distributions: &Distributions) -> Distribution {
        let signal = self.signal.stored();
        match self.place {
            None => distributions.all(signal),
            Some(place) => {
                let found = distributions.bucket(signal, place);
                found.cloned().unwrap_or_default()
            }
        }
    }
}
