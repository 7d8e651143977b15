//! Comparison of two groups of units, metric by metric.
//!
//! Every metric is a ratio of sums over units, with its variance by the delta method. Every interval comes from an
//! asymptotic confidence sequence. It is valid at all looks together, so that it is safe to look every minute and to
//! stop at any time.

use crate::experiment::Rules;
use crate::group::{Group, Tally};
use crate::metric::Metric;
use crate::strata::Strata;
use crate::withheld::Withheld;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::ratio::difference;
use tokengauge_stats::sequence::{Options, Sequence};
use tokengauge_stats::{Estimate, Interval, StatsError, holm, stratified};

/// The significance level of the checks that withhold a comparison.
pub const CHECK_ALPHA: f64 = 0.01;
/// The minimum number of units of both groups with the event that a share counts, and of units without it. With fewer,
/// the variance of a rare event is unknown.
pub const MIN_UNITS_WITH_EVENT: u64 = 50;
/// Intervals are tightest at this multiple of the minimum number of units.
const TIGHTEST: u64 = 5;
const MAX_UNPRICED: f64 = 0.01;

#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub metric: Metric,
    /// The score, if that is the metric.
    pub score: Option<ComparedScore>,
    pub baseline: Option<Level>,
    pub changed: Option<Level>,
    pub difference: Result<Difference, Withheld>,
}

/// A score that is compared.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ComparedScore {
    /// The name of the score.
    pub name: String,
    /// Whether all values are 0 or 1, so that the average is a share and differences are percentage points. Otherwise
    /// values and differences are in the unit of the score.
    pub is_share: bool,
}

/// A metric of one group. Its units are weighted by the strata of both groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    pub value: f64,
    /// The interval at confidence 1 − α, valid at all looks together; `None` if too few units have the event that a
    /// share counts.
    pub interval: Option<Interval>,
}

/// The difference of a metric from the baseline: relative or absolute, as [`Metric::is_relative`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The estimate, for one-sided bounds at other levels. For a relative metric it is an estimate of the logarithm of
    /// the ratio.
    pub estimate: Estimate,
    pub value: f64,
    pub interval: Interval,
    pub p: f64,
    /// The p value adjusted for all metrics; equal to `p` until [`adjust`] runs.
    pub adjusted_p: f64,
}

/// Returns the confidence sequence that the rules define.
///
/// # Errors
///
/// Returns an error if α or the minimum number of units is out of range.
pub fn sequence(rules: &Rules) -> Result<Sequence, StatsError> {
    sequence_of(2, rules)
}

fn sequence_of(groups: u64, rules: &Rules) -> Result<Sequence, StatsError> {
    let units = rules.min_units.max(2).saturating_mul(groups);
    Sequence::new(Options {
        confidence: 1.0 - rules.alpha,
        tightest_at: units.saturating_mul(TIGHTEST),
        first_look: units,
    })
}

/// Compares a group with a baseline in every metric that the rules define. The p values are not adjusted yet.
pub fn compare(baseline: &Group, changed: &Group, rules: &Rules) -> Vec<Comparison> {
    let defined = Metric::ALL.into_iter();
    compare_in(
        defined.filter(|metric| metric.is_defined(rules)),
        [baseline, changed],
        rules,
    )
}

/// Compares two groups in these metrics.
pub(crate) fn compare_in(
    metrics: impl Iterator<Item = Metric>,
    [baseline, changed]: [&Group; 2],
    rules: &Rules,
) -> Vec<Comparison> {
    let sequence = sequence(rules);
    let alone = sequence_of(1, rules).ok();
    let strata = Strata::of(baseline, changed);
    let one = |metric: Metric| {
        let strata = strata.by(metric);
        let of = |estimate: fn(&stratified::Strata) -> Result<Estimate, StatsError>| {
            estimate(strata.as_ref().ok()?).ok()
        };
        let sides = [
            (baseline, of(stratified::Strata::baseline)),
            (changed, of(stratified::Strata::changed)),
        ];
        let [a, b] = sides.map(|(group, estimate)| level(metric, group, estimate, alone.as_ref()));
        let difference = match unmeasured_differ(metric, [baseline, changed], &sequence) {
            Some(reason) => Err(reason),
            None => compared(metric, [baseline, changed], strata, &sequence),
        };
        Comparison {
            metric,
            score: None,
            baseline: a,
            changed: b,
            difference,
        }
    };
    metrics.map(one).collect()
}

