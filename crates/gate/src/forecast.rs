//! Forecasts when a gate passes a candidate that is as good as the baseline. A forecast needs only the baseline's units, so
//! it is available before a rollout.

use crate::check::{Levels, calls_per_event, counts, score_check, worse_by, worse_counts};
use crate::observed::{Calls, side};
use crate::report::{AtShare, Forecast, Plan};
use crate::settings::Gate;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::span_text;
use tokengauge_experiments::compare::MIN_UNITS_WITH_EVENT;
use tokengauge_experiments::{Group, Metric, ScoredGroup, Stratum, words};
use tokengauge_stats::Estimate;
use tokengauge_stats::ratio::{Arm, both_arms};

const LONGEST: f64 = 30.0 * 86_400.0;
const SHARES: [f64; 5] = [0.01, 0.05, 0.1, 0.2, 0.5];

/// The units of the baseline and of the candidate, and the number of new units per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) units: [f64; 2],
    pub(crate) per_second: [f64; 2],
}

impl Course {
    fn after(self, seconds: f64) -> [f64; 2] {
        let [a, b] = [0, 1].map(|side| self.units[side] + self.per_second[side] * seconds);
        [a, b]
    }

    fn share(self) -> f64 {
        self.per_second[1] / self.per_second.iter().sum::<f64>()
    }

    fn with(self, share: f64) -> Course {
        let all: f64 = self.per_second.iter().sum();
        Course {
            per_second: [all * (1.0 - share), all * share],
            ..self
        }
    }
}

/// The units of the baseline, and those with each score of the gate.
pub(crate) struct Baseline<'a> {
    pub(crate) group: &'a Group,
    pub(crate) scores: Vec<&'a ScoredGroup>,
}

/// When a gate passes a candidate that is as good as this baseline, and which check is the last to hold. `None` if the
/// candidate has no traffic, or the baseline has fewer than two units.
pub(crate) fn forecast(gate: &Gate, baseline: &Baseline<'_>, course: Course) -> Option<Forecast> {
    let share = course.share();
    if !share.is_finite() || share <= 0.0 || baseline.group.units() < 2 {
        return None;
    }
    let at = |share: f64| AtShare::new(share, until_verdict(gate, baseline, course.with(share)));
    let more = SHARES.into_iter().filter(|more| *more > 1.5 * share);
    Some(Forecast {
        at: AtShare::new(share, until_verdict(gate, baseline, course)),
        with_more: more.map(at).collect(),
        units_per_minute: course.per_second[1] * 60.0,
    })
}

/// Plans how long a gate takes with each share of the traffic. The traffic is the baseline's in the gate's window.
///
/// # Errors
///
/// Returns the errors of `calls`.
pub fn plan<C: Calls>(gate: &Gate, now: SystemTime, calls: &C) -> Result<Plan, C::Error> {
    let window = now.checked_sub(gate.window);
    let since = window.unwrap_or(SystemTime::UNIX_EPOCH);
    let side = side(gate, &gate.baseline, (since, now), calls)?;
    let firsts = || side.units.iter().map(|unit| unit.first_at);
    let span = firsts().max().zip(firsts().min());
    let span = span.and_then(|(last, first)| last.duration_since(first).ok());
    let group: Group = side.units.iter().map(|unit| unit.sums).collect();
    let scored = |(name, _): &(String, f64)| {
        let units = side.units.iter();
        ScoredGroup::of(
            name,
            units.map(|unit| (Stratum::default(), &unit.sums, &unit.scores)),
        )
    };
    let scored: Vec<ScoredGroup> = gate.scores.iter().map(scored).collect();
    let baseline = Baseline {
        group: &group,
        scores: scored.iter().collect(),
    };
    let seconds = span.unwrap_or_default().as_secs_f64();
    let per_second = side.one_in as f64 * group.units() as f64 / seconds;
    let course = Course {
        units: [0.0, 0.0],
        per_second: [per_second, 0.0],
    };
    let enough = group.units() >= gate.rules.min_units && seconds > 0.0;
    let settled = gate.rules.settled_after.as_secs_f64();
    let at = |share: f64| {
        let (seconds, check) = until_verdict(gate, &baseline, course.with(share));
        AtShare::new(share, (seconds.map(|seconds| seconds + settled), check))
    };
    let unit = words::unit(gate.unit);
    Ok(Plan {
        name: gate.name.clone(),
        baseline: gate.baseline.clone(),
        window_seconds: gate.window.as_secs_f64(),
        units: group.units(),
        calls: side.calls,
        units_per_minute: enough.then_some(per_second * 60.0),
        reason: (!enough).then(|| {
            format!(
                "the baseline ({}) had {} {unit}s in the last {}; {} are needed to estimate their variance",
                gate.baseline.in_words(),
                group.units(),
                span_text(gate.window),
                gate.rules.min_units
            )
        }),
        at: if enough {
            SHARES.into_iter().map(at).collect()
        } else {
            Vec::new()
        },
        unit,
    })
}

