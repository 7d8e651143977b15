//! Comparisons for bootstrap, clustered, ratio, sequence, stratified, student and tail.

use crate::{close, fixture, near, same_interval};
use serde::Deserialize;
use std::collections::BTreeMap;
use tokengauge_stats::clustered::{Sample, share_interval};
use tokengauge_stats::ratio::{Arm, Unit, difference};
use tokengauge_stats::sequence::{self, Sequence};
use tokengauge_stats::stratified::{Strata, Stratum};
use tokengauge_stats::{Estimate, StatsError, bootstrap, seeded, student, tail};

#[derive(Deserialize)]
struct Series {
    series: Vec<f64>,
    block: f64,
    intervals: BTreeMap<String, [f64; 2]>,
}

fn mean(series: &[f64]) -> f64 {
    series.iter().sum::<f64>() / series.len() as f64
}

fn median(series: &[f64]) -> f64 {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

#[test]
fn block_lengths_and_intervals_are_those_of_arch() {
    for case in fixture::<Series>("bootstrap") {
        let block = bootstrap::block_length(&case.series).expect("long enough");
        assert_eq!(block as f64, case.block.ceil().max(1.0));
        let options = bootstrap::Options {
            confidence: 0.9,
            resamples: 4_000,
            block: None,
        };
        for (name, theirs) in case.intervals {
            let statistic = if name == "mean" { mean } else { median };
            let ours = bootstrap::interval(&case.series, statistic, options, &mut seeded(3))
                .expect("an interval");
            // Both implementations draw at random, so the ends differ by a few hundredths of the width.
            let allowed = 0.06 * (theirs[1] - theirs[0]);
            assert!(
                (ours.interval.lower - theirs[0]).abs() < allowed,
                "{name} {ours:?} {theirs:?}"
            );
            assert!(
                (ours.interval.upper - theirs[1]).abs() < allowed,
                "{name} {ours:?} {theirs:?}"
            );
        }
    }
}

#[derive(Deserialize)]
struct Trials {
    trials: Vec<f64>,
    confidence: f64,
    mean: f64,
    error: f64,
    interval: [f64; 2],
}

#[test]
fn student_intervals_are_those_of_scipy() {
    for case in fixture::<Trials>("student") {
        let ours = student::mean(&case.trials, case.confidence).expect("an interval");
        close(ours.mean, case.mean, 1e-12);
        close(ours.standard_error, case.error, 1e-12);
        same_interval(ours.interval, case.interval, 1e-9);
    }
}

#[derive(Deserialize)]
struct Compared {
    value: f64,
    variance: f64,
    degrees_of_freedom: f64,
    interval: [f64; 2],
    p: f64,
}

#[derive(Deserialize)]
struct Ratio {
    value: f64,
    variance: f64,
}

#[derive(Deserialize)]
struct Arms {
    arms: [Vec<[f64; 2]>; 2],
    #[serde(default)]
    ratios: Vec<Ratio>,
    confidence: f64,
    #[serde(default)]
    rho: f64,
    absolute: Compared,
}

impl Arms {
    fn arms(&self) -> [Arm; 2] {
        let unit = |&[numerator, denominator]: &[f64; 2]| Unit {
            numerator,
            denominator,
        };
        [0, 1].map(|arm| self.arms[arm].iter().map(unit).collect())
    }

    /// GrowthBook counts the units of both arms, whatever the share of each arm is.
    fn difference(&self) -> Estimate {
        let [a, b] = self.arms();
        Estimate {
            units: a.units() + b.units(),
            ..difference(&a, &b).expect("a difference")
        }
    }
}

#[test]
fn ratios_are_those_of_growthbook() {
    for case in fixture::<Arms>("ratio") {
        for (arm, theirs) in case.arms().iter().zip(&case.ratios) {
            let ours = arm.ratio().expect("a ratio");
            close(ours.value, theirs.value, 1e-12);
            near(ours.variance, theirs.variance, 1e-9);
        }
        let (ours, theirs) = (case.difference(), &case.absolute);
        close(ours.value, theirs.value, 1e-11);
        near(ours.variance, theirs.variance, 1e-9);
        let interval = ours.interval(case.confidence).expect("an interval");
        same_interval(interval, theirs.interval, 1e-8);
        near(ours.degrees_of_freedom, theirs.degrees_of_freedom, 1e-9);
    }
}

#[derive(Deserialize)]
struct Stratified {
    /// Numerator, denominator, stratum, arm.
    units: Vec<[f64; 4]>,
    ratios: [f64; 2],
    difference: [f64; 2],
    relative: [f64; 2],
}

#[test]
fn stratified_ratios_are_those_of_a_regression_with_interactions() {
    for case in fixture::<Stratified>("stratified") {
        let mut strata: BTreeMap<u64, Stratum> = BTreeMap::new();
        for [numerator, denominator, stratum, arm] in case.units {
            let stratum = strata.entry(stratum as u64).or_default();
            let arm = if arm > 0.0 {
                &mut stratum.changed
            } else {
                &mut stratum.baseline
            };
            arm.push(Unit {
                numerator,
                denominator,
            });
        }
        let strata: Vec<Stratum> = strata.into_values().collect();
        let ours = Strata::new(&strata).expect("units of both arms");
        let ratios = [ours.baseline(), ours.changed()];
        for (ours, theirs) in ratios.into_iter().zip(case.ratios) {
            close(ours.expect("a ratio").value, theirs, 1e-11);
        }
        let difference = ours.difference().expect("a difference");
        close(difference.value, case.difference[0], 1e-10);
        near(difference.variance, case.difference[1], 1e-7);
        // The oracle's interval is for the relative difference.
        let log = ours.log_ratio().expect("a ratio");
        close(log.value.exp_m1(), case.relative[0], 1e-10);
        near(
            log.variance * (1.0 + case.relative[0]).powi(2),
            case.relative[1],
            1e-7,
        );
    }
}

#[derive(Deserialize)]
struct Sequences {
    arms: Vec<Arms>,
    boundaries: Vec<Boundaries>,
}

#[derive(Deserialize)]
struct Boundaries {
    alpha: f64,
    tightest_at: u64,
    best_rho: f64,
    times: Vec<u64>,
    two_sided: Margins,
    one_sided: Margins,
}

#[derive(Deserialize)]
struct Margins {
    rho: f64,
    margins: Vec<f64>,
}

fn options(confidence: f64, tightest_at: u64) -> sequence::Options {
    sequence::Options {
        confidence,
        tightest_at,
        first_look: 2,
    }
}

#[test]
fn sequences_of_two_arms_are_those_of_growthbook() {
    let cases = fixture::<Sequences>("sequence").remove(0).arms;
    assert!(cases.iter().any(|case| case.absolute.p < 1e-3));
    for case in cases {
        let sequence =
            Sequence::with_rho(options(case.confidence, 1), case.rho).expect("a sequence");
        let (ours, theirs) = (case.difference(), &case.absolute);
        let interval = sequence.interval(&ours).expect("an interval");
        same_interval(interval, theirs.interval, 1e-9);
        near(
            sequence.p_value(&ours, 0.0).expect("a p value"),
            theirs.p,
            1e-8,
        );
    }
}

/// The estimate of a mean of 0 from units with a variance of 1.
fn standard(units: u64) -> Estimate {
    Estimate {
        value: 0.0,
        variance: 1.0 / units as f64,
        units,
        degrees_of_freedom: units as f64 - 1.0,
    }
}

#[test]
fn margins_are_those_of_confseq_and_rho_is_lamberts() {
    for case in fixture::<Sequences>("sequence").remove(0).boundaries {
        let options = options(1.0 - case.alpha, case.tightest_at);
        let best = Sequence::new(options).expect("a sequence");
        near(best.rho(), case.best_rho, 1e-12);
        let two_sided = Sequence::with_rho(options, case.two_sided.rho).expect("a sequence");
        let one_sided = Sequence::with_rho(options, case.one_sided.rho).expect("a sequence");
        for (index, units) in case.times.iter().enumerate() {
            let estimate = standard(*units);
            let ours = two_sided.interval(&estimate).expect("an interval").upper;
            near(ours, case.two_sided.margins[index], 1e-9);
            // The oracle is exact; the form of the paper is an upper bound of it, which is closer for a smaller alpha.
            let ours = one_sided.upper_bound(&estimate).expect("a bound");
            let ratio = ours / case.one_sided.margins[index];
            assert!(
                (1.0 - 1e-9..1.0 + 0.65 * case.alpha).contains(&ratio),
                "{units} {ratio}"
            );
        }
    }
}

#[derive(Deserialize)]
struct Tails {
    needed: Vec<Needed>,
    bounds: Vec<Bound>,
}

#[derive(Deserialize)]
struct Needed {
    percentile: f64,
    confidence: f64,
    over: usize,
    calls: usize,
}

#[derive(Deserialize)]
struct Bound {
    times: Vec<f64>,
    percentile: f64,
    bound: f64,
    above: usize,
}

#[test]
fn calls_and_bounds_are_those_of_the_binomial_distribution() {
    let cases = fixture::<Tails>("tail").remove(0);
    for case in cases.needed {
        let ours = tail::calls_needed_with(case.over, case.percentile, case.confidence);
        assert_eq!(ours, Ok(case.calls), "{} {}", case.over, case.percentile);
    }
    for case in cases.bounds {
        let ours = tail::bound(&case.times, case.percentile, 0.99).expect("enough calls");
        assert_eq!((ours.bound, ours.above), (case.bound, case.above));
    }
}

/// LoadGen prints "Need to process at least 64 queries for early stopping", and 662 for its p99.
#[test]
fn loadgens_own_numbers() {
    assert_eq!(tail::calls_needed(0.90, 0.99), Ok(64));
    assert_eq!(tail::calls_needed(0.99, 0.99), Ok(662));
    let too_few = Err(StatsError::TooFew {
        needed: 64,
        got: 63,
    });
    assert_eq!(tail::bound(&[1.0; 63], 0.90, 0.99), too_few);
}

#[derive(Deserialize)]
struct Clustered {
    values: Vec<f64>,
    units: Vec<u32>,
    failed: Vec<bool>,
    quantiles: Vec<Quantile>,
    shares: Vec<Share>,
}

#[derive(Deserialize)]
struct Quantile {
    share: f64,
    confidence: f64,
    quantile: f64,
    bounds: [Option<f64>; 2],
}

#[derive(Deserialize)]
struct Share {
    confidence: f64,
    interval: [f64; 2],
}

#[test]
fn quantiles_and_shares_by_unit_are_those_of_scipy() {
    let mut without_bound = 0;
    for case in fixture::<Clustered>("clustered") {
        let calls = case.values.iter().copied().zip(case.units.iter().copied());
        let sample = Sample::new(calls.collect()).expect("calls");
        for theirs in &case.quantiles {
            assert_eq!(sample.quantile(theirs.share), theirs.quantile);
            let ours = sample.quantile_interval(theirs.share, theirs.confidence);
            let ours = ours.expect("units");
            assert_eq!([ours.lower, ours.upper], theirs.bounds, "{}", theirs.share);
            without_bound += theirs.bounds.iter().filter(|bound| bound.is_none()).count();
        }
        let mut units = vec![(0.0, 0.0); sample.units()];
        for (unit, failed) in case.units.iter().zip(&case.failed) {
            let (with, all) = &mut units[*unit as usize];
            *with += f64::from(u8::from(*failed));
            *all += 1.0;
        }
        for theirs in &case.shares {
            let ours = share_interval(units.iter().copied(), theirs.confidence);
            same_interval(ours.expect("units"), theirs.interval, 1e-7);
        }
    }
    assert!(without_bound > 0, "some are of too few calls");
}
