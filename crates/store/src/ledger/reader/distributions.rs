use super::QueryError;
use super::matching::text;
use crate::ledger::distributions::{HOUR, read};
use crate::ledger::ledger_figures::FiguresReader;
use crate::ledger::row::key_at;
use crate::ledger::unsummed_marks::Marks;
use crate::query::{DistributionSelector, DistributionSeries, Distributions, Signal, hours};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

/// Calls `each` with the distributions of every series and hour that matches. Calls that are not in
/// the hourly distributions yet are passed separately.
pub(super) fn visit(
    connection: &Connection,
    selector: &DistributionSelector,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
    mut each: impl FnMut(&DistributionSeries, i64, Distributions),
) -> Result<(), QueryError> {
    let (from, to) = hours(since, until);
    let mut statement = connection.prepare_cached(
        "SELECT calls, total, sketch, hour, signal, bucket FROM distributions
         WHERE series = ? AND hour >= ? AND hour < ?",
    )?;
    for (id, series) in all_series(connection)? {
        if !selector.matches(&series) {
            continue;
        }
        let mut by_hour: BTreeMap<i64, Distributions> = BTreeMap::new();
        let mut rows = statement.query([id, from, to])?;
        while let Some(row) = rows.next()? {
            let (number, bucket): (i64, i64) = (row.get(4)?, row.get(5)?);
            let place = usize::try_from(number).ok();
            let known = place.and_then(|place| Signal::ALL.get(place).copied());
            if let (Some(signal), Ok(bucket)) = (known, usize::try_from(bucket)) {
                let cell = read(row, signal)?;
                let hour = by_hour.entry(row.get(3)?).or_default();
                hour.cell(signal, bucket).merge(&cell);
            }
        }
        let whole = by_hour.into_iter();
        whole.for_each(|(hour, distributions)| each(&series, hour, distributions));
    }
    unsummed(connection, selector, (from, to), each)
}

/// Distributions of calls that are not in the hourly distributions yet.
fn unsummed(
    connection: &Connection,
    selector: &DistributionSelector,
    (from, to): (i64, i64),
    mut each: impl FnMut(&DistributionSeries, i64, Distributions),
) -> Result<(), QueryError> {
    let mark = Marks::load(connection)?.units;
    let until = mark.min(key_at(to.saturating_mul(1000)));
    let first = key_at(from.saturating_mul(1000));
    if until <= first {
        return Ok(());
    }
    let mut found: HashMap<_, BTreeMap<i64, Distributions>> = HashMap::new();
    let condition = "key >= ? AND key < ?";
    FiguresReader::new(connection).read(condition, [first, until], |call| {
        if call.figures.counts() {
            let second = call.figures.started_us.div_euclid(1_000_000);
            let hour = second - second.rem_euclid(HOUR);
            let hours = found.entry(call.series).or_default();
            hours.entry(hour).or_default().add(&call.figures);
        }
    })?;
    for (key, by_hour) in found {
        let series = named(connection, key)?;
        if selector.matches(&series) {
            let whole = by_hour.into_iter();
            whole.for_each(|(hour, distributions)| each(&series, hour, distributions));
        }
    }
    Ok(())
}

fn all_series(connection: &Connection) -> rusqlite::Result<Vec<(i64, DistributionSeries)>> {
    let mut statement =
        connection.prepare_cached("SELECT id, model, route, workload FROM distribution_series")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let key = [row.get(1)?, row.get(2)?, row.get(3)?];
        all.push((row.get(0)?, named(connection, key)?));
    }
    Ok(all)
}

fn named(connection: &Connection, key: [i64; 3]) -> rusqlite::Result<DistributionSeries> {
    let [model, route, workload] = key;
    Ok(DistributionSeries {
        model: text(connection, Some(model))?,
        route: text(connection, Some(route))?,
        workload: text(connection, Some(workload))?,
    })
}
