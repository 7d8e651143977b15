//! Whether a rollout may go on.

use crate::check::{Complete, Levels, at_most, burn, not_worse_by};
use crate::observed::{Observed, Side, observe};
use crate::report::{Check, Kind, Report, SideReport, Verdict};
use crate::settings::{AfterWait, Gate, Measured, Select};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::{rfc3339_millis, span_text};
use tokengauge_experiments::compare::{Comparison, compare};
use tokengauge_experiments::{Group, Metric, Sums, words};
use tokengauge_store::query::{Filter, Page, Paging};

/// The share of units that may have calls of both sides.
const MAX_MIXED: f64 = 0.2;

/// When a gate is evaluated, and by which configuration.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When.
    pub now: SystemTime,
    /// The start of the rollout, where the caller gives one.
    pub since: Option<SystemTime>,
    /// The configuration's digest.
    pub config_sha256: String,
}

/// How a gate stands by the calls that `page` returns for a filter: those of a ledger, whose errors are
/// passed on.
pub fn evaluate_calls<E>(
    gate: &Gate,
    asked: &Asked,
    page: impl FnMut(&Filter, &Paging) -> Result<Page<CallRecord>, E>,
) -> Result<Report, E> {
    let observed = observe(gate, asked.since, asked.now, page)?;
    Ok(evaluate(gate, &observed, asked))
}

