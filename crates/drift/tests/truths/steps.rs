//! Steps and ramps: whether they are found, how soon, and in which words.

use crate::traffic::{Level, WEEK, at, documented, drifted, first_drift, hours, seen, signal};
use tokengauge_core::lengths::prompt_length_class;
use tokengauge_drift::{DriftState, Settings, SignalName};
use tokengauge_stats::seeded;

const CHANGE: u64 = 4 * WEEK + 14;

/// The default level, and `then` from hour `CHANGE` on.
fn step(then: Level) -> impl Fn(u64) -> Level {
    move |number| {
        if number < CHANGE {
            Level::default()
        } else {
            then
        }
    }
}

fn by_class(tokens: f64) -> f64 {
    [0.3, 0.6, 1.5, 4.0, 9.0][prompt_length_class(tokens as u64)]
}

#[test]
fn prompts_that_doubled_are_found_within_two_hours_and_dated_after_ten() {
    let level = |number| Level {
        input: if number < CHANGE { 3_000.0 } else { 6_000.0 },
        ttft: by_class,
        ..Level::default()
    };
    let hours = hours(&mut seeded(21), CHANGE + 24, level);
    let settings = Settings::new("all");
    let found = first_drift(&hours, CHANGE - 6, SignalName::InputTokens, &settings);
    let delay = found.expect("found") - CHANGE;
    assert!(delay <= 2, "after {delay} hours");
    let early = seen(&hours, CHANGE + 5, &settings);
    assert!(
        early.sentence.contains("start unknown"),
        "{}",
        early.sentence
    );
    let dated = |number: &u64| {
        !seen(&hours, CHANGE + number, &settings)
            .change_points
            .is_empty()
    };
    let dated = (0..24).find(dated).expect("dated");
    assert!((9..=12).contains(&dated), "after {dated} hours");
    let late = seen(&hours, CHANGE + 12, &settings);
    assert_eq!(late.sentence, documented("Prompts about doubled"));
    let point = &late.change_points[0];
    assert_eq!(point.signal, SignalName::InputTokens);
    assert!((point.change - 0.9).abs() < 0.2, "{point:?}");
}

#[test]
fn a_backend_that_became_slower_is_not_put_down_to_prompts() {
    let slower = Level {
        ttft: |tokens| 0.45 + 1.5 * tokens / 10_000.0,
        ..Level::default()
    };
    let hours = hours(&mut seeded(22), CHANGE + 12, step(slower));
    let series = seen(&hours, CHANGE + 11, &Settings::new("all"));
    assert_eq!(
        signal(&series, SignalName::InputTokens).state,
        DriftState::Stable
    );
    assert!(
        series.sentence.starts_with("TTFT rose by"),
        "{}",
        series.sentence
    );
    assert!(
        series
            .sentence
            .contains("TTFT changed for calls with the same prompt length"),
        "{}",
        series.sentence
    );
    let why = series.why.iter().find(|why| why.signal == SignalName::Ttft);
    let why = why.expect("a decomposition");
    assert!((why.mix + why.within - (why.after - why.before)).abs() < 1e-9);
    assert!(why.within > 9.0 * why.mix.abs(), "{why:?}");
}

#[test]
fn load_and_speed_at_equal_load_are_kept_apart() {
    // At first half of the hours have a high load, later all hours. The speed at each load stays constant.
    let level = |number: u64| {
        let loaded = number >= CHANGE || number.is_multiple_of(7);
        Level {
            streams: if loaded { 40 } else { 2 },
            tps: if loaded { 25.0 } else { 50.0 },
            ..Level::default()
        }
    };
    let hours = hours(&mut seeded(23), CHANGE + 6, level);
    let series = seen(&hours, CHANGE + 5, &Settings::new("all"));
    assert!(drifted(&series).contains(&SignalName::Tps));
    assert!(
        series
            .sentence
            .contains("for calls with the same concurrency, TPS is unchanged"),
        "{}",
        series.sentence
    );
}

#[test]
fn prompts_that_grew_within_one_class_leave_the_reason_open() {
    let level = |number| Level {
        input: if number < CHANGE { 9_500.0 } else { 17_000.0 },
        ttft: |tokens| 0.1 + tokens / 2_000.0,
        ..Level::default()
    };
    let hours = hours(&mut seeded(24), CHANGE + 6, level);
    let series = seen(&hours, CHANGE + 5, &Settings::new("all"));
    assert!(drifted(&series).contains(&SignalName::Ttft));
    let sentence = &series.sentence;
    let open = sentence.contains("not known whether TTFT changed for calls with");
    assert!(open, "{sentence}");
}

#[test]
fn a_ramp_is_found_before_it_reaches_half_as_much_again() {
    // A growth of 10 % a day from the fourth week on.
    let level = |number: u64| {
        let days = number.saturating_sub(4 * WEEK) as f64 / 24.0;
        Level {
            output: 300.0 * (1.0 + 0.1 * days),
            ..Level::default()
        }
    };
    let hours = hours(&mut seeded(25), 5 * WEEK, level);
    let settings = Settings::new("all");
    let found = first_drift(&hours, 4 * WEEK, SignalName::OutputTokens, &settings);
    let days = (found.expect("found") - 4 * WEEK) as f64 / 24.0;
    assert!((1.0..5.0).contains(&days), "after {days} days");
}

#[test]
fn a_change_of_five_per_cent_is_no_drift() {
    let slightly = Level {
        input: 1_575.0,
        tps: 47.5,
        ..Level::default()
    };
    let hours = hours(&mut seeded(26), CHANGE + 24, step(slightly));
    for number in CHANGE..CHANGE + 24 {
        let series = seen(&hours, number, &Settings::new("all"));
        assert_eq!(
            series.state,
            DriftState::Stable,
            "{:?}: {}",
            at(number),
            series.sentence
        );
    }
}

#[test]
fn prompts_that_doubled_without_an_effect_leave_ttft_unchanged() {
    let level = |number| Level {
        input: if number < CHANGE { 1_500.0 } else { 3_000.0 },
        ttft: |_| 0.4,
        ..Level::default()
    };
    let hours = hours(&mut seeded(27), CHANGE + 6, level);
    let series = seen(&hours, CHANGE + 5, &Settings::new("all"));
    assert_eq!(drifted(&series), [SignalName::InputTokens]);
    assert!(
        series.sentence.ends_with("; TTFT is unchanged."),
        "{}",
        series.sentence
    );
}
