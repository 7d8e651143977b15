//! Which values of which dimensions have more than their share of the bad calls.

use crate::call::{Call, Dimension};
use crate::evidence::{Tally, beyond_chance, log_likelihood_ratio};
use crate::report::CallCandidate;
use std::collections::BTreeMap;

/// A candidate must explain at least this share of the bad calls.
const MIN_EXPLAINED: f64 = 0.5;
/// Calls with the value must be bad at least this many times as often as other calls.
const MIN_LIFT: f64 = 2.0;
/// Among names whose correlation is at least this part of the best correlation, the first in the order of dimensions wins.
const ALIKE: f64 = 0.95;
/// Names whose log-likelihood ratio is at most this much below the best (a factor of 20) are also preferred by that order.
const AS_LIKELY: f64 = 3.0;
const MOST: usize = 5;

/// The candidates among names and the candidates among classes, the best first.
pub(crate) fn rank(calls: &[&Call]) -> (Vec<CallCandidate>, Vec<CallCandidate>) {
    let all = Tally::of(calls.iter().copied(), |call| call.bad);
    let names = Dimension::NAMES.iter().flat_map(|dimension| {
        let tallies = by_name(calls, *dimension).into_iter();
        tallies.map(|(value, tally)| (*dimension, value.to_owned(), tally))
    });
    let names: Vec<_> = names.collect();
    let classes = Dimension::CLASSES.iter().flat_map(|dimension| {
        let tallies = from_class(calls, *dimension).into_iter();
        tallies.map(|(class, tally)| (*dimension, dimension.class_name(class), tally))
    });
    let classes: Vec<_> = classes.collect();
    let comparisons = names.len() + classes.len();
    let judged = |values: Vec<(Dimension, String, Tally)>| {
        let mut found: Vec<(f64, CallCandidate)> = values
            .into_iter()
            .filter_map(|(dimension, value, tally)| {
                candidate(dimension, value, tally, all, comparisons)
            })
            .collect();
        found.sort_by(|(_, one), (_, other)| other.correlation.total_cmp(&one.correlation));
        prefer_first(&mut found);
        found.truncate(MOST);
        found.into_iter().map(|(_, candidate)| candidate).collect()
    };
    (judged(names), judged(classes))
}

/// Among the candidates that are about as good as the best, moves the first in the order of dimensions to the front.
fn prefer_first(found: &mut [(f64, CallCandidate)]) {
    let Some((most, best)) = found
        .first()
        .map(|(ratio, first)| (*ratio, first.correlation))
    else {
        return;
    };
    let alike = |ratio: f64, one: &CallCandidate| {
        one.correlation >= ALIKE * best || ratio >= most - AS_LIKELY
    };
    // The stable sort keeps the other candidates in order.
    found.sort_by_key(|(ratio, one)| {
        if alike(*ratio, one) {
            (false, one.dimension)
        } else {
            (true, Dimension::Concurrency)
        }
    });
}

fn by_name<'a>(calls: &[&'a Call], dimension: Dimension) -> BTreeMap<&'a str, Tally> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for call in calls {
        if let Some(name) = call.name(dimension) {
            tallies.entry(name).or_default().add(call.bad);
        }
    }
    tallies
}

/// For each class, the calls of this and all higher classes. The lowest class is absent, since it stands for all calls.
fn from_class(calls: &[&Call], dimension: Dimension) -> BTreeMap<usize, Tally> {
    let mut classes: Vec<usize> = calls
        .iter()
        .filter_map(|call| call.class(dimension))
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let from = |class: usize| {
        let above = calls
            .iter()
            .filter(|call| call.class(dimension).is_some_and(|of| of >= class));
        (class, Tally::of(above.copied(), |call| call.bad))
    };
    classes.into_iter().skip(1).map(from).collect()
}

fn candidate(
    dimension: Dimension,
    value: String,
    its: Tally,
    all: Tally,
    comparisons: usize,
) -> Option<(f64, CallCandidate)> {
    let others = all.without(its);
    if its.with == 0 || others.all == 0 {
        return None;
    }
    let explained = (its.with as f64 - its.all as f64 * others.rate()) / (all.with as f64).max(1.0);
    let ratio = log_likelihood_ratio(its, others);
    let stands_out = explained >= MIN_EXPLAINED
        && its.rate() >= MIN_LIFT * others.rate()
        && beyond_chance(ratio, comparisons);
    let found = || CallCandidate {
        dimension,
        value,
        share_of_bad: its.with as f64 / all.with as f64,
        share_of_all: its.all as f64 / all.all as f64,
        explained,
        correlation: correlation(its, all),
    };
    stands_out.then(|| (ratio, found()))
}

fn correlation(its: Tally, all: Tally) -> f64 {
    let share = |count: usize| count as f64 / all.all as f64;
    let (has, bad, both) = (share(its.all), share(all.with), share(its.with));
    let spread = (has * (1.0 - has) * bad * (1.0 - bad)).sqrt();
    if spread > 0.0 {
        (both - has * bad) / spread
    } else {
        0.0
    }
}

pub(crate) fn has(call: &Call, dimension: Dimension, value: &str) -> bool {
    match call.class(dimension) {
        None => call.name(dimension).is_some_and(|name| **name == *value),
        Some(class) => (0..=class).any(|class| dimension.class_name(class) == value),
    }
}
