//! Experiments in simulated time with a look every minute: false alarms without a difference, and power with one.

use crate::compare::{Comparison, adjust, compare};
use crate::experiment::{Arm, Experiment, Rules};
use crate::group::Group;
use crate::judge::judge;
use crate::metric::Metric;
use crate::observed::{Observed, ObservedUnit, Sums};
use crate::strata::Strata;
use crate::stratum::Stratum;
use rand::RngExt;
use std::time::{Duration, SystemTime};
use tokengauge_stats::{Generator, seeded, share};
use tokengauge_store::query::{Threshold, UnitKind, UnitScores};

const TTFT: f64 = 0.5;
const TPS: f64 = 30.0;

/// The factors by which the second arm differs.
#[derive(Clone, Copy)]
struct Shift {
    tps: f64,
    ttft: f64,
    cost: f64,
    /// The share of calls of the second arm that are lost before the first token, in addition to the failures of both
    /// arms.
    lost: f64,
}

const NONE: Shift = Shift {
    tps: 1.0,
    ttft: 1.0,
    cost: 1.0,
    lost: 0.0,
};

/// A session: its arm, its stratum, its calls, and the minute at which it is complete.
struct Session {
    complete: u32,
    second: bool,
    stratum: Stratum,
    sums: Sums,
}

fn normal(random: &mut Generator) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The differences between sessions that exist before they have an arm.
#[derive(Clone, Copy)]
struct Before {
    /// The change of the logarithms of speed and wait with each class of prompt length.
    prompt: [f64; 2],
    /// The change of the logarithms of speed and wait at the busiest hour.
    hour: [f64; 2],
    known: bool,
    /// Whether numbers of calls and tokens have Pareto tails with an exponent of 2.2.
    heavy: bool,
    /// The share of sessions of one user, whose responses are three times as long and a third slower.
    dominant: f64,
    /// The decrease of the logarithm of the speed per hour.
    trend: f64,
    tps_below: f64,
}

const ALIKE: Before = Before {
    prompt: [0.0, 0.0],
    hour: [0.0, 0.0],
    known: true,
    heavy: false,
    dominant: 0.0,
    trend: 0.0,
    tps_below: TPS,
};
/// A few sessions cost as much as all others.
const HEAVY: Before = Before {
    heavy: true,
    ..ALIKE
};
/// One user has a third of the sessions, and all sessions become slower.
const DOMINANT: Before = Before {
    dominant: 0.33,
    trend: 0.1,
    ..UNLIKE
};
/// Calls with long prompts and calls around noon wait longer and decode more slowly.
const UNLIKE: Before = Before {
    prompt: [-0.2, 0.6],
    hour: [-0.2, 0.3],
    ..ALIKE
};
/// Like [`UNLIKE`], but the strata are unknown.
const UNKNOWN: Before = Before {
    known: false,
    ..UNLIKE
};

/// Generates a session. Its calls share the length of their prompts and the speed of their model.
fn session(
    begins: u32,
    second: bool,
    shift: Shift,
    before: Before,
    random: &mut Generator,
) -> Session {
    let shift = if second { shift } else { NONE };
    let class = (random.random::<f64>() * 3.0) as usize;
    let hour = begins / 60 % 24;
    let busy = (std::f64::consts::TAU * f64::from(hour) / 24.0).cos();
    let level = |of: usize| before.prompt[of] * (class as f64 - 1.0) - before.hour[of] * busy;
    let of_user = random.random::<f64>() < before.dominant;
    let by_user = if of_user { [0.4, 3.0] } else { [0.0, 1.0] };
    let slower = before.trend * f64::from(begins) / 60.0 + by_user[0];
    let speed = level(0) - slower + 0.25 * normal(random);
    let wait = level(1) + 0.5 * normal(random);
    let mut sums = Sums::default();
    let mut seconds = 0.0;
    // Five calls on average.
    let mut pareto = || 0.545 * (1.0 - random.random::<f64>()).powf(-1.0 / 2.2);
    let (of_calls, of_tokens) = (pareto(), pareto());
    let calls = if before.heavy {
        (5.0 * of_calls).ceil().min(1_000.0) as u32
    } else {
        1 + (random.random::<f64>().ln() / 0.8_f64.ln()) as u32
    };
    for _ in 0..calls {
        let size = if before.heavy {
            of_tokens
        } else {
            (0.7 * normal(random)).exp()
        };
        let tokens = (200.0 * size * by_user[1]).max(1.0).round();
        let tps = 45.0 * (speed + 0.2 * normal(random)).exp() * shift.tps;
        let ttft = 0.4 * (wait + 0.4 * normal(random)).exp() * shift.ttft;
        let failed = random.random::<f64>() < 0.03 + shift.lost;
        let measured = !failed && random.random::<f64>() < 0.9;
        sums.calls += 1;
        sums.failures += u64::from(failed);
        sums.truncated += u64::from(random.random::<f64>() < 0.02);
        sums.priced_calls += u64::from(!failed);
        sums.cost_nano_usd += (tokens * 1e4 * shift.cost) as u64;
        sums.ttft_unavailable += u64::from(failed);
        if !failed {
            sums.ttft_calls += 1;
            sums.ttft_above += u64::from(ttft > TTFT);
        }
        sums.tps_unavailable += u64::from(!failed && !measured);
        if measured {
            sums.tps_calls += 1;
            sums.tps_below += u64::from(tps <= before.tps_below);
            sums.decode_tokens += tokens as u64;
            sums.decode_us += (tokens / tps * 1e6) as u64;
        }
        seconds += ttft + tokens / tps + 20.0 + 80.0 * random.random::<f64>();
    }
    let settled = Rules::default().settled_after.as_secs_f64();
    Session {
        complete: begins + ((seconds + settled) / 60.0).ceil() as u32,
        second,
        stratum: if before.known {
            Stratum::new(class, hour as u8)
        } else {
            Stratum::default()
        },
        sums,
    }
}

