//! Traffic that repeats by day and by week is not drift.

use crate::traffic::{Level, WEEK, at, drifted, hours, seen, signal};
use std::time::Duration;
use tokengauge_drift::{DriftState, Season, Settings, SignalName, assess};
use tokengauge_stats::seeded;
use tokengauge_store::query::DistributionSeries;

/// Nights are quiet, mornings have long prompts, and weekends have other calls and less load.
fn season(number: u64) -> Level {
    let (day, hour) = (number / 24 % 7, number % 24);
    let wave = (hour as f64 / 24.0 * std::f64::consts::TAU).sin();
    let weekend = day >= 5;
    Level {
        calls: (90.0 + 40.0 * wave) as u32,
        input: 1_500.0 * (1.0 + 0.6 * wave) * if weekend { 2.5 } else { 1.0 },
        output: if weekend { 700.0 } else { 300.0 },
        tps: 50.0 * (1.0 - 0.3 * wave) * if weekend { 1.6 } else { 1.0 },
        streams: if weekend { 2 } else { 12 },
        failed: if hour == 3 { 0.2 } else { 0.01 },
        ..Level::default()
    }
}

#[test]
fn daily_and_weekly_seasons_do_not_alarm_in_any_hour_of_a_week() {
    let hours = hours(&mut seeded(11), 5 * WEEK, season);
    let settings = Settings::new("all");
    for number in 4 * WEEK..5 * WEEK {
        let series = seen(&hours, number, &settings);
        assert_eq!(
            series.state,
            DriftState::Stable,
            "hour {number}: {}",
            series.sentence
        );
        assert_eq!(series.change_points, [], "hour {number}");
        assert_eq!(series.change_points_learning, None);
    }
}

#[test]
fn a_season_that_nobody_named_is_large_but_no_drift() {
    let hours = hours(&mut seeded(11), 5 * WEEK, season);
    let settings = Settings {
        season: Season::None,
        ..Settings::new("all")
    };
    let mut large = 0;
    for number in 4 * WEEK..5 * WEEK {
        let series = seen(&hours, number, &settings);
        assert_eq!(series.state, DriftState::Stable, "{}", series.sentence);
        let prompts = signal(&series, SignalName::InputTokens);
        large += usize::from(prompts.distance >= Some(settings.thresholds.distance));
    }
    assert!(large > 50, "{large} of 168: the test could not fail");
}

#[test]
fn a_daily_season_is_enough_where_all_days_are_alike() {
    let hours = hours(&mut seeded(12), 8 * 24, |number| season(number % 24));
    let settings = Settings {
        season: Season::Day,
        reference: Duration::from_secs(7 * 86_400),
        ..Settings::new("all")
    };
    for number in 7 * 24..8 * 24 {
        let series = seen(&hours, number, &settings);
        assert_eq!(
            series.state,
            DriftState::Stable,
            "hour {number}: {}",
            series.sentence
        );
    }
}

#[test]
fn it_is_learning_until_two_weeks_have_the_same_hours() {
    let hours = hours(&mut seeded(13), 3 * WEEK, season);
    let settings = Settings::new("all");
    for number in [0, 30, WEEK + 30, 2 * WEEK - 1] {
        let series = seen(&hours, number, &settings);
        assert_eq!(series.state, DriftState::Learning, "hour {number}");
        assert!(series.sentence.contains("two weeks"), "{}", series.sentence);
    }
    assert_eq!(
        seen(&hours, 2 * WEEK + 10, &settings).state,
        DriftState::Stable
    );
    let change = |number| seen(&hours, number, &settings).change_points_learning;
    assert!(change(2 * WEEK - 1).is_some_and(|why| why.contains("3 weeks")));
    assert_eq!(change(3 * WEEK - 1), None);
}

#[test]
fn few_sessions_are_no_drift_however_many_calls_they_have() {
    let few = |number| Level {
        sessions: if number < 4 * WEEK { 6 } else { 1 },
        input: if number < 4 * WEEK { 1_500.0 } else { 6_000.0 },
        ..Level::default()
    };
    let hours = hours(&mut seeded(14), 4 * WEEK + 6, few);
    let series = seen(&hours, 4 * WEEK + 5, &Settings::new("all"));
    assert_eq!(series.state, DriftState::Learning);
    assert!(
        series.sentence.contains("of the 5 required sessions"),
        "{}",
        series.sentence
    );
}

#[test]
fn a_series_that_is_new_or_has_ended_is_learning() {
    let hours = hours(&mut seeded(15), 4 * WEEK, season);
    let ended = assess(
        &DistributionSeries::default(),
        &hours,
        &Settings::new("all"),
        at(4 * WEEK + 30),
    );
    assert_eq!(ended.state, DriftState::Learning);
    assert!(
        ended.sentence.contains("no calls in the current window"),
        "{}",
        ended.sentence
    );
    assert_eq!(drifted(&ended), []);
}
