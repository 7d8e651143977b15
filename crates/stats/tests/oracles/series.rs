//! Comparisons for change and steady.

use crate::{close, fixture, near, same_interval};
use serde::Deserialize;
use tokengauge_stats::change::{ChangePoint, Options, find};
use tokengauge_stats::steady::{Beginning, mser5, slope};

#[derive(Deserialize)]
struct Change {
    series: Vec<f64>,
    window: usize,
    max_p: f64,
    min_change: f64,
    points: Vec<Point>,
    ruptures: Vec<usize>,
}

#[derive(Deserialize)]
struct Point {
    index: usize,
    before: f64,
    after: f64,
    change: f64,
    p: f64,
}

impl Change {
    fn found(&self, min_points: usize) -> Vec<ChangePoint> {
        let options = Options {
            min_points,
            min_change: self.min_change,
            level: None,
            max_p: self.max_p,
            window: self.window,
        };
        find(&self.series, &options).expect("a series")
    }

    /// Returns whether all change points of otava are significant against each other by otava's own rule. otava does
    /// not test again the point before a removed one, and passes standard deviations to the t test that are too small.
    fn is_consistent(&self) -> bool {
        self.points.iter().all(|point| point.p < self.max_p)
    }
}

#[test]
fn change_points_are_those_of_otava() {
    let cases = fixture::<Change>("change");
    assert!(cases.iter().filter(|case| case.is_consistent()).count() >= 18);
    for case in cases {
        let ours = case.found(1);
        if !case.is_consistent() {
            assert!(ours.iter().all(|point| point.p < case.max_p), "{ours:?}");
            continue;
        }
        assert_eq!(ours.len(), case.points.len(), "{ours:?}");
        for (ours, theirs) in ours.iter().zip(&case.points) {
            assert_eq!(ours.index, theirs.index);
            close(ours.before.mean, theirs.before, 1e-12);
            close(ours.after.mean, theirs.after, 1e-12);
            close(ours.change, theirs.change, 1e-12);
            near(ours.p, theirs.p, 1e-6);
        }
    }
}

#[test]
fn steps_are_where_ruptures_finds_them() {
    for case in fixture::<Change>("change")
        .iter()
        .filter(|case| case.min_change > 0.0)
    {
        let indices: Vec<usize> = case.found(10).iter().map(|point| point.index).collect();
        // One series has a step of 4 %, which must not be found.
        let is_small = case.points.is_empty() && !case.ruptures.is_empty();
        assert!(
            indices == case.ruptures || is_small,
            "{indices:?} {:?}",
            case.ruptures
        );
    }
}

#[derive(Deserialize)]
struct Steady {
    series: Vec<f64>,
    discard: usize,
    confidence: f64,
    slope: Line,
}

#[derive(Deserialize)]
struct Line {
    level: f64,
    per_step: f64,
    change: f64,
    interval: [f64; 2],
}

#[test]
fn truncation_is_pymsers_and_slopes_those_of_scipy_and_statsmodels() {
    for case in fixture::<Steady>("steady") {
        let expected = if 2 * (case.discard / 5) > case.series.len() / 5 {
            Beginning::NotInFirstHalf
        } else {
            Beginning::Ends {
                after: case.discard,
            }
        };
        assert_eq!(mser5(&case.series), Ok(expected));
        let ours = slope(&case.series, case.confidence).expect("a slope");
        close(ours.level, case.slope.level, 1e-12);
        close(ours.per_step, case.slope.per_step, 1e-12);
        close(ours.change, case.slope.change, 1e-10);
        same_interval(ours.interval, case.slope.interval, 1e-9);
    }
}
