//! The metrics that variants are compared by: ratios of sums over units.

use crate::experiment::Rules;
use crate::observed::Sums;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::ratio::Unit;

/// A metric.
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
    /// The share of calls that wait longer for the first token than the threshold.
    TtftAbove,
    /// Output tokens per second: Σ tokens / Σ seconds of decoding.
    Tps,
    /// The share of calls that decode no faster than the threshold.
    TpsBelow,
    /// US dollars per unit.
    Cost,
    /// The share of calls that failed; what the agent itself gave up is none.
    Failures,
    /// The share of calls whose answer a limit on tokens cut off.
    Truncated,
    /// The share of calls whose answer the model or a filter refused.
    Refused,
    /// The share of calls whose answer came whole and without text.
    Empty,
    /// The share of calls whose answer had begun and was lost.
    CutOff,
    /// The share of calls with a tool call that the provider called unreadable.
    InvalidToolCalls,
}

pub(crate) const METRICS: usize = 10;

impl Metric {
    /// All of them, in the order in which they are shown.
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
    ];

    /// Whether differences are relative to the baseline (0.08 is 8 % more); else they are differences of shares (0.08 is
    /// 8 percentage points more), since a share may be 0.
    pub fn is_relative(self) -> bool {
        matches!(self, Metric::Tps | Metric::Cost)
    }

    /// The difference that an estimate stands for. The estimate of a relative metric is the logarithm of the ratio.
    pub fn of_estimate(self, value: f64) -> f64 {
        if self.is_relative() {
            value.exp_m1()
        } else {
            value
        }
    }

    pub fn more_is_better(self) -> bool {
        self == Metric::Tps
    }

    /// Whether the rules say what it needs: a threshold.
    pub fn is_defined(self, rules: &Rules) -> bool {
        match self {
            Metric::TtftAbove => rules.ttft_above.is_some(),
            Metric::TpsBelow => rules.tps_below.is_some(),
            _ => true,
        }
    }

    /// What a unit adds to the two sums of the ratio: tokens and seconds, US dollars and units, or calls and calls.
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
        }
    }
}