/// Returns the seconds until every check passes and both groups have enough units, with the name of the check that passes
/// last; or `None` with the name of a check that never passes.
fn until_verdict(gate: &Gate, side: &Baseline<'_>, course: Course) -> (Option<f64>, String) {
    let levels = Levels::of(gate);
    let baseline = side.group;
    let alike = |metric: Metric| Alike {
        metric,
        baseline,
        levels,
    };
    let least = gate.rules.min_units;
    let enough = first(course, |units| {
        units.iter().all(|units| *units >= least as f64)
    });
    let enough = (enough, format!("{least} {}s", words::unit(gate.unit)));
    let margins = gate.margins.0.iter().map(|(metric, limit)| {
        let worse = |units| alike(*metric).not_worse_by(units);
        let holds = first(course, |units| {
            worse(units).is_some_and(|most| most <= *limit)
        });
        (holds, <&str>::from(metric).to_owned())
    });
    let ceilings = [
        (Metric::Failures, gate.ceilings.failures),
        (Metric::Cost, gate.ceilings.cost),
    ];
    let ceilings = ceilings.into_iter().filter_map(|(metric, limit)| {
        let (limit, value) = (limit?, |units| alike(metric).value(units));
        let holds = first(course, |units| {
            value(units).is_some_and(|most| most <= limit)
        });
        Some((holds, format!("{} at most", <&str>::from(metric))))
    });
    let scores = gate.scores.iter().zip(&side.scores);
    let scores = scores.map(|((name, limit), scored)| {
        let holds = score_holds(gate, scored, *limit, course);
        (holds, score_check(name))
    });
    let all = std::iter::once(enough)
        .chain(margins)
        .chain(scores)
        .chain(ceilings);
    let seconds = |found: &(Option<f64>, String)| found.0.unwrap_or(f64::INFINITY);
    let last = all.max_by(|one, other| seconds(one).total_cmp(&seconds(other)));
    last.unwrap_or_default()
}

/// The first second at which a score is shown not to be worse, if as many units are scored as so far.
fn score_holds(gate: &Gate, scored: &ScoredGroup, limit: f64, course: Course) -> Option<f64> {
    let alike = Alike {
        metric: Metric::Score,
        baseline: &scored.group,
        levels: Levels::of(gate),
    };
    let least = gate.rules.min_units as f64;
    first(course, |units| {
        let units = units.map(|units| units * scored.share());
        let enough = units.iter().all(|units| *units >= least);
        enough && alike.not_worse_by(units).is_some_and(|most| most <= limit)
    })
}

/// The first second within the longest time at which `holds` is true. `holds` must stay true afterwards.
fn first(course: Course, holds: impl Fn([f64; 2]) -> bool) -> Option<f64> {
    if holds(course.after(0.0)) {
        return Some(0.0);
    }
    let (mut before, mut after) = (0.0, 60.0);
    while !holds(course.after(after)) {
        if after >= LONGEST {
            return None;
        }
        (before, after) = (after, after * 2.0);
    }
    while after - before > 30.0 {
        let middle = f64::midpoint(before, after);
        if holds(course.after(middle)) {
            after = middle;
        } else {
            before = middle;
        }
    }
    Some(after)
}

