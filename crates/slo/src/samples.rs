//! A sample of recent calls with their verdicts, for the search of causes.

use super::objective::Sli;
use super::reason::{CallVerdict, Reason};
use super::verdict::{Events, Finished, fault};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_cause::{Call, Phases};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::inter_token::InterToken;
use tokengauge_core::warm_ups::WarmUps;

const MINUTES: usize = 120;
/// Number of randomly selected calls that are kept per minute; all minutes together take about 4
/// MB.
const PER_MINUTE: usize = 120;
/// Maximum number of interned names.
const MAX_NAMES: usize = 2_000;
/// A call is a cold start if the engine spent at least this share of the time to first token on
/// loading the model.
const LOADING: f64 = 0.3;
/// After a restart an upstream is cold for this long: it compiles, and its caches are empty.
const COLD_FOR: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub struct Samples {
    minutes: VecDeque<Minute>,
    names: HashSet<Arc<str>>,
    warm_ups: WarmUps,
}

#[derive(Debug)]
struct Minute {
    number: u64,
    /// Number of calls in the minute, including those that are not kept.
    seen: u64,
    kept: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    call: Call,
    verdicts: Verdicts,
}

/// The verdicts on a call, with one bit for each objective's index.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdicts {
    good: u128,
    bad: u128,
}

impl Verdicts {
    /// Adds the verdict of the objective at an index. A call with good and bad tokens is bad if its
    /// share of bad tokens exceeds the budget.
    pub fn add(&mut self, at: usize, events: &[Events], budget: f64) {
        let count = |verdict: CallVerdict| {
            let of = events.iter().filter(|events| events.verdict == verdict);
            of.map(|events| events.count as f64).sum::<f64>()
        };
        let (good, bad) = (count(CallVerdict::Good), count(CallVerdict::Bad));
        if bad > 0.0 && bad / (good + bad) > budget {
            self.add_bad(at);
        } else if good + bad > 0.0 {
            self.good |= bit(at);
        }
    }

    pub fn add_counted(&mut self, at: usize) {
        self.good |= bit(at);
    }

    pub fn add_bad(&mut self, at: usize) {
        self.bad |= bit(at);
    }

    fn of(self, at: usize) -> Option<bool> {
        let bad = self.bad & bit(at) != 0;
        (bad || self.good & bit(at) != 0).then_some(bad)
    }

    fn moved(self, to: &[Option<usize>]) -> Verdicts {
        let moved = |bits: u128| {
            let places = to.iter().enumerate().filter(|(at, _)| bits & bit(*at) != 0);
            places.fold(0, |bits, (_, to)| bits | to.map_or(0, bit))
        };
        Verdicts {
            good: moved(self.good),
            bad: moved(self.bad),
        }
    }
}

fn bit(at: usize) -> u128 {
    u32::try_from(at).map_or(0, |at| 1_u128.checked_shl(at).unwrap_or(0))
}

impl Samples {
    /// Keeps a call that ended at `at`, in seconds since 1970, if the sampling selects it.
    pub fn add(&mut self, at: f64, finished: &FinishedCall, verdicts: Verdicts) {
        let record = &finished.record;
        let started = finished.timestamps.started_at;
        if record.status.is_some() {
            self.warm_ups
                .began(&record.upstream, record.warm_up, started);
        }
        if verdicts == Verdicts::default() {
            return;
        }
        let number = (at / 60.0) as u64;
        if self.minutes.back().is_none_or(|last| last.number < number) {
            if self.minutes.len() == MINUTES {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute {
                number,
                seen: 0,
                kept: Vec::new(),
            });
        }
        let Some(minute) = self.minutes.back_mut() else {
            return;
        };
        minute.seen += 1;
        // Vitter's algorithm R; an id ends in random bits.
        let place = if minute.kept.len() < PER_MINUTE {
            minute.kept.len()
        } else {
            (finished.id.as_u128() as u32 as u64 % minute.seen) as usize
        };
        if place >= PER_MINUTE {
            return;
        }
        let again = self.warm_ups.again(&record.upstream);
        let since = again.and_then(|again| started.duration_since(again).ok());
        let mut call = call(at, finished, &mut self.names);
        call.cold |= since.is_some_and(|since| since < COLD_FOR);
        let sample = Sample { call, verdicts };
        match minute.kept.get_mut(place) {
            Some(kept) => *kept = sample,
            None => minute.kept.push(sample),
        }
    }

