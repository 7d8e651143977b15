//! Why an objective on throughput is missed: whether fewer calls are in flight or each is slower, and which calls lost
//! tokens.

use crate::call::{Call, Dimension};
use crate::evidence::LEVEL;
use crate::find::{MIN_REFERENCE, most_frequent_error, of_kind, timestamp};
use crate::mechanism::{Phases, mechanism};
use crate::onset::{Onset, onset};
use crate::rank::has;
use crate::report::{
    Cause, CauseBasis, ComparedWith, Mechanism, MinuteBasis, Rates, Signal, ThroughputChange,
    TokenCandidate, TokenShares,
};
use crate::sentence::of_throughput;
use crate::signals::{self, quantile};
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;
use tokengauge_core::printable::printable;
use tokengauge_core::time::Timestamp;
use tokengauge_stats::rank::mann_whitney;

pub const MIN_MINUTES: usize = 3;
const MIN_LOSS: f64 = 0.1;
/// If fewer calls in flight cause at least this part of the loss, they are the mechanism. If they cause at most the
/// remaining part, slower calls are the mechanism.
const MOST: f64 = 0.7;
/// Errors are the mechanism if they cause at least this part of the loss.
const BY_ERRORS: f64 = 0.5;
/// A value stands out if it has at least this share of the lost tokens.
const MIN_LOST: f64 = 0.6;
/// The share of the lost tokens must exceed the share of the earlier tokens by at least this much.
const MIN_BEYOND: f64 = 0.2;
/// A value that stands out keeps at most this part of its earlier tokens.
const LEFT: f64 = 0.8;
/// A rate is about as before if at least this part of it remains.
const AS_MUCH: f64 = 0.85;
/// Rates below this value count as this value, so that they have a logarithm.
const LEAST: f64 = 1e-9;
const PHASES: Phases = Phases {
    errors: false,
    first_token: true,
    decode: true,
};
/// The dimensions of callers. If fewer calls are made, a caller explains more than what it calls.
const WHO_ASKS: [Dimension; 3] = [Dimension::Agent, Dimension::Route, Dimension::Model];
const SECONDS: f64 = 60.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    /// When the minute began, in seconds since 1970.
    pub begin: f64,
    pub bad: bool,
    pub throughput: f64,
    /// The average number of calls in flight.
    pub under_way: f64,
}

/// Finds why `minutes` are bad. Minutes are in ascending order. `calls` are the calls of the same objective, in the order
/// in which they ended. `now` becomes the time of the result.
pub fn find_throughput(minutes: &[Minute], calls: &[Call], now: SystemTime) -> Cause {
    let bad: Vec<bool> = minutes.iter().map(|minute| minute.bad).collect();
    let place = match onset(&bad, MIN_MINUTES) {
        Onset::At(place) => Some(place),
        Onset::None | Onset::Possible => None,
    };
    let (before, during) = minutes.split_at(place.unwrap_or(0));
    let since = place.and_then(|_| during.first()).map(|first| first.begin);
    let mut cause = Cause {
        since: since.map(timestamp),
        ..Cause::unknown(Timestamp::seconds(now))
    };
    let mut basis = MinuteBasis {
        bad: during.iter().filter(|minute| minute.bad).count(),
        all: during.len(),
        ..MinuteBasis::default()
    };
    if let Some(since) = since {
        let change = ThroughputChange {
            before: rates(before),
            now: rates(during),
        };
        basis.change = Some(change);
        if change.now.tokens_per_second < (1.0 - MIN_LOSS) * change.before.tokens_per_second {
            let begin = before.first().map_or(since, |minute| minute.begin);
            let calls: Vec<&Call> = calls.iter().filter(|call| call.at >= begin).collect();
            let split = calls.partition_point(|call| call.at < since);
            let (of_before, of_during) = calls.split_at(split);
            let seconds = (before.len() as f64 * SECONDS, during.len() as f64 * SECONDS);
            let compared = Compared {
                before: of_before,
                during: of_during,
                seconds,
            };
            compared.explain(&mut cause, &mut basis, change);
        }
    }
    cause.known = cause.dimension.is_some() || cause.mechanism.is_some();
    cause.sentence = printable(&of_throughput(&cause, &basis)).into_owned();
    cause.basis = CauseBasis::Minutes(basis);
    cause
}

