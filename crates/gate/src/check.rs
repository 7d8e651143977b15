//! Checks: what is known of a value, held against its limit.

use crate::report::{Bound, Check, Kind, Of, Verdict};
use crate::settings::{Gate, Measured};
use tokengauge_experiments::compare::{Comparison, MIN_UNITS_WITH_EVENT};
use tokengauge_experiments::{Metric, Sums, Withheld};
use tokengauge_stats::ratio::{self, Arm, Unit};
use tokengauge_stats::sequence::{Options, Sequence};
use tokengauge_stats::{Error, Estimate, share};

/// The intervals are tightest at so many times the least number of units, as in experiments.
const TIGHTEST: u64 = 5;
/// The share of calls that may have no price.
const MAX_UNPRICED: f64 = 0.01;

/// A complete unit.
#[derive(Clone, Debug)]
pub(crate) struct Complete {
    pub(crate) sums: Sums,
    pub(crate) retries: u64,
    pub(crate) events: Vec<(u64, u64)>,
}

/// The confidence with which a check is found to hold, and not to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// A gate passes where all checks hold, so that each may have the whole α: one that does not hold would have to be wrong.
    holds: f64,
    /// It fails where any does not, so that all share α.
    fails: f64,
    min_units: u64,
}

impl Levels {
    pub(crate) fn of(gate: &Gate, checks: usize) -> Levels {
        let alpha = gate.rules.alpha;
        Levels {
            holds: 1.0 - alpha,
            fails: 1.0 - alpha / checks.max(1) as f64,
            min_units: gate.rules.min_units.max(2),
        }
    }

    fn sequence(self, confidence: f64, sides: u64) -> Result<Sequence, Error> {
        let first_look = self.min_units.saturating_mul(sides);
        Sequence::new(Options {
            confidence,
            tightest_at: first_look.saturating_mul(TIGHTEST),
            first_look,
        })
    }

    /// The bounds of an estimate of one or two sides, whose value is the larger the worse.
    fn bounds(self, worse: &Estimate, sides: u64) -> Result<Bound, Error> {
        Ok(Bound {
            value: worse.value,
            lower: self.sequence(self.fails, sides)?.lower_bound(worse)?,
            upper: self.sequence(self.holds, sides)?.upper_bound(worse)?,
        })
    }

    /// The bounds of the share of units with an event.
    fn share(self, tally: &Tally) -> Result<Bound, Error> {
        let at = |confidence| share::interval(tally.with, tally.arm.units(), confidence);
        Ok(Bound {
            value: tally.with as f64 / tally.arm.units() as f64,
            lower: at(self.fails)?.lower,
            upper: at(self.holds)?.upper,
        })
    }

    /// The same of the difference of two: each has half of what may be wrong.
    fn shares(self, baseline: &Tally, candidate: &Tally) -> Result<Bound, Error> {
        let half = |confidence: f64| f64::midpoint(confidence, 1.0);
        let halved = Levels {
            holds: half(self.holds),
            fails: half(self.fails),
            ..self
        };
        let of =
            |tally: &Tally, confidence| share::interval(tally.with, tally.arm.units(), confidence);
        let (holds, fails) = (halved.holds, halved.fails);
        Ok(Bound {
            value: halved.share(candidate)?.value - halved.share(baseline)?.value,
            lower: of(candidate, fails)?.lower - of(baseline, fails)?.upper,
            upper: of(candidate, holds)?.upper - of(baseline, holds)?.lower,
        })
    }
}

/// The units of one side and one measure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    arm: Arm,
    /// Units with something in the numerator.
    with: u64,
    /// Units with something in the denominator that is not in the numerator.
    without: u64,
}

impl Tally {
    fn of(units: &[Complete], unit: impl Fn(&Complete) -> Unit) -> Tally {
        let mut tally = Tally::default();
        for unit in units.iter().map(unit) {
            tally.arm.push(unit);
            tally.with += u64::from(unit.numerator > 0.0);
            tally.without += u64::from(unit.denominator > unit.numerator);
        }
        tally
    }

    fn measured(units: &[Complete], measured: Measured) -> Tally {
        Tally::of(units, |unit| match measured {
            Measured::Of(metric) => metric.of(&unit.sums),
            Measured::Retries => Unit {
                numerator: unit.retries as f64,
                denominator: unit.sums.calls as f64,
            },
        })
    }

    fn value(&self) -> Option<f64> {
        let ratio = self.arm.ratio().ok()?;
        Some(ratio.value)
    }
}

/// What a check is of, before its limit is looked at.
struct Found {
    of: Of,
    candidate: Option<f64>,
    baseline: Option<f64>,
    bound: Result<Bound, Withheld>,
}