/// Adjusts the p values of all comparisons of one experiment by Holm's method. A withheld comparison counts with a p
/// value of 1, so that the family has the same size at every look.
pub fn adjust(families: &mut [Vec<Comparison>]) {
    let p = |comparison: &Comparison| comparison.difference.as_ref().map_or(1.0, |found| found.p);
    let all: Vec<f64> = families.iter().flatten().map(p).collect();
    let Ok(adjusted) = holm::adjust(&all) else {
        return;
    };
    let comparisons = families.iter_mut().flatten();
    for (comparison, adjusted) in comparisons.zip(adjusted) {
        if let Ok(found) = &mut comparison.difference {
            found.adjusted_p = adjusted;
        }
    }
}

/// Returns a metric of one group. Without an estimate, which needs two units, it is the plain ratio of the sums.
fn level(
    metric: Metric,
    group: &Group,
    estimate: Option<Estimate>,
    sequence: Option<&Sequence>,
) -> Option<Level> {
    let plain = group.value(metric)?;
    let tally = group.tally(metric);
    let share = group.is_share(metric);
    let known = !share || tally.with.min(tally.without) >= MIN_UNITS_WITH_EVENT;
    let interval = estimate.filter(|_| known).and_then(|estimate| {
        let interval = sequence?.interval(&estimate).ok()?;
        let most = if share { 1.0 } else { f64::INFINITY };
        // A score may be negative.
        let least = if share || metric.is_relative() {
            0.0
        } else {
            f64::NEG_INFINITY
        };
        Some(Interval {
            lower: interval.lower.max(least),
            upper: interval.upper.min(most),
        })
    });
    Some(Level {
        value: estimate.map_or(plain, |estimate| estimate.value),
        interval,
    })
}

fn compared(
    metric: Metric,
    [baseline, changed]: [&Group; 2],
    strata: Result<stratified::Strata, StatsError>,
    sequence: &Result<Sequence, StatsError>,
) -> Result<Difference, Withheld> {
    if metric == Metric::Cost {
        priced(&[baseline, changed])?;
    } else if baseline.is_share(metric) && changed.is_share(metric) {
        enough(baseline.tally(metric), changed.tally(metric))?;
    }
    let strata = strata?;
    let estimate = if metric.is_relative() {
        strata.log_ratio()
    } else {
        strata.difference()
    }?;
    let sequence = sequence.clone()?;
    let p = sequence.p_value(&estimate, 0.0)?;
    let interval = sequence.interval(&estimate)?;
    Ok(Difference {
        estimate,
        value: metric.of_estimate(estimate.value),
        interval: Interval {
            lower: metric.of_estimate(interval.lower),
            upper: metric.of_estimate(interval.upper),
        },
        p,
        adjusted_p: p,
    })
}

fn enough(a: &Tally, b: &Tally) -> Result<(), Withheld> {
    let (with, without) = (a.with + b.with, a.without + b.without);
    if with.min(without) >= MIN_UNITS_WITH_EVENT {
        Ok(())
    } else {
        Err(Withheld::RareEvent { with, without })
    }
}

/// Checks that all calls that should have a price have one.
///
/// # Errors
///
/// Returns an error if more than 1 % of a group's calls have no price, not counting failed calls, or if no call has
/// one.
pub fn priced(groups: &[&Group]) -> Result<(), Withheld> {
    let is_priced = |group: &&Group| {
        group.priced_calls() > 0 && group.unpriced() as f64 <= MAX_UNPRICED * group.calls() as f64
    };
    if groups.iter().all(is_priced) {
        Ok(())
    } else {
        Err(Withheld::NoPrice {
            calls: groups.iter().map(|group| group.unpriced()).sum(),
        })
    }
}

/// Returns why the measured calls of the two groups are not comparable: the groups have different shares of calls
/// without a speed or without a time to first token.
fn unmeasured_differ(
    metric: Metric,
    groups: [&Group; 2],
    sequence: &Result<Sequence, StatsError>,
) -> Option<Withheld> {
    let [a, b] = groups.map(|group| group.unmeasured(metric));
    let (a, b) = (a?, b?);
    enough(a, b).ok()?;
    let estimate = difference(&a.arm, &b.arm).ok()?;
    let p = sequence.as_ref().ok()?.p_value(&estimate, 0.0).ok()?;
    let share = |tally: &Tally| tally.arm.ratio().map_or(0.0, |ratio| ratio.value);
    (p <= CHECK_ALPHA).then(|| Withheld::UnmeasuredDiffer {
        what: match metric {
            Metric::TtftAbove => "time to first token",
            _ => "TPS",
        },
        baseline: share(a),
        changed: share(b),
    })
}
