//! Calls that were in the file before it had sums by unit and distributions: added later, step by step, the
//! newest first. A mark says where the next step begins: calls with a smaller key are still to be added.
//! Calls that are written meanwhile with a smaller key, since they began long ago, are left to those steps.

use super::store::{Store, SumsOfBatch};
use super::stored_figures::FiguresReader;
use super::write_error::WriteError;
use rusqlite::Connection;

/// Calls that are added in one step: some tens of milliseconds of a machine.
const STEP: i64 = 5_000;

/// The mark; 0 where every call has been added.
pub(super) fn mark(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT below_key FROM unsummed";
    connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
}

impl Store {
    /// Adds the next calls. Returns whether there are more.
    ///
    /// # Errors
    /// Where the file cannot be written to; then reopen it.
    pub(super) fn add_unsummed(&mut self) -> Result<bool, WriteError> {
        if self.unsummed_below == 0 {
            return Ok(false);
        }
        let below = self.add_below(self.unsummed_below, STEP)?;
        self.unsummed_below = below;
        Ok(below > 0)
    }

    fn add_below(&mut self, below: i64, step: i64) -> Result<i64, WriteError> {
        let transaction = self.opened.connection.unchecked_transaction()?;
        let mut sums = SumsOfBatch::default();
        let first = "SELECT min(key), count(*) FROM \
            (SELECT key FROM calls WHERE key < ? ORDER BY key DESC LIMIT ?)";
        let (first, calls): (Option<i64>, i64) = transaction
            .prepare_cached(first)?
            .query_row([below, step], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mark = first.filter(|_| calls == step).unwrap_or(0);
        let condition = "key >= ? AND key < ?";
        FiguresReader::new(&transaction).read(condition, [mark, below], |call| {
            if let Some(unit) = call.unit {
                sums.units.add(unit, &call.figures);
            }
            sums.distributions.add(call.series, &call.figures);
        })?;
        sums.units.save(&transaction, &mut self.unit_counts)?;
        sums.distributions.save(
            &transaction,
            &mut self.distribution_series,
            &mut self.dictionary,
        )?;
        transaction
            .prepare_cached("UPDATE unsummed SET below_key = ?")?
            .execute([mark])?;
        transaction.commit()?;
        Ok(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Reader, StoredCall};
    use crate::query::{DistributionSelector, UnitQuery};
    use std::path::Path;
    use std::time::Instant;
    use tokengauge_core::call::CallRecord;

    fn records() -> Vec<CallRecord> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = folder.join("../../tests/fixtures/ledger/version-4.jsonl");
        let lines = std::fs::read_to_string(file).expect("records");
        let records = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a record"));
        records.collect()
    }

    fn write(store: &mut Store, records: &[CallRecord]) {
        let calls = records.iter();
        let calls: Vec<_> = calls
            .filter_map(|record| StoredCall::of_record(record, Some(2)))
            .collect();
        store.write(&calls).expect("written");
    }

    /// What experiments and distributions come to.
    fn answers(path: &Path) -> (usize, u64, u64) {
        let reader = Reader::new(path, Instant::now);
        let query = UnitQuery {
            experiment: "decoder".into(),
            ..UnitQuery::default()
        };
        let units = reader.experiment_units(&query).expect("units");
        let all = DistributionSelector::default();
        let found = reader
            .distributions(&all, None, None)
            .expect("distributions");
        let calls = units.units.iter().map(|unit| unit.sums.calls).sum();
        let distributed = found.values().map(|distributions| distributions.calls());
        (units.units.len(), calls, distributed.sum())
    }

    #[test]
    fn each_call_counts_once_while_old_ones_are_added_and_others_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let whole = folder.path().join("whole.sqlite");
        let records = records();
        write(&mut Store::open(&whole).expect("opens"), &records);
        let mut store = Store::open(&path).expect("opens");
        // Of each three, two were there before; the third came later, and may have begun earlier.
        let (later, before): (Vec<_>, Vec<_>) = records
            .into_iter()
            .enumerate()
            .partition(|(at, _)| at % 3 == 0);
        let strip = |all: Vec<(usize, CallRecord)>| all.into_iter().map(|(_, record)| record);
        let (later, before): (Vec<_>, Vec<_>) = (strip(later).collect(), strip(before).collect());
        write(&mut store, &before);
        let all = answers(&path);
        let undo = "DELETE FROM experiment_units; DELETE FROM distributions;
            UPDATE unsummed SET below_key = (SELECT max(key) + 1 FROM calls)";
        store.connection().execute_batch(undo).expect("undone");
        drop(store);
        let mut store = Store::open(&path).expect("opens");
        assert_eq!(answers(&path), all, "nothing is added yet");
        let mut steps = 0;
        for some in later.chunks(4) {
            store.unsummed_below = store.add_below(store.unsummed_below, 7).expect("a step");
            write(&mut store, some);
            steps += 1;
        }
        assert!(steps > 3 && store.unsummed_below > 0, "it was under way");
        assert_eq!(answers(&path), answers(&whole));
        while store.unsummed_below > 0 {
            store.unsummed_below = store.add_below(store.unsummed_below, 7).expect("a step");
        }
        assert_eq!(answers(&path), answers(&whole));
    }

    #[test]
    fn a_call_made_for_another_one_is_in_no_unit_and_in_distributions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut store = Store::open(&path).expect("opens");
        let records = records();
        let calls = records.iter();
        let nested = calls.filter_map(|record| {
            let call = StoredCall::of_record(record, None)?;
            Some(StoredCall {
                nested: true,
                ..call
            })
        });
        store.write(&nested.collect::<Vec<_>>()).expect("written");
        let counted = records.iter().filter(|call| call.operation_class.counts());
        assert_eq!(answers(&path), (0, 0, counted.count() as u64));
    }
}