/// How a gate stands. It may be asked at any time and as often as one likes.
pub fn evaluate(gate: &Gate, observed: &Observed, asked: &Asked) -> Report {
    let mixed = mixed(observed);
    let complete = [&observed.baseline, &observed.candidate]
        .map(|side| complete(gate, observed, side, asked.now));
    let [baseline, candidate] = &complete;
    let withheld = withheld(gate, observed, mixed, [baseline, candidate]);
    let mut checks = checks(gate, [baseline, candidate]);
    if let Some(reason) = &withheld {
        for check in &mut checks {
            check.verdict = Verdict::Inconclusive;
            (check.value, check.lower, check.upper) = (None, None, None);
            check.reason = Some(reason.clone());
        }
    }
    let since = asked.since.or(observed.since);
    let waited = since.map(|since| asked.now.duration_since(since).unwrap_or_default());
    let (found, reason) = match withheld {
        Some(reason) => (Verdict::Inconclusive, reason),
        None => verdict(&checks),
    };
    let over = waited
        .zip(gate.max_wait)
        .filter(|(waited, most)| waited >= most);
    let over = over.filter(|_| found == Verdict::Inconclusive);
    let waited_too_long = over.is_some() && gate.after_max_wait == AfterWait::Fail;
    let (verdict, reason) = match over {
        Some((_, most)) if waited_too_long => {
            let most = span_text(most);
            (
                Verdict::Fail,
                format!("inconclusive for longer than `max_wait`, {most}: {reason}"),
            )
        }
        _ => (found, reason),
    };
    let seconds = |span: Duration| span.as_secs_f64();
    let [baseline, candidate] = complete.map(|units| units.len() as u64);
    Report {
        name: gate.name.clone(),
        verdict,
        reason,
        waited_too_long,
        evaluated_at: written(asked.now),
        since: since.map(written),
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

fn written(at: SystemTime) -> String {
    rfc3339_millis(at).to_string()
}

fn side_report(select: &Select, side: &Side, complete_units: u64) -> SideReport {
    SideReport {
        select: select.clone(),
        units: side.units.len() as u64,
        complete_units,
        calls: side.calls(),
        calls_without_unit: side.calls_without_unit,
        more_calls: side.more_calls,
    }
}

/// Units with calls of both sides.
fn mixed(observed: &Observed) -> u64 {
    let names = observed.candidate.units.keys();
    let other = &observed.baseline.units;
    names.filter(|name| other.contains_key(*name)).count() as u64
}

/// The units of one side alone whose last call is over for long enough.
fn complete(gate: &Gate, observed: &Observed, side: &Side, now: SystemTime) -> Vec<Complete> {
    let both = |name: &String| {
        let sides = [&observed.candidate, &observed.baseline];
        sides.iter().all(|side| side.units.contains_key(name))
    };
    let settled = |last: SystemTime| {
        now.duration_since(last)
            .is_ok_and(|since| since >= gate.rules.settled_after)
    };
    let units = side.units.iter();
    let units = units
        .filter(|(name, unit)| unit.sums.calls > 0 && !both(name) && settled(unit.sums.last_at()));
    let units = units.map(|(_, unit)| Complete {
        sums: Sums::of(&unit.sums, &gate.rules),
        retries: unit.retries(),
        events: unit.events.clone(),
    });
    units.collect()
}

/// Why nothing is said.
fn withheld(
    gate: &Gate,
    observed: &Observed,
    mixed: u64,
    [baseline, candidate]: [&Vec<Complete>; 2],
) -> Option<String> {
    let unit = words::unit(gate.unit);
    for (side, select, what) in [
        (&observed.candidate, &gate.candidate, "candidate"),
        (&observed.baseline, &gate.baseline, "baseline"),
    ] {
        if side.calls() == 0 {
            return Some(format!(
                "no finished call is of the {what} ({}): is there traffic?",
                select.in_words()
            ));
        }
        if side.units.is_empty() {
            return Some(format!(
                "no call of the {what} names its {unit}; without, calls cannot be told apart"
            ));
        }
    }
    let all = observed.candidate.units.len() + observed.baseline.units.len();
    let different = all as u64 - mixed;
    if mixed as f64 > MAX_MIXED * different as f64 {
        return Some(format!(
            "{mixed} of {different} {unit}s have calls of both sides, so that they cannot be compared; send each {unit} to one side"
        ));
    }
    let needed = gate.rules.min_units;
    for (units, what) in [(candidate, "candidate"), (baseline, "baseline")] {
        if (units.len() as u64) < needed {
            let settled = span_text(gate.rules.settled_after);
            return Some(format!(
                "too few {unit}s: the {what} has {} complete ones of {needed} (one is complete {settled} after its last call)",
                units.len()
            ));
        }
    }
    None
}

fn checks(gate: &Gate, [baseline, candidate]: [&Vec<Complete>; 2]) -> Vec<Check> {
    let ceilings = [
        (Metric::Failures, gate.ceilings.failures),
        (Metric::Cost, gate.ceilings.cost),
    ];
    let ceilings = ceilings
        .into_iter()
        .filter_map(|(metric, most)| Some((metric, most?)));
    let ceilings: Vec<(Metric, f64)> = ceilings.collect();
    let margins = &gate.margins.0;
    // A burn rate is no estimate and is never wrong.
    let levels = Levels::of(gate, margins.len() + ceilings.len());
    let group = |units: &Vec<Complete>| units.iter().map(|unit| unit.sums).collect::<Group>();
    let compared = compare(&group(baseline), &group(candidate), &gate.rules);
    let of = |measured: Measured| -> Option<&Comparison> {
        let mut compared = compared.iter();
        compared.find(|comparison| measured == Measured::Of(comparison.metric))
    };
    let margins = margins
        .iter()
        .map(|margin| not_worse_by(*margin, [baseline, candidate], of(margin.0), levels));
    let ceilings = ceilings.iter();
    let ceilings = ceilings.map(|(metric, most)| at_most(*metric, *most, candidate, levels));
    let objectives = 0..gate.objectives.len();
    let objectives = objectives.map(|at| burn(gate, at, candidate));
    margins.chain(ceilings).chain(objectives).collect()
}

fn verdict(checks: &[Check]) -> (Verdict, String) {
    let named = |verdict: Verdict| {
        let checks = checks.iter().filter(|check| check.verdict == verdict);
        let names = checks.map(|check| match check.kind {
            Kind::Burn => format!("burn of {}", check.name),
            Kind::AtMost => format!("{} at most", check.name),
            Kind::NotWorseBy => check.name.clone(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let is = |verdict: Verdict| checks.iter().any(|check| check.verdict == verdict);
    if is(Verdict::Fail) {
        return (
            Verdict::Fail,
            format!("does not hold: {}", named(Verdict::Fail)),
        );
    }
    if is(Verdict::Inconclusive) || checks.is_empty() {
        return (
            Verdict::Inconclusive,
            format!("not shown yet: {}", named(Verdict::Inconclusive)),
        );
    }
    (Verdict::Pass, format!("all {} checks hold", checks.len()))
}
