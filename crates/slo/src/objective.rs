//! The definition of an objective: the indicator, the selected calls, and the window.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::selector::Selector;

/// Maximum number of objectives; each needs a few dozen series and 40 KB.
pub const MAX_OBJECTIVES: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    pub name: Arc<str>,
    /// The share of events that must be good: above 0, at most 1.
    pub objective: f64,
    pub window: Duration,
    /// Whether the period is the calendar month in UTC instead of a rolling window. Then `window`
    /// is the length of the longest month, which alerts use.
    pub calendar_month: bool,
    pub judgement: Judgement,
    /// An alert fires only if its long window has at least this number of events.
    pub min_events: u64,
    pub description: Option<String>,
    pub runbook_url: Option<String>,
    pub dashboard_url: Option<String>,
}

pub(super) fn window_label(window: Duration, calendar_month: bool) -> String {
    if calendar_month {
        "month".to_owned()
    } else {
        super::windows::label(window)
    }
}

pub const MONTH: Duration = Duration::from_secs(31 * 24 * 3600);

impl Objective {
    pub fn window_label(&self) -> String {
        window_label(self.window, self.calendar_month)
    }

    /// The share of events that may be bad: 1 − objective.
    pub fn budget(&self) -> f64 {
        1.0 - self.objective
    }

    /// The highest possible burn rate of this objective: 1 ÷ budget, if all events are bad.
    pub fn max_burn(&self) -> f64 {
        1.0 / self.budget()
    }
}

/// How events are judged. Counts are valid only under the judgement that made them. They remain
/// valid if only the objective or the window changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub sli: Sli,
    pub select: Selector,
    pub weight: Weight,
    /// Calls with fewer output tokens are excluded.
    pub min_output_tokens: u64,
    /// Minutes with fewer concurrent streams are excluded, if minutes are judged.
    #[serde(default)]
    pub min_streams: u32,
    /// Whether calls during the warm-up of an upstream count.
    pub warm_up: bool,
    /// Slices of time as events instead of calls.
    pub slice: Option<Slice>,
}

/// A service level indicator with its threshold. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Sli {
    /// The upstream did not fail.
    Availability,
    /// Maximum time to first token.
    Ttft(f64),
    /// Minimum decode speed in tokens per second.
    OutputTps(f64),
    /// Minimum speed including queue and prefill, in tokens per second.
    TotalTps(f64),
    /// Maximum time to the first token after reasoning.
    TimeToFirstAnswer(f64),
    /// Maximum duration of a call.
    Duration(f64),
    /// Maximum mean gap per token of a call. Weighted by token, maximum gap of each token.
    InterTokenLatency(f64),
    /// Maximum number of gaps over the stall threshold.
    Stalls(u64),
    /// Maximum gap between chunks with tokens.
    LongestGap(f64),
    /// Maximum cost of a call in US dollars.
    CostUsd(f64),
    /// Minimum tokens per second of all calls of an upstream together, by the minute.
    Throughput(f64),
}

impl Sli {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub fn threshold(self) -> Option<f64> {
        match self {
            Sli::Availability => None,
            Sli::Stalls(most) => Some(most as f64),
            Sli::Ttft(value)
            | Sli::OutputTps(value)
            | Sli::TotalTps(value)
            | Sli::TimeToFirstAnswer(value)
            | Sli::Duration(value)
            | Sli::InterTokenLatency(value)
            | Sli::LongestGap(value)
            | Sli::Throughput(value)
            | Sli::CostUsd(value) => Some(value),
        }
    }

    pub fn with_threshold(self, value: f64) -> Sli {
        match self {
            Sli::Availability => Sli::Availability,
            Sli::Ttft(_) => Sli::Ttft(value),
            Sli::OutputTps(_) => Sli::OutputTps(value),
            Sli::TotalTps(_) => Sli::TotalTps(value),
            Sli::TimeToFirstAnswer(_) => Sli::TimeToFirstAnswer(value),
            Sli::Duration(_) => Sli::Duration(value),
            Sli::InterTokenLatency(_) => Sli::InterTokenLatency(value),
            Sli::Stalls(_) => Sli::Stalls(value as u64),
            Sli::LongestGap(_) => Sli::LongestGap(value),
            Sli::CostUsd(_) => Sli::CostUsd(value),
            Sli::Throughput(_) => Sli::Throughput(value),
        }
    }

    pub fn at_least(self) -> bool {
        matches!(
            self,
            Sli::OutputTps(_) | Sli::TotalTps(_) | Sli::Throughput(_)
        )
    }

    /// A readable form, such as `ttft ≤ 0.5 s`.
    pub fn in_words(self) -> String {
        let Some(threshold) = self.threshold() else {
            return "no upstream error".to_owned();
        };
        let (name, sign) = (self.as_str(), if self.at_least() { "≥" } else { "≤" });
        let unit = match self {
            Sli::OutputTps(_) | Sli::TotalTps(_) | Sli::Throughput(_) => " tokens/s",
            Sli::Stalls(_) => "",
            Sli::CostUsd(_) => " USD",
            _ => " s",
        };
        format!("{name} {sign} {threshold}{unit}")
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    #[default]
    Request,
    /// Tokens are events: a long stream has more weight and counts while it runs.
    Token,
}

/// Slices of time as events. A slice is good if at least `target` of its calls are good; 0.99
/// judges the p99 of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub every: Duration,
    pub target: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_read_as_written() {
        assert_eq!(Sli::Ttft(0.5).in_words(), "ttft ≤ 0.5 s");
        assert_eq!(Sli::OutputTps(30.0).in_words(), "output_tps ≥ 30 tokens/s");
        assert_eq!(Sli::Availability.in_words(), "no upstream error");
    }
}
