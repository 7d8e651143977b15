//! Evaluates one comparison over all its series, from a ledger.

use crate::DriftState;
use crate::assess::{assess, span};
use crate::fine::{refine, steps};
use crate::replaced::replace;
use crate::report::Entry;
use crate::settings::{MAX_SERIES, Settings};
use crate::windows::{Hours, before};
use std::time::SystemTime;
use tokengauge_store::ledger::QueryError;
use tokengauge_store::query::{DistributionSelector, DistributionSeries};
use tokengauge_store::stored_calls::StoredCalls;

/// The number of other models of a route that are searched for a replaced model.
const MAX_OTHERS: usize = 5;

/// Evaluates a comparison at an instant. It evaluates at most [`MAX_SERIES`] series with calls in the current window, those
/// with most calls, one at a time to bound memory. Series that are not reached while there is `time_left` count as left
/// out. Blocks.
///
/// # Errors
/// See [`QueryError`].
pub fn evaluate(
    calls: &StoredCalls,
    settings: &Settings,
    now: SystemTime,
    time_left: &dyn Fn() -> bool,
) -> Result<Entry, QueryError> {
    let (since, until) = span(settings, now);
    let all = of_now(calls, settings, until)?;
    let count = all.len();
    let mut found = Vec::new();
    for series in all.into_iter().take(MAX_SERIES) {
        if !time_left() {
            break;
        }
        let hours = calls.hours_of_series(&series, Some(since), Some(until))?;
        let mut one = assess(&series, &hours, settings, now);
        let steps = steps(calls, &one, now)?;
        refine(&mut one, &hours, &steps, settings);
        if one.state == DriftState::Learning {
            let others = others(calls, &series, since, until)?;
            replace(&mut one, &hours, &others, settings, until);
        }
        found.push(one);
    }
    let left_out = count - found.len();
    Ok(Entry::of(settings, now, found, left_out))
}

/// The other models with most calls of a series' route and workload, by hour.
fn others(
    calls: &StoredCalls,
    series: &DistributionSeries,
    since: SystemTime,
    until: SystemTime,
) -> Result<Vec<(DistributionSeries, Hours)>, QueryError> {
    let selector = DistributionSelector {
        model: None,
        route: series.route.clone(),
        workload: series.workload.clone(),
    };
    let found = calls.distributions(&selector, Some(since), Some(until))?;
    let same = |other: &DistributionSeries| {
        other != series && other.route == series.route && other.workload == series.workload
    };
    let mut found: Vec<_> = found.into_iter().filter(|(other, _)| same(other)).collect();
    found.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.calls()));
    let most = found.into_iter().take(MAX_OTHERS);
    most.map(|(other, _)| {
        let hours = calls.hours_of_series(&other, Some(since), Some(until))?;
        Ok((other, hours))
    })
    .collect()
}

fn of_now(
    calls: &StoredCalls,
    settings: &Settings,
    until: SystemTime,
) -> Result<Vec<DistributionSeries>, QueryError> {
    let since = before(until, settings.current);
    let selector = settings.select.in_store();
    let found = calls.distributions(&selector, Some(since), Some(until))?;
    let mut calls: Vec<(u64, DistributionSeries)> = found
        .into_iter()
        .filter(|(series, _)| settings.select.matches(series))
        .map(|(series, distributions)| (distributions.calls(), series))
        .filter(|(calls, _)| *calls > 0)
        .collect();
    calls.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    Ok(calls.into_iter().map(|(_, series)| series).collect())
}
