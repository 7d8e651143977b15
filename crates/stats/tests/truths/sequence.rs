//! Simulations for sequence and split, with a look after every unit.

use crate::Draw;
use tokengauge_stats::ratio::{Arm, Unit, difference};
use tokengauge_stats::sequence::{Options, Sequence};
use tokengauge_stats::split::{CONCENTRATION, Split};
use tokengauge_stats::{Estimate, Interval};

const RUNS: usize = 1_000;
const UNITS: u64 = 1_500;

fn sequence(first_look: u64) -> Sequence {
    let options = Options {
        confidence: 0.95,
        tightest_at: 500,
        first_look,
    };
    Sequence::new(options).expect("a sequence")
}

fn first_alarm(
    mut unit: impl FnMut(u64) -> Unit,
    mut alarm: impl FnMut(&Estimate) -> bool,
) -> Option<u64> {
    let mut arms = [Arm::default(), Arm::default()];
    (0..UNITS).find(|turn| {
        arms[(turn % 2) as usize].push(unit(turn % 2));
        let [a, b] = &arms;
        difference(a, b).is_ok_and(|difference| alarm(&difference))
    })
}

fn of_one(value: f64) -> Unit {
    Unit {
        numerator: value,
        denominator: 1.0,
    }
}

fn session(draw: &mut Draw, speed: f64) -> Unit {
    let seconds = draw.lognormal(0.8);
    Unit {
        numerator: seconds * (speed + 5.0 * draw.normal()),
        denominator: seconds,
    }
}

fn outside(interval: tokengauge_stats::Result<Interval>, truth: f64) -> bool {
    interval.is_ok_and(|interval| !interval.contains(truth))
}

#[test]
fn two_equal_arms_give_no_more_alarms_than_allowed_with_a_look_after_every_unit() {
    let sequence = sequence(100);
    let mut draw = Draw::seeded(11);
    let alarms = |unit: &mut dyn FnMut() -> Unit| {
        let run = |_: &usize| {
            first_alarm(
                |_| unit(),
                |estimate| outside(sequence.interval(estimate), 0.0),
            )
            .is_some()
        };
        (0..RUNS).filter(run).count()
    };
    let skewed = alarms(&mut || of_one(draw.lognormal(0.8)));
    let share = alarms(&mut || of_one(f64::from(draw.uniform() < 0.2)));
    let ratio = alarms(&mut || session(&mut draw, 40.0));
    for (alarms, what) in [
        (skewed, "skewed"),
        (share, "a share of 20 %"),
        (ratio, "a ratio"),
    ] {
        println!("{alarms} of {RUNS} runs of equal arms give an alarm with {what}");
        assert!(alarms <= RUNS / 20, "{alarms} of {RUNS} with {what}");
        assert!(alarms > 0, "an alarm is possible");
    }
}

/// Shows why the sequence is needed: Student's interval, valid for a single look, raises many false alarms in the same
/// runs.
#[test]
fn an_interval_for_one_look_gives_more_alarms_than_allowed() {
    let mut draw = Draw::seeded(12);
    let alarm =
        |estimate: &Estimate| estimate.units >= 100 && outside(estimate.interval(0.95), 0.0);
    let run = |_: &usize| first_alarm(|_| of_one(draw.lognormal(0.8)), alarm).is_some();
    let alarms = (0..200).filter(run).count();
    println!("{alarms} of 200 runs of equal arms give an alarm with an interval for one look");
    assert!(alarms > 40, "{alarms} of 200");
}

#[test]
fn a_real_difference_is_found_and_its_direction_is_right() {
    let sequence = sequence(100);
    let mut draw = Draw::seeded(13);
    let mut alarm = |estimate: &Estimate| {
        let interval = sequence.interval(estimate);
        assert!(
            interval
                .as_ref()
                .map_or(true, |interval| interval.upper > 0.0)
        );
        interval.is_ok_and(|interval| interval.lower > 0.0)
    };
    for _ in 0..100 {
        let unit = |arm| session(&mut draw, 40.0 + 2.0 * arm as f64);
        let at = first_alarm(unit, &mut alarm).expect("found");
        assert!(at >= 99, "not before the first look");
    }
}

#[test]
fn one_sided_bounds_hold_at_all_looks() {
    let sequence = sequence(100);
    let mut draw = Draw::seeded(14);
    let (mut below, mut above) = (0, 0);
    for _ in 0..500 {
        let mut wrong = (false, false);
        first_alarm(
            |_| of_one(draw.normal()),
            |estimate| {
                wrong.0 |= sequence
                    .lower_bound(estimate)
                    .is_ok_and(|bound| bound > 0.0);
                wrong.1 |= sequence
                    .upper_bound(estimate)
                    .is_ok_and(|bound| bound < 0.0);
                false
            },
        );
        below += usize::from(wrong.0);
        above += usize::from(wrong.1);
    }
    println!("{below} and {above} of 500 one-sided bounds fail");
    assert!(below <= 25 && above <= 25, "{below} and {above} of 500");
    assert!(below + above > 0, "a failure is possible");
}

#[test]
fn a_split_as_configured_gives_no_more_alarms_than_allowed() {
    let mut draw = Draw::seeded(15);
    let run = |_: &usize| {
        let mut split = Split::new(&[70.0, 30.0], 1_000.0).expect("a split");
        (0..2_000).any(|_| {
            let units = if draw.uniform() <= 0.7 {
                [1, 0]
            } else {
                [0, 1]
            };
            split.observe(&units).expect("two arms") <= 0.05
        })
    };
    let alarms = (0..RUNS).filter(run).count();
    println!("{alarms} of {RUNS} splits as configured give an alarm");
    assert!(alarms <= RUNS / 20, "{alarms} of {RUNS}");
    assert!(alarms > 0, "an alarm is possible");
}

#[test]
fn a_split_that_is_off_is_found() {
    let mut draw = Draw::seeded(16);
    for _ in 0..20 {
        let mut split = Split::new(&[1.0, 1.0], CONCENTRATION).expect("a split");
        let found = (0..20_000).any(|_| {
            let units = if draw.uniform() <= 0.54 {
                [1, 0]
            } else {
                [0, 1]
            };
            split.observe(&units).expect("two arms") <= 0.001
        });
        assert!(found, "{split:?}");
    }
}
