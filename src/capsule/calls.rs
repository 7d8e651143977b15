//! The worst of many calls.

use crate::call::CallRecord;
use std::cmp::Ordering;

/// How many of them are shown.
pub(crate) const SHOWN: usize = 20;

/// The worst first: those that failed, then by stalls, then by the time that they took.
pub(crate) fn worst(mut calls: Vec<CallRecord>) -> Vec<CallRecord> {
    calls.sort_by(compare);
    calls.truncate(SHOWN);
    calls
}

fn compare(one: &CallRecord, other: &CallRecord) -> Ordering {
    let took = |call: &CallRecord| call.seconds.duration.unwrap_or(0.0);
    let failed = other.outcome.is_failure().cmp(&one.outcome.is_failure());
    let stalls = other.stalls.cmp(&one.stalls);
    let slower = took(other).total_cmp(&took(one));
    failed.then(stalls).then(slower).then(one.id.cmp(&other.id))
}
