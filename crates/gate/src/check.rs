//! Checks: what is known about a value, compared with its limit.

use crate::report::{Bound, Check, CheckKind, GateVerdict};
use crate::settings::Gate;
use tokengauge_experiments::compare::{Comparison, MIN_UNITS_WITH_EVENT, priced};
use tokengauge_experiments::{Group, Metric, Tally, Withheld};
use tokengauge_stats::ratio::Arm;
use tokengauge_stats::sequence::{Options, Sequence};
use tokengauge_stats::{Estimate, StatsError, share};

/// The intervals are tightest at this many times the least number of units, as in experiments.
const TIGHTEST: u64 = 5;

/// The confidence needed to say that a check holds, or does not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// A gate passes only if all checks hold, so each check may use the whole α: a false pass needs an error in the check
    /// that does not hold.
    holds: f64,
    /// A gate fails if any check does not hold, so all checks share α.
    fails: f64,
    min_units: u64,
}

impl Levels {
    pub(crate) fn of(gate: &Gate) -> Levels {
        let (alpha, ceilings) = (gate.rules.alpha, &gate.ceilings);
        let ceilings = [ceilings.failures, ceilings.cost].iter().flatten().count();
        // A burn rate is not an estimate and is never wrong.
        let checks = gate.margins.0.len() + gate.scores.len() + ceilings;
        Levels {
            holds: 1.0 - alpha,
            fails: 1.0 - alpha / checks.max(1) as f64,
            min_units: gate.rules.min_units.max(2),
        }
    }

    fn sequence(self, confidence: f64, sides: u64) -> Result<Sequence, StatsError> {
        let first_look = self.min_units.saturating_mul(sides);
        Sequence::new(Options {
            confidence,
            tightest_at: first_look.saturating_mul(TIGHTEST),
            first_look,
        })
    }

    /// The bounds of an estimate with `sides` sides. A larger value is worse.
    pub(crate) fn bounds(self, worse: &Estimate, sides: u64) -> Result<Bound, StatsError> {
        Ok(Bound {
            value: worse.value,
            lower: self.sequence(self.fails, sides)?.lower_bound(worse)?,
            upper: self.sequence(self.holds, sides)?.upper_bound(worse)?,
        })
    }

    /// The bounds of a share, from the number of events and the number of calls or units that may have one.
    pub(crate) fn share(self, (with, of): (f64, f64)) -> Result<Bound, StatsError> {
        Ok(Bound {
            value: with / of,
            lower: share::interval(with, of, self.fails)?.lower,
            upper: share::interval(with, of, self.holds)?.upper,
        })
    }

    /// The bounds of the difference of two shares. Each share has half of the error probability.
    pub(crate) fn shares(
        self,
        baseline: (f64, f64),
        candidate: (f64, f64),
    ) -> Result<Bound, StatsError> {
        let halved = Levels {
            holds: f64::midpoint(self.holds, 1.0),
            fails: f64::midpoint(self.fails, 1.0),
            ..self
        };
        let baseline_at = |confidence| share::interval(baseline.0, baseline.1, confidence);
        let candidate = halved.share(candidate)?;
        Ok(Bound {
            value: candidate.value - baseline.0 / baseline.1,
            lower: candidate.lower - baseline_at(halved.fails)?.upper,
            upper: candidate.upper - baseline_at(halved.holds)?.lower,
        })
    }
}

/// How much worse the candidate is according to an estimate: a part of the baseline's value, or a difference of shares.
pub(crate) fn worse_by(metric: Metric, estimate: f64) -> f64 {
    if metric.more_is_better() {
        -metric.of_estimate(-estimate)
    } else {
        metric.of_estimate(estimate)
    }
}

/// The number of units with an event from which the likeness of calls within a unit can be estimated, for the baseline and
/// for the candidate.
const SHOW_LIKENESS: [u64; 2] = [MIN_UNITS_WITH_EVENT, 10];

/// The design effect of the baseline and the candidate: the number of calls that are worth one independent call. It is 1
/// for short or loose sessions. If all calls of a session fail together, it is the number of calls of a session. `None` if
/// too few units have an event.
pub(crate) fn calls_per_event([baseline, candidate]: [&Tally; 2]) -> Option<f64> {
    let likeness = |tally: &Tally, least: u64| {
        let ratio = tally.arm.ratio().ok()?;
        let alone = ratio.value * (1.0 - ratio.value) / tally.arm.denominators();
        (tally.with.min(tally.without) >= least).then(|| ratio.variance / alone)
    };
    let of_baseline = likeness(baseline, SHOW_LIKENESS[0])?;
    let of_candidate = likeness(candidate, SHOW_LIKENESS[1]).unwrap_or(1.0);
    Some(of_baseline.max(of_candidate).max(1.0))
}

/// The effective number of events and calls of a side, as if calls were independent.
pub(crate) fn counts(tally: &Tally, calls_per_event: Option<f64>) -> (f64, f64) {
    match (calls_per_event, tally.arm.ratio()) {
        (Some(calls), Ok(ratio)) => {
            let of = tally.arm.denominators() / calls;
            (ratio.value * of, of)
        }
        _ => tally.arm.effective_counts(),
    }
}

/// The counts of bad events. A score counts good events, so its complement is returned.
pub(crate) fn worse_counts(metric: Metric, (with, of): (f64, f64)) -> (f64, f64) {
    if metric.more_is_better() {
        ((of - with).max(0.0), of)
    } else {
        (with, of)
    }
}

fn value(tally: &Tally) -> Option<f64> {
    Some(tally.arm.ratio().ok()?.value)
}

struct Found {
    candidate: Option<f64>,
    baseline: Option<f64>,
    bound: Result<Bound, Withheld>,
}

