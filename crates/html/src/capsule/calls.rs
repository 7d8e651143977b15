//! The worst of many calls.

use std::cmp::Ordering;
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::model_of;
use tokengauge_slo::{Cause, Dimension};

pub const SHOWN: usize = 20;

/// Sorts calls by how bad they are: calls that the cause names, then failed calls, then by stalls, then by duration.
pub fn worst(mut calls: Vec<CallRecord>, cause: Option<&Cause>) -> Vec<CallRecord> {
    let named = cause.and_then(named_by);
    let other = |call: &CallRecord| named.is_some_and(|named| !is_of(call, named));
    calls.sort_by(|one, two| other(one).cmp(&other(two)).then(compare(one, two)));
    calls.truncate(SHOWN);
    calls
}

/// The dimension and value that a cause names, if the value is a name.
pub(super) fn named_by(cause: &Cause) -> Option<(Dimension, &str)> {
    let named = cause.dimension.zip(cause.value.as_deref());
    named.filter(|(dimension, _)| cause.known && Dimension::NAMES.contains(dimension))
}

fn is_of(call: &CallRecord, (dimension, value): (Dimension, &str)) -> bool {
    let its = match dimension {
        Dimension::Upstream => Some(&*call.upstream),
        Dimension::Model => model_of(call),
        Dimension::Route => Some(&*call.route),
        Dimension::Agent => call.agent.as_deref(),
        Dimension::Node => call.endpoint.as_deref(),
        Dimension::PromptLength | Dimension::Concurrency => None,
    };
    its == Some(value)
}

fn compare(one: &CallRecord, other: &CallRecord) -> Ordering {
    let took = |call: &CallRecord| call.seconds.duration.unwrap_or(0.0);
    let failed = other.outcome.is_failure().cmp(&one.outcome.is_failure());
    let stalls = other.stalls.cmp(&one.stalls);
    let slower = took(other).total_cmp(&took(one));
    failed.then(stalls).then(slower).then(one.id.cmp(&other.id))
}
