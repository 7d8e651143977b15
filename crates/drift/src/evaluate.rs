//! One comparison over all its series, asked of a ledger.

use crate::answer::Entry;
use crate::assess::{assess, span};
use crate::fine::{refine, steps};
use crate::settings::{MAX_SERIES, Settings};
use crate::windows::before;
use std::time::SystemTime;
use tokengauge_store::ledger::{QueryError, Reader};
use tokengauge_store::query::DistributionSeries;

/// Evaluates a comparison at an instant: of the series with calls in the current window the [`MAX_SERIES`] with most, one after
/// the other, so that the hours of one alone are in memory. Series that are not reached while there is `time_left` are counted
/// as left out. Blocks.
///
/// # Errors
/// As with every query of the ledger: see [`QueryError`].
pub fn evaluate(
    reader: &Reader,
    settings: &Settings,
    now: SystemTime,
    time_left: &dyn Fn() -> bool,
) -> Result<Entry, QueryError> {
    let (since, until) = span(settings, now);
    let all = of_now(reader, settings, until)?;
    let count = all.len();
    let mut found = Vec::new();
    for series in all.into_iter().take(MAX_SERIES) {
        if !time_left() {
            break;
        }
        let hours = reader.hours_of_series(&series, Some(since), Some(until))?;
        let mut one = assess(&series, &hours, settings, now);
        let steps = steps(reader, &one, now)?;
        refine(&mut one, &hours, &steps, settings);
        found.push(one);
    }
    let left_out = count - found.len();
    Ok(Entry::of(settings, now, found, left_out))
}

/// The series with calls in the current window, those with most first.
fn of_now(
    reader: &Reader,
    settings: &Settings,
    until: SystemTime,
) -> Result<Vec<DistributionSeries>, QueryError> {
    let since = before(until, settings.current);
    let selector = settings.select.in_store();
    let found = reader.distributions(&selector, Some(since), Some(until))?;
    let mut calls: Vec<(u64, DistributionSeries)> = found
        .into_iter()
        .filter(|(series, _)| settings.select.matches(series))
        .map(|(series, distributions)| (distributions.calls(), series))
        .filter(|(calls, _)| *calls > 0)
        .collect();
    calls.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    Ok(calls.into_iter().map(|(_, series)| series).collect())
}
