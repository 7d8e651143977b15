//! The report on an experiment, which the API returns and `tokengauge experiment` prints.

use crate::compare::{ComparedScore, Comparison, Level};
use crate::metric::Metric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::Interval;

/// The state of an experiment.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentReport")]
pub struct Report {
    /// The name of the experiment.
    pub name: String,
    /// The kind of unit: `session`, `agent`, `user`, or `block of 10m`.
    pub unit: String,
    /// The probability, over all looks and metrics together, of finding a difference that does not exist.
    pub alpha: f64,
    /// Calls with a longer time to first token count as slow to start, in seconds; null if no threshold is set.
    pub ttft_above: Option<f64>,
    /// Calls with this decode speed or a lower one count as slow, in tokens per second; null if no threshold is set.
    pub tps_below: Option<f64>,
    /// The minimum number of units of each arm.
    pub min_units: u64,
    /// The arms, the baseline first.
    pub arms: Vec<ArmReport>,
    /// Calls of the experiment without a unit or without a variant. They are not part of an arm.
    pub calls_without_unit: u64,
    /// Calls of units beyond the limit of the ledger.
    pub collapsed_calls: u64,
    /// Units with calls of more than one variant, which are excluded.
    pub mixed_units: u64,
    /// Variants that are not an arm, which are excluded.
    pub other_variants: Vec<String>,
    /// The always-valid p value of the configured split; null if no split is configured.
    pub split_p: Option<f64>,
    /// Why nothing is compared; null if the arms are compared.
    pub withheld: Option<String>,
    /// The comparisons of the other arms with the baseline.
    pub comparisons: Vec<ArmComparison>,
    /// The state of the experiment in a sentence.
    pub verdict: String,
}

/// An arm of an experiment.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentArm")]
pub struct ArmReport {
    /// The name of the arm, which is the variant of its calls.
    pub name: String,
    /// The weight of the arm relative to the other weights; null if agents name the variants.
    pub weight: Option<f64>,
    /// The number of units with a call.
    pub units: u64,
    /// The number of complete units, which are part of the comparison.
    pub complete_units: u64,
    /// The number of calls of the complete units.
    pub calls: u64,
    /// The number of failed calls. Calls that the agent cancelled do not count as failed.
    #[serde(default)]
    pub failed_calls: u64,
    /// The number of calls whose response had begun and was lost.
    #[serde(default)]
    pub unfinished_calls: u64,
    /// The number of calls with a time to first token. Calls during the warm-up of the backend have none.
    #[serde(default)]
    pub ttft_calls: u64,
    /// The number of calls with a decode speed. Calls during the warm-up of the backend have none.
    #[serde(default)]
    pub tps_calls: u64,
    /// The number of calls with a price.
    #[serde(default)]
    pub priced_calls: u64,
}

/// The comparison of an arm with the baseline.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentComparison")]
pub struct ArmComparison {
    /// The name of the arm.
    pub variant: String,
    /// The name of the baseline.
    pub baseline: String,
    /// The number of complete units of both arms.
    pub units: u64,
    /// The comparisons by metric.
    pub metrics: Vec<MetricReport>,
    /// The comparison in a sentence.
    pub verdict: String,
}

