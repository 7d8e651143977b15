//! Comparisons for drift, holm, mix, rank and split.

use crate::{close, fixture, near, same_interval};
use serde::Deserialize;
use tokengauge_stats::drift::{self, Distribution, Point};
use tokengauge_stats::mix::{Group, Stratum, decompose};
use tokengauge_stats::split::Split;
use tokengauge_stats::{StatsError, holm, rank};

#[derive(Deserialize)]
struct Drift {
    reference: [Vec<f64>; 2],
    current: [Vec<f64>; 2],
    wasserstein: f64,
    interquartile_range: f64,
    stability_index: Option<f64>,
}

fn distribution([values, weights]: &[Vec<f64>; 2]) -> Distribution {
    let points = values.iter().zip(weights);
    let points: Vec<Point> = points
        .map(|(&value, &weight)| Point { value, weight })
        .collect();
    Distribution::of_histogram(&points).expect("a distribution")
}

#[test]
fn distances_are_those_of_scipy_and_quartiles_those_of_numpy() {
    for case in fixture::<Drift>("drift") {
        let (reference, current) = (distribution(&case.reference), distribution(&case.current));
        close(
            reference.wasserstein(&current).expect("a distance"),
            case.wasserstein,
            1e-12,
        );
        close(
            reference.interquartile_range(),
            case.interquartile_range,
            1e-12,
        );
        match drift::distance(&reference, &current) {
            Ok(ours) => close(ours, case.wasserstein / case.interquartile_range, 1e-12),
            Err(error) => assert_eq!(
                (error, case.interquartile_range),
                (StatsError::NoVariation, 0.0)
            ),
        }
        match (
            drift::stability_index(&reference, &current),
            case.stability_index,
        ) {
            (Ok(ours), Some(theirs)) => close(ours, theirs, 1e-12),
            (ours, theirs) => assert_eq!((ours, theirs), (Err(StatsError::NoVariation), None)),
        }
    }
}

#[derive(Deserialize)]
struct Holm {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

#[test]
fn adjusted_p_values_are_those_of_statsmodels() {
    for case in fixture::<Holm>("holm") {
        let ours = holm::adjust(&case.p).expect("p values");
        for (ours, theirs) in ours.iter().zip(&case.adjusted) {
            near(*ours, *theirs, 1e-12);
        }
    }
}

#[derive(Deserialize)]
struct Means {
    weight: f64,
    mean: f64,
}

#[derive(Deserialize)]
struct Mix {
    before: Vec<Means>,
    after: Vec<Means>,
    within: f64,
    mix: f64,
    difference: f64,
}

#[test]
fn parts_are_those_of_oaxaca_and_blinder_in_statsmodels() {
    for case in fixture::<Mix>("mix") {
        let group = |means: &Means| Group {
            weight: means.weight,
            mean: means.mean,
        };
        let strata = case.before.iter().zip(&case.after);
        let strata: Vec<Stratum> = strata
            .map(|(before, after)| Stratum {
                before: group(before),
                after: group(after),
            })
            .collect();
        let ours = decompose(&strata).expect("a decomposition");
        close(ours.mix, case.mix, 1e-9);
        close(ours.within, case.within, 1e-9);
        close(ours.after - ours.before, case.difference, 1e-9);
    }
}

#[derive(Deserialize)]
struct Ranks {
    first: Vec<f64>,
    second: Vec<f64>,
    u: f64,
    p: f64,
    estimate: f64,
    confidence: f64,
    interval: Option<[f64; 2]>,
    has_interval: bool,
}

#[test]
fn tests_and_shifts_are_those_of_scipy() {
    for case in fixture::<Ranks>("rank") {
        let ours = rank::mann_whitney(&case.first, &case.second).expect("a test");
        assert_eq!(ours.u, case.u);
        near(ours.p, case.p, 1e-9);
        let ours = rank::shift(&case.first, &case.second, case.confidence).expect("a shift");
        close(ours.estimate, case.estimate, 1e-12);
        match (ours.interval, case.interval) {
            (Some(ours), Some(theirs)) => same_interval(ours, theirs, 1e-12),
            (ours, theirs) => assert!(!case.has_interval || (ours.is_none() && theirs.is_none())),
        }
    }
}

#[derive(Deserialize)]
struct Looks {
    weights: Vec<f64>,
    concentration: f64,
    looks: Vec<Vec<u64>>,
    p: Vec<f64>,
}

#[test]
fn p_values_of_splits_are_those_of_ssrm_test() {
    for case in fixture::<Looks>("split") {
        let mut split = Split::new(&case.weights, case.concentration).expect("a split");
        for (look, theirs) in case.looks.iter().zip(&case.p) {
            near(split.observe(look).expect("a p value"), *theirs, 1e-8);
        }
    }
}
