//! Simulated rollouts, evaluated every quarter of an hour: how often a gate fails an equal candidate, how often it passes
//! one that is just too slow, and how often and when it finds a real difference.

use crate::observed::{Observed, Side, Unit};
use crate::{Asked, Ceilings, Gate, GateVerdict, Margins, Report, Select, evaluate};
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_experiments::{Metric, Rules, Sums};
use tokengauge_stats::{Generator, seeded, share};
use tokengauge_store::query::UnitKind;

#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    hours: u32,
    per_minute: u32,
    trend: f64,
    shares: [f64; 3],
    /// Whether the numbers of tokens and of calls have Pareto tails with an exponent of 2.2.
    heavy: bool,
    /// The change of the logarithm of the speed per prompt length class.
    prompts: f64,
    /// Whether all answers of a session are truncated, or none is.
    all_or_none: bool,
    /// The share of the sessions that belong to one user, whose responses are twice as long and a third slower.
    dominant: f64,
}

const PLAIN: World = World {
    name: "sessions of 5 calls, 20 % of the traffic",
    hours: 6,
    per_minute: 10,
    trend: 0.0,
    shares: [0.2; 3],
    heavy: false,
    prompts: 0.0,
    all_or_none: false,
    dominant: 0.0,
};
const WORLDS: [World; 6] = [
    PLAIN,
    World {
        name: "speed falls by 10 % an hour while the share rises from 5 over 20 to 50 %",
        trend: -0.105,
        shares: [0.05, 0.2, 0.5],
        ..PLAIN
    },
    World {
        name: "heavy tails of answers and sessions",
        heavy: true,
        ..PLAIN
    },
    World {
        name: "all answers of a session are truncated, or none",
        all_or_none: true,
        ..PLAIN
    },
    World {
        name: "one user with 40 % of the sessions",
        dominant: 0.4,
        ..PLAIN
    },
    World {
        name: "short and long prompts, speed rises by 10 % an hour, share from 5 over 20 to 50 %",
        prompts: -0.2,
        trend: 0.095,
        shares: [0.05, 0.2, 0.5],
        ..PLAIN
    },
];

#[derive(Clone, Copy)]
struct Candidate {
    tps: f64,
    /// The share of the candidate's responses that are truncated in addition.
    truncated: f64,
}

const EQUAL: Candidate = Candidate {
    tps: 1.0,
    truncated: 0.0,
};

const LOOK_EVERY: u32 = 15;

fn gate() -> Gate {
    let speed = (Metric::Tps, Margins::TPS);
    let others = Margins::GUARDRAILS.map(|metric| (metric, Margins::SHARE));
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
        margins: Margins(std::iter::once(speed).chain(others).collect()),
        ceilings: Ceilings::default(),
        scores: Vec::new(),
        objectives: Vec::new(),
        max_burn: Gate::MAX_BURN,
        window: Gate::WINDOW,
        max_wait: None,
    }
}

fn at(seconds: f64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs_f64(1_800_000_000.0 + seconds)
}

fn normal(random: &mut Generator) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn size(heavy: bool, random: &mut Generator) -> f64 {
    if heavy {
        0.545 * (1.0 - random.random::<f64>()).powf(-1.0 / 2.2)
    } else {
        0.8 * (0.6 * normal(random)).exp()
    }
}

fn session(
    world: World,
    begins: f64,
    candidate: Option<Candidate>,
    random: &mut Generator,
) -> Unit {
    let of_candidate = candidate.unwrap_or(EQUAL);
    let prompt = (random.random::<f64>() * 3.0) as usize;
    let of_user = random.random::<f64>() < world.dominant;
    let level = world.prompts * (prompt as f64 - 1.0) + world.trend * begins / 3_600.0
        - if of_user { 0.4 } else { 0.0 };
    let level = level + 0.25 * normal(random);
    let mut sums = Sums::default();
    let mut seconds = 0.0;
    let truncated = 0.01 + of_candidate.truncated;
    let all_truncated = random.random::<f64>() < truncated;
    let calls = (5.0 * size(world.heavy, random)).ceil().min(500.0) as u64;
    for _ in 0..calls {
        let tokens = 200.0 * size(world.heavy, random) * if of_user { 2.0 } else { 1.0 };
        let tps = 45.0 * (level + 0.2 * normal(random)).exp() * of_candidate.tps;
        let failed = random.random::<f64>() < 0.01;
        sums.calls += 1;
        sums.failures += u64::from(failed);
        seconds += tokens / tps + 10.0;
        if failed {
            continue;
        }
        let is_truncated = if world.all_or_none {
            all_truncated
        } else {
            random.random::<f64>() < truncated
        };
        sums.truncated += u64::from(is_truncated);
        sums.ttft_calls += 1;
        sums.tps_calls += 1;
        sums.decode_tokens += tokens as u64;
        sums.decode_us += (tokens / tps * 1e6) as u64;
    }
    Unit {
        name: None,
        first_at: at(begins),
        last_at: at(begins + seconds),
        prompt: Some(prompt),
        sums,
        scores: BTreeMap::new(),
    }
}

fn rollout(world: World, candidate: Candidate, seed: u64) -> (GateVerdict, f64) {
    rollout_seen(world, candidate, seed, |_| ())
}

