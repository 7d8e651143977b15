//! Writes what the analysis of a call found. Calls without an analysis have no row.

use super::ledger_call::LedgerCall;
use crate::columns::{Value, analysis_columns};
use rusqlite::types::{Null, ToSqlOutput};
use rusqlite::{CachedStatement, Connection, ToSql};

pub(super) struct Analyses<'c>(CachedStatement<'c>);

impl<'c> Analyses<'c> {
    pub(super) fn of(connection: &'c Connection) -> rusqlite::Result<Analyses<'c>> {
        let names: Vec<&str> = analysis_columns().map(|column| column.name).collect();
        let places = ", ?".repeat(names.len());
        let names = names.join(", ");
        let sql = format!("INSERT OR IGNORE INTO analyses (key, {names}) VALUES (?{places})");
        Ok(Analyses(connection.prepare_cached(&sql)?))
    }

    pub(super) fn add(&mut self, key: i64, call: &LedgerCall<'_>) -> rusqlite::Result<()> {
        if !has_analysis(call) {
            return Ok(());
        }
        self.0.raw_bind_parameter(1, key)?;
        for (at, column) in analysis_columns().enumerate() {
            self.0.raw_bind_parameter(at + 2, column.of(call))?;
        }
        self.0.raw_execute().map(|_| ())
    }
}

fn has_analysis(call: &LedgerCall<'_>) -> bool {
    let record = call.record;
    record.prompt.is_some()
        || record.wait.is_some()
        || record.cache_break.is_some()
        || record.retry_of.is_some()
        || record.repetition.is_some()
        || record.prompt_blocks.is_some()
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => Null.to_sql()?,
            Value::Text(text) => (&**text).into(),
            Value::Whole(number) => (*number).into(),
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) => (*number).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::retention::tidy_to_end;
    use crate::ledger::{LedgerDatabase, Limits};
    use std::time::Duration;
    use tokengauge_core::call::CallRecord;

    fn call(id: &str, retry_of: Option<&str>) -> CallRecord {
        serde_json::from_value(serde_json::json!({
            "id": id, "started_at": "2026-01-31T09:30:00.000Z", "route": "r", "upstream": "u",
            "dialect": "openai_chat", "operation": "chat", "outcome": "complete",
            "finish_reasons": [], "warm_up": false, "retry_of": retry_of,
            "tokens": {"normalised": {}, "reported": {}, "source": null}, "seconds": {}, "tps": {},
            "frames": 1, "stalls": 0, "bytes": {"request": 1, "response": 1},
        }))
        .expect("a record")
    }

    #[test]
    fn only_calls_with_an_analysis_have_a_row_and_it_goes_with_the_call() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let plain = call("01980a1e-0000-7000-8000-000000000001", None);
        let analyzed = call("01980a1e-0000-7000-8000-000000000002", Some(&plain.id));
        for call in [&plain, &analyzed] {
            let call = LedgerCall::of_record(call, None).expect("valid");
            ledger.write(&[call]).expect("written");
        }
        let rows = |ledger: &LedgerDatabase, table: &str| -> i64 {
            let sql = format!("SELECT count(*) FROM {table}");
            let connection = ledger.connection();
            connection
                .query_row(&sql, [], |row| row.get(0))
                .expect("a count")
        };
        assert_eq!((rows(&ledger, "calls"), rows(&ledger, "analyses")), (2, 1));
        let limits = Limits {
            age: Duration::from_secs(3_600),
            bytes: 1 << 40,
        };
        tidy_to_end(&mut ledger, 4_102_444_800_000, &limits);
        assert_eq!((rows(&ledger, "calls"), rows(&ledger, "analyses")), (0, 0));
    }
}
