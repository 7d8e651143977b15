//! Experiments with scores from outside: verdicts, what withholds them, and false alarms over many looks.

use crate::compare::{Comparison, adjust};
use crate::experiment::Rules;
use crate::observed::Sums;
use crate::report::{Decision, MetricReport, decision};
use crate::scores::{ScoredGroup, compare_scores};
use crate::stratum::Stratum;
use rand::RngExt;
use tokengauge_stats::{Generator, seeded, share};
use tokengauge_store::query::{ScoreSum, UnitScores};

fn rules() -> Rules {
    Rules {
        scores: vec!["success".into()],
        ..Rules::default()
    }
}

fn unit(sum: f64, count: u64) -> UnitScores {
    let binary = sum == 0.0 || sum == count as f64;
    let score = ScoreSum {
        sum,
        count,
        binary,
        boolean: binary,
    };
    [("success".to_owned(), score)].into()
}

fn group(units: &[UnitScores]) -> ScoredGroup {
    let sums = Sums {
        calls: 5,
        ..Sums::default()
    };
    let units = units.iter();
    ScoredGroup::of(
        "success",
        units.map(|scores| (Stratum::default(), &sums, scores)),
    )
}

fn compared(baseline: &[UnitScores], changed: &[UnitScores]) -> Comparison {
    compare_scores("success", [&group(baseline), &group(changed)], &rules())
}

fn shares(count: u32, bad_one_in: u32) -> Vec<UnitScores> {
    let units = 0..count;
    units
        .map(|at| unit(f64::from(u8::from(at % bad_one_in != 0)), 1))
        .collect()
}

#[test]
fn a_score_is_better_worse_or_equal() {
    let of = |baseline: u32, changed: u32| {
        let comparison = compared(&shares(4_000, baseline), &shares(4_000, changed));
        (decision(&comparison, 0.05), comparison)
    };
    let (worse, comparison) = of(20, 5);
    assert_eq!(worse, Decision::Worse);
    let report = MetricReport::of(&comparison, 0.05);
    assert!((report.difference.expect("known") + 0.15).abs() < 1e-9);
    assert!(report.score.expect("a score").is_share);
    assert_eq!(of(5, 20).0, Decision::Better);
    assert_eq!(of(50, 50).0, Decision::Equal);
    let grades = |grade: f64| -> Vec<UnitScores> {
        (0..600)
            .map(|at| unit(grade + f64::from(at % 3), 1))
            .collect()
    };
    let comparison = compared(&grades(2.0), &grades(2.5));
    assert_eq!(decision(&comparison, 0.05), Decision::Better);
    let report = MetricReport::of(&comparison, 0.05);
    assert!((report.baseline.expect("known") - 3.0).abs() < 1e-9);
    assert!((report.difference.expect("known") - 0.5).abs() < 1e-9);
    assert!(
        report.value_upper.is_some_and(|upper| upper > 3.5),
        "not cut at 1"
    );
    assert!(!report.score.expect("a score").is_share);
}

#[test]
fn few_scores_and_different_shares_of_scored_units_withhold_it() {
    let few = compared(&shares(99, 3), &shares(400, 3));
    let reason = few.difference.expect_err("withheld").to_string();
    assert!(
        reason.contains("99 units of the baseline have a score"),
        "{reason}"
    );
    let mut half = shares(400, 3);
    half.extend(vec![UnitScores::new(); 400]);
    let biased = compared(&half, &shares(400, 3));
    let reason = biased.difference.expect_err("withheld").to_string();
    assert!(reason.contains("(50.0 % and 100.0 %)"), "{reason}");
    let alike = compared(&half, &half);
    assert!(alike.difference.is_ok());
}

/// A session whose 1 to 6 scores depend on each other.
fn session(good: f64, random: &mut Generator) -> UnitScores {
    let count = 1 + (random.random::<f64>() * 6.0) as u64;
    let easy = if random.random_bool(0.5) { 0.15 } else { -0.15 };
    let sum = (0..count)
        .filter(|_| random.random_bool(good + easy))
        .count();
    let mut scores = unit(sum as f64, count);
    scores.values_mut().for_each(|score| score.binary = true);
    scores
}

/// Returns whether any of 30 looks found a difference.
fn found(goods: [f64; 2], seed: u64) -> bool {
    let mut random = seeded(seed);
    let mut arms = [Vec::new(), Vec::new()];
    (0..30).any(|_| {
        for _ in 0..40 {
            for (arm, good) in arms.iter_mut().zip(goods) {
                arm.push(session(good, &mut random));
            }
        }
        let mut families = [vec![compared(&arms[0], &arms[1])]];
        adjust(&mut families);
        let decided = decision(&families[0][0], 0.05);
        matches!(decided, Decision::Better | Decision::Worse)
    })
}

#[test]
fn false_alarms_over_all_looks_stay_within_alpha_and_a_difference_is_found() {
    let runs = match std::env::var_os("TOKENGAUGE_THOROUGH") {
        Some(_) => 1_000,
        None => 120,
    };
    let alarms = (0..runs)
        .filter(|seed| found([0.8, 0.8], 7 * seed + 1))
        .count() as u64;
    let interval = share::fixed_interval(alarms, runs, 0.95).expect("an interval");
    println!("| experiment: equal scores | {runs} | {alarms} false alarms |");
    assert!(interval.lower <= 0.05, "{alarms} of {runs}");
    let power = (0..20)
        .filter(|seed| found([0.8, 0.7], 7 * seed + 1))
        .count();
    assert!(power >= 18, "{power} of 20");
}