/// Whether the candidate is worse than the baseline by more than `limit`. `comparison` is the one of experiments, which knows
/// what makes a metric incomparable.
pub(crate) fn not_worse_by(
    (measured, limit): (Measured, f64),
    [baseline, candidate]: [&[Complete]; 2],
    comparison: Option<&Comparison>,
    levels: Levels,
) -> Check {
    let tallies = [baseline, candidate].map(|units| Tally::measured(units, measured));
    let [a, b] = &tallies;
    let estimate = match comparison {
        Some(comparison) => comparison.difference.clone().map(|found| found.estimate),
        None => enough(a, b).and_then(|()| Ok(ratio::difference(&a.arm, &b.arm)?)),
    };
    let mut found = Found {
        of: Of::Calls,
        candidate: b.value(),
        baseline: a.value(),
        bound: estimate.and_then(|mut worse| {
            if matches!(measured, Measured::Of(metric) if metric.more_is_better()) {
                worse.value = -worse.value;
            }
            Ok(levels.bounds(&worse, 2)?)
        }),
    };
    if is_of_units(measured, &found.bound) {
        let share = |tally: &Tally| {
            (tally.arm.units() > 0).then(|| tally.with as f64 / tally.arm.units() as f64)
        };
        found = Found {
            of: Of::Units,
            candidate: share(b),
            baseline: share(a),
            bound: levels.shares(a, b).map_err(Withheld::from),
        };
    }
    let mut check = held(Kind::NotWorseBy, measured.as_str(), found, limit);
    check.relative = measured.is_relative();
    check.n = [candidate.len() as u64, baseline.len() as u64];
    check
}

/// Whether the share of units is compared instead: where few of them have an event, or few have none, or where all of a side are
/// alike, such as where every answer is truncated.
fn is_of_units(measured: Measured, bound: &Result<Bound, Withheld>) -> bool {
    match bound {
        Err(Withheld::RareEvent { .. }) => true,
        Err(Withheld::NoAnswer(Error::NoVariation)) => !measured.is_relative(),
        _ => false,
    }
}

/// Whether the candidate's value is at most `limit`.
pub(crate) fn at_most(metric: Metric, limit: f64, candidate: &[Complete], levels: Levels) -> Check {
    let tally = Tally::measured(candidate, Measured::Of(metric));
    let mut found = Found {
        of: Of::Calls,
        candidate: tally.value(),
        baseline: None,
        bound: Err(Withheld::NoAnswer(Error::ZeroLevel)),
    };
    if metric == Metric::Cost {
        let priced = priced(candidate);
        if priced.is_err() {
            found.candidate = None;
        }
        found.bound = priced.and_then(|()| ratio_bounds(&tally, levels));
    } else if tally.with.min(tally.without) >= MIN_UNITS_WITH_EVENT {
        found.bound = ratio_bounds(&tally, levels);
    } else {
        found.of = Of::Units;
        found.candidate = Some(tally.with as f64 / candidate.len().max(1) as f64);
        found.bound = levels.share(&tally).map_err(Withheld::from);
    }
    let mut check = held(Kind::AtMost, Measured::Of(metric).as_str(), found, limit);
    check.n = [candidate.len() as u64, 0];
    check
}

/// Whether the candidate's calls burn the budget of its `at`-th objective no faster than `limit`. What is burnt is burnt: it is
/// compared as it is.
pub(crate) fn burn(gate: &Gate, at: usize, candidate: &[Complete]) -> Check {
    let objective = &gate.objectives[at];
    let events = candidate.iter().filter_map(|unit| unit.events.get(at));
    let (bad, all) = events.fold((0, 0), |sum, unit| (sum.0 + unit.0, sum.1 + unit.1));
    let share = bad as f64 / all.max(1) as f64;
    let enough = all >= objective.min_events.max(1);
    let rate = share / objective.budget();
    let bound = match enough && rate.is_finite() {
        true => Ok(Bound {
            value: rate,
            lower: rate,
            upper: rate,
        }),
        false => Err(Withheld::NoAnswer(Error::TooFew {
            needed: usize::try_from(objective.min_events.max(1)).unwrap_or(usize::MAX),
            got: usize::try_from(all).unwrap_or(usize::MAX),
        })),
    };
    let found = Found {
        of: Of::Calls,
        candidate: (all > 0).then_some(share),
        baseline: None,
        bound,
    };
    let mut check = held(Kind::Burn, &objective.name, found, gate.max_burn);
    check.n = [candidate.len() as u64, 0];
    check
}

fn ratio_bounds(tally: &Tally, levels: Levels) -> Result<Bound, Withheld> {
    Ok(levels.bounds(&tally.arm.ratio()?, 1)?)
}

fn enough(a: &Tally, b: &Tally) -> Result<(), Withheld> {
    let (with, without) = (a.with + b.with, a.without + b.without);
    match with.min(without) >= MIN_UNITS_WITH_EVENT {
        true => Ok(()),
        false => Err(Withheld::RareEvent { with, without }),
    }
}

fn priced(units: &[Complete]) -> Result<(), Withheld> {
    let sum = |of: fn(&Sums) -> u64| units.iter().map(|unit| of(&unit.sums)).sum::<u64>();
    let (calls, priced) = (sum(|sums| sums.calls), sum(|sums| sums.priced_calls));
    let failures = sum(|sums| sums.failures);
    let unpriced = calls.saturating_sub(priced).saturating_sub(failures);
    match priced == 0 || unpriced as f64 > MAX_UNPRICED * calls as f64 {
        true => Err(Withheld::NoPrice { calls: unpriced }),
        false => Ok(()),
    }
}

fn held(kind: Kind, name: &str, found: Found, limit: f64) -> Check {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let bound = found.bound.as_ref().ok();
    let verdict = match bound {
        Some(bound) if bound.upper <= limit => Verdict::Pass,
        Some(bound) if bound.lower > limit => Verdict::Fail,
        _ => Verdict::Inconclusive,
    };
    Check {
        name: name.to_owned(),
        kind,
        verdict,
        of: found.of,
        relative: false,
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
