//! Simulations for rank, holm, drift and mix.

use crate::{Draw, about};
use tokengauge_stats::drift::{Distribution, distance, stability_index};
use tokengauge_stats::mix::{Group, Stratum, decompose};
use tokengauge_stats::{holm, rank};

fn sample(draw: &mut Draw, count: usize, level: f64) -> Vec<f64> {
    (0..count).map(|_| level + draw.normal()).collect()
}

#[test]
fn equal_samples_are_rejected_as_often_as_allowed() {
    let mut draw = Draw::seeded(21);
    for (count, level) in [(6, 0.0411), (20, 0.05)] {
        let run = |_: &usize| {
            let (first, second) = (sample(&mut draw, count, 0.0), sample(&mut draw, count, 0.0));
            rank::mann_whitney(&first, &second).expect("samples").p <= 0.05
        };
        // With six against six, 38 of the 924 orders have a p value of at most 5 %.
        about((0..3_000).filter(run).count(), 3_000, level);
    }
}

#[test]
fn shifts_are_inside_their_intervals_as_often_as_they_say() {
    let mut draw = Draw::seeded(22);
    for (count, confidence) in [(6, 1.0 - 0.0411), (12, 0.95)] {
        let run = |_: &usize| {
            let (first, second) = (
                sample(&mut draw, count, 10.0),
                sample(&mut draw, count, 12.5),
            );
            let shift = rank::shift(&first, &second, 0.95).expect("samples");
            shift.interval.expect("an interval").contains(2.5)
        };
        about((0..2_000).filter(run).count(), 2_000, confidence);
    }
}

/// Eight metrics without a difference: Holm rejects at least one in at most 5 % of the runs, unadjusted p values in 34
/// %.
#[test]
fn holm_keeps_the_rate_of_false_rejections_of_all_together() {
    let mut draw = Draw::seeded(23);
    let (mut adjusted, mut plain) = (0, 0);
    for _ in 0..2_000 {
        let p: Vec<f64> = (0..8).map(|_| draw.uniform()).collect();
        let rejects = |p: &[f64]| usize::from(p.iter().any(|p| *p <= 0.05));
        plain += rejects(&p);
        adjusted += rejects(&holm::adjust(&p).expect("p values"));
    }
    about(plain, 2_000, 1.0 - 0.95_f64.powi(8));
    about(adjusted, 2_000, 1.0 - (1.0 - 0.05_f64 / 8.0).powi(8));
}

#[test]
fn distances_of_known_distributions() {
    let mut draw = Draw::seeded(24);
    let mut of =
        |level: f64| Distribution::of_sample(&sample(&mut draw, 20_000, level)).expect("a sample");
    let (reference, same, moved) = (of(0.0), of(0.0), of(1.0));
    // The quartiles of a normal distribution are 1.349 standard deviations apart.
    assert!((reference.interquartile_range() - 1.349).abs() < 0.04);
    assert!(distance(&reference, &same).expect("a distance") < 0.03);
    assert!((distance(&reference, &moved).expect("a distance") - 1.0 / 1.349).abs() < 0.03);
    assert!(stability_index(&reference, &same).expect("an index") < 0.01);
    // For normal distributions one standard deviation apart, the exact index is 1; ten bins capture most of it.
    let index = stability_index(&reference, &moved).expect("an index");
    assert!((0.85..1.0).contains(&index), "{index}");
}

/// Two cases: more long prompts with equal speed at each length, and equal prompts that are slower.
#[test]
fn mix_and_within_are_separate() {
    let group = |weight, mean| Group { weight, mean };
    let stratum = |before, after| Stratum { before, after };
    let longer = [
        stratum(group(80.0, 0.2), group(40.0, 0.2)),
        stratum(group(20.0, 1.0), group(60.0, 1.0)),
    ];
    let slower = [
        stratum(group(80.0, 0.2), group(160.0, 0.3)),
        stratum(group(20.0, 1.0), group(40.0, 1.1)),
    ];
    let [longer, slower] = [longer, slower].map(|strata| decompose(&strata).expect("strata"));
    assert!((longer.mix - 0.32).abs() < 1e-12 && longer.within.abs() < 1e-12);
    assert!((slower.within - 0.1).abs() < 1e-12 && slower.mix.abs() < 1e-12);
}

#[test]
fn a_stratum_of_one_period_is_all_mix() {
    let group = |weight, mean| Group { weight, mean };
    let found = decompose(&[
        Stratum {
            before: group(10.0, 1.0),
            after: group(5.0, 1.0),
        },
        Stratum {
            before: group(0.0, f64::NAN),
            after: group(5.0, 4.0),
        },
    ])
    .expect("strata");
    assert!((found.mix - 1.5).abs() < 1e-12 && found.within == 0.0);
}