fn rates(minutes: &[Minute]) -> Rates {
    let median = |of: fn(&Minute) -> f64| {
        let mut values: Vec<f64> = minutes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.5)
    };
    Rates {
        tokens_per_second: median(|minute| minute.throughput),
        under_way: median(|minute| minute.under_way),
    }
}

/// The loss of throughput. Throughput is a product: calls in flight times tokens per second of each, or calls per second
/// times tokens of each. The parts of a loss are parts of its logarithm, since logarithms add up.
struct Loss {
    logarithm: f64,
    /// The part of the loss that fewer calls in flight cause.
    fewer: f64,
    /// The factor by which the tokens per second of one call changed.
    each: f64,
}

impl Loss {
    fn of(ThroughputChange { before, now }: ThroughputChange) -> Loss {
        let loss = Loss {
            logarithm: ratio(before.tokens_per_second, now.tokens_per_second).ln(),
            fewer: 0.0,
            each: before
                .of_each()
                .zip(now.of_each())
                .map_or(0.0, |(before, now)| ratio(before, now)),
        };
        Loss {
            fewer: loss.part(before.under_way, now.under_way),
            ..loss
        }
    }

    /// The part of the loss that a factor causes by changing from `was` to `is`.
    fn part(&self, was: f64, is: f64) -> f64 {
        ratio(was, is).ln() / self.logarithm
    }

    fn by_fewer_calls(&self) -> bool {
        self.fewer >= MOST && self.each >= AS_MUCH
    }

    fn by_slower_calls(&self) -> bool {
        self.fewer <= 1.0 - MOST
    }
}

fn ratio(was: f64, is: f64) -> f64 {
    is.max(LEAST) / was.max(LEAST)
}

/// The calls before and since the fall of throughput, and the length of both periods in seconds.
struct Compared<'a> {
    before: &'a [&'a Call],
    during: &'a [&'a Call],
    seconds: (f64, f64),
}

