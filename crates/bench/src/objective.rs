//! Objectives for a load, such as `ttft_p95<=500ms` and `tps_p10>=20`.

use crate::figure::{LevelFigure, TailFigure};
use crate::metric::{Metric, Part, TailMetric, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    pub of: ObjectiveMetric,
    pub at_most: bool,
    /// The limit in seconds, tokens per second or calls per second.
    pub limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveMetric {
    Figure(Metric),
    Tail(TailMetric),
}

/// Whether a load meets an objective.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ObjectiveVerdict {
    /// The figures show that the objective is met.
    Kept,
    /// The figures show that the objective is missed.
    Missed,
    /// The figures show neither that the objective is met nor that it is missed.
    NotShown,
}

/// The result of an objective at one load.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ObjectiveResult {
    /// The objective as the user wrote it.
    pub objective: String,
    /// Whether the load meets the objective.
    pub verdict: ObjectiveVerdict,
    /// The figure that was compared with the objective, if there is one.
    pub value: Option<f64>,
    /// The end of the figure's interval, or of its bound, that decides the verdict.
    pub bound: Option<f64>,
    /// Why the verdict is `not_shown`, and what to do.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Objective {
    /// Judges the figures of a load. An objective is met if the whole interval meets it, and missed if the whole
    /// interval misses it.
    pub fn judge(
        &self,
        figures: &BTreeMap<Metric, LevelFigure>,
        tails: &[TailFigure],
    ) -> ObjectiveResult {
        let (value, worst, best) = match self.of {
            ObjectiveMetric::Figure(metric) => {
                let found = figures.get(&metric);
                let value = found.map(|figure| figure.value);
                let lower = found.and_then(|figure| figure.lower).or(value);
                let upper = found.and_then(|figure| figure.upper).or(value);
                if self.at_most {
                    (value, upper, lower)
                } else {
                    (value, lower, upper)
                }
            }
            ObjectiveMetric::Tail(tail) => {
                let found = tails.iter().find(|figure| figure.name == tail.name());
                let value = found.and_then(|figure| figure.value);
                (value, found.and_then(|figure| figure.bound), value)
            }
        };
        let keeps = |value: f64| {
            if self.at_most {
                value <= self.limit
            } else {
                value >= self.limit
            }
        };
        let verdict = match (worst, best) {
            (Some(worst), _) if keeps(worst) => ObjectiveVerdict::Kept,
            (_, Some(best)) if !keeps(best) => ObjectiveVerdict::Missed,
            _ => ObjectiveVerdict::NotShown,
        };
        ObjectiveResult {
            objective: self.to_string(),
            verdict,
            value,
            bound: worst,
            reason: None,
        }
    }

    pub fn part(&self) -> Option<Part> {
        match self.of {
            ObjectiveMetric::Figure(metric) => metric.part(),
            ObjectiveMetric::Tail(tail) => Some(tail.part()),
        }
    }

    pub fn unit(&self) -> Unit {
        match self.of {
            ObjectiveMetric::Figure(metric) => metric.unit(),
            ObjectiveMetric::Tail(tail) => tail.unit(),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.at_most { "<=" } else { ">=" };
        match self.of {
            ObjectiveMetric::Figure(metric) => f.write_str(metric.as_str())?,
            ObjectiveMetric::Tail(tail) => f.write_str(&tail.name())?,
        }
        match self.unit() {
            Unit::Seconds => write!(f, "{sign}{}ms", self.limit * 1e3),
            _ => write!(f, "{sign}{}", self.limit),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an objective such as ttft_p95<=500ms, tps_p10>=20, latency_p99<=8s or output_throughput>=1000: \
     times need <= and a unit, speeds need >="
)]
pub struct InvalidObjective(String);

impl FromStr for Objective {
    type Err = InvalidObjective;

    fn from_str(text: &str) -> Result<Objective, InvalidObjective> {
        parse(text).ok_or_else(|| InvalidObjective(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Objective> {
    let (name, value, at_most) = match text.split_once("<=") {
        Some((name, value)) => (name, value, true),
        None => text
            .split_once(">=")
            .map(|(name, value)| (name, value, false))?,
    };
    let name = name.trim();
    let of = match name.parse::<Metric>() {
        Ok(metric) => ObjectiveMetric::Figure(metric),
        Err(_) => ObjectiveMetric::Tail(TailMetric::parse(name)?),
    };
    let mut objective = Objective {
        of,
        at_most,
        limit: 0.0,
    };
    let seconds = objective.unit() == Unit::Seconds;
    objective.limit = if seconds {
        humantime::parse_duration(value.trim()).ok()?.as_secs_f64()
    } else {
        value.trim().parse().ok()?
    };
    (seconds == at_most && objective.limit.is_finite() && objective.limit >= 0.0)
        .then_some(objective)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_as_they_are_written() {
        for text in [
            "ttft_p95<=500ms",
            "tps_p10>=20",
            "latency_p99<=8000ms",
            "output_throughput>=1000",
        ] {
            let objective: Objective = text.parse().expect(text);
            assert_eq!(objective.to_string(), text);
        }
        for text in [
            "ttft_p95<=500",
            "ttft_p95>=500ms",
            "tps_p10<=20",
            "ttft<=1s",
            "ttft_p95",
            "tps_p10>=NaN",
        ] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_objective_is_kept_missed_or_not_shown() {
        let tail = |value, bound| {
            [TailFigure {
                name: "ttft_p95".to_owned(),
                value: Some(value),
                bound,
                calls: 100,
                calls_needed: 59,
            }]
        };
        let objective: Objective = "ttft_p95<=500ms".parse().expect("one");
        for (value, bound, verdict) in [
            (0.3, Some(0.4), ObjectiveVerdict::Kept),
            (0.3, Some(0.6), ObjectiveVerdict::NotShown),
            (0.6, Some(0.7), ObjectiveVerdict::Missed),
            (0.3, None, ObjectiveVerdict::NotShown),
        ] {
            let found = objective.judge(&BTreeMap::new(), &tail(value, bound));
            assert_eq!(found.verdict, verdict, "{value} {bound:?}");
        }
        let speed: Objective = "tps_mean>=40".parse().expect("one");
        let figure = |lower, upper| {
            let value = f64::midpoint(lower, upper);
            let (lower, upper) = (Some(lower), Some(upper));
            let figure = LevelFigure {
                value,
                lower,
                upper,
                ..LevelFigure::default()
            };
            BTreeMap::from([(Metric::TpsMean, figure)])
        };
        for (lower, upper, verdict) in [
            (41.0, 43.0, ObjectiveVerdict::Kept),
            (39.0, 43.0, ObjectiveVerdict::NotShown),
            (37.0, 39.0, ObjectiveVerdict::Missed),
        ] {
            assert_eq!(speed.judge(&figure(lower, upper), &[]).verdict, verdict);
        }
        assert_eq!(
            speed.judge(&BTreeMap::new(), &[]).verdict,
            ObjectiveVerdict::NotShown
        );
    }
}
