//! Relations between the results of related inputs, from the definitions.

use proptest::collection::vec;
use proptest::prelude::*;
use tokengauge_stats::drift::Distribution;
use tokengauge_stats::mix::{Group, Stratum, decompose};
use tokengauge_stats::ratio::{Arm, Unit};
use tokengauge_stats::{Interval, change, holm, rank, sequence, tail};

/// Numbers of usual size, which repeat often.
fn usual(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    let whole = (-20_i32..20).prop_map(f64::from);
    prop_oneof![vec(whole, size.clone()), vec(-100.0..100.0_f64, size)]
}

fn of_one(values: &[f64]) -> Arm {
    let unit = |&numerator: &f64| Unit {
        numerator,
        denominator: 1.0,
    };
    values.iter().map(unit).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn mix_and_within_sum_to_the_difference(
        strata in vec((0_u32..50, -100.0..100.0_f64, 0_u32..50, -100.0..100.0_f64), 1..8),
    ) {
        let group = |weight: u32, mean| Group { weight: weight.into(), mean };
        let stratum = |&(a, b, c, d)| Stratum { before: group(a, b), after: group(c, d) };
        let strata: Vec<Stratum> = strata.iter().map(stratum).collect();
        if let Ok(found) = decompose(&strata) {
            let difference = found.after - found.before;
            prop_assert!((found.mix + found.within - difference).abs() < 1e-11);
        }
    }

    #[test]
    fn arms_merge_as_if_units_were_added_one_by_one(
        units in vec((-50.0..50.0_f64, 1.0..50.0_f64), 2..60),
        cut in 0_usize..60,
    ) {
        let unit = |&(numerator, denominator): &(f64, f64)| Unit { numerator, denominator };
        let units: Vec<Unit> = units.iter().map(unit).collect();
        let (left, right) = units.split_at(cut.min(units.len()));
        let mut merged: Arm = left.iter().copied().collect();
        merged.merge(&right.iter().copied().collect());
        let merged = merged.ratio().unwrap();
        let whole = units.iter().copied().collect::<Arm>().ratio().unwrap();
        prop_assert_eq!(merged.units, whole.units);
        prop_assert!((merged.value - whole.value).abs() < 1e-10);
        prop_assert!((merged.variance - whole.variance).abs() < 1e-10 * (1.0 + whole.variance));
    }

    #[test]
    fn ranks_do_not_mind_sides_or_units(first in usual(1..15), second in usual(1..15)) {
        let there = rank::mann_whitney(&first, &second).unwrap();
        let back = rank::mann_whitney(&second, &first).unwrap();
        prop_assert_eq!(there.u + back.u, (first.len() * second.len()) as f64);
        prop_assert!((there.p - back.p).abs() < 1e-12);
        let scaled = |sample: &[f64]| sample.iter().map(|value| value * 8.0).collect::<Vec<_>>();
        prop_assert_eq!(rank::mann_whitney(&scaled(&first), &scaled(&second)).unwrap(), there);
    }

    #[test]
    fn a_shift_back_is_the_shift_there_reversed(first in usual(1..15), second in usual(1..15)) {
        let there = rank::shift(&first, &second, 0.8).unwrap();
        let back = rank::shift(&second, &first, 0.8).unwrap();
        prop_assert!((there.estimate + back.estimate).abs() < 1e-9);
        let reversed = |found: Interval| Interval { lower: -found.upper, upper: -found.lower };
        prop_assert_eq!(there.interval, back.interval.map(reversed));
    }

    #[test]
    fn a_shift_is_in_its_interval_if_the_test_does_not_reject_it(
        first in usual(4..12),
        second in usual(4..12),
        step in -50.0..50.0_f64,
    ) {
        let moved: Vec<f64> = first.iter().map(|value| value + step).collect();
        let is_plausible = rank::mann_whitney(&moved, &second).unwrap().p > 0.2;
        let inside = rank::shift(&first, &second, 0.8).unwrap().interval.unwrap().contains(step);
        prop_assert_eq!(inside, is_plausible);
    }

    #[test]
    fn distances_are_distances(
        first in usual(1..30),
        second in usual(1..30),
        third in usual(1..30),
        step in 0.0..50.0_f64,
    ) {
        let of = |sample: &[f64]| Distribution::of_sample(sample).unwrap();
        let distance = |left: &[f64], right: &[f64]| of(left).wasserstein(&of(right)).unwrap();
        prop_assert_eq!(distance(&first, &first), 0.0);
        let (there, back) = (distance(&first, &second), distance(&second, &first));
        prop_assert!((there - back).abs() < 1e-9);
        prop_assert!(distance(&first, &third) <= there + distance(&second, &third) + 1e-9);
        let moved: Vec<f64> = first.iter().map(|value| value + step).collect();
        prop_assert!((distance(&first, &moved) - step).abs() < 1e-9);
    }

    #[test]
    fn holm_never_lowers_a_p_value_and_keeps_their_order(p in vec(0.0..1.0_f64, 0..12)) {
        let adjusted = holm::adjust(&p).unwrap();
        for (index, value) in adjusted.iter().enumerate() {
            prop_assert!(*value >= p[index]);
            let mut others = p.iter().zip(&adjusted);
            prop_assert!(others.all(|(other, adjusted)| *other < p[index] || adjusted >= value));
        }
    }

    #[test]
    fn the_interval_of_a_sequence_leaves_out_what_its_p_value_rejects(
        values in vec(-10.0..10.0_f64, 20..80),
        null in -10.0..10.0_f64,
    ) {
        let estimate = of_one(&values).ratio().unwrap();
        let options = sequence::Options { confidence: 0.9, tightest_at: 40, first_look: 2 };
        let sequence = sequence::Sequence::new(options).unwrap();
        let p = sequence.p_value(&estimate, null).unwrap();
        let inside = sequence.interval(&estimate).unwrap().contains(null);
        prop_assert!(inside == (p > 0.1) || (p - 0.1).abs() < 1e-9);
    }

    #[test]
    fn change_points_do_not_mind_the_unit(series in usual(20..120)) {
        let options = change::Options { min_points: 5, ..change::Options::default() };
        let found = |factor: f64| -> Vec<usize> {
            let scaled = series.iter().map(|value| (200.0 + value) * factor);
            let found = change::find(&scaled.collect::<Vec<_>>(), &options).unwrap();
            found.iter().map(|point| point.index).collect()
        };
        prop_assert_eq!(found(1.0), found(1024.0));
    }

    #[test]
    fn a_tails_bound_rises_with_the_confidence(times in vec(0.0..100.0_f64, 40..200)) {
        let bound = |confidence| {
            tail::bound(&times, 0.8, confidence).map_or(f64::INFINITY, |tail| tail.bound)
        };
        prop_assert!(bound(0.5) <= bound(0.9) && bound(0.9) <= bound(0.999));
    }
}
