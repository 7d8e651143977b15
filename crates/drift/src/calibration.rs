//! Measures false alarms and detection: many simulated weeks after four reference weeks, evaluated every other hour.
//!
//! `TOKENGAUGE_THOROUGH=1 cargo test -p tokengauge-drift --lib calibration -- --nocapture` prints the tables. docs/drift.md
//! states the largest share of false alarms and the smallest share of changes that are found.

use crate::assess::signals;
use crate::chance::FALSE_WEEKS;
use crate::settings::Settings;
use crate::signal::SignalName;
use crate::windows::{Hours, Windows};
use crate::{DriftState, SignalDrift};
use rand::RngExt;
use std::time::{Duration, SystemTime};
use tokengauge_core::concurrency::concurrency_class;
use tokengauge_core::lengths::prompt_length_class;
use tokengauge_core::time::Timestamp;
use tokengauge_stats::share::fixed_interval;
use tokengauge_stats::{Generator, seeded};
use tokengauge_store::query::{Distributions, Signal};

const MONDAY: u64 = 1_762_732_800 / 3_600;
const WEEK: u64 = 168;
const REFERENCE: u64 = 4 * WEEK;

#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// Sessions that begin per hour in the daytime. `nights` is the share of them that begins per hour at night.
    sessions: f64,
    nights: f64,
    /// Standard deviations of logarithms. `common` is for the part that all calls of a session share, `own` for each call.
    common: f64,
    own: f64,
    /// The Pareto exponent of the calls per session. A small exponent makes more long sessions.
    tail: f64,
    /// The growth of traffic and of prompt lengths per week, as factors.
    growth: f64,
    /// The share of the sessions that belong to one user, whose task changes every day.
    dominant: f64,
    lengths: &'static [f64],
}

const SESSIONS: World = World {
    name: "sessions of 10 calls",
    sessions: 6.0,
    nights: 1.0,
    common: 0.5,
    own: 0.4,
    tail: 4.0,
    growth: 0.0,
    dominant: 0.0,
    lengths: &[1_500.0],
};

const NIGHTS: World = World {
    name: "nights with 3 sessions an hour",
    sessions: 12.0,
    nights: 0.25,
    ..SESSIONS
};

const TREND: World = World {
    name: "a trend of 2 % a week",
    growth: 0.02,
    ..SESSIONS
};

const TAILS: World = World {
    name: "heavy tails",
    common: 1.0,
    own: 0.8,
    tail: 1.5,
    ..SESSIONS
};

const DOMINANT: World = World {
    name: "one dominant user",
    dominant: 0.7,
    ..SESSIONS
};

const LENGTHS: World = World {
    name: "mixed prompt lengths",
    lengths: &[400.0, 3_000.0, 20_000.0, 90_000.0],
    ..SESSIONS
};

#[derive(Clone, Copy)]
struct Change {
    from: u64,
    input: f64,
    ttft: f64,
    tps: f64,
    failed: f64,
}

const NONE: Change = Change {
    from: u64::MAX,
    input: 1.0,
    ttft: 1.0,
    tps: 1.0,
    failed: 0.01,
};

fn normal(random: &mut Generator) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn factor(random: &mut Generator, deviation: f64) -> f64 {
    (deviation * normal(random)).exp()
}

fn is_night(hour: u64) -> bool {
    hour % 24 < 6
}

fn traffic(random: &mut Generator, world: &World, change: &Change) -> Hours {
    let mut hours = vec![Distributions::default(); (REFERENCE + WEEK) as usize];
    let mut session = 0;
    let mut task = 1.0;
    for hour in 0..REFERENCE + WEEK {
        if hour % 24 == 0 {
            task = factor(random, world.common);
        }
        let growth = (1.0 + world.growth).powf(hour as f64 / WEEK as f64);
        let share = if is_night(hour) { world.nights } else { 1.0 };
        // Sessions are independent, so their number has a Poisson distribution.
        let mut left = world.sessions * share * growth;
        loop {
            left += (1.0 - random.random::<f64>()).ln();
            if left < 0.0 {
                break;
            }
            session += 1;
            let dominant = random.random::<f64>() < world.dominant;
            let length = world.lengths[random.random_range(0..world.lengths.len())];
            let of_task = if dominant { task } else { 1.0 };
            let level = Levels {
                input: length * growth * of_task * factor(random, world.common),
                output: 300.0 * of_task * factor(random, world.common),
                wait: factor(random, world.common / 2.0),
                tps: 50.0 * factor(random, world.common / 2.0),
            };
            // Scaled to a mean of ten for every exponent.
            let pareto = (1.0 - random.random::<f64>()).powf(-1.0 / world.tail);
            let calls = (10.0 * (1.0 - 1.0 / world.tail) * pareto)
                .round()
                .clamp(1.0, 400.0);
            for call in 0..calls as u64 {
                let at = hour + call / 15;
                if let Some(calls) = hours.get_mut(at as usize) {
                    add(
                        random,
                        calls,
                        world,
                        &level,
                        if at >= change.from { change } else { &NONE },
                        session,
                    );
                }
            }
        }
    }
    let numbered = hours.into_iter().zip(0..);
    numbered.map(|(calls, hour)| (at(hour), calls)).collect()
}

