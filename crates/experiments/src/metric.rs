//! The metrics of an experiment: ratios of sums over units.

use crate::experiment::Rules;
use crate::observed::Sums;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::ratio::Unit;

/// A metric by which variants are compared.
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
pub enum Metric {
    /// The share of calls whose time to first token exceeds the threshold.
    TtftAbove,
    /// Output tokens per second: Σ tokens / Σ seconds of decoding.
    Tps,
    /// The share of calls whose decode speed is at most the threshold.
    TpsBelow,
    /// US dollars per unit.
    Cost,
    /// The share of calls that failed. Calls that the agent cancelled do not count as failed.
    Failures,
    /// The share of calls whose response a token limit cut off.
    Truncated,
    /// The share of calls whose response the model or a filter refused.
    Refused,
    /// The share of calls whose response was complete and had no text.
    Empty,
    /// The share of calls whose response had begun and was lost.
    CutOff,
    /// The share of calls with a tool call that the provider reported as unreadable.
    InvalidToolCalls,
    /// The average of a score from outside: Σ values / Σ scores. A higher score is better.
    Score,
}

pub(crate) const METRICS: usize = 11;

impl Metric {
    /// All metrics in display order.
    pub const ALL: [Metric; METRICS] = [
        Metric::TtftAbove,
        Metric::Tps,
        Metric::TpsBelow,
        Metric::Cost,
        Metric::Failures,
        Metric::Truncated,
        Metric::Refused,
        Metric::Empty,
        Metric::CutOff,
        Metric::InvalidToolCalls,
        Metric::Score,
    ];

    /// Returns whether differences are relative to the baseline (0.08 is 8 % more). Otherwise they are differences of
    /// shares (0.08 is 8 percentage points more), because a share may be 0, or of scores.
    pub fn is_relative(self) -> bool {
        matches!(self, Metric::Tps | Metric::Cost)
    }

    /// Converts an estimate into a difference. The estimate of a relative metric is the logarithm of the ratio.
    pub fn of_estimate(self, value: f64) -> f64 {
        if self.is_relative() {
            value.exp_m1()
        } else {
            value
        }
    }

    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::Tps | Metric::Score)
    }

    pub fn is_defined(self, rules: &Rules) -> bool {
        match self {
            Metric::TtftAbove => rules.ttft_above.is_some(),
            Metric::TpsBelow => rules.tps_below.is_some(),
            // Each score is compared by its name.
            Metric::Score => false,
            _ => true,
        }
    }

    /// Returns the contributions of a unit to the two sums of the ratio: tokens and seconds, US dollars and units, or
    /// calls and calls, or values and scores.
    pub fn of(self, sums: &Sums) -> Unit {
        let share = |part: u64, all: u64| Unit {
            numerator: part as f64,
            denominator: all as f64,
        };
        match self {
            Metric::TtftAbove => share(sums.ttft_above, sums.ttft_calls),
            Metric::Tps => Unit {
                numerator: sums.decode_tokens as f64,
                denominator: sums.decode_us as f64 / 1e6,
            },
            Metric::TpsBelow => share(sums.tps_below, sums.tps_calls),
            Metric::Cost => Unit {
                numerator: sums.cost_nano_usd as f64 / 1e9,
                denominator: 1.0,
            },
            Metric::Failures => share(sums.failures, sums.calls),
            Metric::Truncated => share(sums.truncated, sums.calls),
            Metric::Refused => share(sums.refused, sums.calls),
            Metric::Empty => share(sums.empty, sums.calls),
            Metric::CutOff => share(sums.cut_off, sums.calls),
            Metric::InvalidToolCalls => share(sums.invalid_tool_calls, sums.calls),
            Metric::Score => Unit {
                numerator: sums.score.sum,
                denominator: sums.score.count as f64,
            },
        }
    }
}
