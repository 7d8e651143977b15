//! An objective as data: the indicator, the calls it selects, and the window.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::selector::Selector;

/// Objectives of one process: each costs a few dozen series and 40 KB.
pub const MAX_OBJECTIVES: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Its name; the `slo` label.
    pub name: Arc<str>,
    /// The share of events that are to be good: above 0, at most 1.
    pub objective: f64,
    /// The window of the objective, which is the budget's period.
    pub window: Duration,
    /// Whether that is the calendar month, in UTC, in place of the time that has just
    /// passed; then `window` is that of the longest month, for alerts.
    pub calendar_month: bool,
    pub judgement: Judgement,
    /// Events in the long window of an alert below which it does not fire.
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

/// The longest calendar month.
pub const MONTH: Duration = Duration::from_secs(31 * 24 * 3600);

impl Objective {
    pub fn window_label(&self) -> String {
        window_label(self.window, self.calendar_month)
    }

    /// The share of events that may be bad: 1 − objective. 0 where nothing may be.
    pub fn budget(&self) -> f64 {
        1.0 - self.objective
    }

    /// The largest burn rate this objective can show: all events bad, 1 ÷ budget.
    pub fn max_burn(&self) -> f64 {
        1.0 / self.budget()
    }
}

/// How events are judged. Counts under one judgement are meaningless under another; they stay
/// valid where only the objective or the window changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The indicator and its threshold.
    pub sli: Sli,
    pub select: Selector,
    pub weight: Weight,
    /// A call with fewer output tokens is excluded.
    pub min_output_tokens: u64,
    /// A minute with fewer calls under way is excluded, where minutes are judged.
    #[serde(default)]
    pub min_streams: u32,
    /// Whether calls during the warm-up of an upstream count.
    pub warm_up: bool,
    /// Slices of time in place of calls as events.
    pub slice: Option<Slice>,
}

/// A service level indicator with its threshold. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Sli {
    /// No error of the upstream.
    Availability,
    /// Time to first token, at most.
    Ttft(f64),
    /// Decode speed, tokens per second, at least.
    OutputTps(f64),
    /// Speed with queue and prefill included, tokens per second, at least.
    TotalTps(f64),
    /// Time to the first token after reasoning, at most.
    TimeToFirstAnswer(f64),
    /// End to end, at most.
    Duration(f64),
    /// Mean gap per token of a call, or, weighted by token, each token's gap; at most.
    InterTokenLatency(f64),
    /// Gaps over the stall threshold, at most.
    Stalls(u64),
    /// The longest gap between chunks with tokens, at most.
    LongestGap(f64),
    /// Cost of a call in US dollars, at most.
    CostUsd(f64),
    /// Tokens per second of all calls of an upstream together, minute by minute, at least.
    Throughput(f64),
}

impl Sli {
    /// Its key in the configuration.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The threshold; none for availability.
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

    /// The same indicator at another threshold; availability has none.
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

    /// Whether more is better.
    pub fn at_least(self) -> bool {
        matches!(
            self,
            Sli::OutputTps(_) | Sli::TotalTps(_) | Sli::Throughput(_)
        )
    }

    /// In words, such as `ttft ≤ 0.5 s`.
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
    /// A token: a long stream weighs more, and shows while it runs.
    Token,
}

/// Slices of time as events: a slice is good when at least `target` of its calls are.
/// `target` 0.99 is the p99 call of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub every: Duration,
    /// The share of its calls that must be good.
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
