//! Decides whether a rollout may continue.

use crate::check::{Levels, at_most, burn, not_worse_by, score_not_worse_by};
use crate::forecast::{self, Baseline, Course};
use crate::observed::{Calls, Observed, Side, Unit, observe};
use crate::report::{Check, CheckKind, GateVerdict, Report, SideReport};
use crate::settings::{Gate, Select};
use std::time::{Duration, SystemTime};
use tokengauge_core::time::span_text;
use tokengauge_experiments::compare::compare;
use tokengauge_experiments::{Group, Metric, ScoredGroup, Stratum, compare_scores, words};

const MAX_MIXED: f64 = 0.2;

#[derive(Clone, Debug)]
pub struct Asked {
    pub now: SystemTime,
    /// The start of the rollout, if the caller gives one.
    pub since: Option<SystemTime>,
    pub config_sha256: String,
}

pub fn evaluate_calls<C: Calls>(gate: &Gate, asked: &Asked, calls: &C) -> Result<Report, C::Error> {
    let observed = observe(gate, asked.since, asked.now, calls)?;
    Ok(evaluate(gate, &observed, asked))
}

/// Evaluates a gate. It may be evaluated at any time and any number of times. Waiting never makes it pass or fail.
pub fn evaluate(gate: &Gate, observed: &Observed, asked: &Asked) -> Report {
    let mixed = observed.mixed().len() as u64;
    let units = observed.complete(asked.now, gate.rules.settled_after);
    let complete = units.each_ref().map(|units| group(units));
    let [baseline, candidate] = &complete;
    let withheld = withheld(gate, observed, mixed, [baseline, candidate]);
    let scored = scored(gate, &units);
    let mut checks = checks(gate, observed, [baseline, candidate], &scored);
    if let Some(reason) = &withheld {
        for check in &mut checks {
            check.verdict = GateVerdict::Inconclusive;
            (check.value, check.lower, check.upper) = (None, None, None);
            check.reason = Some(reason.clone());
        }
    }
    let since = asked.since.or(observed.since);
    let waited = since.map(|since| asked.now.duration_since(since).unwrap_or_default());
    let (verdict, mut reason) = match withheld {
        Some(reason) => (GateVerdict::Inconclusive, reason),
        None => verdict(&checks),
    };
    let open = verdict == GateVerdict::Inconclusive;
    let course = waited.and_then(|waited| course(gate, [baseline, candidate], waited));
    let forecast = course.filter(|_| open);
    let scores = scored.iter().map(|[baseline, _]| baseline).collect();
    let baseline = Baseline {
        group: baseline,
        scores,
    };
    let forecast = forecast.and_then(|course| forecast::forecast(gate, &baseline, course));
    if let Some(forecast) = &forecast {
        reason = format!("{reason}; {}", forecast.in_words(&words::unit(gate.unit)));
    }
    let over = waited
        .zip(gate.max_wait)
        .filter(|(waited, most)| waited >= most)
        .filter(|_| open);
    if let Some((_, most)) = over {
        let most = span_text(most);
        reason = format!("no verdict within `max_wait` ({most}), so you must decide: {reason}");
    }
    let seconds = |span: Duration| span.as_secs_f64();
    let [baseline, candidate] = complete.each_ref().map(Group::units);
    Report {
        name: gate.name.clone(),
        verdict,
        reason,
        waited_too_long: over.is_some(),
        forecast,
        evaluated_at: asked.now.into(),
        since: since.map(Into::into),
        waited_seconds: waited.map(seconds),
        max_wait_seconds: gate.max_wait.map(seconds),
        unit: words::unit(gate.unit),
        min_units: gate.rules.min_units,
        alpha: gate.rules.alpha,
        config_sha256: asked.config_sha256.clone(),
        candidate: side_report(&gate.candidate, &observed.candidate, candidate),
        baseline: side_report(&gate.baseline, &observed.baseline, baseline),
        mixed_units: mixed,
        checks,
    }
}

fn group(units: &[(Stratum, &Unit)]) -> Group {
    let units = units.iter();
    units.map(|(stratum, unit)| (*stratum, unit.sums)).collect()
}

/// The scored units of both sides for each score of the gate.
fn scored(gate: &Gate, units: &[Vec<(Stratum, &Unit)>; 2]) -> Vec<[ScoredGroup; 2]> {
    let side = |name: &str, units: &[(Stratum, &Unit)]| {
        let units = units.iter();
        ScoredGroup::of(
            name,
            units.map(|(stratum, unit)| (*stratum, &unit.sums, &unit.scores)),
        )
    };
    let both = |name: &str| units.each_ref().map(|units| side(name, units));
    gate.scores.iter().map(|(name, _)| both(name)).collect()
}

