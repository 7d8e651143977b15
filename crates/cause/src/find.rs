//! Finds the cause of bad calls.

use crate::call::{Call, Dimension};
use crate::evidence::Tally;
use crate::load;
use crate::mechanism::{self, Phases};
use crate::onset::{Onset, onset};
use crate::rank::{has, rank};
use crate::report::{
    CallBasis, CallCandidate, CallShares, Cause, CauseBasis, ComparedWith, Load, MIN_BAD,
    MIN_CALLS, Mechanism, Signal,
};
use crate::sentence::sentence;
use crate::signals;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokengauge_core::printable::printable;
use tokengauge_core::time::Timestamp;

pub const MIN_REFERENCE: usize = 20;
/// The newest bad calls have the same cause as all bad calls if the share of the kind that stands out is nearly as high
/// among them: at least this part of its share among all bad calls.
const SAME_SHARE: f64 = 0.8;

/// Finds why `calls` are bad. Calls are in the order in which they ended, and `phases` are the phases that the objective depends on.
/// `now` becomes the time of the result.
pub fn find(calls: &[Call], phases: Phases, now: SystemTime) -> Cause {
    let bad: Vec<bool> = calls.iter().map(|call| call.bad).collect();
    let onset = onset(&bad, MIN_REFERENCE);
    let since = match onset {
        Onset::At(place) => Some(by_kind(calls, place)),
        Onset::None | Onset::Possible => None,
    };
    let (before, during) = calls.split_at(since.unwrap_or(0));
    let before: Vec<&Call> = before.iter().collect();
    let during: Vec<&Call> = during.iter().collect();
    let mut cause = Cause {
        since: since
            .and_then(|place| calls.get(place))
            .map(|call| timestamp(call.at)),
        ..Cause::unknown(Timestamp::seconds(now))
    };
    let mut basis = CallBasis {
        bad: during.iter().filter(|call| call.bad).count(),
        all: during.len(),
        ..CallBasis::default()
    };
    // If calls may have become worse only now, the earlier bad calls may have another cause.
    let may_have_begun = match onset {
        Onset::At(_) => false,
        Onset::Possible => true,
        Onset::None => newest_differ(&during),
    };
    if basis.all >= MIN_CALLS && basis.bad >= MIN_BAD && !may_have_begun {
        explain(&mut cause, &mut basis, phases, &before, &during);
    }
    cause.known = cause.dimension.is_some() || cause.mechanism.is_some();
    cause.sentence = printable(&sentence(&cause, &basis, may_have_begun)).into_owned();
    cause.basis = CauseBasis::Calls(basis);
    cause
}

/// Whether the kind that stands out among all bad calls is rarer among the newest bad calls.
fn newest_differ(calls: &[&Call]) -> bool {
    let (names, classes) = rank(calls);
    let Some(best) = names.first().or(classes.first()) else {
        return false;
    };
    let bad = calls.iter().rev().filter(|call| call.bad);
    let newest = Tally::of(bad.take(MIN_BAD).copied(), |call| {
        has(call, best.dimension, &best.value)
    });
    newest.rate() < SAME_SHARE * best.share_of_bad
}

/// The onset among only the calls of the kind that stands out. Other calls that are bad by chance would shift the onset.
fn by_kind(calls: &[Call], place: usize) -> usize {
    let during: Vec<&Call> = calls.iter().skip(place).collect();
    let Some(best) = rank(&during).0.into_iter().next() else {
        return place;
    };
    let places = (0..calls.len()).filter(|at| has(&calls[*at], best.dimension, &best.value));
    let places: Vec<usize> = places.collect();
    let bad: Vec<bool> = places.iter().map(|at| calls[*at].bad).collect();
    match onset(&bad, MIN_REFERENCE) {
        Onset::At(found) => places
            .get(found)
            .copied()
            .filter(|found| calls.len() - found >= MIN_CALLS)
            .unwrap_or(place),
        Onset::None | Onset::Possible => place,
    }
}

