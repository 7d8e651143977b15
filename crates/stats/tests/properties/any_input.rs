//! No input causes a panic, NaN or infinity.

use proptest::collection::vec;
use proptest::prelude::*;
use tokengauge_stats::drift::{self, Distribution, Point};
use tokengauge_stats::mix::{Group, Stratum, decompose};
use tokengauge_stats::ratio::{self, Arm, Unit};
use tokengauge_stats::split::Split;
use tokengauge_stats::{
    Estimate, Interval, Result, bootstrap, change, holm, rank, seeded, sequence, steady, student,
    tail,
};

/// Any number, or a number of usual size, which repeats often.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        1 => any::<f64>(),
        20 => (-20_i32..20).prop_map(f64::from),
        20 => -100.0..100.0_f64,
        1 => Just(1e200),
        1 => Just(f64::MAX),
        1 => Just(f64::MIN_POSITIVE),
    ]
}

/// Some lists contain only finite values, so that a result exists.
fn any_numbers(most: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        vec(any_number(), 0..most),
        vec((-20_i32..20).prop_map(f64::from), 0..most),
        vec(
            prop_oneof![-1.0..1.0_f64, Just(1e200), Just(f64::MAX), Just(-f64::MAX)],
            0..most
        ),
    ]
}

fn finite(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.is_finite())
}

fn ordered(interval: Interval) -> bool {
    finite(&[interval.lower, interval.upper]) && interval.lower <= interval.upper
}

fn is_probability(p: f64) -> bool {
    (0.0..=1.0).contains(&p)
}

/// Asserts a property of a result. Errors are accepted.
#[track_caller]
fn check<T: std::fmt::Debug + Clone>(answer: Result<T>, property: impl Fn(T) -> bool) {
    if let Ok(answer) = answer {
        assert!(property(answer.clone()), "{answer:?}");
    }
}

fn series_alone(series: &[f64], share: f64) {
    check(student::mean(series, share), |mean| {
        ordered(mean.interval) && finite(&[mean.mean, mean.standard_error])
    });
    check(bootstrap::block_length(series), |block| {
        (1..=series.len()).contains(&block)
    });
    let options = bootstrap::Options {
        confidence: share,
        resamples: 100,
        block: None,
    };
    let sum = |series: &[f64]| series.iter().sum();
    check(
        bootstrap::interval(series, sum, options, &mut seeded(1)),
        |found| ordered(found.interval) && found.estimate.is_finite(),
    );
    check(steady::mser5(series), |found| match found {
        steady::Beginning::Ends { after } => after <= series.len() / 2,
        steady::Beginning::NotInFirstHalf => true,
    });
    check(steady::slope(series, share), |slope| {
        ordered(slope.interval) && finite(&[slope.level, slope.per_step, slope.change])
    });
    check(tail::bound(series, share, 0.5), |tail| {
        tail.bound.is_finite() && tail.above < series.len()
    });
    check(holm::adjust(series), |adjusted| {
        adjusted.into_iter().all(is_probability)
    });
}

fn change_points(series: &[f64], level: Option<f64>) {
    let options = change::Options {
        min_points: 2,
        min_change: 0.01,
        level,
        max_p: 0.2,
        window: 20,
    };
    check(change::find(series, &options), |points| {
        points.iter().all(|point| {
            finite(&[point.before.mean, point.after.mean, point.change])
                && point.p < options.max_p
                && point.change > options.min_change
        })
    });
}

fn two_samples(first: &[f64], second: &[f64], share: f64) {
    check(rank::mann_whitney(first, second), |test| {
        test.u.is_finite() && is_probability(test.p)
    });
    check(rank::shift(first, second, share), |shift| {
        let inside = |interval: Interval| ordered(interval) && interval.contains(shift.estimate);
        shift.estimate.is_finite() && shift.interval.is_none_or(inside)
    });
    let both = (
        Distribution::of_sample(first),
        Distribution::of_sample(second),
    );
    if let (Ok(first), Ok(second)) = both {
        let is_distance = |distance: f64| distance.is_finite() && distance >= 0.0;
        check(first.wasserstein(&second), is_distance);
        check(drift::distance(&first, &second), is_distance);
        check(drift::stability_index(&first, &second), is_distance);
    }
    let points = first.iter().zip(second);
    let points: Vec<Point> = points
        .map(|(&value, &weight)| Point { value, weight })
        .collect();
    check(Distribution::of_histogram(&points), |found| {
        check(found.quantile(share), f64::is_finite);
        is_probability(found.at_most(share)) && found.interquartile_range() >= 0.0
    });
}

fn estimate(estimate: &Estimate, share: f64, null: f64) {
    assert!(finite(&[
        estimate.value,
        estimate.variance,
        estimate.degrees_of_freedom
    ]));
    assert!(estimate.variance >= 0.0, "{estimate:?}");
    check(estimate.interval(share), ordered);
    let options = sequence::Options {
        confidence: share,
        tightest_at: 50,
        first_look: 10,
    };
    check(sequence::Sequence::new(options), |sequence| {
        check(sequence.interval(estimate), ordered);
        check(sequence.lower_bound(estimate), f64::is_finite);
        check(sequence.upper_bound(estimate), f64::is_finite);
        check(sequence.p_value(estimate, null), is_probability);
        sequence.rho().is_finite()
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn any_series_has_finite_answers(series in any_numbers(90), share in -0.1..1.1_f64) {
        series_alone(&series, share);
    }

    #[test]
    fn any_series_has_finite_change_points(series in any_numbers(60), level in any_number()) {
        change_points(&series, None);
        change_points(&series, Some(level));
    }

    #[test]
    fn any_two_samples_have_finite_answers(
        first in any_numbers(25),
        second in any_numbers(25),
        share in -0.1..1.1_f64,
    ) {
        two_samples(&first, &second, share);
    }

    #[test]
    fn any_units_have_finite_answers(
        a in vec((any_number(), any_number()), 0..30),
        b in vec((-1e3..1e3_f64, 1e-3..1e3_f64), 0..30),
        null in any_number(),
        share in -0.1..1.1_f64,
    ) {
        let arm = |units: &[(f64, f64)]| -> Arm {
            let units = units.iter();
            units.map(|&(numerator, denominator)| Unit { numerator, denominator }).collect()
        };
        let (a, b) = (arm(&a), arm(&b));
        let found = [
            a.ratio(),
            b.ratio(),
            ratio::difference(&a, &b),
        ];
        for found in found.into_iter().flatten() {
            estimate(&found, share, null);
        }
    }

    #[test]
    fn any_strata_have_finite_answers(
        strata in vec((any_number(), any_number(), any_number(), any_number()), 0..8),
    ) {
        let group = |weight: f64, mean| Group { weight: weight.abs(), mean };
        let stratum = |&(a, b, c, d)| Stratum { before: group(a, b), after: group(c, d) };
        let strata: Vec<Stratum> = strata.iter().map(stratum).collect();
        check(decompose(&strata), |found| {
            let parts = found.parts.iter().all(|part| finite(&[part.mix, part.within]));
            parts && finite(&[found.before, found.after, found.mix, found.within])
        });
    }

    #[test]
    fn any_split_has_a_p_value(
        weights in vec(any_number(), 0..4),
        concentration in any_number(),
        looks in vec(vec(any::<u64>(), 2..4), 0..5),
    ) {
        let weights: Vec<f64> = weights.into_iter().map(f64::abs).collect();
        if let Ok(mut split) = Split::new(&weights, concentration.abs()) {
            for look in looks {
                check(split.observe(&look), is_probability);
            }
            prop_assert!(is_probability(split.p_value()));
        }
    }
}
