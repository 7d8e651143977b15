//! The sums of experiments by unit, updated with every batch. The number of units of an experiment
//! and of all experiments is bounded. Calls of further units are counted in one row of the
//! experiment.

use super::row::whole;
use crate::figures::CallFigures;
use crate::query::{COUNTS, UnitSums};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of units of an experiment: combinations of variant, session, agent and user.
const MAX_UNITS: usize = 100_000;
const MAX_ROWS: usize = 500_000;
/// Id of variant, session, agent and user for units beyond the bound.
pub(super) const COLLAPSED: i64 = -1;

/// Ids of experiment, variant, session, agent and user; 0 for a missing name.
pub(super) type UnitKey = [i64; 5];

/// The columns of the sums, in the order of [`read`].
pub(super) const COLUMNS: &str = "first_us, last_us, first_prompt, ttft, tps, calls, errors, \
    warm_up_calls, input_tokens, cached_input_tokens, output_tokens, cost_nano_usd, priced_calls, \
    decode_tokens, decode_us, tps_unavailable, ttft_us, duration_us, truncated, refused, empty, \
    cut_off, invalid_tool_calls";

/// Number of units. Must be loaded again after a failed transaction.
#[derive(Debug)]
pub(super) struct UnitCounts {
    by_experiment: HashMap<i64, usize>,
    all: usize,
    max_units: usize,
    max_rows: usize,
}

impl UnitCounts {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<UnitCounts> {
        let mut counts = UnitCounts {
            by_experiment: HashMap::new(),
            all: 0,
            max_units: MAX_UNITS,
            max_rows: MAX_ROWS,
        };
        let mut statement = connection
            .prepare("SELECT experiment, count(*) FROM experiment_units GROUP BY experiment")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let units = usize::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            counts.by_experiment.insert(row.get(0)?, units);
            counts.all += units;
        }
        Ok(counts)
    }

    fn admit(&mut self, experiment: i64) -> bool {
        let units = self.by_experiment.entry(experiment).or_default();
        let room = *units < self.max_units && self.all < self.max_rows;
        if room {
            *units += 1;
            self.all += 1;
        }
        room
    }

    pub(super) fn gone(&mut self, experiment: i64) {
        if let Some(units) = self.by_experiment.get_mut(&experiment) {
            *units = units.saturating_sub(1);
        }
        self.all = self.all.saturating_sub(1);
    }
}

#[derive(Debug, Default)]
pub(super) struct Units {
    sums: BTreeMap<UnitKey, UnitSums>,
}

impl Units {
    pub(super) fn add(&mut self, key: UnitKey, call: &CallFigures) {
        if call.counts() {
            let sums = self.sums.entry(key).or_default();
            sums.merge(&UnitSums::of(call));
        }
    }

    /// Writes the units. Returns the number of calls of units beyond the bound.
    pub(super) fn save(
        self,
        connection: &Connection,
        counts: &mut UnitCounts,
    ) -> rusqlite::Result<u64> {
        let mut find = connection.prepare_cached(&find_sql())?;
        let mut put = connection.prepare_cached(&put_sql())?;
        let mut collapsed: BTreeMap<UnitKey, UnitSums> = BTreeMap::new();
        for (key, mut sums) in self.sums {
            if let Some(found) = find.query_row(key, read).optional()? {
                sums.merge(&found);
            } else if !counts.admit(key[0]) {
                let beyond = [key[0], COLLAPSED, COLLAPSED, COLLAPSED, COLLAPSED];
                collapsed.entry(beyond).or_default().merge(&sums);
                continue;
            }
            write(&mut put, key, &sums)?;
        }
        let mut calls = 0;
        for (key, mut sums) in collapsed {
            calls += sums.calls;
            if let Some(found) = find.query_row(key, read).optional()? {
                sums.merge(&found);
            }
            write(&mut put, key, &sums)?;
        }
        Ok(calls)
    }
}

fn find_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM experiment_units WHERE experiment = ? AND variant = ? \
         AND session = ? AND agent = ? AND user = ?"
    )
}

fn put_sql() -> String {
    let changed: Vec<_> = COLUMNS
        .split(", ")
        .map(|name| format!("{name} = excluded.{name}"))
        .collect();
    format!(
        "INSERT INTO experiment_units (experiment, variant, session, agent, user, {COLUMNS}) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?{}) \
         ON CONFLICT (experiment, variant, session, agent, user) DO UPDATE SET {}",
        ", ?".repeat(COUNTS),
        changed.join(", ")
    )
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<UnitSums> {
    let mut sums = UnitSums {
        first_us: row.get(0)?,
        last_us: row.get(1)?,
        first_prompt: row
            .get::<_, Option<i64>>(2)?
            .and_then(|class| class.try_into().ok()),
        ..UnitSums::default()
    };
    if let Some(bytes) = row.get_ref(3)?.as_blob_or_null()? {
        sums.ttft.merge_encoded(bytes);
    }
    if let Some(bytes) = row.get_ref(4)?.as_blob_or_null()? {
        sums.tps.merge_encoded(bytes);
    }
    for (at, count) in sums.counts_mut().into_iter().enumerate() {
        *count = u64::try_from(row.get::<_, i64>(5 + at)?).unwrap_or(0);
    }
    Ok(sums)
}

fn write(put: &mut CachedStatement<'_>, key: UnitKey, sums: &UnitSums) -> rusqlite::Result<()> {
    for (at, id) in key.iter().enumerate() {
        put.raw_bind_parameter(1 + at, id)?;
    }
    put.raw_bind_parameter(6, sums.first_us)?;
    put.raw_bind_parameter(7, sums.last_us)?;
    put.raw_bind_parameter(8, sums.first_prompt.map(|class| class as i64))?;
    put.raw_bind_parameter(9, sums.ttft.encode())?;
    put.raw_bind_parameter(10, sums.tps.encode())?;
    for (at, count) in sums.counts().into_iter().enumerate() {
        put.raw_bind_parameter(11 + at, whole(count))?;
    }
    put.raw_execute().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::CallFigures;
    use crate::ledger::LedgerDatabase;

    #[test]
    fn units_beyond_the_bound_are_counted_together_and_a_place_becomes_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut counts = UnitCounts {
            max_units: 3,
            max_rows: 4,
            ..UnitCounts::load(connection).expect("counts")
        };
        let mut save = |experiment: i64, sessions: std::ops::Range<i64>| {
            let mut units = Units::default();
            for session in sessions {
                units.add([experiment, 1, session, 0, 0], &CallFigures::example());
            }
            units.save(connection, &mut counts).expect("saved")
        };
        assert_eq!(save(1, 1..3), 0);
        assert_eq!(save(1, 1..6), 2, "two of five were there");
        assert_eq!(save(1, 5..6), 1);
        assert_eq!(save(2, 1..4), 2, "all experiments share a bound");
        let calls = |condition: &str| -> i64 {
            let sql = format!("SELECT sum(calls) FROM experiment_units WHERE {condition}");
            connection
                .query_row(&sql, [], |row| row.get(0))
                .expect("a sum")
        };
        assert_eq!(calls("experiment = 1 AND session > 0"), 5);
        assert_eq!(calls("experiment = 1 AND session = -1"), 3);
        counts.gone(1);
        assert!(counts.admit(1) && !counts.admit(1));
    }
}