/// The number of units, and how fast units become complete. `None` before the first unit could be complete.
fn course(gate: &Gate, groups: [&Group; 2], waited: Duration) -> Option<Course> {
    let waited = waited.checked_sub(gate.rules.settled_after)?.as_secs_f64();
    let units = groups.map(|group| group.units() as f64);
    (waited > 0.0).then(|| Course {
        units,
        per_second: units.map(|units| units / waited),
    })
}

fn side_report(select: &Select, side: &Side, complete_units: u64) -> SideReport {
    SideReport {
        select: select.clone(),
        units: side.units.len() as u64,
        complete_units,
        calls: side.calls,
        calls_without_unit: side.calls_without_unit,
        one_in: side.one_in,
    }
}

fn withheld(
    gate: &Gate,
    observed: &Observed,
    mixed: u64,
    [baseline, candidate]: [&Group; 2],
) -> Option<String> {
    let unit = words::unit(gate.unit);
    for (side, select, what) in [
        (&observed.candidate, &gate.candidate, "candidate"),
        (&observed.baseline, &gate.baseline, "baseline"),
    ] {
        if side.calls == 0 {
            return Some(format!(
                "no finished call belongs to the {what} ({}); check that it has traffic",
                select.in_words()
            ));
        }
        if side.units.is_empty() {
            return Some(format!(
                "no call of the {what} has a {unit}; send the header for it, or set `unit` to one that calls have"
            ));
        }
    }
    let all = observed.candidate.units.len() + observed.baseline.units.len();
    let different = all as u64 - mixed;
    if mixed as f64 > MAX_MIXED * different as f64 {
        return Some(format!(
            "{mixed} of {different} {unit}s have calls of both sides and cannot be compared; send each {unit} to only one side"
        ));
    }
    let needed = gate.rules.min_units;
    for (units, what) in [(candidate, "candidate"), (baseline, "baseline")] {
        if units.units() < needed {
            let settled = span_text(gate.rules.settled_after);
            return Some(format!(
                "too few {unit}s: the {what} has {} complete {unit}s of {needed} (a {unit} is complete {settled} after its \
                 last call)",
                units.units()
            ));
        }
    }
    None
}

fn checks(
    gate: &Gate,
    observed: &Observed,
    [baseline, candidate]: [&Group; 2],
    scored: &[[ScoredGroup; 2]],
) -> Vec<Check> {
    let ceilings = [
        (Metric::Failures, gate.ceilings.failures),
        (Metric::Cost, gate.ceilings.cost),
    ];
    let levels = Levels::of(gate);
    let compared = compare(baseline, candidate, &gate.rules);
    let of = |metric: Metric| {
        compared
            .iter()
            .find(|comparison| comparison.metric == metric)
    };
    let margins = gate.margins.0.iter();
    let margins =
        margins.map(|margin| not_worse_by(*margin, [baseline, candidate], of(margin.0), levels));
    let scores = gate.scores.iter().zip(scored);
    let scores = scores.map(|((name, limit), [baseline, candidate])| {
        let compared = compare_scores(name, [baseline, candidate], &gate.rules);
        let groups = [&baseline.group, &candidate.group];
        score_not_worse_by((name, *limit), groups, &compared, levels)
    });
    let ceilings = ceilings
        .into_iter()
        .filter_map(|(metric, most)| Some(at_most(metric, most?, candidate, levels)));
    let objectives = observed.events.iter().enumerate();
    let objectives = objectives.map(|(at, events)| burn(gate, at, *events));
    margins
        .chain(scores)
        .chain(ceilings)
        .chain(objectives)
        .collect()
}

fn verdict(checks: &[Check]) -> (GateVerdict, String) {
    let named = |verdict: GateVerdict| {
        let checks = checks.iter().filter(|check| check.verdict == verdict);
        let names = checks.map(|check| match check.kind {
            CheckKind::Burn => format!("burn of {}", check.name),
            CheckKind::AtMost => format!("{} at most", check.name),
            CheckKind::NotWorseBy => check.name.clone(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let is = |verdict: GateVerdict| checks.iter().any(|check| check.verdict == verdict);
    if is(GateVerdict::Fail) {
        return (
            GateVerdict::Fail,
            format!("does not hold: {}", named(GateVerdict::Fail)),
        );
    }
    if is(GateVerdict::Inconclusive) || checks.is_empty() {
        return (
            GateVerdict::Inconclusive,
            format!("not shown yet: {}", named(GateVerdict::Inconclusive)),
        );
    }
    (
        GateVerdict::Pass,
        format!("all {} checks hold", checks.len()),
    )
}
