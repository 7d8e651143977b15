//! Drift in how calls end.

use crate::traffic::{Level, WEEK, hours, seen, signal};
use tokengauge_drift::{DriftState, Settings, SignalName};
use tokengauge_stats::seeded;

#[test]
fn failures_are_a_drift_of_outcomes_alone() {
    let level = |number| Level {
        failed: if number < 4 * WEEK { 0.01 } else { 0.13 },
        ..Level::default()
    };
    let hours = hours(&mut seeded(31), 4 * WEEK + 12, level);
    let series = seen(&hours, 4 * WEEK + 11, &Settings::new("all"));
    let outcome = signal(&series, SignalName::Outcome);
    assert_eq!(outcome.state, DriftState::Drifted);
    let moved = outcome.distance.expect("a distance");
    assert!((moved - 0.12).abs() < 0.03, "{moved}");
    let drifted = series
        .signals
        .iter()
        .filter(|one| one.state == DriftState::Drifted);
    assert_eq!(drifted.count(), 1, "{}", series.sentence);
    assert!(
        series
            .sentence
            .contains("of calls end differently (complete: 99 % → 8"),
        "{}",
        series.sentence
    );
    assert!(
        series.sentence.contains("at 2025-12-08T00:00:00Z"),
        "{}",
        series.sentence
    );
}

#[test]
fn a_few_more_failures_are_not() {
    let level = |number| Level {
        failed: if number < 4 * WEEK { 0.01 } else { 0.03 },
        ..Level::default()
    };
    let hours = hours(&mut seeded(32), 4 * WEEK + 12, level);
    let series = seen(&hours, 4 * WEEK + 11, &Settings::new("all"));
    assert_eq!(series.state, DriftState::Stable, "{}", series.sentence);
}

#[test]
fn a_mix_of_halves_moves_by_chance_and_does_not_alarm() {
    let level = |_| Level {
        calls: 40,
        failed: 0.5,
        ..Level::default()
    };
    let hours = hours(&mut seeded(33), 5 * WEEK, level);
    for number in 4 * WEEK..5 * WEEK {
        let series = seen(&hours, number, &Settings::new("all"));
        let outcome = signal(&series, SignalName::Outcome);
        assert_eq!(outcome.state, DriftState::Stable, "{}", series.sentence);
    }
}
