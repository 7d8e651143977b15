//! Simulations for steady.

use crate::{Draw, about};
use tokengauge_stats::steady::{Beginning, mser5, slope};

#[test]
fn a_beginning_is_cut_off_and_no_more_than_that() {
    let mut draw = Draw::seeded(31);
    let mut cut = vec![];
    for _ in 0..200 {
        let noise = draw.autoregression(0.3, 300);
        let level = |second: usize| if second < 40 { 30.0 } else { 50.0 };
        let run: Vec<f64> = (0..300)
            .map(|second| level(second) + 2.0 * noise[second])
            .collect();
        match mser5(&run).expect("a run") {
            Beginning::Ends { after } => cut.push(after),
            Beginning::NotInFirstHalf => {}
        }
    }
    assert!(cut.len() >= 182, "{} of 200 settled", cut.len());
    assert!(cut.iter().all(|after| *after >= 40));
    let near = cut.iter().filter(|after| **after <= 60).count();
    println!("{} of 200 settled, {near} near 40", cut.len());
    assert!(near >= 120, "{near} of 200 near 40");
}

#[test]
fn a_run_that_only_settles_late_is_not_steady() {
    let noise = Draw::seeded(32).autoregression(0.0, 200);
    let level = |second: usize| if second < 140 { 30.0 } else { 50.0 };
    let run: Vec<f64> = (0..200)
        .map(|second| level(second) + noise[second])
        .collect();
    assert_eq!(mser5(&run), Ok(Beginning::NotInFirstHalf));
}

fn slopes_hold(seed: u64, correlation: f64) -> usize {
    let mut draw = Draw::seeded(seed);
    let run = |_: &usize| {
        let noise = draw.autoregression(correlation, 300);
        let line = |second: usize| 95.0 + 10.0 * second as f64 / 299.0 + 3.0 * noise[second];
        let series: Vec<f64> = (0..300).map(line).collect();
        slope(&series, 0.95)
            .expect("a series")
            .interval
            .contains(0.1)
    };
    (0..1_000).filter(run).count()
}

#[test]
fn intervals_of_slopes_hold_about_as_often_as_they_say() {
    for (seed, correlation) in [(33, 0.0), (34, 0.7), (35, -0.4)] {
        let held = slopes_hold(seed, correlation);
        println!("{held} of 1,000 intervals hold with neighbours correlated by {correlation}");
        // Negative dependence makes the intervals wider than necessary.
        assert!(held >= 930, "{held} of 1,000");
    }
}

/// The residuals of a straight line are rounding errors.
#[test]
fn a_constant_series_is_steady() {
    for level in [0.1, 1.0 / 3.0, 150.0, 1e-9, 1e9] {
        let noisy = |step: usize| level * (1.0 + (step % 3) as f64 * f64::EPSILON);
        let series: Vec<f64> = (0..50).map(noisy).collect();
        let found = slope(&series, 0.95).expect("a level");
        assert!(found.is_within(1e-9), "{level}: {found:?}");
    }
}

#[test]
fn steady_is_what_is_shown_to_be() {
    let mut draw = Draw::seeded(35);
    let run = |draw: &mut Draw, length: usize, rise: f64| {
        let noise = draw.autoregression(0.3, length);
        let value =
            |second: usize| 100.0 + rise * second as f64 / length as f64 + 10.0 * noise[second];
        (0..length).map(value).collect::<Vec<f64>>()
    };
    // A short flat run is too short to show that it is flat, a long one is long enough, and a rise of 15 % is never
    // flat.
    let short = slope(&run(&mut draw, 60, 0.0), 0.95).expect("a run");
    let long = slope(&run(&mut draw, 2_000, 0.0), 0.95).expect("a run");
    let rising = slope(&run(&mut draw, 2_000, 15.0), 0.95).expect("a run");
    assert_eq!(
        [short, long, rising].map(|slope| slope.is_within(0.05)),
        [false, true, false]
    );
}

/// A flat run counts as steady. A run at the limit does so only with the tail probability of the interval.
#[test]
fn a_slope_at_the_limit_is_seldom_taken_for_steady() {
    let mut draw = Draw::seeded(36);
    let run = |_: &usize| {
        let noise = draw.autoregression(0.0, 600);
        let value = |second: usize| 97.5 + 5.0 * second as f64 / 599.0 + 3.0 * noise[second];
        let series: Vec<f64> = (0..600).map(value).collect();
        slope(&series, 0.95).expect("a run").is_within(0.05)
    };
    about((0..2_000).filter(run).count(), 2_000, 0.025);
}
