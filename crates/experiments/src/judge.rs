//! Judges an experiment: checks that its arms are comparable, and compares them.

use crate::compare::{CHECK_ALPHA, Comparison, adjust, compare};
use crate::experiment::{Experiment, Rules};
use crate::group::Group;
use crate::observed::{Observed, ObservedUnit};
use crate::report::{ArmComparison, ArmReport, MetricReport, Report};
use crate::scores::{ScoredGroup, compare_scores};
use crate::withheld::Withheld;
use crate::words;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use tokengauge_stats::split::Split;
use tokengauge_store::query::{Threshold, UnitKind};

/// The strength of the prior at the configured shares. With this value, a deviation of a few percentage points shows
/// with hundreds of units, which is the usual size of experiments on sessions.
const CONCENTRATION: f64 = 500.0;
const MAX_MIXED: f64 = 0.01;

struct Seen<'a> {
    name: &'a str,
    weight: Option<f64>,
    units: u64,
    complete: Group,
    /// The complete units with each of the rules' scores.
    scores: Vec<ScoredGroup>,
}

/// Returns the state of an experiment at `now`. It is valid at any time and for any number of looks.
pub fn judge(experiment: &Experiment, observed: &Observed, now: SystemTime) -> Report {
    let mixed = mixed(observed);
    let (arms, other_variants) = arms(experiment, observed);
    let settle = |unit: &&ObservedUnit| settled(experiment, unit, now);
    let seen = arms.into_iter().map(|(name, weight)| {
        let of_it = || {
            let units = observed.units.iter();
            units.filter(move |unit| unit.variant.as_deref() == Some(name))
        };
        let unmixed = of_it().filter(|unit| !mixed.contains(&*unit.unit));
        let complete: Vec<&ObservedUnit> = unmixed.filter(settle).collect();
        let scored = |score: &String| {
            let units = complete.iter();
            ScoredGroup::of(
                score,
                units.map(|unit| (unit.stratum, &unit.sums, &unit.scores)),
            )
        };
        Seen {
            name,
            weight,
            units: of_it().count() as u64,
            scores: experiment.rules.scores.iter().map(scored).collect(),
            complete: complete
                .iter()
                .map(|unit| (unit.stratum, unit.sums))
                .collect(),
        }
    });
    let seen: Vec<Seen<'_>> = seen.collect();
    let split_p = split_p(&seen);
    let withheld = withheld(experiment, &seen, mixed.len() as u64, split_p);
    let comparisons = match withheld {
        Some(_) => Vec::new(),
        None => comparisons(experiment, &seen),
    };
    let unnamed = observed.units.iter().filter(|unit| unit.variant.is_none());
    let unnamed: u64 = unnamed.map(|unit| unit.sums.calls).sum();
    let value = |threshold: Option<Threshold>| threshold.map(Threshold::value);
    let rules = &experiment.rules;
    let mut report = Report {
        name: experiment.name.clone(),
        unit: words::unit(experiment.unit),
        alpha: rules.alpha,
        ttft_above: value(rules.ttft_above),
        tps_below: value(rules.tps_below),
        min_units: rules.min_units,
        arms: seen.iter().map(arm_report).collect(),
        calls_without_unit: observed.calls_without_unit + unnamed,
        collapsed_calls: observed.collapsed_calls,
        mixed_units: mixed.len() as u64,
        other_variants,
        split_p,
        withheld: withheld.map(|reason| reason.to_string()),
        comparisons,
        verdict: String::new(),
    };
    words::verdicts(&mut report);
    report
}