struct Alike<'a> {
    metric: Metric,
    baseline: &'a Group,
    levels: Levels,
}

impl Alike<'_> {
    /// The upper bound of how much worse the candidate is, given the number of units of both sides.
    fn not_worse_by(&self, [a, b]: [f64; 2]) -> Option<f64> {
        let tally = self.baseline.tally(self.metric);
        if self.baseline.is_share(self.metric) && self.is_rare(a + b) {
            let counts = |units: f64| worse_counts(self.metric, self.counts(units));
            return Some(self.levels.shares(counts(a), counts(b)).ok()?.upper);
        }
        let variance = self.variance(&tally.arm)? * (1.0 / a + 1.0 / b);
        let worse = estimate(0.0, variance, both_arms(a as u64, b as u64));
        let bound = self.levels.bounds(&worse, 2).ok()?;
        Some(worse_by(self.metric, bound.upper))
    }

    fn value(&self, [_, units]: [f64; 2]) -> Option<f64> {
        let tally = self.baseline.tally(self.metric);
        if self.metric != Metric::Cost && self.is_rare(units) {
            return Some(self.levels.share(self.counts(units)).ok()?.upper);
        }
        let ratio = tally.arm.ratio().ok()?;
        let variance = ratio.variance * ratio.units as f64 / units;
        let found = estimate(ratio.value, variance, units as u64);
        Some(self.levels.bounds(&found, 1).ok()?.upper)
    }

    fn is_rare(&self, units: f64) -> bool {
        let tally = self.baseline.tally(self.metric);
        let rarer = tally.with.min(tally.without) as f64 / self.baseline.units() as f64;
        rarer * units < MIN_UNITS_WITH_EVENT as f64
    }

    fn counts(&self, units: f64) -> (f64, f64) {
        let tally = self.baseline.tally(self.metric);
        let (with, of) = counts(tally, calls_per_event([tally, tally]));
        let part = units / self.baseline.units() as f64;
        (with * part, of * part)
    }

    /// The variance of one unit. For a relative metric it is the variance of the logarithm.
    fn variance(&self, arm: &Arm) -> Option<f64> {
        let ratio = arm.ratio().ok()?;
        let variance = ratio.variance * ratio.units as f64;
        Some(if self.metric.is_relative() {
            variance / ratio.value.powi(2)
        } else {
            variance
        })
    }
}

fn estimate(value: f64, variance: f64, units: u64) -> Estimate {
    Estimate {
        value,
        variance,
        units,
        degrees_of_freedom: units as f64,
    }
}

impl AtShare {
    fn new(share: f64, (seconds, slowest_check): (Option<f64>, String)) -> AtShare {
        AtShare {
            candidate_share: share,
            seconds,
            slowest_check,
        }
    }

    /// The time as a string, such as `in about 1h 30m`.
    pub fn in_words(&self) -> String {
        match self.seconds {
            Some(seconds) if seconds < 90.0 => "within two minutes".to_owned(),
            Some(seconds) => {
                let minutes = (seconds / 60.0).round() as u64;
                format!("in about {}", span_text(Duration::from_secs(60 * minutes)))
            }
            None => "not within 30 days".to_owned(),
        }
    }
}

impl Forecast {
    pub fn in_words(&self, unit: &str) -> String {
        let at = &self.at;
        let share =
            |at: &AtShare| format!("{} % of the traffic", words::percent(at.candidate_share));
        let rate = format!(
            "{:.1} {unit}s a minute, {}",
            self.units_per_minute,
            share(at)
        );
        let now = match at.seconds {
            Some(_) => format!(
                "at this rate ({rate}), a candidate as good as the baseline passes {}; the last condition is `{}`",
                at.in_words(),
                at.slowest_check
            ),
            None => format!(
                "at this rate ({rate}), even a candidate as good as the baseline does not pass within 30 days because of `{}`",
                at.slowest_check
            ),
        };
        let more = self.with_more.iter().find(|more| more.seconds.is_some());
        let more = more.map_or(String::new(), |more| {
            format!("; with {} {}", share(more), more.in_words())
        });
        now + &more
    }
}