/// A metric of an arm and of the baseline.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentMetric")]
pub struct MetricReport {
    /// The metric.
    pub metric: Metric,
    /// The score, if that is the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<ComparedScore>,
    /// The value of the metric in the baseline: a share, tokens per second, or US dollars per unit. Units are weighted
    /// by the prompt lengths and hours of both arms. Null if it is unknown.
    pub baseline: Option<f64>,
    /// The lower bound of the baseline value, valid at every look; null if too few units have the event that a share
    /// counts.
    #[serde(default)]
    pub baseline_lower: Option<f64>,
    /// The upper bound of the baseline value, valid at every look.
    #[serde(default)]
    pub baseline_upper: Option<f64>,
    /// The value of the metric in the arm. Units are weighted by the prompt lengths and hours of both arms. Null if it
    /// is unknown.
    pub value: Option<f64>,
    /// The lower bound of the value in the arm, valid at every look.
    #[serde(default)]
    pub value_lower: Option<f64>,
    /// The upper bound of the value in the arm, valid at every look.
    #[serde(default)]
    pub value_upper: Option<f64>,
    /// Whether the difference is relative to the baseline (0.08 is 8 % more). Otherwise it is a difference of shares
    /// (0.08 is 8 percentage points more), or of scores.
    pub relative: bool,
    /// The value of the arm minus the value of the baseline, or its relative difference; null if it is withheld.
    pub difference: Option<f64>,
    /// The lower bound of the difference, valid at every look.
    pub lower: Option<f64>,
    /// The upper bound of the difference, valid at every look.
    pub upper: Option<f64>,
    /// The always-valid p value of no difference, adjusted for all metrics (Holm).
    pub p: Option<f64>,
    /// The decision about the metric.
    pub decision: Decision,
    /// Why there is no difference; null if there is one.
    pub withheld: Option<String>,
}

/// The decision from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The arm is better.
    Better,
    /// The arm is worse.
    Worse,
    /// The arms are equal: the whole interval is within 5 % or 2 percentage points of 0.
    Equal,
    /// The data show neither a difference nor equality.
    Open,
    /// The comparison is withheld.
    Withheld,
}

/// Relative differences within this limit count as equal.
const EQUAL_RELATIVE: f64 = 0.05;
/// Differences of shares within this limit count as equal.
const EQUAL_SHARE: f64 = 0.02;

impl MetricReport {
    /// Returns the label of the metric in time series: its name, or the name of the score.
    pub fn label(&self) -> String {
        let metric: &str = self.metric.into();
        let score = self.score.as_ref();
        score.map_or_else(
            || metric.to_owned(),
            |score| format!("{metric} {}", score.name),
        )
    }

    pub fn of(comparison: &Comparison, alpha: f64) -> MetricReport {
        let metric = comparison.metric;
        let found = comparison.difference.as_ref();
        let value = |level: Option<Level>| level.map(|level| level.value);
        let bound = |level: Option<Level>, of: fn(Interval) -> f64| level?.interval.map(of);
        let (baseline, changed) = (comparison.baseline, comparison.changed);
        MetricReport {
            metric,
            score: comparison.score.clone(),
            baseline: value(baseline),
            baseline_lower: bound(baseline, |interval| interval.lower),
            baseline_upper: bound(baseline, |interval| interval.upper),
            value: value(changed),
            value_lower: bound(changed, |interval| interval.lower),
            value_upper: bound(changed, |interval| interval.upper),
            relative: metric.is_relative(),
            difference: found.ok().map(|found| found.value),
            lower: found.ok().map(|found| found.interval.lower),
            upper: found.ok().map(|found| found.interval.upper),
            p: found.ok().map(|found| found.adjusted_p),
            decision: decision(comparison, alpha),
            withheld: found.err().map(ToString::to_string),
        }
    }
}

pub fn decision(comparison: &Comparison, alpha: f64) -> Decision {
    let Ok(found) = &comparison.difference else {
        return Decision::Withheld;
    };
    let metric = comparison.metric;
    let near = match &comparison.score {
        _ if metric.is_relative() => EQUAL_RELATIVE,
        // A score that is not a share is in its own unit.
        Some(score) if !score.is_share => {
            EQUAL_RELATIVE * comparison.baseline.map_or(0.0, |level| level.value.abs())
        }
        _ => EQUAL_SHARE,
    };
    if found.adjusted_p <= alpha {
        let more = found.value > 0.0;
        return if more == metric.more_is_better() {
            Decision::Better
        } else {
            Decision::Worse
        };
    }
    if found.interval.is_within(-near, near) {
        Decision::Equal
    } else {
        Decision::Open
    }
}
