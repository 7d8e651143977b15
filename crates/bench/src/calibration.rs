//! Error rates of the benchmark verdicts: false alarms and power, from benchmarks of a simulated backend with known
//! truth.
//!
//! The backend is a queue model in simulated time: it reads prompts one after the other and writes responses in
//! parallel. Its trials pass through the production code for verdicts.

use crate::compare::{Change, Comparison};
use crate::level::tests::trial;
use crate::level::{LevelResult, LoadName};
use crate::load::Load;
use crate::metric::Metric;
use crate::objective::Objective;
use crate::observed::{Call, Observed};
use crate::plan::Range;
use crate::results::{Results, Settings};
use crate::search::Search;
use crate::steady::{Criteria, judge};
use crate::trial::{Figure, Sample, TrialResult, mean, quantile};
use rand::RngExt;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use tokengauge_stats::{Generator, seeded, share};

/// The largest allowed share of runs with a false alarm.
const ALPHA: f64 = 0.05;
const TRIALS: u32 = 5;
/// Durations in seconds.
const WARM_UP: f64 = 10.0;
const MEASURED: f64 = 60.0;
/// The seconds to read a prompt on an idle backend.
const PROMPT: f64 = 0.06;
const TOKENS: u64 = 64;
/// The number of streams at which a response takes twice as long as on an idle backend.
const KNEE: f64 = 24.0;

/// The variation of calls and trials of an unchanged backend.
#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// The seconds to write a response on an idle backend.
    answer: f64,
    /// Standard deviations, as shares, for the change during a trial and for the change over five trials of each load.
    trend: f64,
    /// Whether one call in 50 has a Pareto-distributed time with shape 2.5.
    heavy_tails: bool,
    /// Whether one prompt in five is five times as long.
    mixed_prompts: bool,
}

const EVEN: World = World {
    name: "even",
    answer: 1.0,
    trend: 0.0,
    heavy_tails: false,
    mixed_prompts: false,
};
const WORLDS: [World; 4] = [
    EVEN,
    World {
        name: "trends",
        trend: 0.02,
        ..EVEN
    },
    World {
        name: "heavy tails",
        heavy_tails: true,
        ..EVEN
    },
    World {
        name: "mixed prompts",
        mixed_prompts: true,
        ..EVEN
    },
];

fn criteria() -> Criteria {
    Criteria {
        // Disables the check for steadiness: a minute of scattered times cannot be shown to be steady within the
        // default of 5 %, and the decisions must be right without the check.
        drift: 1.0,
        ..Criteria::default()
    }
}

struct Run {
    world: World,
    random: Generator,
    level: f64,
}

