//! Undelivered calls in the order in which they were written, and the progress of each sink.

use super::QueryError;
use super::row::{micros_to_ms, started_ms};
use crate::columns::{Value, values_of_row};
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;

const STEP: i64 = 2_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkProgress {
    /// The sink has all calls up to this number.
    pub delivered: i64,
    /// The end of the batch in progress.
    pub pending: Option<i64>,
    /// Calls that retention deleted before the sink had them, since the sink was first configured.
    pub lost: u64,
    /// Calls that the warehouse refused, since the sink was first configured.
    pub refused: u64,
    pub waiting: u64,
    /// When the oldest waiting call ended, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
}

pub(super) fn waiting(connection: &Connection) -> rusqlite::Result<HashMap<String, u64>> {
    let sql = "SELECT name, (SELECT count(*) FROM undelivered WHERE seq > delivered) FROM sinks";
    let mut statement = connection.prepare(sql)?;
    let sinks = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
    sinks.collect()
}

/// A copy in memory of the sinks' progress, for when the file cannot be read any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursors {
    last: i64,
    pub(super) delivered: HashMap<String, i64>,
}

impl Cursors {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Cursors> {
        let mut statement = connection.prepare("SELECT name, delivered FROM sinks")?;
        let sinks = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Cursors {
            last: connection.query_row(NEWEST, [], |row| row.get(0))?,
            delivered: sinks.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.delivered.is_empty()
    }

    /// Counts calls that were written to the file.
    pub(super) fn added(&mut self, calls: u64) {
        if !self.is_empty() {
            self.last += super::row::whole(calls);
        }
    }

    pub(super) fn waiting(&self) -> HashMap<String, u64> {
        let sinks = self.delivered.iter();
        let waiting = |delivered: i64| (self.last - delivered).max(0).unsigned_abs();
        sinks
            .map(|(sink, delivered)| (sink.clone(), waiting(*delivered)))
            .collect()
    }
}

pub(super) const NEWEST: &str =
    "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'undelivered'";

#[derive(Clone, Debug, PartialEq)]
pub struct UndeliveredCall {
    /// The call's number in the order of writing.
    pub seq: i64,
    /// The values in the order of [`COLUMNS`](crate::columns::COLUMNS); `None` if the call was
    /// deleted.
    pub values: Option<Vec<Value>>,
}

pub(super) fn add(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO undelivered (key) VALUES (?)";
    connection.prepare_cached(sql)?.execute([key]).map(|_| ())
}

pub(super) fn forget_delivered(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM undelivered WHERE seq <= \
        (SELECT coalesce(min(delivered), 9223372036854775807) FROM sinks)";
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

/// Deletes some entries of calls that no longer exist, and counts them as lost by the sinks that do
/// not have them. Retention deletes the oldest calls, so calls that began before the oldest
/// remaining call are gone. Entries of a batch in progress are kept, because its sender counts
/// them.
pub(super) fn forget_deleted(connection: &Connection) -> rusqlite::Result<bool> {
    let gone = format!(
        "(SELECT seq FROM undelivered u WHERE NOT EXISTS \
            (SELECT 1 FROM sinks s WHERE u.seq > s.delivered AND u.seq <= s.pending) ORDER BY seq LIMIT {STEP}) \
         AND key < (SELECT coalesce(min(key), 9223372036854775807) FROM calls)"
    );
    let lost = format!(
        "UPDATE sinks SET lost = lost + (SELECT count(*) FROM undelivered \
            WHERE seq > delivered AND seq IN {gone})"
    );
    connection.prepare_cached(&lost)?.execute([])?;
    let sql = format!("DELETE FROM undelivered WHERE seq IN {gone}");
    let deleted = connection.prepare_cached(&sql)?.execute([])?;
    Ok(deleted as i64 == STEP)
}

/// The progress of a sink; `None` if the ledger does not know the sink.
pub(super) fn progress(
    connection: &Connection,
    sink: &str,
) -> Result<Option<SinkProgress>, QueryError> {
    let sql = "SELECT delivered, pending, lost, refused FROM sinks WHERE name = ?";
    let found = connection.prepare_cached(sql)?.query_row([sink], |row| {
        Ok(SinkProgress {
            delivered: row.get(0)?,
            pending: row.get(1)?,
            lost: row.get::<_, i64>(2)?.unsigned_abs(),
            refused: row.get::<_, i64>(3)?.unsigned_abs(),
            ..SinkProgress::default()
        })
    });
    let Some(mut progress) = found.optional()? else {
        return Ok(None);
    };
    // Numbers have no gaps and are deleted from the oldest on.
    let sql = "SELECT min(seq), max(seq) FROM undelivered WHERE seq > ?";
    let (first, last): (Option<i64>, Option<i64>) = connection
        .prepare_cached(sql)?
        .query_row([progress.delivered], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let (Some(first), Some(last)) = (first, last) {
        progress.waiting = (last - first + 1).unsigned_abs();
        progress.oldest_ms = ended_ms(connection, first)?;
    }
    Ok(Some(progress))
}

/// When the call with this number ended, or when it began if it was deleted.
fn ended_ms(connection: &Connection, seq: i64) -> Result<Option<i64>, QueryError> {
    let sql = "SELECT u.key, c.duration_us FROM undelivered u LEFT JOIN calls c ON c.key = u.key WHERE u.seq = ?";
    let found = connection.prepare_cached(sql)?.query_row([seq], |row| {
        let (key, lasted): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(started_ms(key) + micros_to_ms(lasted.unwrap_or(0)))
    });
    Ok(found.optional()?)
}

/// The number of the last of the next `limit` calls after `after`; `None` if there are no more.
pub(super) fn end(
    connection: &Connection,
    after: i64,
    limit: usize,
) -> Result<Option<i64>, QueryError> {
    let sql =
        "SELECT max(seq) FROM (SELECT seq FROM undelivered WHERE seq > ? ORDER BY seq LIMIT ?)";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([after, limit], |row| row.get(0))?)
}

/// The calls after `after`, up to `upto` and at most `limit`.
pub(super) fn calls(
    connection: &Connection,
    after: i64,
    upto: i64,
    limit: usize,
) -> Result<Vec<UndeliveredCall>, QueryError> {
    let sql = "SELECT seq, key FROM undelivered WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([after, upto, limit])?;
    let mut read = connection.prepare_cached("SELECT * FROM calls_readable WHERE key = ?")?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, key): (i64, i64) = (row.get(0)?, row.get(1)?);
        let values = read.query_row([key], values_of_row).optional()?;
        found.push(UndeliveredCall { seq, values });
    }
    Ok(found)
}