fn rules() -> Rules {
    Rules {
        ttft_above: Some(Threshold::near(TTFT)),
        tps_below: Some(Threshold::near(TPS)),
        ..Rules::default()
    }
}

/// Runs an experiment of this many minutes with two new sessions per minute, and calls `look` with the observations at
/// each minute.
fn run(
    seed: u64,
    minutes: u32,
    (shift, before): (Shift, Before),
    mut look: impl FnMut(&[Group; 2], &[Comparison]) -> bool,
) {
    let mut random = seeded(seed);
    let mut sessions: Vec<Session> = (0..2 * minutes)
        .map(|number| {
            let second = random.random::<f64>() < 0.5;
            session(number / 2, second, shift, before, &mut random)
        })
        .collect();
    sessions.sort_by_key(|session| session.complete);
    let rules = rules();
    let mut groups = [Group::default(), Group::default()];
    let mut next = sessions.iter().peekable();
    for minute in 0..minutes {
        let mut new = false;
        while let Some(session) = next.next_if(|session| session.complete <= minute) {
            groups[usize::from(session.second)].push(session.stratum, &session.sums);
            new = true;
        }
        let [a, b] = &groups;
        if !new || a.units().min(b.units()) < rules.min_units {
            continue;
        }
        let mut families = [compare(a, b, &rules)];
        adjust(&mut families);
        let [family] = &families;
        if !look(&groups, family) {
            return;
        }
    }
}

fn found(comparison: &Comparison, alpha: f64) -> bool {
    let difference = comparison.difference.as_ref();
    difference.is_ok_and(|difference| difference.adjusted_p <= alpha)
}

#[test]
fn without_a_difference_a_look_every_minute_finds_one_in_at_most_alpha_of_the_runs() {
    false_alarms("sessions of 5 calls", ALIKE);
}

#[test]
fn nor_where_prompts_and_hours_are_unlike_and_units_are_in_strata() {
    false_alarms("short and long prompts, busy hours", UNLIKE);
}

#[test]
fn nor_where_a_few_sessions_cost_as_much_as_all_others() {
    false_alarms("heavy tails of answers and sessions", HEAVY);
}

#[test]
fn nor_where_one_user_has_a_third_of_the_sessions_and_speed_falls() {
    false_alarms(
        "one user with 33 %, prompts, hours, speed falls 10 % an hour",
        DOMINANT,
    );
}

fn thorough() -> bool {
    std::env::var_os("TOKENGAUGE_THOROUGH").is_some()
}

fn row(world: &str, runs: u64, alarms: u64, power: &str) {
    let between = share::fixed_interval(alarms, runs, 0.95).expect("an interval");
    println!(
        "| experiment | {world} | {runs} | {:.1} % | {:.1} to {:.1} % | {power} |",
        100.0 * alarms as f64 / runs as f64,
        100.0 * between.lower,
        100.0 * between.upper,
    );
    assert!(
        between.lower <= rules().alpha,
        "{alarms} of {runs} in {world}"
    );
}