impl Run {
    fn new(world: World, level: f64, seed: u64) -> Run {
        Run {
            world,
            random: seeded(seed),
            level,
        }
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (
            1.0 - self.random.random::<f64>(),
            self.random.random::<f64>(),
        );
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn takes(&mut self, usual: f64) -> f64 {
        let scatter = (0.1 * self.normal()).exp();
        let heavy = if self.world.heavy_tails && self.random.random_bool(0.02) {
            (1.0 - self.random.random::<f64>()).powf(-1.0 / 2.5) * 2.0
        } else {
            1.0
        };
        usual * scatter * heavy
    }

    fn observed(&mut self, streams: u32) -> Observed {
        let speed = self.level * (1.0 + 0.01 * self.normal());
        let trend = self.world.trend * self.normal();
        let answer = self.world.answer * (1.0 + f64::from(streams) / KNEE);
        let spread = |stream: u32| f64::from(stream) / f64::from(streams) * WARM_UP / 2.0;
        // Heap keys need a total order, which microseconds have and `f64` does not.
        let micros = |at: f64| Reverse(((at + WARM_UP) * 1e6) as u64);
        let mut next: BinaryHeap<_> = (0..streams)
            .map(|stream| micros(spread(stream) - WARM_UP))
            .collect();
        let interval = 1.0;
        let mut tokens = vec![0.0; MEASURED as usize];
        let (mut calls, mut free) = (Vec::new(), -WARM_UP);
        while let Some(Reverse(at)) = next.pop() {
            let begun = at as f64 / 1e6 - WARM_UP;
            if begun >= MEASURED {
                continue;
            }
            let now = speed * (1.0 + trend * (begun / MEASURED - 0.5));
            let long = self.world.mixed_prompts && self.random.random_bool(0.2);
            let prompt = PROMPT * if long { 5.0 } else { 1.0 };
            free = free.max(begun) + self.takes(prompt) / now;
            let decode = self.takes(answer) / now;
            let ended = free + decode;
            for second in free.max(0.0) as usize..tokens.len().min(ended.max(0.0) as usize + 1) {
                let from = free.max(second as f64);
                let to = ended.min((second + 1) as f64);
                tokens[second] += TOKENS as f64 * (to - from).max(0.0) / decode;
            }
            calls.push(Call {
                begun,
                ended,
                ttft: Some(free - begun),
                decode: Some((TOKENS - 1, decode)),
                output: Some(TOKENS),
                ..Call::default()
            });
            next.push(micros(ended));
        }
        Observed {
            seconds: MEASURED,
            interval,
            tokens,
            begun: calls.len(),
            calls,
            ..Observed::default()
        }
    }

    /// Runs one trial. Its figures have no intervals, because a load with several trials does not use them.
    fn trial(&mut self, streams: u32, number: u32) -> TrialResult {
        let observed = self.observed(streams);
        let found = judge(&observed, &Load::Concurrency(streams), &criteria());
        let (steady, withheld) = match found {
            Ok((steady, parts)) => (steady, parts),
            Err(withheld) => {
                return TrialResult {
                    figures: None,
                    withheld,
                    calls: observed.between(0.0, MEASURED).count(),
                    ..trial(number, Ok(0.0))
                };
            }
        };
        let sample = Sample::of(&observed, steady);
        let ttft: Vec<_> = sample.ttft.iter().map(|(_, ttft)| *ttft).collect();
        let tokens = &observed.tokens[steady.from as usize..];
        let mut figures = BTreeMap::from([
            (Metric::OutputThroughput, mean(tokens)),
            (Metric::TpsMean, 1.0 / mean(&sample.tpot)),
            (Metric::TtftMean, mean(&ttft)),
        ]);
        figures.retain(|metric, _| !withheld.iter().any(|it| it.part == metric.part()));
        let figure = |(metric, value)| {
            let (lower, upper) = (None, None);
            let figure = Figure {
                value,
                lower,
                upper,
            };
            (metric, figure)
        };
        TrialResult {
            figures: Some(figures.into_iter().map(figure).collect()),
            withheld,
            calls: ttft.len(),
            sample,
            ..trial(number, Ok(0.0))
        }
    }

    fn all(&mut self, loads: &[u32], count: u32) -> Results {
        let mut trials = vec![Vec::new(); loads.len()];
        for number in 1..=count {
            for (load, trials) in loads.iter().zip(&mut trials) {
                trials.push(self.trial(*load, number));
            }
            self.level *= 1.0 + self.world.trend / f64::from(count);
        }
        let levels = loads.iter().zip(&trials);
        let levels = levels.map(|(load, trials)| level(*load, trials, &[]));
        let levels = levels.collect();
        Results::of(Settings::default(), String::new(), levels, false)
    }

    fn search(&mut self, objective: Objective) -> Results {
        let objectives = [objective];
        let range = Range::Concurrency(1, HIGHEST);
        let mut search = Search::new(range, TRIALS);
        let mut loads = BTreeMap::<u32, Vec<TrialResult>>::new();
        while let Some((at, number)) = search.next() {
            let streams = at as u32;
            let result = self.trial(streams, number);
            let trials = loads.entry(streams).or_default();
            trials.push(result);
            let level = level(streams, trials, &objectives);
            search.made(&level, false, &objectives);
        }
        let levels = loads.iter();
        let levels = levels.map(|(streams, trials)| level(*streams, trials, &objectives));
        let levels = levels.collect();
        Results::of(Settings::default(), String::new(), levels, false)
    }
}

fn level(streams: u32, trials: &[TrialResult], objectives: &[Objective]) -> LevelResult {
    let load = LoadName::of(&Load::Concurrency(streams));
    LevelResult::of(load, trials.to_vec(), objectives, None, &criteria())
}

/// The number of runs for a row of a table: 500 in `make thorough`.
fn runs(few: u64) -> u64 {
    match std::env::var_os("TOKENGAUGE_THOROUGH") {
        Some(_) => 500,
        None => few,
    }
}

/// Prints a row. Fails if false alarms are shown to be more frequent than [`ALPHA`], or detections less frequent than
/// `power`.
fn row(verdict: &str, world: &str, runs: u64, (alarms, found): (u64, u64), power: f64) {
    let interval = share::fixed_interval(alarms, runs, 0.95).expect("runs");
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    println!(
        "| {verdict} | {world} | {runs} | {} | {} to {} | {} |",
        percent(alarms as f64 / runs as f64),
        percent(interval.lower),
        percent(interval.upper),
        percent(found as f64 / runs as f64)
    );
    assert!(
        interval.lower <= ALPHA,
        "{verdict}, {world}: {alarms} of {runs}"
    );
    let least = share::fixed_interval(found, runs, 0.95)
        .expect("runs")
        .upper;
    assert!(
        least >= power,
        "{verdict}, {world}: found {found} of {runs}"
    );
}

fn heads() {
    println!("| verdict | simulated traffic | runs | false alarms | 95 % interval | power |");
    println!("|---|---|---:|---:|---:|---:|");
}

/// A false alarm is a figure that is reported as worse or better although nothing changed. Power is measured at 5 %
/// less speed.
#[test]
fn compare() {
    heads();
    let runs = runs(8);
    for world in WORLDS {
        for loads in [&[8][..], &[2, 8, 16]] {
            let (mut alarms, mut found) = (0, 0);
            for seed in 0..runs {
                let results = |level, seed| Run::new(world, level, seed).all(loads, TRIALS);
                let old = results(1.0, 3 * seed);
                let changed = |new: &Results, is: fn(Change) -> bool| {
                    let compared = Comparison::of(&old, new);
                    u64::from(compared.figures.iter().any(|figure| is(figure.change)))
                };
                alarms += changed(&results(1.0, 3 * seed + 1), |change| {
                    matches!(change, Change::Worse | Change::Better)
                });
                found += changed(&results(0.95, 3 * seed + 2), |change| {
                    change == Change::Worse
                });
            }
            let name = match loads.len() {
                1 => format!("{}, 1 load", world.name),
                loads => format!("{}, {loads} loads", world.name),
            };
            let power = if world.heavy_tails { 0.5 } else { 0.9 };
            row("worse (compare)", &name, runs, (alarms, found), power);
        }
    }
}

/// The highest load of the search. The lowest load that misses the objective misses it by half a percent.
const HIGHEST: u32 = 24;
const MISSES: u32 = 9;

/// A false alarm is a reported load that misses the objective. Power counts loads that meet it and are within a quarter
/// of the highest such load.
#[test]
fn search() {
    heads();
    let runs = runs(3);
    for world in WORLDS {
        for name in ["ttft_p95", "tps_mean"] {
            let objective = barely_missed(world, name);
            let (mut alarms, mut found) = (0, 0);
            for seed in 0..runs {
                let results = Run::new(world, 1.0, 1_000_000 + seed).search(objective);
                let highest = results.highest.and_then(|it| it.load.concurrency);
                let wrong = highest.is_some_and(|load| load >= MISSES);
                alarms += u64::from(wrong);
                let near = highest.is_some_and(|load| 4 * load >= 3 * (MISSES - 1));
                found += u64::from(near && !wrong);
            }
            let verdict = format!("highest load (search by {name})");
            let power = if name == "tps_mean" { 0.85 } else { 0.65 };
            row(&verdict, world.name, runs, (alarms, found), power);
        }
    }
}

const DOCUMENT: &str = include_str!("../../../docs/bench.md");

/// Sequential calls of five seconds are too few for a p95. docs/bench.md shows this message.
#[test]
fn the_documented_search_continues_above_a_load_with_too_few_calls() {
    let world = World {
        answer: 4.75,
        ..EVEN
    };
    let objective = "ttft_p95<=500ms".parse().expect("an objective");
    let results = Run::new(world, 1.0, 1).search(objective);
    let text = crate::text::table(&results);
    let is_not_shown = |line: &&str| line.contains("is not shown to be met");
    let said = text.lines().find(is_not_shown).expect("too few calls");
    assert!(
        DOCUMENT.lines().any(|line| line == said),
        "docs/bench.md does not say: {said}"
    );
    assert!(results.highest.is_some(), "no higher load: {text}");
}

#[test]
fn the_cases_of_the_documented_exit_codes_are_told_apart() {
    let slow = World {
        answer: 60.0,
        ..EVEN
    };
    let run = |world, level, seed, trials| Run::new(world, level, seed).all(&[8, 16], trials);
    let few = "too few trials to show any change";
    let withheld = "the new result withholds ";
    for (new, trials, code, when) in [
        (run(EVEN, 0.95, 2, TRIALS), TRIALS, 1, "a figure is worse"),
        (run(EVEN, 0.95, 2, 2), 2, 3, few),
        (run(slow, 1.0, 2, TRIALS), TRIALS, 3, withheld),
        (run(EVEN, 1.0, 2, TRIALS), TRIALS, 0, "otherwise"),
    ] {
        let compared = Comparison::of(&run(EVEN, 1.0, 1, trials), &new);
        let undecided = compared.undecided().join("; ");
        // The decision of src/command/bench/compare.rs.
        let found = match compared.worse().count() {
            0 if undecided.is_empty() => 0,
            0 => 3,
            _ => 1,
        };
        let is_said = undecided.contains(when);
        assert_eq!((found, is_said), (code, code == 3), "{when}: {compared:#?}");
        let row = |line: &str| line.starts_with(&format!("| {code} | ")) && line.contains(when);
        assert!(DOCUMENT.lines().any(row), "docs/bench.md: {code}, {when}");
    }
}

/// An objective that the load [`MISSES`] misses by half a percent, from the calls of many trials.
fn barely_missed(world: World, name: &str) -> Objective {
    let trials = 60;
    let samples: Vec<_> = (0..trials)
        .map(|seed| {
            let observed = Run::new(world, 1.0, 2_000_000 + seed).observed(MISSES);
            let calls = observed.between(0.0, MEASURED);
            calls
                .map(|call| (call.ttft.unwrap_or_default(), call.tps()))
                .collect::<Vec<_>>()
        })
        .collect();
    let (text, limit) = match name {
        "ttft_p95" => {
            let times: Vec<_> = samples.iter().flatten().map(|(ttft, _)| *ttft).collect();
            ("ttft_p95<=1s", quantile(&times, 0.95) * 0.995)
        }
        _ => {
            let speed = |sample: &Vec<(f64, Option<f64>)>| {
                let times: Vec<_> = sample
                    .iter()
                    .filter_map(|(_, tps)| Some(1.0 / (*tps)?))
                    .collect();
                1.0 / mean(&times)
            };
            let speeds: Vec<_> = samples.iter().map(speed).collect();
            ("tps_mean>=1", mean(&speeds) * 1.005)
        }
    };
    let objective: Objective = text.parse().expect("an objective");
    Objective { limit, ..objective }
}