pub(super) fn names(connection: &Connection) -> Result<Vec<String>, QueryError> {
    let mut statement = connection.prepare_cached("SELECT name FROM sinks ORDER BY name")?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::retention::tidy_to_end;
    use crate::ledger::{LedgerCall, LedgerDatabase, Limits, Reader, SinkUpdate};
    use std::path::Path;
    use std::time::{Duration, Instant};
    use tokengauge_core::call::CallRecord;

    fn records() -> Vec<CallRecord> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = folder.join("../../tests/fixtures/ledger/version-4.jsonl");
        let lines = std::fs::read_to_string(file).expect("records");
        let records = lines
            .lines()
            .map(|line| CallRecord::of_line(line).expect("a record"));
        records.collect()
    }

    fn write(ledger: &mut LedgerDatabase, records: &[CallRecord]) {
        let calls: Vec<_> = records
            .iter()
            .map(|record| LedgerCall::of_record(record, None).expect("valid"))
            .collect();
        ledger.write(&calls).expect("written");
    }

    fn sinks() -> [String; 2] {
        ["one".to_owned(), "two".to_owned()]
    }

    fn delivered(sink: &str, delivered: i64) -> SinkUpdate {
        SinkUpdate {
            sink: sink.to_owned(),
            delivered,
            ..SinkUpdate::default()
        }
    }

    #[test]
    fn calls_come_in_the_order_of_writing_and_go_once_every_sink_has_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let records = records();
        write(&mut ledger, &records[..5]);
        ledger.deliver_to(&sinks()).expect("known");
        // The last call began first.
        let late: Vec<_> = records[5..15].iter().rev().cloned().collect();
        write(&mut ledger, &late);
        let reader = Reader::new(&path, Instant::now);
        let progress = reader.sink("one").expect("read").expect("known");
        assert_eq!((progress.delivered, progress.waiting), (0, 10));
        let calls = reader.undelivered(0, i64::MAX, 4).expect("read");
        let ids: Vec<_> = calls
            .iter()
            .map(|call| call.values.as_ref().expect("there")[0].clone())
            .collect();
        let expected: Vec<_> = late[..4]
            .iter()
            .map(|record| Value::text(&*record.id))
            .collect();
        assert_eq!(ids, expected);
        assert_eq!(reader.undelivered_end(2, 4).expect("read"), Some(6));
        assert_eq!(reader.undelivered_end(8, 4).expect("read"), Some(10));
        assert_eq!(reader.undelivered_end(10, 4).expect("read"), None);
        assert!(ledger.save_progress(&delivered("one", 8)).expect("saved"));
        assert_eq!(
            reader.undelivered(0, i64::MAX, 99).expect("read").len(),
            10,
            "two has none of them"
        );
        assert!(ledger.save_progress(&delivered("two", 4)).expect("saved"));
        assert_eq!(reader.undelivered(0, i64::MAX, 99).expect("read").len(), 6);
        assert_eq!(reader.sink("two").expect("read").expect("known").waiting, 6);
        assert!(!ledger.save_progress(&delivered("three", 4)).expect("saved"));
        drop(ledger);
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        ledger.deliver_to(&sinks()[..1]).expect("known");
        assert_eq!(
            reader.undelivered(0, i64::MAX, 99).expect("read").len(),
            2,
            "two is gone"
        );
        assert_eq!(reader.sink_names().expect("read"), ["one"]);
        ledger.deliver_to(&[]).expect("known");
        write(&mut ledger, &records[15..20]);
        assert_eq!(reader.undelivered(0, i64::MAX, 99).expect("read"), []);
    }

    #[test]
    fn what_retention_deletes_first_is_counted_for_those_that_do_not_have_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        ledger.deliver_to(&sinks()).expect("known");
        let records = records();
        write(&mut ledger, &records);
        let all = records.len() as i64;
        ledger
            .save_progress(&delivered("one", all - 1))
            .expect("saved");
        let limits = Limits {
            age: Duration::from_secs(1),
            bytes: 1 << 30,
        };
        // In 2100 all calls are too old.
        tidy_to_end(&mut ledger, 4_102_444_800_000, &limits);
        let reader = Reader::new(&path, Instant::now);
        let lost = |sink| reader.sink(sink).expect("read").expect("known").lost as i64;
        assert_eq!((lost("one"), lost("two")), (1, all));
        assert_eq!(reader.undelivered(0, i64::MAX, 1).expect("read"), []);
        assert_eq!(reader.sink("two").expect("read").expect("known").waiting, 0);
    }
}