fn false_alarms(world: &str, before: Before) {
    let alpha = rules().alpha;
    let runs = if thorough() { 1_000 } else { 100 };
    let mut alarms = 0;
    let mut outside = 0;
    let mut looks = 0_u64;
    // Costs that were reported as lower, and as higher.
    let mut costs = [0_u64; 2];
    for seed in 0..runs {
        let (mut alarmed, mut missed) = (false, false);
        let mut cost = None;
        run(seed, 360, (NONE, before), |_, family| {
            looks += 1;
            alarmed |= family.iter().any(|comparison| found(comparison, alpha));
            // The interval of a single metric must be valid at all looks.
            let tps = family
                .iter()
                .find(|comparison| comparison.metric == Metric::Tps)
                .and_then(|tps| tps.difference.as_ref().ok());
            missed |= tps.is_some_and(|tps| !tps.interval.contains(0.0));
            let mut family = family.iter();
            let of_cost = family.find(|comparison| comparison.metric == Metric::Cost);
            let of_cost = of_cost.filter(|of_cost| found(of_cost, alpha));
            let of_cost = of_cost.and_then(|of_cost| of_cost.difference.as_ref().ok());
            cost = cost.or(of_cost.map(|difference| difference.value > 0.0));
            true
        });
        if let Some(more) = cost {
            costs[usize::from(more)] += 1;
        }
        alarms += u64::from(alarmed);
        outside += u64::from(missed);
    }
    let [less, more] = costs;
    row(
        world,
        runs,
        alarms,
        &format!("cost less {less}, more {more}"),
    );
    assert!(looks > 200 * runs, "{looks}");
    let outside = share::fixed_interval(outside, runs, 0.95).expect("an interval");
    assert!(
        outside.lower <= alpha,
        "{outside:?} outside the interval of TPS"
    );
    // A biased estimate has the same sign every time.
    assert!(
        less.abs_diff(more) <= 6 + (less + more) / 3,
        "{less} less, {more} more"
    );
}

/// The numbers of sessions would show the difference only after 17,000 sessions.
#[test]
fn an_arm_that_loses_a_twentieth_of_its_calls_is_found_by_its_failures() {
    let shift = Shift { lost: 0.05, ..NONE };
    let (runs, mut sessions) = (if thorough() { 500 } else { 20 }, Vec::new());
    for seed in 0..runs {
        run(4_000 + seed, 720, (shift, UNLIKE), |[a, b], family| {
            let mut family = family.iter();
            let failures = family.find(|comparison| comparison.metric == Metric::Failures);
            let is_found = failures.is_some_and(|failures| found(failures, rules().alpha));
            if is_found {
                sessions.push(a.units() + b.units());
            }
            !is_found
        });
    }
    sessions.sort_unstable();
    let median = sessions[sessions.len() / 2];
    let power = sessions.len() as f64 / runs as f64;
    println!(
        "| experiment: 5 % of the calls of an arm lost | prompts, hours | {runs} | – | – | {:.0} %, median {median} sessions |",
        100.0 * power
    );
    assert!(power > 0.9 && median < 1_500, "{power} {median}");
}

#[test]
fn a_shift_is_found_and_its_interval_has_it() {
    let shift = Shift { tps: 1.2, ..NONE };
    let (mut detected, mut covered) = (0, 0);
    for seed in 0..50 {
        let mut last = None;
        run(5_000 + seed, 360, (shift, UNLIKE), |_, family| {
            last = family
                .iter()
                .find(|comparison| comparison.metric == Metric::Tps)
                .cloned();
            true
        });
        let tps = last.expect("a look");
        detected += u32::from(found(&tps, rules().alpha));
        let interval = tps.difference.expect("a difference").interval;
        covered += u32::from(interval.contains(0.2));
    }
    assert!(detected >= 45 && covered >= 47, "{detected} {covered}");
}

#[test]
fn strata_make_intervals_narrower() {
    let last = |before, metric| {
        let mut last = None;
        run(7_000, 720, (NONE, before), |groups, family| {
            let found = family.iter().find(|found| found.metric == metric);
            let found = found.and_then(|found| found.difference.as_ref().ok());
            let strata = Strata::of(&groups[0], &groups[1]).len();
            last = found.map(|found| (strata, found.interval.width()));
            true
        });
        last.expect("a difference")
    };
    for (metric, most) in [(Metric::Tps, 0.95), (Metric::TtftAbove, 0.95)] {
        let ((one, plain), (many, narrower)) = (last(UNKNOWN, metric), last(UNLIKE, metric));
        assert!(one == 1 && many > 10, "{one} {many}");
        assert!(narrower < most * plain, "{metric:?}: {narrower} {plain}");
    }
}

const DOCUMENT: &str = include_str!("../../../docs/experiments.md");