/// Whether the candidate is worse than the baseline by more than `limit`. `comparison` is the result of experiments, which
/// says whether a metric can be compared.
pub(crate) fn not_worse_by(
    (metric, limit): (Metric, f64),
    [baseline, candidate]: [&Group; 2],
    comparison: Option<&Comparison>,
    levels: Levels,
) -> Check {
    let [a, b] = [baseline, candidate].map(|group| group.tally(metric));
    let unknown = || Err(Withheld::NoAnswer(StatsError::NotFinite));
    let estimate = comparison.map_or_else(unknown, |found| found.difference.clone());
    let mut bound = estimate.and_then(|mut worse| {
        if metric.more_is_better() {
            worse.estimate.value = -worse.estimate.value;
        }
        let bound = levels.bounds(&worse.estimate, 2)?;
        Ok(Bound {
            value: worse_by(metric, bound.value),
            lower: worse_by(metric, bound.lower),
            upper: worse_by(metric, bound.upper),
        })
    });
    let is_share = [baseline, candidate]
        .iter()
        .all(|group| group.is_share(metric));
    if is_share && is_rare(&bound) {
        let calls = calls_per_event([a, b]);
        let [a, b] = [a, b].map(|tally| worse_counts(metric, counts(tally, calls)));
        bound = levels.shares(a, b).map_err(Withheld::from);
    }
    let found = Found {
        candidate: value(b),
        baseline: value(a),
        bound,
    };
    let mut check = compared(CheckKind::NotWorseBy, metric.into(), found, limit);
    check.relative = metric.is_relative();
    check.n = [candidate.units(), baseline.units()];
    check
}

/// Whether counts are compared instead of sums over units: if few units have an event, if few have none, or if all calls of
/// a side are alike, such as all truncated.
fn is_rare(bound: &Result<Bound, Withheld>) -> bool {
    let alike = Err(Withheld::NoAnswer(StatsError::NoVariation));
    matches!(bound, Err(Withheld::RareEvent { .. })) || *bound == alike
}

/// The name of a check of a score, which no metric has.
pub(crate) fn score_check(name: &str) -> String {
    format!("score {name}")
}

/// Whether the candidate's score is lower than the baseline's by more than `limit`. `groups` have only scored units.
pub(crate) fn score_not_worse_by(
    (name, limit): (&str, f64),
    groups: [&Group; 2],
    comparison: &Comparison,
    levels: Levels,
) -> Check {
    let mut check = not_worse_by((Metric::Score, limit), groups, Some(comparison), levels);
    check.name = score_check(name);
    let score = comparison.score.as_ref();
    check.in_unit_of_score = score.is_some_and(|score| !score.is_share);
    check
}

pub(crate) fn at_most(metric: Metric, limit: f64, candidate: &Group, levels: Levels) -> Check {
    let tally = candidate.tally(metric);
    let is_priced = match metric {
        Metric::Cost => priced(&[candidate]),
        _ => Ok(()),
    };
    let rare = metric != Metric::Cost && tally.with.min(tally.without) < MIN_UNITS_WITH_EVENT;
    let found = Found {
        candidate: value(tally).filter(|_| is_priced.is_ok()),
        baseline: None,
        bound: is_priced.and_then(|()| {
            if rare {
                Ok(levels.share(tally.arm.effective_counts())?)
            } else {
                ratio_bounds(&tally.arm, levels)
            }
        }),
    };
    let mut check = compared(CheckKind::AtMost, metric.into(), found, limit);
    check.n = [candidate.units(), 0];
    check
}

/// Whether the candidate's calls burn the budget of its `at`-th objective no faster than `limit`. A burn rate is a fact, so
/// it has no interval.
pub(crate) fn burn(gate: &Gate, at: usize, (bad, all): (u64, u64)) -> Check {
    let objective = &gate.objectives[at];
    let share = bad as f64 / all.max(1) as f64;
    let enough = all >= objective.min_events.max(1);
    let rate = share / objective.budget();
    let bound = if enough && rate.is_finite() {
        Ok(Bound {
            value: rate,
            lower: rate,
            upper: rate,
        })
    } else {
        Err(Withheld::NoAnswer(StatsError::TooFew {
            needed: usize::try_from(objective.min_events.max(1)).unwrap_or(usize::MAX),
            got: usize::try_from(all).unwrap_or(usize::MAX),
        }))
    };
    let found = Found {
        candidate: (all > 0).then_some(share),
        baseline: None,
        bound,
    };
    let mut check = compared(CheckKind::Burn, &objective.name, found, gate.max_burn);
    check.n = [all, 0];
    check
}

fn ratio_bounds(arm: &Arm, levels: Levels) -> Result<Bound, Withheld> {
    Ok(levels.bounds(&arm.ratio()?, 1)?)
}

fn compared(kind: CheckKind, name: &str, found: Found, limit: f64) -> Check {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let bound = found.bound.as_ref().ok();
    let verdict = match bound {
        Some(bound) if bound.upper <= limit => GateVerdict::Pass,
        Some(bound) if bound.lower > limit => GateVerdict::Fail,
        _ => GateVerdict::Inconclusive,
    };
    Check {
        name: name.to_owned(),
        kind,
        verdict,
        relative: false,
        in_unit_of_score: false,
        n: [0, 0],
        candidate: finite(found.candidate),
        baseline: finite(found.baseline),
        value: finite(bound.map(|bound| bound.value)),
        lower: finite(bound.map(|bound| bound.lower)),
        upper: finite(bound.map(|bound| bound.upper)),
        limit,
        reason: found.bound.err().map(|reason| reason.to_string()),
    }
}
