//! Simulations for clustered: quantiles, shares and their differences, for sessions with several calls each.

use crate::Draw;
use tokengauge_stats::clustered::{
    Bounded, Observation, Sample, correlation, relative_difference, share_interval,
};
use tokengauge_stats::{Interval, Result};

const RUNS: usize = 1_000;
const SESSIONS: u32 = 80;

/// Times of calls. Calls of a session share a random effect, which is half of their variance. The logarithm of all
/// times is normal with a standard deviation of one half.
fn calls(draw: &mut Draw, session: u32, common: f64, level: f64) -> Vec<Observation> {
    let count = 1 + (-6.0 * draw.uniform().ln()) as usize;
    let half = 0.5 * 0.5_f64.sqrt();
    let time = |draw: &mut Draw| level * (half * (common + draw.normal())).exp();
    (0..count).map(|_| (time(draw), session)).collect()
}

/// The true quantile at `share` for a level of 1.
fn truth(share: f64) -> f64 {
    let deviations = match share {
        0.1 => -1.281_551_6,
        0.5 => 0.0,
        0.95 => 1.644_853_6,
        _ => unreachable!("no other is asked for"),
    };
    (0.5_f64 * deviations).exp()
}

/// A bound that has too few calls is infinitely far away.
fn interval(sample: &Sample, share: f64) -> Interval {
    let bounds = sample.quantile_interval(share, 0.95).expect("units");
    Interval {
        lower: bounds.lower.unwrap_or(f64::MIN),
        upper: bounds.upper.unwrap_or(f64::MAX),
    }
}

/// Asserts that 94 to 98 of 100 intervals contain the truth. Order statistics are slightly conservative, and few units
/// make slightly too narrow intervals.
#[track_caller]
fn holds(held: usize, runs: usize, what: &str) {
    let share = held as f64 / runs as f64;
    println!("{what}: {held} of {runs}");
    assert!((0.93..=0.985).contains(&share), "{what}: {held} of {runs}");
}

#[test]
fn quantiles_of_sessions_hold_as_often_as_they_say() {
    for share in [0.1, 0.5, 0.95] {
        let mut draw = Draw::seeded(11);
        let (mut held, mut careless) = (0, 0);
        for _ in 0..RUNS {
            let sessions = (0..SESSIONS).flat_map(|session| {
                let common = draw.normal();
                calls(&mut draw, session, common, 1.0)
            });
            let sessions: Vec<_> = sessions.collect();
            let apart = sessions
                .iter()
                .zip(0..)
                .map(|((time, _), call)| (*time, call));
            let apart = Sample::new(apart.collect()).expect("calls");
            let sample = Sample::new(sessions).expect("calls");
            let contains =
                |sample: &Sample| usize::from(interval(sample, share).contains(truth(share)));
            held += contains(&sample);
            careless += contains(&apart);
        }
        holds(held, RUNS, &format!("quantile {share}"));
        assert!(
            careless + 40 < held,
            "{careless} of {RUNS} with calls as units"
        );
    }
}

#[test]
fn the_median_of_independent_calls_holds_at_its_confidence() {
    let mut draw = Draw::seeded(12);
    let held = (0..2 * RUNS).filter(|_| {
        let times = (0..60).map(|call| (draw.normal(), call)).collect();
        let sample = Sample::new(times).expect("calls");
        interval(&sample, 0.5).contains(0.0)
    });
    holds(held.count(), 2 * RUNS, "independent");
}

#[test]
fn shares_of_sessions_hold_as_often_as_they_say() {
    for rate in [0.02, 0.2] {
        let mut draw = Draw::seeded(13);
        let mut held = 0;
        for _ in 0..RUNS {
            let session = |_| {
                // Half of the sessions fail at twice the rate, the others never.
                let fails = if draw.uniform() < 0.5 {
                    2.0 * rate
                } else {
                    0.0
                };
                let calls = 1 + (-6.0 * draw.uniform().ln()) as usize;
                let failed = (0..calls).filter(|_| draw.uniform() < fails).count();
                (failed as f64, calls as f64)
            };
            let sessions: Vec<_> = (0..SESSIONS).map(session).collect();
            let found = share_interval(sessions.iter().copied(), 0.95);
            held += usize::from(found.expect("units").contains(rate));
        }
        holds(held, RUNS, &format!("share {rate}"));
    }
}

/// Returns how often the interval of the relative difference of two medians contains the truth, and how wide it is.
/// `together` sessions have calls of both samples.
fn differences(together: bool) -> (usize, f64) {
    let mut draw = Draw::seeded(14);
    let (mut held, mut width) = (0, 0.0);
    for _ in 0..RUNS {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for session in 0..SESSIONS {
            let common = draw.normal();
            old.extend(calls(&mut draw, session, common, 1.0));
            let (session, common) = if together {
                (session, common)
            } else {
                (SESSIONS + session, draw.normal())
            };
            new.extend(calls(&mut draw, session, common, 1.2));
        }
        let samples = [old, new].map(|calls| Sample::new(calls).expect("calls"));
        let figure = |sample: &Sample| Bounded {
            value: sample.quantile(0.5),
            interval: interval(sample, 0.5),
        };
        let [old, new] = &samples;
        let both = correlation(&old.contributions(0.5), &new.contributions(0.5));
        let found: Result<Bounded> = relative_difference(&figure(old), &figure(new), both);
        let found = found.expect("positive").interval;
        held += usize::from(found.contains(0.2));
        width += found.width() / RUNS as f64;
    }
    (held, width)
}

#[test]
fn differences_hold_also_of_sessions_that_have_calls_of_both() {
    let (apart, wide) = differences(false);
    let (together, narrow) = differences(true);
    holds(apart, RUNS, "differences of independent sessions");
    holds(together, RUNS, "differences within sessions");
    assert!(narrow < 0.85 * wide, "{narrow} {wide}");
}