/// The `[[experiment]]` of docs/experiments.md.
fn documented() -> Experiment {
    let blocks = DOCUMENT.split("```");
    let block = blocks.filter_map(|block| block.strip_prefix("toml")).next();
    let table: toml::Table = block.expect("a block").parse().expect("TOML");
    let written = &table["experiment"][0];
    let text = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    let number = |value: &toml::Value| value.as_integer().expect("a number") as f64;
    let arms = written["arms"].as_array().expect("arms").iter();
    let arms = arms.map(|arm| Arm {
        name: text(&arm["name"]),
        weight: number(&arm["weight"]),
    });
    let ttft_above = text(&written["ttft_above"]);
    assert_eq!(ttft_above, "500ms", "simulated waits are above {TTFT} s");
    Experiment {
        name: text(&written["name"]),
        arms: arms.collect(),
        unit: UnitKind::Session,
        rules: Rules {
            tps_below: Some(Threshold::near(number(&written["tps_below"]))),
            ..rules()
        },
    }
}

/// A week with two new sessions a minute: the new arm waits less and costs more.
#[test]
fn the_example_of_the_documentation_ends_as_it_says() {
    const WEEK: u32 = 7 * 24 * 60;
    let experiment = documented();
    let [old, new] = &experiment.arms[..] else {
        panic!("{experiment:?}");
    };
    let shift = Shift {
        ttft: 0.85,
        cost: 1.12,
        ..NONE
    };
    let before = Before {
        tps_below: experiment.rules.tps_below.expect("a threshold").value(),
        ..UNLIKE
    };
    let at = |minute| SystemTime::UNIX_EPOCH + Duration::from_secs(60 * u64::from(minute));
    let mut random = seeded(8_000);
    let unit = |number: u32| {
        let second = random.random::<f64>() < new.weight / (old.weight + new.weight);
        let session = session(number / 2, second, shift, before, &mut random);
        let arm = if second { new } else { old };
        ObservedUnit {
            variant: Some(arm.name.clone()),
            unit: number.to_string(),
            last_at: at(session.complete) - experiment.rules.settled_after,
            stratum: session.stratum,
            sums: session.sums,
            scores: UnitScores::new(),
        }
    };
    let observed = Observed {
        units: (0..2 * WEEK).map(unit).collect(),
        ..Observed::default()
    };
    let said = judge(&experiment, &observed, at(WEEK)).verdict;
    let document = DOCUMENT.replace('\n', " ");
    assert!(
        document.contains(&format!("“{said}”")),
        "docs/experiments.md does not say: {said}"
    );
}

#[test]
fn power() {
    if !thorough() {
        return;
    }
    type Case = (&'static str, Metric, fn(f64) -> Shift);
    let cases: [Case; 3] = [
        ("TPS", Metric::Tps, |by| Shift {
            tps: 1.0 + by,
            ..NONE
        }),
        (
            "calls above the TTFT threshold (every wait longer)",
            Metric::TtftAbove,
            |by| Shift {
                ttft: 1.0 + by,
                ..NONE
            },
        ),
        ("cost per session", Metric::Cost, |by| Shift {
            cost: 1.0 + by,
            ..NONE
        }),
    ];
    println!("| metric | shift | 500 sessions | 1,000 | 2,000 | 4,000 | median at discovery |");
    println!("|---|---|---|---|---|---|---|");
    for (name, metric, shift) in &cases {
        for by in [0.05, 0.1, 0.2] {
            let row = discovery(*metric, shift(by), ALIKE);
            let by = by * 100.0;
            println!("| {name} | {by:.0} % | {row} |");
        }
    }
    println!("| with prompts and hours unlike | | | | | | |");
    for (name, metric, shift) in &cases[..2] {
        for before in [UNLIKE, UNKNOWN] {
            let row = discovery(*metric, shift(0.1), before);
            println!("| {name} | 10 %, strata: {} | {row} |", before.known);
        }
    }
}

/// Returns the shares of 200 runs in which a difference of the metric is shown within a number of sessions, and the
/// median number of sessions until then.
fn discovery(metric: Metric, shift: Shift, before: Before) -> String {
    let alpha = rules().alpha;
    let mut at: Vec<u64> = Vec::new();
    for seed in 0..200 {
        run(90_000 + seed, 2_020, (shift, before), |[a, b], family| {
            let mut of_it = family.iter();
            let it = of_it.find(|comparison| comparison.metric == metric);
            let differs = it.is_some_and(|it| found(it, alpha));
            if differs {
                at.push(a.units() + b.units());
            }
            !differs
        });
    }
    at.sort_unstable();
    let share = |units: u64| {
        let found = at.iter().filter(|at| **at <= units).count();
        format!("{:.0} %", found as f64 / 2.0)
    };
    let median = at.get(99).map_or("–".to_owned(), u64::to_string);
    let shares = [500, 1_000, 2_000, 4_000].map(share).join(" | ");
    format!("{shares} | {median}")
}