/// Like [`rollout`], with a callback for each evaluation.
fn rollout_seen(
    world: World,
    candidate: Candidate,
    seed: u64,
    mut seen: impl FnMut(&Report),
) -> (GateVerdict, f64) {
    let mut random = seeded(seed);
    let gate = gate();
    let mut observed = Observed::default();
    let mut look_at = f64::from(60 * LOOK_EVERY);
    let all = world.hours * 60 * world.per_minute;
    for number in 0..all {
        let begins = f64::from(number) * 60.0 / f64::from(world.per_minute);
        let share = world.shares[(number * 3 / all) as usize];
        let new = random.random::<f64>() < share;
        let unit = session(world, begins, new.then_some(candidate), &mut random);
        let side: &mut Side = if new {
            &mut observed.candidate
        } else {
            &mut observed.baseline
        };
        side.calls += unit.sums.calls;
        side.units.push(unit);
        if begins >= look_at {
            look_at += f64::from(60 * LOOK_EVERY);
            let asked = Asked {
                now: at(begins),
                since: Some(at(0.0)),
                config_sha256: String::new(),
            };
            let report = evaluate(&gate, &observed, &asked);
            seen(&report);
            if report.verdict != GateVerdict::Inconclusive {
                return (report.verdict, begins);
            }
        }
    }
    (GateVerdict::Inconclusive, f64::from(world.hours * 3_600))
}

/// `make calibrations` runs more rollouts.
fn runs(few: u64) -> u64 {
    match std::env::var_os("TOKENGAUGE_THOROUGH") {
        Some(_) => 500,
        None => few,
    }
}

fn row(world: World, (what, candidate): (&str, Candidate), [wrong, right]: [GateVerdict; 2]) {
    let runs = runs(8);
    let alpha = Rules::default().alpha;
    let (mut wrongly, mut minutes) = (0, Vec::new());
    for seed in 0..runs {
        let (verdict, after) = rollout(world, candidate, 31 * seed + 7);
        wrongly += u64::from(verdict == wrong);
        if verdict == right {
            minutes.push(after / 60.0);
        }
    }
    minutes.sort_by(f64::total_cmp);
    let alarms = share::fixed_interval(wrongly, runs, 0.95).expect("an interval");
    let percent = |share: f64| share * 100.0;
    let median = minutes.get(minutes.len() / 2);
    println!(
        "| gate: {what} | {} | {runs} | {:.1} % | {:.1} to {:.1} % | {:.0} %, median {} |",
        world.name,
        percent(wrongly as f64 / runs as f64),
        percent(alarms.lower),
        percent(alarms.upper),
        percent(minutes.len() as f64 / runs as f64),
        median.map_or("–".to_owned(), |minutes| format!("{minutes:.0} min")),
    );
    assert!(
        alarms.lower <= alpha,
        "{wrongly} of {runs} in {}",
        world.name
    );
}

#[test]
fn an_equal_candidate_is_seldom_failed() {
    for world in WORLDS {
        row(
            world,
            ("equal", EQUAL),
            [GateVerdict::Fail, GateVerdict::Pass],
        );
    }
}

#[test]
fn a_candidate_that_is_just_too_slow_is_seldom_passed() {
    let slow = Candidate {
        tps: 1.0 - Margins::TPS,
        ..EQUAL
    };
    for world in WORLDS {
        row(
            world,
            ("10 % slower", slow),
            [GateVerdict::Pass, GateVerdict::Fail],
        );
    }
}

#[test]
fn one_that_truncates_just_too_many_answers_is_seldom_passed() {
    let truncates = Candidate {
        truncated: Margins::SHARE,
        ..EQUAL
    };
    for world in WORLDS {
        row(
            world,
            ("3 points more truncated", truncates),
            [GateVerdict::Pass, GateVerdict::Fail],
        );
    }
}

#[test]
fn a_slow_candidate_is_failed() {
    let slow = Candidate { tps: 0.8, ..EQUAL };
    for world in WORLDS {
        row(
            world,
            ("20 % slower", slow),
            [GateVerdict::Pass, GateVerdict::Fail],
        );
    }
}

/// Checks the example in docs/gate.md of 100 calls a minute in sessions of five: how long an equal candidate takes with 5 %
/// and with 20 % of them, and that the first evaluation with enough sessions forecasts it.
#[test]
fn the_example_of_the_documentation_ends_as_it_says() {
    let documented = include_str!("../../../docs/gate.md");
    for (share, hours, runs) in [(0.05, 4.0, 3), (0.2, 1.25, 9)] {
        let said = format!(
            "with {:.0} % of the traffic after about {hours} hours",
            share * 100.0
        );
        assert!(
            documented.contains(&said),
            "docs/gate.md does not say: {said}"
        );
        let world = World {
            hours: 12,
            per_minute: 20,
            shares: [share; 3],
            ..PLAIN
        };
        let (mut after, mut foreseen) = (Vec::new(), Vec::new());
        for seed in 0..runs {
            let mut first = None;
            let (verdict, seconds) = rollout_seen(world, EQUAL, 1_000 + seed, |report| {
                let forecast = report.forecast.as_ref();
                let left = forecast.and_then(|forecast| forecast.at.seconds);
                first = first.or(left.map(|left| left + report.waited_seconds.unwrap_or(0.0)));
            });
            assert_eq!(verdict, GateVerdict::Pass);
            after.push(seconds / 3_600.0);
            foreseen.push(first.expect("a forecast") / 3_600.0);
        }
        let median = |hours: &mut Vec<f64>| {
            hours.sort_by(f64::total_cmp);
            hours[hours.len() / 2]
        };
        let (after, foreseen) = (median(&mut after), median(&mut foreseen));
        println!("{share}: after {after:.2} hours, foreseen {foreseen:.2}");
        assert!((0.7..1.4).contains(&(after / hours)), "{after} hours");
        assert!(
            (0.6..1.7).contains(&(foreseen / after)),
            "{foreseen} and {after} hours"
        );
    }
}