impl Compared<'_> {
    fn explain(&self, cause: &mut Cause, basis: &mut MinuteBasis, change: ThroughputChange) {
        let loss = Loss::of(change);
        let enough = self.before.len() >= MIN_REFERENCE && self.during.len() >= MIN_REFERENCE;
        let by_errors = enough && self.by_errors(&loss);
        let fewer = !by_errors && loss.by_fewer_calls();
        if enough {
            basis.candidates = self.lost(if fewer { &WHO_ASKS } else { &Dimension::NAMES });
        }
        let best = basis.candidates.first();
        if let Some(best) = best {
            cause.dimension = Some(best.dimension);
            cause.value = Some(best.value.clone());
        }
        basis.shares = best.map(|best| best.shares);
        let kind = basis.candidates.first().map(TokenCandidate::named);
        let before = of_kind(self.before, kind);
        let mut during: Vec<Call> = of_kind(self.during, kind).into_iter().cloned().collect();
        // All calls of the period count as bad, so that all of them are compared.
        during.iter_mut().for_each(|call| call.bad = true);
        let during: Vec<&Call> = during.iter().collect();
        if before.len() >= MIN_REFERENCE && during.len() >= MIN_REFERENCE {
            cause.compared_with = Some(ComparedWith::Before);
            (cause.moved, cause.unchanged) = signals::compare(&before, &during);
        }
        let slower = mechanism(PHASES, &before, &during, &cause.moved);
        cause.mechanism = match slower {
            _ if by_errors => Some(Mechanism::Errors),
            Some(slower) if loss.by_slower_calls() => Some(slower),
            None if enough && self.are_shorter(&loss) => Some(Mechanism::ShorterAnswers),
            _ => fewer.then_some(Mechanism::FewerCalls),
        };
        if by_errors {
            cause.error = most_frequent_error(&during);
        }
    }

    fn by_errors(&self, loss: &Loss) -> bool {
        let (moved, _) = signals::compare(self.before, self.during);
        let errors = moved.iter().find(|one| one.signal == Signal::Errors);
        errors.is_some_and(|one| loss.part(1.0 - one.before, 1.0 - one.now) >= BY_ERRORS)
    }

    /// Whether shorter answers cause most of the loss: calls end as often as before, and answers are shorter beyond chance.
    fn are_shorter(&self, loss: &Loss) -> bool {
        let rate = |calls: &[&Call], seconds: f64| {
            calls.iter().map(|call| call.weight).sum::<f64>() / seconds
        };
        let (was, is) = (lengths(self.before), lengths(self.during));
        rate(self.during, self.seconds.1) >= AS_MUCH * rate(self.before, self.seconds.0)
            && loss.part(mean(&was), mean(&is)) >= MOST
            && mann_whitney(&was, &is).is_ok_and(|test| test.p < LEVEL)
    }

    /// The best value of each dimension that has much more than its share of the lost tokens, in the order of `dimensions`.
    fn lost(&self, dimensions: &[Dimension]) -> Vec<TokenCandidate> {
        let (was, is) = (
            tokens(self.before) / self.seconds.0,
            tokens(self.during) / self.seconds.1,
        );
        if is >= was {
            return Vec::new();
        }
        let best = dimensions.iter().filter_map(|dimension| {
            let names = self.before.iter().filter_map(|call| call.name(*dimension));
            let names: BTreeSet<&str> = names.map(|name| &**name).collect();
            let values = names.len();
            let found = names.into_iter().filter_map(|value| {
                let one = self.candidate(*dimension, value, (was, is))?;
                self.is_beyond_chance(*dimension, value, values)
                    .then_some(one)
            });
            found.max_by(|one, other| one.shares.of_lost.total_cmp(&other.shares.of_lost))
        });
        best.collect()
    }

    fn candidate(
        &self,
        dimension: Dimension,
        value: &str,
        (was, is): (f64, f64),
    ) -> Option<TokenCandidate> {
        let its = |calls: &[&Call]| -> f64 {
            let its = calls.iter().filter(|call| has(call, dimension, value));
            its.map(|call| tokens_of(call)).sum()
        };
        let its_was = its(self.before) / self.seconds.0;
        let its_is = its(self.during) / self.seconds.1;
        let (lost, before) = ((its_was - its_is) / (was - is), its_was / was);
        let stands_out =
            lost >= MIN_LOST && lost - before >= MIN_BEYOND && its_is <= LEFT * its_was;
        stands_out.then(|| TokenCandidate {
            dimension,
            value: value.to_owned(),
            shares: TokenShares {
                of_lost: lost,
                before,
            },
        })
    }

    /// Whether the value's share of the tokens of a minute fell beyond chance, given the number of `values` compared.
    fn is_beyond_chance(&self, dimension: Dimension, value: &str, values: usize) -> bool {
        let shares = |calls: &[&Call]| {
            let mut minutes: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
            for call in calls {
                let minute = minutes.entry((call.at / SECONDS) as i64).or_default();
                minute.1 += tokens_of(call);
                if has(call, dimension, value) {
                    minute.0 += tokens_of(call);
                }
            }
            let known = minutes.into_values().filter(|(_, all)| *all > 0.0);
            known.map(|(its, all)| its / all).collect::<Vec<f64>>()
        };
        let (was, is) = (shares(self.before), shares(self.during));
        mann_whitney(&was, &is).is_ok_and(|test| test.p * (values as f64) < LEVEL)
    }
}

fn lengths(calls: &[&Call]) -> Vec<f64> {
    let answered = calls.iter().filter(|call| call.error.is_none());
    let tokens = answered.filter_map(|call| call.output_tokens.filter(|tokens| *tokens > 0));
    tokens.map(|tokens| tokens as f64).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len() as f64).max(1.0)
}

fn tokens_of(call: &Call) -> f64 {
    call.weight * call.output_tokens.unwrap_or(0) as f64
}

fn tokens(calls: &[&Call]) -> f64 {
    calls.iter().map(|call| tokens_of(call)).sum()
}
