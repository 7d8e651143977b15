//! The figures of a benchmark with their names, units and directions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure that is measured in each trial.
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
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// Output tokens per second of all streams together.
    OutputThroughput,
    /// Complete calls per second.
    RequestThroughput,
    /// All decode tokens divided by all decode seconds: `tps.output` of the calls, weighted by their decode time.
    TpsMean,
    /// The median of `tps.output`.
    TpsP50,
    /// All decode tokens, as the provider counts them, divided by all decode seconds.
    ReportedTpsMean,
    /// Mean time to first token.
    TtftMean,
    /// Median time to first token.
    TtftP50,
    /// Mean time between tokens.
    ItlMean,
    /// Median time between tokens.
    ItlP50,
    /// The 99th percentile of the time between tokens.
    ItlP99,
    /// Mean end-to-end latency.
    LatencyMean,
    /// Median end-to-end latency.
    LatencyP50,
    /// Mean input tokens of a call.
    InputTokens,
    /// Mean output tokens of a call.
    OutputTokens,
}

impl Metric {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub fn unit(self) -> Unit {
        match self {
            Metric::OutputThroughput
            | Metric::TpsMean
            | Metric::TpsP50
            | Metric::ReportedTpsMean => Unit::TokensPerSecond,
            Metric::RequestThroughput => Unit::CallsPerSecond,
            Metric::InputTokens | Metric::OutputTokens => Unit::Tokens,
            _ => Unit::Seconds,
        }
    }

    /// Returns the part of the figures that this figure belongs to; `None` if the workload determines it instead of the
    /// backend.
    pub fn part(self) -> Option<Part> {
        match self {
            Metric::TtftMean | Metric::TtftP50 => Some(Part::Ttft),
            Metric::TpsMean
            | Metric::TpsP50
            | Metric::ReportedTpsMean
            | Metric::ItlMean
            | Metric::ItlP50
            | Metric::ItlP99 => Some(Part::Tps),
            Metric::OutputThroughput
            | Metric::RequestThroughput
            | Metric::LatencyMean
            | Metric::LatencyP50 => Some(Part::Latency),
            Metric::InputTokens | Metric::OutputTokens => None,
        }
    }

    /// Returns whether higher is better; `None` if the workload determines the figure instead of the backend.
    pub fn higher_is_better(self) -> Option<bool> {
        match self.unit() {
            Unit::TokensPerSecond | Unit::CallsPerSecond => Some(true),
            Unit::Seconds => Some(false),
            Unit::Tokens => None,
        }
    }
}

/// Figures that are withheld together, because one series of calls shows whether they are steady.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Time to first token.
    #[strum(serialize = "TTFT")]
    Ttft,
    /// Output tokens per second of a call, and the time between tokens.
    #[strum(serialize = "TPS and ITL")]
    Tps,
    /// End-to-end latency and throughput.
    #[strum(serialize = "latency and throughput")]
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    TokensPerSecond,
    CallsPerSecond,
    Tokens,
}

impl Unit {
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds if value.abs() < 1.0 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::TokensPerSecond => format!("{value:.1} tok/s"),
            Unit::CallsPerSecond => format!("{value:.2} calls/s"),
            Unit::Tokens => format!("{value:.0} tokens"),
        }
    }
}

/// The quantity of a tail percentile.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TailOf {
    /// Time to first token.
    Ttft,
    /// Output tokens per second of a call. The bad tail is the low one.
    Tps,
    /// End-to-end latency.
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailMetric {
    pub of: TailOf,
    /// In percent from the good side: 95 is p95 of times and p5 of speeds.
    pub percent: u8,
}

impl TailMetric {
    pub const SHOWN: [TailMetric; 9] = {
        const fn tail(of: TailOf, percent: u8) -> TailMetric {
            TailMetric { of, percent }
        }
        [
            tail(TailOf::Ttft, 90),
            tail(TailOf::Ttft, 95),
            tail(TailOf::Ttft, 99),
            tail(TailOf::Tps, 90),
            tail(TailOf::Tps, 95),
            tail(TailOf::Tps, 99),
            tail(TailOf::Latency, 90),
            tail(TailOf::Latency, 95),
            tail(TailOf::Latency, 99),
        ]
    };

    /// Returns the name, such as `ttft_p95` or `tps_p5`.
    pub fn name(self) -> String {
        let of: &str = self.of.into();
        match self.of {
            TailOf::Tps => format!("{of}_p{}", 100 - self.percent),
            _ => format!("{of}_p{}", self.percent),
        }
    }

    pub fn part(self) -> Part {
        match self.of {
            TailOf::Ttft => Part::Ttft,
            TailOf::Tps => Part::Tps,
            TailOf::Latency => Part::Latency,
        }
    }

    pub fn parse(name: &str) -> Option<TailMetric> {
        let (of, percent) = name.rsplit_once("_p")?;
        let (of, percent) = (of.parse().ok()?, percent.parse::<u8>().ok()?);
        let percent = match of {
            TailOf::Tps => 100u8.checked_sub(percent)?,
            _ => percent,
        };
        (51..=99)
            .contains(&percent)
            .then_some(TailMetric { of, percent })
    }

    pub fn unit(self) -> Unit {
        match self.of {
            TailOf::Tps => Unit::TokensPerSecond,
            _ => Unit::Seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_named_by_their_bad_side() {
        for tail in TailMetric::SHOWN {
            assert_eq!(TailMetric::parse(&tail.name()), Some(tail));
        }
        let slow = TailMetric {
            of: TailOf::Tps,
            percent: 95,
        };
        assert_eq!(slow.name(), "tps_p5");
        for name in [
            "tps_p95",
            "ttft_p50",
            "ttft_p5",
            "ttft_p100",
            "itl_p99",
            "ttft",
        ] {
            assert_eq!(TailMetric::parse(name), None, "{name}");
        }
    }
}
