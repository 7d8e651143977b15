//! Simulated incidents of an objective on throughput: agents that call in a loop, and the tokens per second of their
//! upstream.

use crate::traffic::{BEGIN, ONSET, PER_TOKEN, Traffic};
use crate::{FIRST, RIGHT, SEEDS};
use rand::RngExt as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_cause::Dimension::{Agent, Model};
use tokengauge_cause::Mechanism::{Decode, Errors, FewerCalls, Prefill, Queue, ShorterAnswers};
use tokengauge_cause::{Call, Cause, Dimension, Mechanism, Minute, find_throughput};
use tokengauge_core::time::since_1970;

const FOR: f64 = 900.0;
const ENOUGH: f64 = 0.8;
const PER_MINUTE: usize = 120;

#[derive(Clone, Copy)]
struct Loop {
    agent: &'static str,
    model: &'static str,
    route: &'static str,
}

/// A call, when its first token came, and how long the agent pauses after it.
struct Made {
    call: Call,
    first: f64,
    pause: f64,
}

struct Incident {
    name: &'static str,
    /// Changes a call. `None` if the call is not made.
    change: fn(&mut Traffic, &Loop, Made) -> Option<Made>,
    value: Option<(Dimension, &'static str)>,
    /// `None` if no mechanism may be named.
    mechanism: Option<Mechanism>,
}

/// Half of the loops belong to the agent `crawler`. Each agent uses both models equally often.
fn loops() -> Vec<Loop> {
    let agents = ["crawler", "crawler", "coder", "support"];
    (0..24)
        .map(|at| Loop {
            agent: agents[at % 4],
            model: if at / 4 % 2 == 0 { "large" } else { "small" },
            route: if at % 3 == 0 { "batch" } else { "chat" },
        })
        .collect()
}

fn call(traffic: &mut Traffic, of: &Loop) -> Made {
    let prompt = 2_000.0 * traffic.lognormal(0.6);
    let node = if traffic.random.random_bool(0.5) {
        "10.0.0.1:8000"
    } else {
        "10.0.0.2:8000"
    };
    let names = ["vllm", of.model, of.route, of.agent, node];
    let call = Call {
        weight: 1.0,
        names: names.map(|name| Some(Arc::from(name))),
        prompt_tokens: Some(prompt as u64),
        output_tokens: Some((250.0 * traffic.lognormal(0.4)) as u64),
        concurrency: 20,
        connect: Some(0.001),
        first_token: Some(0.2 + prompt * PER_TOKEN),
        gap: Some(0.02 * traffic.lognormal(0.15)),
        ..Call::default()
    };
    Made {
        call,
        first: 0.0,
        pause: traffic.exponential(2.0),
    }
}

/// The calls of all loops, and when each call began and had its first token.
fn traffic(seed: u64, incident: &Incident) -> Vec<(Call, f64, f64)> {
    let mut traffic = Traffic::new(seed);
    let mut made = Vec::new();
    for of in loops() {
        let mut at = BEGIN + traffic.random.random_range(0.0..8.0);
        while at < ONSET + FOR {
            let one = call(&mut traffic, &of);
            let one = if at < ONSET {
                Some(one)
            } else {
                (incident.change)(&mut traffic, &of, one)
            };
            let Some(mut one) = one else {
                at += 10.0;
                continue;
            };
            one.first = at + one.call.first_token.unwrap_or(0.1);
            let tokens = one.call.output_tokens.unwrap_or(0) as f64;
            let end = one.first + tokens * one.call.gap.unwrap_or(0.0);
            one.call.at = end;
            made.push((one.call, at, one.first));
            at = end + one.pause;
        }
    }
    made.sort_by(|(one, ..), (other, ..)| one.at.total_cmp(&other.at));
    made
}

fn minutes(made: &[(Call, f64, f64)]) -> Vec<Minute> {
    let count = ((ONSET + FOR - BEGIN) / 60.0) as usize;
    let mut minutes: Vec<Minute> = (0..count)
        .map(|number| Minute {
            begin: BEGIN + 60.0 * number as f64,
            bad: false,
            throughput: 0.0,
            under_way: 0.0,
        })
        .collect();
    for (call, start, first) in made {
        let overlap = |from: f64, to: f64, minute: &Minute| {
            (to.min(minute.begin + 60.0) - from.max(minute.begin)).max(0.0)
        };
        let tokens = call.output_tokens.unwrap_or(0) as f64;
        let place = |at: f64| ((at - BEGIN) / 60.0) as usize;
        let last = place(call.at).min(count - 1);
        for minute in minutes.get_mut(place(*start)..=last).into_iter().flatten() {
            minute.under_way += overlap(*start, call.at, minute) / 60.0;
            let seconds = (call.at - first).max(1e-6);
            minute.throughput += tokens * overlap(*first, call.at, minute) / seconds / 60.0;
        }
    }
    let usual: f64 = minutes[5..45]
        .iter()
        .map(|minute| minute.throughput)
        .sum::<f64>()
        / 40.0;
    for minute in &mut minutes {
        minute.bad = minute.throughput < ENOUGH * usual;
    }
    // The first minute begins without calls.
    minutes.split_off(1)
}

/// A sample of the calls of each minute, with their weight.
fn kept(made: &[(Call, f64, f64)], until: f64) -> Vec<Call> {
    let ended = made.iter().map(|(call, ..)| call);
    let calls: Vec<&Call> = ended.filter(|call| call.at < until).collect();
    let minute = |call: &Call| (call.at / 60.0) as u64;
    let chunks = calls.chunk_by(|one, other| minute(one) == minute(other));
    chunks
        .flat_map(|chunk| {
            let every = chunk.len().div_ceil(PER_MINUTE);
            let kept: Vec<&Call> = chunk.iter().copied().step_by(every).collect();
            let weight = chunk.len() as f64 / kept.len() as f64;
            let kept = kept.into_iter().map(move |call| Call {
                weight,
                ..call.clone()
            });
            kept.collect::<Vec<_>>()
        })
        .collect()
}

fn cause(made: &[(Call, f64, f64)], after: f64) -> Cause {
    let mut minutes = minutes(made);
    minutes.retain(|minute| minute.begin + 60.0 <= ONSET + after);
    let calls = kept(made, ONSET + after);
    let now = UNIX_EPOCH + Duration::from_secs_f64(ONSET + after);
    find_throughput(&minutes, &calls, now)
}

fn slower(one: Made, times: f64) -> Made {
    let gap = one.call.gap.map(|gap| gap * times);
    Made {
        call: Call { gap, ..one.call },
        ..one
    }
}

fn failed(mut one: Made) -> Made {
    one.call.error = Some(Arc::from("http_error 503"));
    (one.call.output_tokens, one.call.gap, one.call.first_token) = (None, None, Some(0.1));
    one.pause = 4.0;
    one
}

fn later(mut one: Made, seconds: f64) -> Made {
    one.call.first_token = one.call.first_token.map(|first| first + seconds);
    one
}

fn incidents() -> Vec<Incident> {
    vec![
        Incident {
            name: "all decode slowly",
            change: |_, _, one| Some(slower(one, 2.2)),
            value: None,
            mechanism: Some(Decode),
        },
        Incident {
            name: "a model decodes slowly",
            change: |_, of, one| Some(slower(one, if of.model == "large" { 6.0 } else { 1.0 })),
            value: Some((Model, "large")),
            mechanism: Some(Decode),
        },
        Incident {
            name: "a queue",
            change: |traffic, _, one| {
                let seconds = traffic.random.random_range(6.0..9.0);
                Some(later(one, seconds))
            },
            value: None,
            mechanism: Some(Queue),
        },
        Incident {
            name: "slow prefill",
            change: |_, _, one| {
                let prompt = one.call.prompt_tokens.unwrap_or(0) as f64;
                Some(later(one, prompt * 0.004))
            },
            value: None,
            mechanism: Some(Prefill),
        },
        Incident {
            name: "errors",
            change: |traffic, _, one| {
                let fails = traffic.random.random_bool(0.7);
                Some(if fails { failed(one) } else { one })
            },
            value: None,
            mechanism: Some(Errors),
        },
        Incident {
            name: "errors of a model",
            change: |_, of, one| {
                let fails = of.model == "large";
                Some(if fails { failed(one) } else { one })
            },
            value: Some((Model, "large")),
            mechanism: Some(Errors),
        },
        Incident {
            name: "all agents pause for longer",
            change: |_, _, one| {
                Some(Made {
                    pause: one.pause + 9.0,
                    ..one
                })
            },
            value: None,
            mechanism: Some(FewerCalls),
        },
        Incident {
            name: "an agent stops",
            change: |_, of, one| (of.agent != "crawler").then_some(one),
            value: Some((Agent, "crawler")),
            mechanism: Some(FewerCalls),
        },
        Incident {
            name: "shorter answers",
            change: |_, _, mut one| {
                one.call.output_tokens = one.call.output_tokens.map(|tokens| tokens / 4);
                Some(one)
            },
            value: None,
            mechanism: Some(ShorterAnswers),
        },
        Incident {
            name: "an agent stops, and all decode slowly",
            change: |_, of, one| (of.agent != "crawler").then(|| slower(one, 2.2)),
            value: Some((Agent, "crawler")),
            mechanism: None,
        },
    ]
}

/// Whether the answer names something false. An unknown or incomplete answer is not wrong.
fn is_wrong(incident: &Incident, cause: &Cause) -> bool {
    let value = cause.dimension.zip(cause.value.as_deref());
    let part = match incident.mechanism {
        Some(Queue | Prefill) => Some(Mechanism::FirstToken),
        _ => None,
    };
    (value.is_some() && value != incident.value)
        || ![None, part, incident.mechanism].contains(&cause.mechanism)
}

fn is_right(incident: &Incident, cause: &Cause) -> bool {
    let value = cause.dimension.zip(cause.value.as_deref());
    let value_is = value == incident.value || incident.mechanism.is_none();
    let since = cause.since.map(|since| since_1970(since.time()));
    let near = since.is_some_and(|since| (since - ONSET).abs() <= 120.0);
    value_is && cause.mechanism == incident.mechanism && near
}

#[test]
fn a_loss_of_throughput_is_told_by_its_cause_or_not_at_all() {
    let mut failures = Vec::new();
    for incident in &incidents() {
        let (mut right, mut wrong, mut others) = (0, Vec::new(), Vec::new());
        for seed in FIRST..FIRST + SEEDS {
            let made = traffic(seed, incident);
            let last = cause(&made, FOR);
            if seed == FIRST {
                println!("{}: {}", incident.name, last.sentence);
            }
            // Soon after the onset the cause may be unknown.
            let soon = [120.0, 240.0, 360.0].map(|after| cause(&made, after));
            let all = soon.into_iter().chain([last.clone()]);
            wrong.extend(all.filter(|cause| is_wrong(incident, cause)));
            if is_right(incident, &last) {
                right += 1;
            } else {
                others.push(last);
            }
        }
        println!(
            "{right:3} of {SEEDS} right, {} wrong  {}",
            wrong.len(),
            incident.name
        );
        if right < RIGHT || !wrong.is_empty() {
            failures.push((incident.name, right, wrong, others));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn minutes_that_are_bad_by_chance_have_no_cause() {
    let nothing = Incident {
        name: "nothing",
        change: |_, _, one| Some(one),
        value: None,
        mechanism: None,
    };
    for seed in FIRST..FIRST + SEEDS {
        let made = traffic(seed, &nothing);
        let mut minutes = minutes(&made);
        let mut random = Traffic::new(seed);
        for minute in &mut minutes {
            minute.bad = random.random.random_bool(0.3);
        }
        let calls = kept(&made, ONSET + FOR);
        let cause = find_throughput(&minutes, &calls, UNIX_EPOCH);
        assert!(!cause.known, "{}", cause.sentence);
        assert!(
            cause.sentence.starts_with("The cause is not known"),
            "{}",
            cause.sentence
        );
    }
    assert!(!find_throughput(&[], &[], UNIX_EPOCH).known);
}
