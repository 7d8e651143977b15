//! Complete experiments: what withholds them, and their verdicts.

use crate::compare::CHECK_ALPHA;
use crate::{
    Arm, Decision, Experiment, Metric, Observed, ObservedUnit, Report, Rules, Stratum, Sums, judge,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_store::query::{Threshold, UnitKind};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn experiment(weights: &[f64]) -> Experiment {
    let names = ["a", "b", "c"].into_iter().zip(weights);
    Experiment {
        name: "decoder".into(),
        arms: names
            .map(|(name, weight)| Arm {
                name: name.into(),
                weight: *weight,
            })
            .collect(),
        unit: UnitKind::Session,
        rules: Rules {
            ttft_above: Some(Threshold::near(0.5)),
            ..Rules::default()
        },
    }
}

/// A session of ten calls, `slow` of which wait too long.
fn unit(variant: &str, number: u64, tps: u64, slow: u64) -> ObservedUnit {
    ObservedUnit {
        variant: Some(variant.into()),
        unit: format!("{variant}{number}"),
        last_at: now() - Duration::from_secs(3_600),
        stratum: Stratum::default(),
        sums: Sums {
            calls: 10,
            ttft_calls: 10,
            ttft_above: slow,
            tps_calls: 10,
            decode_tokens: 10 * (tps * 10 + number % 13),
            decode_us: 10 * 10_000_000,
            cost_nano_usd: 1_000_000 * (100 + number % 7),
            priced_calls: 10,
            ..Sums::default()
        },
        scores: BTreeMap::new(),
    }
}

fn units(
    variant: &'static str,
    count: u64,
    tps: u64,
    slow: u64,
) -> impl Iterator<Item = ObservedUnit> {
    (0..count).map(move |number| unit(variant, number, tps, slow + number % 3))
}

fn judged(experiment: &Experiment, units: impl Iterator<Item = ObservedUnit>) -> Report {
    let observed = Observed {
        units: units.collect(),
        ..Observed::default()
    };
    judge(experiment, &observed, now())
}

#[test]
fn a_difference_is_said_in_words() {
    let both = units("a", 900, 40, 3).chain(units("b", 940, 40, 2));
    let report = judged(&experiment(&[1.0, 1.0]), both);
    assert_eq!(report.withheld, None);
    let words = "with b, 10 points fewer calls wait more than 500ms for the first token (40 to 30 %; 95 %: ";
    assert!(report.verdict.starts_with(words), "{}", report.verdict);
    for part in [
        "; TPS equal within 0.",
        "; cost per session equal within ",
        "; 1,840 sessions",
    ] {
        assert!(report.verdict.contains(part), "{part}: {}", report.verdict);
    }
    let metrics = &report.comparisons[0].metrics;
    let decision = |metric| metrics.iter().find(|found| found.metric == metric);
    let decision = |metric| decision(metric).map(|found| found.decision);
    assert_eq!(decision(Metric::TtftAbove), Some(Decision::Better));
    assert_eq!(decision(Metric::Tps), Some(Decision::Equal));
    assert_eq!(decision(Metric::Failures), Some(Decision::Withheld));
    assert_eq!(decision(Metric::TpsBelow), None, "no threshold is set");
    let json = serde_json::to_string(&report).expect("JSON");
    let read: Report = serde_json::from_str(&json).expect("a report");
    assert_eq!((read.verdict, read.arms), (report.verdict, report.arms));
}

#[test]
fn worse_is_worse_and_every_arm_is_compared_with_the_first() {
    let all = units("a", 500, 40, 3).chain(units("b", 500, 36, 3));
    let report = judged(
        &experiment(&[1.0, 1.0, 1.0]),
        all.chain(units("c", 500, 44, 3)),
    );
    let tps = report.comparisons.iter().map(|comparison| {
        let mut metrics = comparison.metrics.iter();
        let tps = metrics.find(|found| found.metric == Metric::Tps);
        (&*comparison.variant, tps.map(|tps| tps.decision))
    });
    let expected = [("b", Some(Decision::Worse)), ("c", Some(Decision::Better))];
    assert_eq!(tps.collect::<Vec<_>>(), expected);
    assert!(report.verdict.contains("with b, "), "{}", report.verdict);
    assert!(report.verdict.contains("TPS −"), "{}", report.verdict);
}

fn withheld(report: &Report, words: &str) {
    let reason = report.withheld.as_deref().unwrap_or_default();
    assert!(reason.contains(words), "{reason}");
    assert!(report.comparisons.is_empty());
    assert!(report.verdict.contains(words), "{}", report.verdict);
}

#[test]
fn a_broken_split_is_withheld() {
    let half = experiment(&[1.0, 1.0]);
    let report = judged(&half, units("a", 250, 40, 3).chain(units("b", 150, 40, 3)));
    withheld(&report, "the split differs from the configured weights");
    withheld(&report, "`b` has 150 units instead of the expected 200");
    assert!(report.split_p.is_some_and(|p| p <= CHECK_ALPHA));
    let as_configured = experiment(&[5.0, 3.0]);
    let report = judged(
        &as_configured,
        units("a", 250, 40, 3).chain(units("b", 150, 40, 3)),
    );
    assert_eq!(report.withheld, None);
}

#[test]
fn units_of_two_variants_interfere() {
    let both = || units("a", 300, 40, 3).chain(units("b", 300, 40, 3));
    let also_b = |count| {
        units("a", count, 40, 3).map(|unit| ObservedUnit {
            variant: Some("b".into()),
            ..unit
        })
    };
    let report = judged(&experiment(&[1.0, 1.0]), both().chain(also_b(30)));
    withheld(
        &report,
        "30 of 600 units have calls of more than one variant",
    );
    let report = judged(&experiment(&[1.0, 1.0]), both().chain(also_b(3)));
    assert_eq!((report.withheld, report.mixed_units), (None, 3));
    assert_eq!(report.comparisons[0].units, 597);
}

#[test]
fn too_few_units_and_no_traffic_are_said() {
    let half = experiment(&[1.0, 1.0]);
    let report = judged(&half, units("a", 120, 40, 3).chain(units("b", 99, 40, 3)));
    withheld(&report, "`b` has 99 complete units, but 100 are needed");
    withheld(
        &judged(&half, std::iter::empty()),
        "no finished call belongs to a variant",
    );
    let mut by_label = half.clone();
    by_label.arms.clear();
    withheld(
        &judged(&by_label, units("a", 120, 40, 3)),
        "only `a` has calls",
    );
}

#[test]
fn a_unit_counts_once_it_is_complete() {
    let late = |mut unit: ObservedUnit| {
        unit.last_at = now() - Duration::from_secs(299);
        unit
    };
    let all = units("a", 120, 40, 3).chain(units("b", 120, 40, 3).map(late));
    let report = judged(&experiment(&[1.0, 1.0]), all);
    withheld(&report, "`b` has 0 complete units, but 100 are needed");
    assert_eq!(report.arms[1].units, 120);
}

#[test]
fn speeds_are_withheld_where_the_share_of_calls_without_one_differs() {
    let without = |unit: ObservedUnit| ObservedUnit {
        sums: Sums {
            tps_calls: 7,
            tps_unavailable: 3 - unit.sums.ttft_above % 2,
            ..unit.sums
        },
        ..unit
    };
    let all = units("a", 300, 40, 3).chain(units("b", 300, 48, 3).map(without));
    let report = judged(&experiment(&[1.0, 1.0]), all);
    assert_eq!(report.withheld, None);
    let words = "TPS not compared: the share of calls without a TPS differs (0.0 % and 2";
    assert!(report.verdict.contains(words), "{}", report.verdict);
    let of_cost = report.comparisons[0].metrics.iter();
    let mut of_cost = of_cost.filter(|found| found.metric == Metric::Cost);
    assert!(of_cost.all(|cost| cost.decision == Decision::Equal));
}

#[test]
fn waits_are_withheld_where_the_share_of_calls_that_never_began_differs() {
    // Calls that never began waited longest, but have no time to first token.
    let lost = |unit: ObservedUnit| ObservedUnit {
        sums: Sums {
            failures: 1 + unit.sums.ttft_above % 2,
            ttft_calls: 8,
            ttft_unavailable: 1 + unit.sums.ttft_above % 2,
            ..unit.sums
        },
        ..unit
    };
    let all = units("a", 300, 40, 3).chain(units("b", 300, 40, 2).map(lost));
    let report = judged(&experiment(&[1.0, 1.0]), all);
    assert_eq!(report.withheld, None);
    let words = "the share of calls without a time to first token differs (0.0 % and 1";
    assert!(report.verdict.contains(words), "{}", report.verdict);
    let metrics = &report.comparisons[0].metrics;
    let failures = metrics
        .iter()
        .find(|found| found.metric == Metric::Failures);
    assert_eq!(failures.map(|found| found.decision), Some(Decision::Worse));
    assert!(report.arms[1].failed_calls >= 300, "{:?}", report.arms);
}

#[test]
fn cost_is_unknown_where_calls_have_no_price() {
    let free = |mut unit: ObservedUnit| {
        unit.sums.priced_calls = 0;
        unit.sums.cost_nano_usd = 0;
        unit
    };
    let all = units("a", 300, 40, 3).chain(units("b", 300, 40, 3).map(free));
    let report = judged(&experiment(&[1.0, 1.0]), all);
    let mut metrics = report.comparisons[0].metrics.iter();
    let cost = metrics.find(|found| found.metric == Metric::Cost);
    let cost = cost.expect("cost");
    assert_eq!((cost.value, cost.difference), (None, None));
    assert_eq!(cost.withheld.as_deref(), Some("3000 calls have no price"));
}

#[test]
fn calls_without_a_unit_or_of_an_unknown_variant_are_counted_and_left_out() {
    let nameless = |mut unit: ObservedUnit| {
        unit.variant = None;
        unit
    };
    let all = units("a", 200, 40, 3).chain(units("b", 200, 40, 3));
    let all = all.chain(units("x", 5, 40, 3).map(nameless));
    let observed = Observed {
        units: all.chain(units("old", 5, 90, 3)).collect(),
        calls_without_unit: 7,
        collapsed_calls: 0,
    };
    let report = judge(&experiment(&[1.0, 1.0]), &observed, now());
    assert_eq!(report.calls_without_unit, 57);
    assert_eq!(report.other_variants, ["old"]);
    assert_eq!(report.comparisons[0].units, 400);
}