/// Returns the name and weight of each arm, the baseline first, and the variants that are not an arm.
fn arms<'a>(
    experiment: &'a Experiment,
    observed: &'a Observed,
) -> (Vec<(&'a str, Option<f64>)>, Vec<String>) {
    let units = observed.units.iter();
    let variants: BTreeSet<&str> = units.filter_map(|unit| unit.variant.as_deref()).collect();
    if experiment.arms.is_empty() {
        return (
            variants.into_iter().map(|name| (name, None)).collect(),
            Vec::new(),
        );
    }
    let arms = experiment.arms.iter();
    let arms: Vec<_> = arms.map(|arm| (&*arm.name, Some(arm.weight))).collect();
    let known = |variant: &str| arms.iter().any(|(name, _)| *name == variant);
    let others = variants.into_iter().filter(|variant| !known(variant));
    let others = others.map(str::to_owned).collect();
    (arms, others)
}

/// Returns the units with calls of several variants, or with calls both with and without a variant.
fn mixed(observed: &Observed) -> BTreeSet<&str> {
    let mut variants: BTreeMap<&str, &str> = BTreeMap::new();
    let mut mixed = BTreeSet::new();
    let named = observed.units.iter();
    let named = named.filter_map(|unit| Some((&*unit.unit, unit.variant.as_deref()?)));
    for (unit, variant) in named {
        if *variants.entry(unit).or_insert(variant) != variant {
            mixed.insert(unit);
        }
    }
    mixed
}

fn settled(experiment: &Experiment, unit: &ObservedUnit, now: SystemTime) -> bool {
    let after = experiment.rules.settled_after;
    let after = match experiment.unit {
        UnitKind::Block(length) => after.max(length),
        UnitKind::Session | UnitKind::Agent | UnitKind::User => after,
    };
    let since = now.duration_since(unit.last_at);
    since.unwrap_or(Duration::ZERO) >= after
}

/// Returns the p value of the configured weights; `None` without weights and before the first unit.
fn split_p(seen: &[Seen<'_>]) -> Option<f64> {
    let weights: Option<Vec<f64>> = seen.iter().map(|arm| arm.weight).collect();
    let units: Vec<u64> = seen.iter().map(|arm| arm.units).collect();
    if units.iter().all(|units| *units == 0) {
        return None;
    }
    // A single look at all units: its p value is never below the smallest of all looks, so it is valid at each look.
    let mut split = Split::new(&weights?, CONCENTRATION).ok()?;
    split.observe(&units).ok()
}

fn withheld(
    experiment: &Experiment,
    seen: &[Seen<'_>],
    mixed: u64,
    split_p: Option<f64>,
) -> Option<Withheld> {
    let with_units: Vec<&Seen<'_>> = seen.iter().filter(|arm| arm.units > 0).collect();
    let units = with_units.iter().map(|arm| arm.units).sum::<u64>() - mixed;
    if let Some(p) = split_p.filter(|p| *p <= CHECK_ALPHA) {
        let counts = split_counts(seen);
        return Some(Withheld::Split { counts, p });
    }
    if mixed as f64 > MAX_MIXED * units as f64 {
        return Some(Withheld::Interference { mixed, units });
    }
    match with_units[..] {
        [] => return Some(Withheld::NoTraffic),
        [one] => {
            let variant = one.name.to_owned();
            return Some(Withheld::OneVariant { variant });
        }
        _ => {}
    }
    too_few(&experiment.rules, seen)
}

fn too_few(rules: &Rules, seen: &[Seen<'_>]) -> Option<Withheld> {
    let fewest = seen.iter().min_by_key(|arm| arm.complete.units())?;
    let needed = rules.min_units.max(2);
    (fewest.complete.units() < needed).then(|| Withheld::TooFewUnits {
        variant: fewest.name.to_owned(),
        got: fewest.complete.units(),
        needed,
        settled: humantime::format_duration(rules.settled_after).to_string(),
    })
}

/// Returns a string such as "`a` has 503 units instead of the expected 500; `b` has 497 units instead of the expected 500".
fn split_counts(seen: &[Seen<'_>]) -> String {
    let units: u64 = seen.iter().map(|arm| arm.units).sum();
    let weights: f64 = seen.iter().filter_map(|arm| arm.weight).sum();
    let counts = seen.iter().map(|arm| {
        let share = arm.weight.unwrap_or(0.0) / weights;
        let expected = units as f64 * share;
        format!(
            "`{}` has {} units instead of the expected {expected:.0}",
            arm.name, arm.units
        )
    });
    counts.collect::<Vec<_>>().join("; ")
}

fn comparisons(experiment: &Experiment, seen: &[Seen<'_>]) -> Vec<ArmComparison> {
    let Some((baseline, others)) = seen.split_first() else {
        return Vec::new();
    };
    let rules = &experiment.rules;
    let compared = others.iter().map(|arm| {
        let mut family = compare(&baseline.complete, &arm.complete, rules);
        let names = rules.scores.iter().enumerate();
        family.extend(names.map(|(at, name)| {
            compare_scores(name, [&baseline.scores[at], &arm.scores[at]], rules)
        }));
        family
    });
    let mut families: Vec<Vec<Comparison>> = compared.collect();
    adjust(&mut families);
    let metrics = |family: Vec<Comparison>| {
        let family = family.iter();
        family
            .map(|comparison| MetricReport::of(comparison, rules.alpha))
            .collect()
    };
    let pairs = others.iter().zip(families);
    pairs
        .map(|(arm, family)| ArmComparison {
            variant: arm.name.to_owned(),
            baseline: baseline.name.to_owned(),
            units: baseline.complete.units() + arm.complete.units(),
            metrics: metrics(family),
            verdict: String::new(),
        })
        .collect()
}

fn arm_report(arm: &Seen<'_>) -> ArmReport {
    ArmReport {
        name: arm.name.to_owned(),
        weight: arm.weight,
        units: arm.units,
        complete_units: arm.complete.units(),
        calls: arm.complete.calls(),
        failed_calls: arm.complete.failures(),
        unfinished_calls: arm.complete.cut_off(),
        ttft_calls: arm.complete.ttft_calls(),
        tps_calls: arm.complete.tps_calls(),
        priced_calls: arm.complete.priced_calls(),
    }
}
