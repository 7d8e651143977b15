//! Simulations for bootstrap, student, ratio and tail.

use crate::{Draw, about};
use tokengauge_stats::bootstrap::{self, Options};
use tokengauge_stats::ratio::{Arm, Unit, difference};
use tokengauge_stats::stratified::{Strata, Stratum};
use tokengauge_stats::{seeded, student, tail};

fn mean(series: &[f64]) -> f64 {
    series.iter().sum::<f64>() / series.len() as f64
}

#[test]
fn student_intervals_hold_as_often_as_they_say() {
    let mut draw = Draw::seeded(1);
    for confidence in [0.8, 0.95] {
        let holds = |_: &usize| {
            let trials: Vec<f64> = (0..5).map(|_| 40.0 + draw.normal()).collect();
            student::mean(&trials, confidence)
                .expect("trials")
                .interval
                .contains(40.0)
        };
        about((0..2_000).filter(holds).count(), 2_000, confidence);
    }
}

fn bootstrap_holds(correlation: f64, block: Option<usize>) -> usize {
    let (mut draw, mut random) = (Draw::seeded(2), seeded(2));
    let options = Options {
        confidence: 0.95,
        resamples: 300,
        block,
    };
    let holds = |_: &usize| {
        let series = draw.autoregression(correlation, 300);
        let found = bootstrap::interval(&series, mean, options, &mut random);
        found.expect("a series").interval.contains(0.0)
    };
    (0..400).filter(holds).count()
}

#[test]
fn blocks_make_intervals_hold_for_dependent_series() {
    let independent = bootstrap_holds(0.0, None);
    assert!((368..=396).contains(&independent), "{independent} of 400"); // 92 % to 99 %
    let dependent = bootstrap_holds(0.5, None);
    assert!((352..=392).contains(&dependent), "{dependent} of 400"); // 88 % to 98 %
    let single = bootstrap_holds(0.5, Some(1));
    println!("{independent}, {dependent} and, without blocks, {single} of 400 intervals hold");
    assert!(single < 320, "{single} of 400 without blocks");
}

/// The variance of the resampled mean is known: the variance of the block means over the number of blocks.
#[test]
fn the_spread_of_the_bootstrap_is_that_of_its_blocks() {
    let series = Draw::seeded(3).autoregression(0.6, 200);
    let blocks: Vec<f64> = series.windows(10).map(mean).collect();
    let centre = mean(&blocks);
    let variance = mean(
        &blocks
            .iter()
            .map(|block| (block - centre).powi(2))
            .collect::<Vec<_>>(),
    ) / 20.0;
    let options = Options {
        confidence: 0.682_689,
        resamples: 20_000,
        block: Some(10),
    };
    let found = bootstrap::interval(&series, mean, options, &mut seeded(3)).expect("a series");
    let ratio = found.interval.width() / 2.0 / variance.sqrt();
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

fn sessions(draw: &mut Draw, speed: f64) -> Arm {
    let session = |_| {
        let seconds = 10.0 * draw.lognormal(0.7);
        let tokens = seconds * (speed + 5.0 * draw.normal());
        Unit {
            numerator: tokens,
            denominator: seconds,
        }
    };
    (0..300).map(session).collect()
}

#[test]
fn ratios_and_their_differences_hold_as_often_as_they_say() {
    let mut draw = Draw::seeded(4);
    let (mut ratios, mut differences, mut shares) = (0, 0, 0);
    let runs = 1_500;
    for _ in 0..runs {
        let (a, b) = (sessions(&mut draw, 40.0), sessions(&mut draw, 44.0));
        let holds = |estimate: tokengauge_stats::Result<tokengauge_stats::Estimate>, truth| {
            let interval = estimate.and_then(|estimate| estimate.interval(0.9));
            usize::from(interval.expect("an interval").contains(truth))
        };
        ratios += holds(a.ratio(), 40.0);
        differences += holds(difference(&a, &b), 4.0);
        let one = Stratum {
            baseline: a,
            changed: b,
        };
        let log_ratio = Strata::new(&[one]).and_then(|strata| strata.log_ratio());
        shares += holds(log_ratio, 1.1_f64.ln());
    }
    for held in [ratios, differences, shares] {
        about(held, runs, 0.9);
    }
}

/// LoadGen's bound is conservative: for exponential times with a mean of 1, the p99 is ln 100.
#[test]
fn the_bound_of_a_percentile_holds_at_its_confidence() {
    let mut draw = Draw::seeded(5);
    let misses = |_: &usize| {
        let times: Vec<f64> = (0..700).map(|_| -draw.uniform().ln()).collect();
        tail::bound(&times, 0.99, 0.9).expect("enough").bound < 100.0_f64.ln()
    };
    let missed = (0..2_000).filter(misses).count();
    println!("{missed} of 2,000 bounds are below the p99, of which 200 may be");
    assert!(
        missed > 0 && missed <= 200,
        "{missed} of 2,000, which may be 200"
    );
}
