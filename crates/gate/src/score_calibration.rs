//! Simulated rollouts with scores from outside, evaluated every quarter of an hour: how often a gate fails a candidate that
//! answers as well as the baseline, and how often it passes one that is worse by the whole limit.

use crate::observed::{Observed, Side, Unit};
use crate::{Asked, Ceilings, Gate, GateVerdict, Margins, Select, evaluate};
use rand::RngExt;
use std::time::{Duration, SystemTime};
use tokengauge_experiments::{Rules, Sums};
use tokengauge_stats::{Generator, seeded, share};
use tokengauge_store::query::{ScoreSum, UnitKind, UnitScores};

const LIMIT: f64 = 0.05;
const SESSIONS: u32 = 4_000;
const LOOK_EVERY: u32 = 150;

/// How the sessions of a rollout are scored.
#[derive(Clone, Copy, Debug)]
enum Scoring {
    /// One boolean for each session.
    Sessions,
    /// One boolean for each of 1 to 8 calls; sessions differ in how easy they are.
    Calls,
    /// A grade from 1 to 5 for each session.
    Grades,
}

fn gate(limit: f64) -> Gate {
    let upstream = |name: &str| Select {
        upstream: Some(name.to_owned()),
        ..Select::default()
    };
    Gate {
        name: "rollout".to_owned(),
        candidate: upstream("new"),
        baseline: upstream("old"),
        unit: UnitKind::Session,
        rules: Rules {
            min_units: Gate::MIN_UNITS,
            ..Rules::default()
        },
        margins: Margins(Vec::new()),
        ceilings: Ceilings::default(),
        scores: vec![("success".to_owned(), limit)],
        objectives: Vec::new(),
        max_burn: Gate::MAX_BURN,
        window: Gate::WINDOW,
        max_wait: None,
    }
}

fn at(seconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + u64::from(seconds))
}

fn scores(scoring: Scoring, worse: f64, random: &mut Generator) -> ScoreSum {
    let mut sum = ScoreSum::default();
    let good = 0.85 - worse;
    match scoring {
        Scoring::Sessions => {
            sum.count = 1;
            sum.sum = f64::from(u8::from(random.random_bool(good)));
        }
        Scoring::Calls => {
            let easy = if random.random_bool(0.5) { 0.1 } else { -0.1 };
            sum.count = 1 + (random.random::<f64>() * 8.0) as u64;
            let passed = (0..sum.count).filter(|_| random.random_bool(good + easy));
            sum.sum = passed.count() as f64;
        }
        Scoring::Grades => {
            let grade =
                (3.0 + 2.4 * (random.random::<f64>() + random.random::<f64>() - 1.0)).round();
            (sum.count, sum.sum) = (1, grade.clamp(1.0, 5.0) - worse);
            (sum.binary, sum.boolean) = (false, false);
        }
    }
    sum
}

fn session(scoring: Scoring, number: u32, worse: f64, random: &mut Generator) -> Unit {
    // Nine of ten sessions are scored.
    let is_scored = random.random_bool(0.9);
    let sum = scores(scoring, worse, random);
    let scores = is_scored.then(|| ("success".to_owned(), sum));
    Unit {
        name: None,
        first_at: at(number * 6),
        last_at: at(number * 6),
        prompt: Some((random.random::<f64>() * 3.0) as usize),
        sums: Sums {
            calls: 5,
            ..Sums::default()
        },
        scores: scores.into_iter().collect::<UnitScores>(),
    }
}

fn rollout(scoring: Scoring, worse: f64, seed: u64) -> GateVerdict {
    let mut random = seeded(seed);
    // Grades vary more than shares, so their limit is larger.
    let scale = if matches!(scoring, Scoring::Grades) {
        4.0
    } else {
        1.0
    };
    let gate = gate(LIMIT * scale);
    let mut observed = Observed::default();
    for number in 0..SESSIONS {
        let new = random.random_bool(0.3);
        let worse = if new { worse * scale } else { 0.0 };
        let unit = session(scoring, number, worse, &mut random);
        let side: &mut Side = if new {
            &mut observed.candidate
        } else {
            &mut observed.baseline
        };
        side.calls += unit.sums.calls;
        side.units.push(unit);
        if number > 0 && number % LOOK_EVERY == 0 {
            let asked = Asked {
                now: at(number * 6),
                since: Some(at(0)),
                config_sha256: String::new(),
            };
            let verdict = evaluate(&gate, &observed, &asked).verdict;
            if verdict != GateVerdict::Inconclusive {
                return verdict;
            }
        }
    }
    GateVerdict::Inconclusive
}

/// `make calibrations` runs more rollouts.
fn runs() -> u64 {
    match std::env::var_os("TOKENGAUGE_THOROUGH") {
        Some(_) => 500,
        None => 24,
    }
}

fn row(scoring: Scoring, worse: f64, [wrong, right]: [GateVerdict; 2]) {
    let (runs, alpha) = (runs(), Rules::default().alpha);
    let verdicts: Vec<_> = (0..runs)
        .map(|seed| rollout(scoring, worse, 17 * seed + 3))
        .collect();
    let count = |wanted| verdicts.iter().filter(|found| **found == wanted).count() as u64;
    let alarms = share::fixed_interval(count(wrong), runs, 0.95).expect("an interval");
    println!(
        "| gate: score worse by {worse} | {scoring:?} | {runs} | {} wrong | {} right |",
        count(wrong),
        count(right)
    );
    assert!(
        alarms.lower <= alpha,
        "{scoring:?}: {} of {runs}",
        count(wrong)
    );
}

const ALL: [Scoring; 3] = [Scoring::Sessions, Scoring::Calls, Scoring::Grades];

#[test]
fn a_candidate_that_answers_as_well_is_seldom_failed() {
    for scoring in ALL {
        row(scoring, 0.0, [GateVerdict::Fail, GateVerdict::Pass]);
    }
}

#[test]
fn a_candidate_that_is_worse_by_the_whole_limit_is_seldom_passed() {
    for scoring in ALL {
        row(scoring, LIMIT, [GateVerdict::Pass, GateVerdict::Fail]);
    }
}

#[test]
fn a_candidate_that_answers_far_worse_is_failed() {
    for scoring in ALL {
        row(scoring, 0.15, [GateVerdict::Pass, GateVerdict::Fail]);
        let failed = (0..8).filter(|seed| rollout(scoring, 0.15, 91 * seed) == GateVerdict::Fail);
        assert_eq!(failed.count(), 8, "{scoring:?}");
    }
}