    /// Calls since `from` that the objective at an index judged, in the order in which they ended.
    pub fn judged(&self, at: usize, from: f64) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for minute in &self.minutes {
            let weight = minute.seen as f64 / minute.kept.len().max(1) as f64;
            let judged = minute.kept.iter().filter_map(|sample| {
                let bad = sample.verdicts.of(at)?;
                let call = sample.call.clone();
                Some(Call {
                    bad,
                    weight,
                    ..call
                })
            });
            calls.extend(judged.filter(|call| call.at >= from));
        }
        calls.sort_by(|one, other| one.at.total_cmp(&other.at));
        calls
    }

    pub fn moved(&mut self, to: &[Option<usize>]) {
        for sample in self.minutes.iter_mut().flat_map(|minute| &mut minute.kept) {
            sample.verdicts = sample.verdicts.moved(to);
        }
    }

    pub fn clear(&mut self) {
        self.minutes.clear();
    }
}

/// The phases that an indicator depends on; `None` if single calls are not judged.
pub fn phases(sli: Sli) -> Option<Phases> {
    let (errors, first_token, decode) = match sli {
        Sli::Availability => (true, false, false),
        Sli::Ttft(_) => (false, true, false),
        Sli::OutputTps(_) | Sli::InterTokenLatency(_) | Sli::Stalls(_) | Sli::LongestGap(_) => {
            (false, false, true)
        }
        Sli::TotalTps(_) | Sli::TimeToFirstAnswer(_) => (false, true, true),
        Sli::Duration(_) => (true, true, true),
        Sli::CostUsd(_) => (false, false, false),
        Sli::Throughput(_) => return None,
    };
    Some(Phases {
        errors,
        first_token,
        decode,
    })
}

fn call(at: f64, finished: &FinishedCall, known: &mut HashSet<Arc<str>>) -> Call {
    let record = &finished.record;
    let names = Finished::of(finished).names();
    let mut held = |name: &str| hold(known, name);
    let node = record.endpoint.as_deref();
    let prompt = record.tokens.reported;
    let uncached = prompt
        .input
        .map(|input| input.saturating_sub(prompt.cached_input.unwrap_or(0)));
    let seconds = &record.seconds;
    let loading = record.engine.and_then(|engine| engine.load_seconds);
    let loads = loading
        .zip(seconds.ttft_upstream)
        .is_some_and(|(loading, ttft)| loading >= LOADING * ttft);
    let waited = seconds
        .duration
        .filter(|_| record.tokens.normalised.output.unwrap_or(0) == 0);
    Call {
        at,
        weight: 1.0,
        bad: false,
        names: [
            Some(held(names.upstream)),
            names.model.map(&mut held),
            Some(held(names.route)),
            names.agent.map(&mut held),
            node.map(&mut held),
        ],
        prompt_tokens: uncached.or(record.tokens.normalised.input),
        output_tokens: record.tokens.normalised.output,
        concurrency: finished.concurrency,
        cold: record.warm_up || loads,
        error: error(finished).map(|kind| held(&kind)),
        connect: seconds.connect,
        first_token: seconds.ttft_upstream.or(waited),
        prefill: record.engine.and_then(|engine| engine.prompt_seconds),
        gap: finished
            .inter_token
            .as_deref()
            .and_then(median)
            .or_else(|| {
                let speed = record.tps.output.filter(|speed| *speed > 0.0);
                speed.map(|speed| 1.0 / speed)
            }),
        stalls: record.stalls,
        longest_gap: seconds.longest_gap,
    }
}

fn hold(known: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = known.get(name) {
        return Arc::clone(known);
    }
    if known.len() >= MAX_NAMES {
        known.clear();
    }
    let name: Arc<str> = Arc::from(name);
    known.insert(Arc::clone(&name));
    name
}

/// The error of the upstream, if any: the reason, and the status or the type of error.
fn error(finished: &FinishedCall) -> Option<String> {
    let record = &finished.record;
    let reason = fault(record)?;
    let detail = match reason {
        Reason::HttpError => record.status.map(|status| status.to_string()),
        _ => record.error_type.clone(),
    };
    let reason = reason.as_str();
    Some(match detail {
        Some(detail) if detail != reason => format!("{reason} {detail}"),
        _ => reason.to_owned(),
    })
}

fn median(latencies: &InterToken) -> Option<f64> {
    let half = latencies.tokens().div_ceil(2);
    let mut counted = 0;
    latencies.classes().find_map(|(latency, tokens)| {
        counted += u64::from(tokens);
        (counted >= half).then_some(latency)
    })
}
