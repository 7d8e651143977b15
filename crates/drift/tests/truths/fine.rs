//! Change points to five minutes: which are found, when, and which are not.

use crate::traffic::{Hours, Level, MONDAY, WEEK, at, hours, seen, spread};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_drift::{ChangePoint, STEP, Season, Settings, SignalName, Steps, refine};
use tokengauge_stats::{Generator, seeded};

const DAY: u32 = 288;
const BEFORE: u64 = 4 * WEEK;

/// The first `count` steps of the day after [`BEFORE`]. `level` returns the median of a step.
fn day(random: &mut Generator, count: u32, level: impl Fn(u32) -> f64) -> Steps {
    let begin = at(BEFORE);
    let medians: BTreeMap<SystemTime, f64> = (0..count)
        .map(|number| (begin + STEP * number, level(number) * spread(random, 0.05)))
        .collect();
    Steps::from([(SignalName::Tps, medians)])
}

fn points(hours: &Hours, steps: &Steps, settings: &Settings) -> Vec<ChangePoint> {
    let mut series = seen(hours, BEFORE, settings);
    refine(&mut series, hours, steps, settings);
    let points = series.change_points.into_iter();
    points
        .filter(|point| point.signal == SignalName::Tps)
        .collect()
}

fn instant(point: &ChangePoint) -> SystemTime {
    point.at.time()
}

#[test]
fn a_slower_backend_has_its_time_after_an_hour() {
    let settings = Settings::new("all");
    let mut random = seeded(41);
    let hours = hours(&mut random, BEFORE + 1, |_| Level::default());
    const CHANGE: u32 = 200;
    let all = day(
        &mut random,
        DAY,
        |number| if number < CHANGE { 50.0 } else { 40.0 },
    );
    let first = (CHANGE..DAY).find(|number| {
        let mut steps = all.clone();
        let end = at(BEFORE) + STEP * *number;
        steps
            .values_mut()
            .for_each(|medians| medians.retain(|at, _| *at < end));
        !points(&hours, &steps, &settings).is_empty()
    });
    let delay = first.expect("found") - CHANGE;
    assert!((12..=18).contains(&delay), "after {delay} steps");
    let found = points(&hours, &all, &settings);
    assert_eq!(found.len(), 1, "{found:?}");
    let change = at(BEFORE) + STEP * CHANGE;
    let off = instant(&found[0])
        .max(change)
        .duration_since(instant(&found[0]).min(change));
    assert!(off.expect("ordered") <= STEP, "{found:?}");
    assert_eq!(found[0].step_seconds, 300);
    assert!((found[0].change + 0.2).abs() < 0.05, "{found:?}");
}

#[test]
fn forty_days_without_a_change_have_none_and_nights_are_no_change() {
    let mut random = seeded(42);
    let settings = Settings {
        season: Season::Day,
        ..Settings::new("all")
    };
    // At night the backend is twice as fast.
    let night = |hour: u64| (MONDAY + hour) % 24 < 8;
    let tps = |hour: u64| if night(hour) { 100.0 } else { 50.0 };
    let hours = hours(&mut random, BEFORE + 1, |hour| Level {
        tps: tps(hour),
        ..Level::default()
    });
    for number in 0..40 {
        let steps = day(&mut random, DAY, |step| tps(BEFORE + u64::from(step / 12)));
        let found = points(&hours, &steps, &settings);
        assert!(found.is_empty(), "day {number}: {found:?}");
    }
}

#[test]
fn what_the_hours_show_is_dated_more_finely_and_is_one_change() {
    let settings = Settings::new("all");
    let mut random = seeded(43);
    // Decoding is slower in the last eleven hours.
    let level = |hour: u64| Level {
        tps: if hour < BEFORE + 13 { 50.0 } else { 35.0 },
        ..Level::default()
    };
    let hours = hours(&mut random, BEFORE + 24, level);
    let change = 13 * 12 + 5;
    let steps = day(
        &mut random,
        DAY,
        |step| if step < change { 50.0 } else { 35.0 },
    );
    let mut series = seen(&hours, BEFORE + 23, &settings);
    let tps = |points: &[ChangePoint]| {
        let points = points
            .iter()
            .filter(|point| point.signal == SignalName::Tps);
        points
            .map(|point| (point.step_seconds, instant(point)))
            .collect::<Vec<_>>()
    };
    assert_eq!(tps(&series.change_points), [(3_600, at(BEFORE + 13))]);
    refine(&mut series, &hours, &steps, &settings);
    let found = tps(&series.change_points);
    assert_eq!(found.len(), 1, "{found:?}");
    let off = found[0].1.duration_since(at(BEFORE + 13)).expect("later");
    assert!(
        (STEP * 4..=STEP * 6).contains(&off) && found[0].0 == 300,
        "{found:?}"
    );
    assert!(
        series
            .sentence
            .contains(&rfc3339_seconds(found[0].1).to_string()),
        "{}",
        series.sentence
    );
}

#[test]
fn nothing_is_said_before_the_season_is_known() {
    let settings = Settings::new("all");
    let mut random = seeded(44);
    let hours = hours(&mut random, WEEK, |_| Level::default());
    let steps = day(
        &mut random,
        DAY,
        |step| if step < 100 { 50.0 } else { 25.0 },
    );
    let mut series = seen(&hours, WEEK - 1, &settings);
    refine(&mut series, &hours, &steps, &settings);
    assert!(
        series.change_points.is_empty(),
        "{:?}",
        series.change_points
    );
    assert!(STEP < Duration::from_secs(3_600));
}
