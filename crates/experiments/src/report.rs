//! How an experiment stands: what the API answers and `tokengauge experiment` prints.

use crate::compare::{Comparison, Level};
use crate::metric::Metric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::Interval;

/// How an experiment stands.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentReport")]
pub struct Report {
    /// Its name.
    pub name: String,
    /// What is one unit: `session`, `agent`, `user`, or `block of 10m`.
    pub unit: String,
    /// The probability, over all looks and metrics together, of finding a difference where there is none.
    pub alpha: f64,
    /// Calls that wait longer for the first token count as slow to start, in seconds; null where that is not set.
    pub ttft_above: Option<f64>,
    /// Calls that decode no faster count as slow, in tokens per second; null where that is not set.
    pub tps_below: Option<f64>,
    /// Units that each arm must have.
    pub min_units: u64,
    /// The arms, the baseline first.
    pub arms: Vec<ArmReport>,
    /// Calls of the experiment that name no unit, or no variant; they are in no arm.
    pub calls_without_unit: u64,
    /// Calls of units beyond the bound of the ledger.
    pub collapsed_calls: u64,
    /// Units with calls of more than one variant; they are left out.
    pub mixed_units: u64,
    /// Variants that are no arm; they are left out.
    pub other_variants: Vec<String>,
    /// The always-valid p value of the configured split; null where none is configured.
    pub split_p: Option<f64>,
    /// Why nothing is compared; null where it is.
    pub withheld: Option<String>,
    /// Each other arm against the baseline.
    pub comparisons: Vec<ArmComparison>,
    /// All of it in a sentence.
    pub verdict: String,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentArm")]
pub struct ArmReport {
    /// Its name: the variant of its calls.
    pub name: String,
    /// Its part of the units, relative to the other weights; null where agents name the variants.
    pub weight: Option<f64>,
    /// Units with a call.
    pub units: u64,
    /// Those that are complete, and in the comparison.
    pub complete_units: u64,
    /// Their calls.
    pub calls: u64,
    /// Those that failed; what the agent itself gave up is none.
    #[serde(default)]
    pub failed_calls: u64,
    /// Those whose answer had begun and was lost.
    #[serde(default)]
    pub unfinished_calls: u64,
    /// Those with a time to first token, which its metrics are of; those while the backend warmed up have none.
    #[serde(default)]
    pub ttft_calls: u64,
    /// Those with a decode speed, likewise.
    #[serde(default)]
    pub tps_calls: u64,
    /// Those with a price.
    #[serde(default)]
    pub priced_calls: u64,
}

/// An arm against the baseline.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentComparison")]
pub struct ArmComparison {
    /// The arm.
    pub variant: String,
    /// What it is compared with.
    pub baseline: String,
    /// Complete units of both.
    pub units: u64,
    /// Metric by metric.
    pub metrics: Vec<MetricReport>,
    /// The comparison in a sentence.
    pub verdict: String,
}

/// One metric of an arm and of the baseline.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ExperimentMetric")]
pub struct MetricReport {
    /// Which.
    pub metric: Metric,
    /// Its value in the baseline: a share, tokens per second, or US dollars per unit, its units in the proportions of prompt
    /// lengths and hours that both arms have; null where it is not known.
    pub baseline: Option<f64>,
    /// The lower bound of that, which holds at every look; null where too few units have what a share counts.
    #[serde(default)]
    pub baseline_lower: Option<f64>,
    /// The upper bound.
    #[serde(default)]
    pub baseline_upper: Option<f64>,
    /// Its value in the arm, likewise.
    pub value: Option<f64>,
    /// The lower bound of that.
    #[serde(default)]
    pub value_lower: Option<f64>,
    /// The upper bound.
    #[serde(default)]
    pub value_upper: Option<f64>,
    /// Whether the difference is relative to the baseline (0.08 is 8 % more); else it is one of shares (0.08 is 8
    /// percentage points more).
    pub relative: bool,
    /// By how much the arm is above the baseline; null where that is withheld.
    pub difference: Option<f64>,
    /// The lower bound of the difference, which holds at every look.
    pub lower: Option<f64>,
    /// The upper bound.
    pub upper: Option<f64>,
    /// The always-valid p value of no difference, adjusted for all metrics (Holm).
    pub p: Option<f64>,
    /// What follows.
    pub decision: Decision,
    /// Why there is no difference; null where there is one.
    pub withheld: Option<String>,
}

/// What follows from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The arm is better.
    Better,
    /// The arm is worse.
    Worse,
    /// The whole interval is near 0: within 5 %, or 2 percentage points.
    Equal,
    /// Neither is shown.
    Open,
    /// There is no difference to decide on.
    Withheld,
}

/// A relative difference within this is none.
const EQUAL_RELATIVE: f64 = 0.05;
/// A difference of shares within this is none.
const EQUAL_SHARE: f64 = 0.02;

impl MetricReport {
    pub fn of(comparison: &Comparison, alpha: f64) -> MetricReport {
        let metric = comparison.metric;
        let found = comparison.difference.as_ref();
        let value = |level: Option<Level>| level.map(|level| level.value);
        let bound = |level: Option<Level>, of: fn(Interval) -> f64| level?.interval.map(of);
        let (baseline, changed) = (comparison.baseline, comparison.changed);
        MetricReport {
            metric,
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

/// What follows from a comparison at level `alpha`, by its adjusted p value.
pub fn decision(comparison: &Comparison, alpha: f64) -> Decision {
    let Ok(found) = &comparison.difference else {
        return Decision::Withheld;
    };
    let metric = comparison.metric;
    let near = if metric.is_relative() {
        EQUAL_RELATIVE
    } else {
        EQUAL_SHARE
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
