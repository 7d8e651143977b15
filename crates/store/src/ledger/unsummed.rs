//! Adds older calls to sums by unit, distributions and spending by day, if the file has calls from
//! before these sums existed. Steps go from the newest call to the oldest. A mark says where the
//! next step begins: calls with a smaller key are not added yet. Calls with a smaller key that are
//! written meanwhile, because they began long ago, are left to these steps.

use super::daily_spending::{DailySpending, SpendingKey};
use super::database::{LedgerDatabase, SumsOfBatch};
use super::ledger_figures::FiguresReader;
use super::row::{SHARE_COLUMNS, Share, started_ms};
use super::unsummed_marks::{Marks, next};
use super::write_error::WriteError;
use rusqlite::Connection;

/// Number of calls that are added in one step, which takes some tens of milliseconds.
const STEP: i64 = 5_000;

impl LedgerDatabase {
    /// Adds the next calls. Returns whether there are more.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub(super) fn add_unsummed(&mut self) -> Result<bool, WriteError> {
        if self.unsummed.spending > 0 {
            self.add_spending(STEP)?;
        } else if self.unsummed.units > 0 {
            self.add_units(STEP)?;
        }
        Ok(self.unsummed.any())
    }

    fn add_spending(&mut self, step: i64) -> Result<(), WriteError> {
        let transaction = self.opened.begin()?;
        let below = self.unsummed.spending;
        let mark = next(&transaction, below, step)?;
        spending_of(&transaction, mark, below)?.save(
            &transaction,
            &mut self.spending_rows,
            &mut self.dictionary,
        )?;
        let marks = Marks {
            spending: mark,
            ..self.unsummed
        };
        marks.save(&transaction)?;
        transaction.commit()?;
        self.unsummed = marks;
        Ok(())
    }

    fn add_units(&mut self, step: i64) -> Result<(), WriteError> {
        let transaction = self.opened.begin()?;
        let below = self.unsummed.units;
        let mark = next(&transaction, below, step)?;
        let mut sums = SumsOfBatch::default();
        let condition = "key >= ? AND key < ?";
        FiguresReader::new(&transaction).read(condition, [mark, below], |call| {
            if let Some(unit) = call.experiment_unit() {
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
        let marks = Marks {
            units: mark,
            ..self.unsummed
        };
        marks.save(&transaction)?;
        transaction.commit()?;
        self.unsummed = marks;
        Ok(())
    }
}

fn spending_of(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<DailySpending> {
    let sql = format!("SELECT key, series, {SHARE_COLUMNS} FROM calls WHERE key >= ? AND key < ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([from, to])?;
    let mut spending = DailySpending::default();
    while let Some(row) = rows.next()? {
        let call = Share::read(row, 2)?;
        let second = started_ms(row.get(0)?).div_euclid(1_000);
        spending.add(SpendingKey::of(second, row.get(1)?, call.spending), &call);
    }
    Ok(spending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{LedgerCall, Reader};
    use crate::query::{
        CostQuery, Costs, Dimension, DistributionSelector, Distributions, Filter, UnitQuery,
    };
    use std::path::Path;
    use std::time::{Duration, Instant};
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

    fn write(ledger: &mut LedgerDatabase, records: &[CallRecord]) {
        let calls: Vec<_> = records
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, Some(2)))
            .collect();
        ledger.write(&calls).expect("written");
    }

    fn answers(path: &Path) -> (usize, u64, Distributions) {
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
        let mut distributed = Distributions::default();
        found.values().for_each(|more| distributed.merge(more));
        (units.units.len(), calls, distributed)
    }

    fn costs(path: &Path, by: Dimension) -> Costs {
        let query = CostQuery {
            filter: Filter::default(),
            by,
            step: Duration::from_secs(86_400),
            most: 10,
        };
        let reader = Reader::new(path, Instant::now);
        reader.costs(&query).expect("an answer")
    }

    fn same(path: &Path, other: &Path) {
        assert_eq!(answers(path), answers(other));
        for by in [Dimension::User, Dimension::KeyHash, Dimension::Outcome] {
            assert_eq!(costs(path, by), costs(other, by));
        }
    }

    #[test]
    fn each_call_counts_once_while_old_ones_are_added_and_others_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let whole = folder.path().join("whole.sqlite");
        let records = records();
        write(&mut LedgerDatabase::open(&whole).expect("opens"), &records);
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        // Two of three calls were written before; the third was written later and may have begun
        // earlier.
        let (later, before): (Vec<_>, Vec<_>) = records
            .into_iter()
            .enumerate()
            .partition(|(at, _)| at % 3 == 0);
        let strip = |all: Vec<(usize, CallRecord)>| all.into_iter().map(|(_, record)| record);
        let (later, before): (Vec<_>, Vec<_>) = (strip(later).collect(), strip(before).collect());
        write(&mut ledger, &before);
        let all = (answers(&path), costs(&path, Dimension::User));
        let undo =
            "DELETE FROM experiment_units; DELETE FROM distributions; DELETE FROM daily_spending;
            UPDATE unsummed SET below_key = (SELECT max(key) + 1 FROM calls);
            UPDATE unsummed SET spending_below_key = below_key";
        ledger.connection().execute_batch(undo).expect("undone");
        drop(ledger);
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let found = (answers(&path), costs(&path, Dimension::User));
        assert_eq!(found, all, "nothing is added yet");
        let mut steps = 0;
        for some in later.chunks(4) {
            ledger.add_units(7).expect("a step");
            ledger.add_spending(6).expect("a step");
            write(&mut ledger, some);
            steps += 1;
        }
        let marks = ledger.unsummed;
        assert!(
            steps > 3 && marks.units > 0 && marks.spending > 0,
            "it was in progress"
        );
        same(&path, &whole);
        while ledger.unsummed.spending > 0 {
            ledger.add_spending(6).expect("a step");
        }
        while ledger.unsummed.units > 0 {
            ledger.add_units(7).expect("a step");
        }
        same(&path, &whole);
    }

    #[test]
    fn a_call_made_for_another_one_is_in_no_unit_and_in_distributions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let records = records();
        let calls = records.iter();
        let nested = calls.filter_map(|record| {
            let call = LedgerCall::of_record(record, None)?;
            Some(LedgerCall {
                nested: true,
                ..call
            })
        });
        ledger.write(&nested.collect::<Vec<_>>()).expect("written");
        let counted = records.iter().filter(|call| call.operation_class.counts());
        let (units, calls, distributed) = answers(&path);
        assert_eq!(
            (units, calls, distributed.calls()),
            (0, 0, counted.count() as u64)
        );
    }
}
