//! Measures how often the intervals of reports contain the truth, over many simulated reports.
//!
//! Each row shows a figure, the simulated traffic, the number of runs, the share of intervals that miss the truth (which
//! should be 5 %) and the 95 % interval of that share. docs/reports.md states the largest share. To print the table, run
//! `TOKENGAUGE_THOROUGH=1 cargo test -p tokengauge-stats --lib clustered::calibration -- --nocapture`.

use super::*;
use crate::seeded;
use crate::{Generator, share::fixed_interval};
use rand::RngExt;

const CONFIDENCE: f64 = 0.95;

/// A kind of simulated traffic. Calls of a session share a random effect.
#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// Standard deviations of the logarithm, for the effect that calls of a session share and for each call.
    common: f64,
    own: f64,
    /// The share of calls that belong to one session.
    dominant: f64,
    /// The growth of the level from the first session to the last.
    trend: f64,
    /// Levels, such as prompt lengths. Each session has one level.
    levels: &'static [f64],
}

const SESSIONS: World = World {
    name: "sessions of 7 calls",
    common: 0.35,
    own: 0.35,
    dominant: 0.0,
    trend: 0.0,
    levels: &[1.0],
};

const WORLDS: [World; 5] = [
    SESSIONS,
    World {
        name: "a trend of 50 %",
        trend: 0.5,
        ..SESSIONS
    },
    World {
        name: "heavy tails",
        common: 0.8,
        own: 0.8,
        ..SESSIONS
    },
    World {
        name: "one session with 40 %",
        dominant: 0.4,
        ..SESSIONS
    },
    World {
        name: "mixed prompt lengths",
        levels: &[0.4, 0.6, 1.0, 4.0],
        ..SESSIONS
    },
];

fn normal(random: &mut Generator) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

struct Call {
    session: u32,
    value: f64,
    weight: f64,
    failed: bool,
}

fn report(random: &mut Generator, world: &World, sessions: u32) -> Vec<Call> {
    let mut calls = Vec::new();
    for session in 0..sessions {
        let common = world.common * normal(random);
        let level = world.levels[random.random_range(0..world.levels.len())];
        let time = random.random::<f64>();
        let fails = if random.random::<f64>() < 0.25 {
            0.4
        } else {
            0.0
        };
        let mut count = 1 + (-6.0 * (1.0 - random.random::<f64>()).ln()) as u32;
        if session == 0 && world.dominant > 0.0 {
            count = (world.dominant / (1.0 - world.dominant) * 6.5 * f64::from(sessions)) as u32;
        }
        for _ in 0..count {
            let value =
                level * (1.0 + world.trend * time) * (common + world.own * normal(random)).exp();
            calls.push(Call {
                session,
                value,
                weight: 0.5 + random.random::<f64>(),
                failed: random.random::<f64>() < fails,
            });
        }
    }
    calls
}

#[derive(Clone, Copy)]
enum Figure {
    Quantile(f64),
    Mean,
    Failed,
}

const FIGURES: [(&str, Figure); 5] = [
    ("median", Figure::Quantile(0.5)),
    ("p95", Figure::Quantile(0.95)),
    ("p10", Figure::Quantile(0.1)),
    ("mean of all", Figure::Mean),
    ("share of errors", Figure::Failed),
];

fn truth(calls: &[Call], figure: Figure) -> f64 {
    match figure {
        Figure::Quantile(share) => {
            let mut values: Vec<f64> = calls.iter().map(|call| call.value).collect();
            values.sort_by(f64::total_cmp);
            values[(share * values.len() as f64) as usize]
        }
        Figure::Mean => calls.iter().map(|call| call.value).sum::<f64>() / calls.len() as f64,
        Figure::Failed => 0.1,
    }
}

/// Returns the interval of a figure. A bound that has too few calls is infinitely far away.
fn interval(calls: &[Call], figure: Figure) -> Result<Interval> {
    let mut units: Vec<Unit> = Vec::new();
    for call in calls {
        let (numerator, denominator) = match figure {
            Figure::Failed => (f64::from(u8::from(call.failed)), 1.0),
            _ => (call.value * call.weight, call.weight),
        };
        units.resize(
            call.session as usize + 1,
            Unit {
                numerator: 0.0,
                denominator: 0.0,
            },
        );
        let unit = units.last_mut().expect("a session");
        unit.numerator += numerator;
        unit.denominator += denominator;
    }
    match figure {
        Figure::Quantile(share) => {
            let values = calls.iter().map(|call| (call.value, call.session));
            let bounds = Sample::new(values.collect())?.quantile_interval(share, CONFIDENCE)?;
            Ok(Interval {
                lower: bounds.lower.unwrap_or(0.0),
                upper: bounds.upper.unwrap_or(f64::MAX),
            })
        }
        Figure::Mean => ratio_interval(units.iter().copied(), CONFIDENCE),
        Figure::Failed => {
            let units = units.iter().map(|unit| (unit.numerator, unit.denominator));
            share_interval(units, CONFIDENCE)
        }
    }
}

#[test]
fn intervals_of_reports_have_the_truth_as_often_as_they_say() {
    let thorough = std::env::var_os("TOKENGAUGE_THOROUGH").is_some();
    let (runs, population) = if thorough {
        (1_000, 400_000)
    } else {
        (20, 40_000)
    };
    let numbers = [MIN_UNITS as u32, 30, 100];
    let rows = WORLDS.len() * numbers.len() * FIGURES.len();
    for (world, seed) in WORLDS.iter().zip(300..) {
        let mut random = seeded(seed);
        let equal = World {
            dominant: 0.0,
            ..*world
        };
        let all = report(&mut random, &equal, population);
        let truths = FIGURES.map(|(_, figure)| truth(&all, figure));
        for sessions in numbers {
            let mut missed = [0; FIGURES.len()];
            for _ in 0..runs {
                let calls = report(&mut random, world, sessions);
                for ((missed, (_, figure)), truth) in missed.iter_mut().zip(FIGURES).zip(truths) {
                    let found = interval(&calls, figure).expect("enough sessions");
                    *missed += u64::from(!found.contains(truth));
                }
            }
            for (missed, (name, _)) in missed.into_iter().zip(FIGURES) {
                let found = fixed_interval(missed, runs, 0.95).expect("runs");
                println!(
                    "| interval of the {name}, {sessions} sessions | {} | {runs} | {:.1} % | {:.1} % to {:.1} % | – |",
                    world.name,
                    100.0 * missed as f64 / runs as f64,
                    100.0 * found.lower,
                    100.0 * found.upper,
                );
                // One confidence for all rows together.
                let found = fixed_interval(missed, runs, 1.0 - 0.05 / rows as f64).expect("runs");
                assert!(
                    found.lower <= 1.0 - CONFIDENCE,
                    "{name}, {}: {missed}",
                    world.name
                );
            }
        }
    }
}