fn explain(
    cause: &mut Cause,
    basis: &mut CallBasis,
    phases: Phases,
    before: &[&Call],
    during: &[&Call],
) {
    let (names, classes) = rank(during);
    let best = names.first().or(classes.first()).cloned();
    let kind = best.as_ref().map(CallCandidate::named);
    let focus = of_kind(during, kind);
    if let Some(best) = &best {
        let share_before = (before.len() >= MIN_REFERENCE)
            .then(|| of_kind(before, kind).len() as f64 / before.len() as f64);
        if !Dimension::CLASSES.contains(&best.dimension) {
            basis.besides = rank(&focus).1.into_iter().next();
        }
        cause.dimension = Some(best.dimension);
        cause.value = Some(best.value.clone());
        basis.shares = Some(CallShares {
            of_bad: best.share_of_bad,
            of_all: best.share_of_all,
            before: share_before,
        });
    }
    let (compared_with, reference) = reference(of_kind(before, kind), before, during, kind);
    if reference.len() >= MIN_REFERENCE {
        cause.compared_with = Some(compared_with);
        (cause.moved, cause.unchanged) = signals::compare(&reference, &focus);
        cause.mechanism = mechanism::mechanism(phases, &reference, &focus, &cause.moved);
    } else {
        cause.mechanism = mechanism::mechanism(phases, &[], &focus, &[]);
    }
    if cause.mechanism == Some(Mechanism::Errors) {
        cause.error = most_frequent_error(&focus);
    }
    let waits = matches!(
        cause.mechanism,
        Some(Mechanism::Queue | Mechanism::FirstToken)
    );
    let busier = cause
        .moved
        .iter()
        .any(|one| one.signal == Signal::Concurrency);
    if waits || (busier && cause.mechanism.is_some()) {
        cause.load = load::growth(before, during);
    }
    if let Some(load) = cause.load.clone() {
        by_load(cause, basis, &load, during);
    }
    let more = basis
        .shares
        .is_some_and(|shares| mechanism::more_of_them(shares.before, shares.of_all));
    if cause.mechanism.is_none() && more {
        cause.mechanism = Some(Mechanism::Traffic);
    }
    basis.candidates = names.into_iter().chain(classes).collect();
}

pub(crate) fn most_frequent_error(calls: &[&Call]) -> Option<String> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in calls.iter().filter_map(|call| call.error.as_deref()) {
        *kinds.entry(kind).or_default() += 1;
    }
    let most = kinds.into_iter().max_by_key(|(_, count)| *count)?;
    Some(most.0.to_owned())
}

/// Names the kind of calls whose growth makes all calls wait. High concurrency is only a consequence of that growth.
fn by_load(cause: &mut Cause, basis: &mut CallBasis, load: &Load, during: &[&Call]) {
    let by_name = cause
        .dimension
        .is_some_and(|dimension| Dimension::NAMES.contains(&dimension));
    if by_name {
        return;
    }
    let its = |call: &&&Call| has(call, load.dimension, &load.value);
    let bad = during.iter().filter(|call| call.bad);
    cause.dimension = Some(load.dimension);
    cause.value = Some(load.value.clone());
    basis.shares = Some(CallShares {
        of_bad: bad.filter(its).count() as f64 / basis.bad.max(1) as f64,
        of_all: load.share_now,
        before: Some(load.share_before),
    });
}

/// The calls to compare with: earlier calls of the same kind, otherwise other calls of the same time, otherwise all earlier
/// calls.
fn reference<'a>(
    same_before: Vec<&'a Call>,
    before: &[&'a Call],
    during: &[&'a Call],
    kind: Option<(Dimension, &str)>,
) -> (ComparedWith, Vec<&'a Call>) {
    if same_before.len() >= MIN_REFERENCE {
        return (ComparedWith::Before, same_before);
    }
    let others = kind.map_or(Vec::new(), |(dimension, value)| {
        select(during, |call| !has(call, dimension, value))
    });
    if others.len() >= MIN_REFERENCE {
        (ComparedWith::Others, others)
    } else {
        (ComparedWith::Before, before.to_vec())
    }
}

pub(crate) fn of_kind<'a>(calls: &[&'a Call], kind: Option<(Dimension, &str)>) -> Vec<&'a Call> {
    select(calls, |call| {
        kind.is_none_or(|(dimension, value)| has(call, dimension, value))
    })
}

fn select<'a>(calls: &[&'a Call], is: impl Fn(&Call) -> bool) -> Vec<&'a Call> {
    calls.iter().copied().filter(|call| is(call)).collect()
}

pub(crate) fn timestamp(since_1970: f64) -> Timestamp {
    Timestamp::seconds(UNIX_EPOCH + Duration::from_secs_f64(since_1970.max(0.0)))
}
