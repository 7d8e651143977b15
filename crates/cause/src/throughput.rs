//! Why an objective on throughput is missed: fewer calls are under way or each of them is slower, and whose tokens are missing.

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

/// The fewest minutes on either side of the onset.
pub const MIN_MINUTES: usize = 3;
/// By what share of it throughput fell, at least.
const MIN_LOSS: f64 = 0.1;
/// The part of the loss from which on fewer calls are what it comes from; with no more than the rest of it, slower ones are.
const MOST: f64 = 0.7;
/// The part of the loss that errors make, at least, to be what it comes from.
const BY_ERRORS: f64 = 0.5;
/// The share of the lost tokens that a value has, at least, to stand out.
const MIN_LOST: f64 = 0.6;
/// By how much that is more than its share of the tokens before, at least.
const MIN_BEYOND: f64 = 0.2;
/// What a value has left of its own tokens, at most.
const LEFT: f64 = 0.8;
/// What is left of a rate, at least, that is about as before.
const AS_MUCH: f64 = 0.85;
/// Rates below it count as this, so that they have a logarithm.
const LEAST: f64 = 1e-9;
/// What makes calls slower, but for errors, which are looked at before.
const PHASES: Phases = Phases {
    errors: false,
    first_token: true,
    decode: true,
};
/// Those who ask come before what is asked where fewer calls are made.
const WHO_ASKS: [Dimension; 3] = [Dimension::Agent, Dimension::Route, Dimension::Model];
const SECONDS: f64 = 60.0;

/// A minute that an objective on throughput judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    /// When it began, seconds since 1970.
    pub begin: f64,
    /// Whether too few tokens came.
    pub bad: bool,
    /// Tokens per second.
    pub throughput: f64,
    /// Calls under way, on average.
    pub under_way: f64,
}

/// Why `minutes`, the oldest first, are bad; `calls` are those of the same objective that ended, in that order. Worked out at
/// `now`.
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

/// How much was lost. Throughput is a product (calls under way times tokens per second of each, calls per second times tokens
/// of each), and parts of a loss are those of its logarithm, since these add up.
struct Loss {
    /// Negative.
    logarithm: f64,
    /// The part that fewer calls under way have.
    fewer: f64,
    /// Tokens per second of a call now, of those before.
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

    /// The part of the loss that a factor has which changed from `was` to `is`.
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

/// The calls before and since throughput fell, and how long either was in seconds.
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
        // What is looked for is common to all of them.
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

    /// Whether at least half of the loss is that of calls that ended with an error.
    fn by_errors(&self, loss: &Loss) -> bool {
        let (moved, _) = signals::compare(self.before, self.during);
        let errors = moved.iter().find(|one| one.signal == Signal::Errors);
        errors.is_some_and(|one| loss.part(1.0 - one.before, 1.0 - one.now) >= BY_ERRORS)
    }

    /// Whether as many calls end as before, but answers are shorter beyond chance, by so much that most of the loss is theirs.
    fn are_shorter(&self, loss: &Loss) -> bool {
        let rate = |calls: &[&Call], seconds: f64| {
            calls.iter().map(|call| call.weight).sum::<f64>() / seconds
        };
        let (was, is) = (lengths(self.before), lengths(self.during));
        rate(self.during, self.seconds.1) >= AS_MUCH * rate(self.before, self.seconds.0)
            && loss.part(mean(&was), mean(&is)) >= MOST
            && mann_whitney(&was, &is).is_ok_and(|test| test.p < LEVEL)
    }

    /// The values that have much more than their share of the lost tokens, the best of each dimension, in the order of those.
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

    /// Whether its share of the tokens of a minute is smaller than before beyond chance, of so many values.
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

/// The lengths of answers that did not fail, in tokens.
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