struct Levels {
    input: f64,
    output: f64,
    wait: f64,
    tps: f64,
}

fn add(
    random: &mut Generator,
    hour: &mut Distributions,
    world: &World,
    level: &Levels,
    change: &Change,
    session: u64,
) {
    let input = level.input * change.input * factor(random, world.own);
    let output = level.output * factor(random, world.own);
    let ttft =
        (0.3 + input / 10_000.0) * level.wait * change.ttft * factor(random, world.own / 2.0);
    let tps = level.tps * change.tps * factor(random, world.own / 2.0);
    hour.observe(Signal::InputTokens, 0, Some(input.round()));
    hour.observe(Signal::OutputTokens, 0, Some(output.round()));
    hour.observe(Signal::Ttft, prompt_length_class(input as u64), Some(ttft));
    let streams = random.random_range(1..12);
    hour.observe(Signal::Tps, concurrency_class(streams), Some(tps));
    let failed = random.random::<f64>() < change.failed;
    hour.observe(Signal::Outcome, if failed { 4 } else { 0 }, None);
    hour.observe(Signal::FinishReason, 0, None);
    hour.observe_session(session.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
}

fn at(hour: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((MONDAY + hour) * 3_600)
}

fn look(hours: &Hours, hour: u64, settings: &Settings) -> Vec<SignalDrift> {
    signals(&Windows::of(hours, settings, at(hour + 1)), settings)
}

fn is_drift(one: &SignalDrift) -> bool {
    one.state == DriftState::Drifted
}

fn is_large(one: &SignalDrift, settings: &Settings) -> bool {
    let reach = |value: Option<f64>, least| value.is_some_and(|value| value >= least);
    reach(one.distance, settings.thresholds.distance)
        && reach(one.stability_index, settings.thresholds.stability_index)
}

fn runs(few: u64) -> u64 {
    match std::env::var_os("TOKENGAUGE_THOROUGH") {
        Some(_) => 500,
        None => few,
    }
}

fn row(verdict: &str, world: &str, runs: u64, false_alarms: Option<u64>, power: Option<u64>) {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let interval = false_alarms.map_or("–".to_owned(), |alarms| {
        let interval = fixed_interval(alarms, runs, 0.95).expect("runs");
        format!("{} to {}", percent(interval.lower), percent(interval.upper))
    });
    let share = |count: Option<u64>| {
        count.map_or("–".to_owned(), |count| {
            percent(count as f64 / runs as f64)
        })
    };
    println!(
        "| drift: {verdict} | {world} | {runs} | {} | {interval} | {} |",
        share(false_alarms),
        share(power)
    );
}

#[track_caller]
fn has_no_alarm(world: &World, seed: u64) {
    let settings = Settings::new("all");
    let (runs, mut random) = (runs(1), seeded(seed));
    let (mut alarms, mut large, mut learning) = (0, 0, 0);
    for _ in 0..runs {
        let hours = traffic(&mut random, world, &NONE);
        let mut alarmed = false;
        for hour in (REFERENCE..REFERENCE + WEEK).step_by(2) {
            let signals = look(&hours, hour, &settings);
            alarmed |= signals.iter().any(is_drift);
            large += u64::from(signals.iter().any(|one| is_large(one, &settings)));
            let whole = signals.iter().find(|one| one.signal == SignalName::Tps);
            learning += u64::from(whole.is_none_or(|one| one.state == DriftState::Learning));
        }
        alarms += u64::from(alarmed);
    }
    row("a week", world.name, runs, Some(alarms), None);
    let found = fixed_interval(alarms, runs, 0.95).expect("runs");
    assert!(found.lower <= FALSE_WEEKS, "{alarms} of {runs} weeks");
    assert!(large > 0, "no look could alarm");
    assert!(learning < runs * WEEK / 8, "{learning} looks are learning");
}

#[test]
fn sessions_are_no_drift() {
    has_no_alarm(&SESSIONS, 101);
}

#[test]
fn quiet_nights_are_no_drift() {
    has_no_alarm(&NIGHTS, 102);
}

#[test]
fn a_trend_below_the_thresholds_is_no_drift() {
    has_no_alarm(&TREND, 103);
}

#[test]
fn heavy_tails_are_no_drift() {
    has_no_alarm(&TAILS, 104);
}

#[test]
fn another_task_of_one_dominant_user_is_no_drift() {
    has_no_alarm(&DOMINANT, 105);
}

#[test]
fn mixed_prompt_lengths_are_no_drift() {
    has_no_alarm(&LENGTHS, 106);
}

#[test]
fn sessions_make_no_change_points() {
    let settings = Settings::new("all");
    let (runs, mut random) = (runs(3), seeded(107));
    let mut marked = 0;
    for _ in 0..runs {
        let hours = traffic(&mut random, &SESSIONS, &NONE);
        let points = crate::change::points(&hours, &settings).expect("enough hours");
        let begin = Timestamp::seconds(at(REFERENCE));
        marked += u64::from(points.iter().any(|point| point.at >= begin));
    }
    row(
        "a change point in a week",
        SESSIONS.name,
        runs,
        Some(marked),
        None,
    );
    let found = fixed_interval(marked, runs, 0.95).expect("runs");
    assert!(found.lower <= FALSE_WEEKS, "{marked} of {runs} weeks");
}

#[test]
fn changes_are_found_within_a_day_also_at_night() {
    let (day, night) = (REFERENCE + 56, REFERENCE + 48);
    let changes = [
        (
            "prompts doubled",
            SESSIONS,
            Change {
                from: day,
                input: 2.0,
                ..NONE
            },
            SignalName::InputTokens,
            24,
        ),
        (
            "TTFT 50 % longer",
            SESSIONS,
            Change {
                from: day,
                ttft: 1.5,
                ..NONE
            },
            SignalName::Ttft,
            24,
        ),
        (
            "TPS 30 % lower",
            SESSIONS,
            Change {
                from: day,
                tps: 0.7,
                ..NONE
            },
            SignalName::Tps,
            24,
        ),
        (
            "20 % fail",
            SESSIONS,
            Change {
                from: day,
                failed: 0.2,
                ..NONE
            },
            SignalName::Outcome,
            24,
        ),
        (
            "TTFT doubled from midnight to 06:00",
            NIGHTS,
            Change {
                from: night,
                ttft: 2.0,
                ..NONE
            },
            SignalName::Ttft,
            6,
        ),
        (
            "TPS halved from midnight to 06:00",
            NIGHTS,
            Change {
                from: night,
                tps: 0.5,
                ..NONE
            },
            SignalName::Tps,
            6,
        ),
        (
            "TPS 30 % lower",
            DOMINANT,
            Change {
                from: day,
                tps: 0.7,
                ..NONE
            },
            SignalName::Tps,
            24,
        ),
        (
            "TPS 30 % lower",
            LENGTHS,
            Change {
                from: day,
                tps: 0.7,
                ..NONE
            },
            SignalName::Tps,
            24,
        ),
    ];
    let settings = Settings::new("all");
    let runs = runs(2);
    for (number, (what, world, change, signal, within)) in changes.into_iter().enumerate() {
        let mut random = seeded(200 + number as u64);
        let mut found = 0;
        for _ in 0..runs {
            let hours = traffic(&mut random, &world, &change);
            let seen = (change.from + 1..change.from + within)
                .step_by(2)
                .any(|hour| {
                    let signals = look(&hours, hour, &settings);
                    signals
                        .iter()
                        .any(|one| one.signal == signal && is_drift(one))
                });
            found += u64::from(seen);
        }
        row(what, world.name, runs, None, Some(found));
        let power = fixed_interval(found, runs, 0.95).expect("runs");
        assert!(power.upper >= 0.5, "{what}: {found} of {runs}");
    }
}
