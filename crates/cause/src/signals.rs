//! Which figures differ between two sets of calls.

use crate::call::Call;
use crate::evidence::{Tally, beyond_chance, log_likelihood_ratio};
use crate::report::{Moved, Quantile, Signal};
use tokengauge_stats::rank::mann_whitney;

/// A quantile has moved if it grew by at least this factor.
const MIN_RATIO: f64 = 1.3;
/// A quantile is unchanged within this factor in both directions.
const SAME_RATIO: f64 = 1.15;
/// A share of calls has moved if it grew by at least this much.
const MIN_SHARE: f64 = 0.1;
/// The p value of a Mann–Whitney test below which two samples differ. Over all signals the error is below 0.01.
const MAX_P: f64 = 0.001;
const MIN_VALUES: usize = 10;

const SIGNALS: [Signal; 8] = [
    Signal::Errors,
    Signal::Connect,
    Signal::FirstToken,
    Signal::InterTokenGap,
    Signal::Stalls,
    Signal::Concurrency,
    Signal::PromptTokens,
    Signal::ColdStarts,
];

/// The signals that grew from `before` to `now`, and the signals that did not change.
pub(crate) fn compare(before: &[&Call], now: &[&Call]) -> (Vec<Moved>, Vec<Signal>) {
    let (mut moved, mut unchanged) = (Vec::new(), Vec::new());
    for signal in SIGNALS {
        let found = match property(signal) {
            Some(has) => share(signal, before, now, has),
            None => figure(signal, before, now),
        };
        match found {
            SignalVerdict::Moved(found) => moved.push(found),
            SignalVerdict::Same => unchanged.push(signal),
            SignalVerdict::Unclear => {}
        }
    }
    (moved, unchanged)
}

enum SignalVerdict {
    Moved(Moved),
    Same,
    Unclear,
}

fn property(signal: Signal) -> Option<fn(&Call) -> bool> {
    match signal {
        Signal::Errors => Some(|call| call.error.is_some()),
        Signal::Stalls => Some(|call| call.stalls > 0),
        Signal::ColdStarts => Some(|call| call.cold),
        _ => None,
    }
}

/// The value of a signal that is not a share.
pub(crate) fn value(signal: Signal, call: &Call) -> Option<f64> {
    match signal {
        Signal::Connect => call.connect,
        Signal::FirstToken => call.first_token,
        Signal::InterTokenGap => call.gap,
        Signal::Concurrency => Some(f64::from(call.concurrency)),
        Signal::PromptTokens => call.prompt_tokens.map(|tokens| tokens as f64),
        Signal::Errors | Signal::Stalls | Signal::ColdStarts => None,
    }
}

fn least_difference(signal: Signal) -> f64 {
    match signal {
        Signal::Connect => 0.005,
        Signal::FirstToken => 0.02,
        Signal::InterTokenGap => 0.001,
        _ => 1.0,
    }
}

pub(crate) fn sorted(signal: Signal, calls: &[&Call]) -> Vec<f64> {
    let values = calls.iter().filter_map(|call| value(signal, call));
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

fn share(signal: Signal, before: &[&Call], now: &[&Call], has: fn(&Call) -> bool) -> SignalVerdict {
    let tally = |calls: &[&Call]| Tally::of(calls.iter().copied(), has);
    let (was, is) = (tally(before), tally(now));
    let grew = is.rate() - was.rate();
    if grew >= MIN_SHARE && beyond_chance(log_likelihood_ratio(was, is), SIGNALS.len()) {
        return SignalVerdict::Moved(Moved {
            signal,
            of: Quantile::Share,
            before: was.rate(),
            now: is.rate(),
        });
    }
    if grew.abs() < MIN_SHARE / 2.0 {
        SignalVerdict::Same
    } else {
        SignalVerdict::Unclear
    }
}

fn figure(signal: Signal, before: &[&Call], now: &[&Call]) -> SignalVerdict {
    let (was, is) = (sorted(signal, before), sorted(signal, now));
    if was.len() < MIN_VALUES || is.len() < MIN_VALUES {
        return SignalVerdict::Unclear;
    }
    let differs = mann_whitney(&was, &is).is_ok_and(|test| test.p < MAX_P);
    let (half, tail) = (
        (quantile(&was, 0.5), quantile(&is, 0.5)),
        (quantile(&was, 0.9), quantile(&is, 0.9)),
    );
    let grew =
        |(was, is): (f64, f64)| is >= MIN_RATIO * was && is - was >= least_difference(signal);
    let moved = |of, (before, now)| {
        SignalVerdict::Moved(Moved {
            signal,
            of,
            before,
            now,
        })
    };
    if differs && grew(half) {
        return moved(Quantile::P50, half);
    }
    if grew(tail) && tail_differs(&was, &is) {
        return moved(Quantile::P90, tail);
    }
    let (was, is) = half;
    let close = (is - was).abs() < least_difference(signal)
        || (is <= SAME_RATIO * was && was <= SAME_RATIO * is);
    if close && !grew(tail) {
        SignalVerdict::Same
    } else {
        SignalVerdict::Unclear
    }
}

/// Whether more values exceed the earlier 90th percentile than chance explains.
fn tail_differs(was: &[f64], is: &[f64]) -> bool {
    let bound = MIN_RATIO * quantile(was, 0.9);
    let above = |values: &[f64]| Tally::of(values, |value| *value > bound);
    let (was, is) = (above(was), above(is));
    is.rate() > was.rate() && beyond_chance(log_likelihood_ratio(was, is), SIGNALS.len())
}
