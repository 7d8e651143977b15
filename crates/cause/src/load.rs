//! Which kind of calls grew in number.

use crate::call::{Call, Dimension};
use crate::evidence::{Tally, beyond_chance, log_likelihood_ratio};
use crate::rank::has;
use crate::report::Load;
use std::collections::BTreeMap;

const MIN_GROWTH: f64 = 1.3;
const MIN_PART: f64 = 0.6;
/// The share of the kind among all calls must have grown by at least this much.
const MIN_SHARE_GROWTH: f64 = 0.15;
/// Callers take precedence over what they call.
const ORDER: [Dimension; 3] = [Dimension::Agent, Dimension::Route, Dimension::Model];

pub(crate) fn growth(before: &[&Call], now: &[&Call]) -> Option<Load> {
    let (was_seconds, is_seconds) = (seconds(before)?, seconds(now)?);
    let (was, is) = (weight(before), weight(now));
    let growth = (is / is_seconds) / (was / was_seconds);
    if growth < MIN_GROWTH {
        return None;
    }
    let more = is / is_seconds - was / was_seconds;
    ORDER.into_iter().find_map(|dimension| {
        let (of_before, of_now) = (by_name(before, dimension), by_name(now, dimension));
        let values = of_now.len();
        of_now.into_iter().find_map(|(value, calls)| {
            let earlier = of_before.get(value).copied().unwrap_or_default();
            let part = (calls / is_seconds - earlier / was_seconds) / more;
            let (share_before, share_now) = (earlier / was, calls / is);
            let tally = |calls: &[&Call]| {
                Tally::of(calls.iter().copied(), |call| has(call, dimension, value))
            };
            let found = part >= MIN_PART
                && share_now - share_before >= MIN_SHARE_GROWTH
                && beyond_chance(log_likelihood_ratio(tally(before), tally(now)), values);
            found.then(|| Load {
                dimension,
                value: value.to_owned(),
                share_before,
                share_now,
                growth,
            })
        })
    })
}

fn seconds(calls: &[&Call]) -> Option<f64> {
    let seconds = calls.last()?.at - calls.first()?.at;
    (seconds > 0.0).then_some(seconds)
}

fn weight(calls: &[&Call]) -> f64 {
    calls.iter().map(|call| call.weight).sum()
}

fn by_name<'a>(calls: &[&'a Call], dimension: Dimension) -> BTreeMap<&'a str, f64> {
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    for call in calls {
        if let Some(name) = call.name(dimension) {
            *weights.entry(name).or_default() += call.weight;
        }
    }
    weights
}
