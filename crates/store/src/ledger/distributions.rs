//! Distributions by hour of each model, route and workload, updated with every batch. The number of
//! combinations and the number of classes of a sketch are bounded.

use super::dictionary::{Dictionary, NameKind, OTHER};
use super::row::whole;
use crate::figures::CallFigures;
use crate::query::Dimension;
use crate::query::{Distribution, Distributions, Signal};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of combinations of model, route and workload. In further ones model and workload
/// are `other`.
const MAX_SERIES: usize = 2_000;
pub(super) const HOUR: i64 = 3_600;

/// Ids of model, route and workload; 0 for a missing name.
pub(super) type SeriesKey = [i64; 3];

/// The series in use. Must be loaded again after a failed transaction.
#[derive(Debug)]
pub(super) struct SeriesIds {
    ids: HashMap<SeriesKey, i64>,
    next: i64,
    max: usize,
}

impl SeriesIds {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<SeriesIds> {
        connection.execute(
            "DELETE FROM distribution_series WHERE NOT EXISTS
             (SELECT 1 FROM distributions WHERE series = distribution_series.id)",
            [],
        )?;
        let mut series = SeriesIds {
            ids: HashMap::new(),
            next: 1,
            max: MAX_SERIES,
        };
        let mut statement =
            connection.prepare("SELECT id, model, route, workload FROM distribution_series")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            series
                .ids
                .insert([row.get(1)?, row.get(2)?, row.get(3)?], id);
            series.next = series.next.max(id + 1);
        }
        Ok(series)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = i64> + '_ {
        self.ids.values().copied()
    }

    fn id(
        &mut self,
        connection: &Connection,
        key: SeriesKey,
        dictionary: &mut Dictionary,
    ) -> rusqlite::Result<i64> {
        let mut key = key;
        if !self.ids.contains_key(&key) && self.ids.len() >= self.max {
            dictionary.collapsed += 1;
            let [model, route, _] = key;
            key = [
                model,
                route,
                dictionary.name(connection, NameKind::Of(Dimension::Workload), OTHER)?,
            ];
            if model != 0 {
                key[0] = dictionary.name(connection, NameKind::Of(Dimension::Model), OTHER)?;
            }
        }
        if let Some(id) = self.ids.get(&key) {
            return Ok(*id);
        }
        let id = self.next;
        let [model, route, workload] = key;
        connection
            .prepare_cached("INSERT INTO distribution_series VALUES (?, ?, ?, ?)")?
            .execute([id, model, route, workload])?;
        self.ids.insert(key, id);
        self.next = id + 1;
        Ok(id)
    }
}

#[derive(Debug, Default)]
pub(super) struct HourlyDistributions {
    hours: BTreeMap<(SeriesKey, i64), Distributions>,
}

impl HourlyDistributions {
    pub(super) fn add(&mut self, key: SeriesKey, call: &CallFigures) {
        if call.counts() {
            let second = call.started_us.div_euclid(1_000_000);
            let hour = second - second.rem_euclid(HOUR);
            self.hours.entry((key, hour)).or_default().add(call);
        }
    }

    pub(super) fn save(
        self,
        connection: &Connection,
        series: &mut SeriesIds,
        dictionary: &mut Dictionary,
    ) -> rusqlite::Result<()> {
        let mut find = connection.prepare_cached(
            "SELECT calls, total, sketch FROM distributions
             WHERE series = ? AND hour = ? AND signal = ? AND bucket = ?",
        )?;
        let mut put = connection
            .prepare_cached("INSERT OR REPLACE INTO distributions VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        for ((key, hour), distributions) in self.hours {
            let id = series.id(connection, key, dictionary)?;
            for (signal, bucket, cell) in distributions.cells() {
                let (number, bucket) = (signal as i64, bucket as i64);
                let found = find.query_row([id, hour, number, bucket], |row| read(row, signal));
                let mut sums = cell.clone();
                if let Some(found) = found.optional()? {
                    sums.merge(&found);
                }
                let (calls, total) = (whole(sums.calls), sums.total);
                let sketch = sums.sketch.encode();
                put.execute(params![id, hour, number, bucket, calls, total, sketch])?;
            }
        }
        Ok(())
    }
}

pub(super) fn read(row: &Row<'_>, signal: Signal) -> rusqlite::Result<Distribution> {
    let calls = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
    let mut cell = Distribution::of_sums(signal, calls, row.get(1)?);
    if let Some(bytes) = row.get_ref(2)?.as_blob_or_null()? {
        cell.sketch.merge_encoded(bytes);
    }
    Ok(cell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerDatabase;

    #[test]
    fn series_beyond_the_bound_share_one_and_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut dictionary = Dictionary::load(connection).expect("names");
        let mut series = SeriesIds {
            max: 2,
            ..SeriesIds::load(connection).expect("series")
        };
        let mut id = |model| {
            let id = series.id(connection, [model, 900, 0], &mut dictionary);
            id.expect("an id")
        };
        let ids = [101, 102, 103, 104, 101].map(&mut id);
        assert_eq!(ids, [1, 2, 3, 3, 1]);
        assert_eq!(dictionary.collapsed, 2);
        assert_eq!(series.all().count(), 3);
    }
}
