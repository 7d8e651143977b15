//! Scores in the ledger: the newest [`MAX_SCORES`], deleted at the age at which calls are deleted.

use crate::query::{ScoreIndex, sort_scores};
use rusqlite::{Connection, Row, params};
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::{Score, ScoreTarget};
use tokengauge_core::time::duration_since_1970;

use super::row::{milliseconds, timestamp};
use std::time::SystemTime;

pub const MAX_SCORES: i64 = 200_000;
/// The newest scores that groups, gates and experiments use; in memory they take about 12 MB.
const MAX_INDEXED: i64 = 50_000;
const COLUMNS: &str = "name, value, data_type, target, target_id, source, at_us";

/// Adds scores in one transaction. Replaces earlier scores of the same name and target.
pub(super) fn add(connection: &Connection, scores: &[Score]) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    let sql = format!("INSERT OR REPLACE INTO scores ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)");
    {
        let mut insert = transaction.prepare_cached(&sql)?;
        for score in scores {
            insert.execute(params![
                score.name,
                score.value,
                score.data_type.as_str(),
                score.target.as_str(),
                score.target_id,
                score.source,
                micros(score.time.time()),
            ])?;
        }
    }
    transaction.commit()
}

fn micros(at: SystemTime) -> i64 {
    i64::try_from(duration_since_1970(at).as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn forget(connection: &Connection, before_us: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM scores WHERE at_us < ?1 OR id <= (SELECT max(id) FROM scores) - ?2";
    let mut forget = connection.prepare_cached(sql)?;
    forget.execute([before_us, MAX_SCORES]).map(|_| ())
}

/// The newest [`MAX_INDEXED`] scores that were received since a time. A call cannot be scored before it begins.
pub(super) fn index(
    connection: &Connection,
    since: Option<SystemTime>,
) -> rusqlite::Result<ScoreIndex> {
    let sql = format!("SELECT {COLUMNS} FROM scores WHERE at_us >= ? ORDER BY id DESC LIMIT ?");
    let since = since.map_or(0, |since| milliseconds(since).saturating_mul(1000));
    let mut statement = connection.prepare_cached(&sql)?;
    let scores = statement.query_map([since, MAX_INDEXED], score)?;
    scores.collect()
}

/// The scores of one call, session or trace.
pub(super) fn of_target(
    connection: &Connection,
    target: ScoreTarget,
    id: &str,
) -> rusqlite::Result<Vec<Score>> {
    let sql =
        format!("SELECT {COLUMNS} FROM scores WHERE target = ? AND target_id = ? ORDER BY name");
    let mut statement = connection.prepare_cached(&sql)?;
    let scores = statement.query_map([target.as_str(), id], score)?;
    scores.collect()
}

/// Adds to each record the scores of its call, session and trace.
pub(super) fn join<'a>(
    connection: &Connection,
    records: impl Iterator<Item = &'a mut CallRecord>,
) -> rusqlite::Result<()> {
    let any = "SELECT EXISTS (SELECT 1 FROM scores)";
    let any: bool = connection
        .prepare_cached(any)?
        .query_row([], |row| row.get(0))?;
    if !any {
        return Ok(());
    }
    for record in records {
        let ids = [
            (ScoreTarget::Call, Some(&record.id)),
            (
                ScoreTarget::Call,
                record
                    .response_id
                    .as_ref()
                    .filter(|response| **response != record.id),
            ),
            (ScoreTarget::Session, record.session.as_ref()),
            (ScoreTarget::Trace, record.trace_id.as_ref()),
        ];
        let mut found = Vec::new();
        for (target, id) in ids {
            if let Some(id) = id {
                found.extend(of_target(connection, target, id)?);
            }
        }
        sort_scores(&mut found);
        record.scores = found;
    }
    Ok(())
}

fn score(row: &Row<'_>) -> rusqlite::Result<Score> {
    let word = |at: usize| row.get::<_, String>(at);
    let bad = |at: usize| {
        let text = rusqlite::types::Type::Text;
        rusqlite::Error::FromSqlConversionFailure(at, text, "not a word of scores".into())
    };
    let at: i64 = row.get(6)?;
    Ok(Score {
        name: row.get(0)?,
        value: row.get(1)?,
        data_type: word(2)?.parse().map_err(|_| bad(2))?,
        target: word(3)?.parse().map_err(|_| bad(3))?,
        target_id: row.get(4)?,
        source: row.get(5)?,
        time: timestamp(at.div_euclid(1000)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Limits;
    use crate::ledger::database::LedgerDatabase;
    use crate::ledger::retention::tidy_to_end;
    use crate::ledger::row::EPOCH_MS;
    use std::time::Duration;
    use tokengauge_core::score::ScoreType;

    fn score(second: u64, session: &str, value: f64) -> Score {
        let begin = u64::try_from(EPOCH_MS).expect("after 1970");
        let at = Duration::from_millis(begin + second * 1000);
        Score {
            name: "success".into(),
            value,
            data_type: ScoreType::Boolean,
            target: ScoreTarget::Session,
            target_id: session.into(),
            source: Some("ci".into()),
            time: (SystemTime::UNIX_EPOCH + at).into(),
        }
    }

    #[test]
    fn a_later_score_replaces_an_earlier_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("l.sqlite")).expect("opens");
        let later = score(20, "a", 0.0);
        let all = [score(10, "a", 1.0), score(15, "b", 1.0), later.clone()];
        add(ledger.connection(), &all).expect("added");
        let found = |session| of_target(ledger.connection(), ScoreTarget::Session, session);
        assert_eq!(found("a").expect("an answer"), [later]);
        assert_eq!(found("b").expect("an answer"), [all[1].clone()]);
        assert_eq!(found("c").expect("an answer"), []);
        let since = |second| Some(score(second, "a", 0.0).time.time());
        let index = |second| index(ledger.connection(), since(second)).expect("an index");
        assert_eq!(index(16).of_session("b"), []);
        assert_eq!(index(0).of_session("b").len(), 1);
    }

    #[test]
    fn old_scores_and_those_beyond_the_bound_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = LedgerDatabase::open(&folder.path().join("l.sqlite")).expect("opens");
        let limits = Limits {
            age: Duration::from_secs(1_000),
            bytes: 1 << 40,
        };
        let now = EPOCH_MS + 2_000_000;
        let all = [score(500, "old", 1.0), score(1_500, "new", 1.0)];
        add(ledger.connection(), &all).expect("added");
        tidy_to_end(&mut ledger, now, &limits);
        let left = |ledger: &LedgerDatabase| -> i64 {
            let sql = "SELECT count(*) FROM scores";
            let count = ledger.connection().query_row(sql, [], |row| row.get(0));
            count.expect("a count")
        };
        assert_eq!(left(&ledger), 1);
        let many = format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MAX_SCORES})
             INSERT INTO scores (at_us, target, target_id, name, value, data_type)
             SELECT {}, 'call', 'c' || i, 'x', 1, 'numeric' FROM n",
            (now - 1) * 1000
        );
        ledger.connection().execute(&many, []).expect("scores");
        tidy_to_end(&mut ledger, now, &limits);
        assert_eq!(left(&ledger), MAX_SCORES);
        let oldest = of_target(ledger.connection(), ScoreTarget::Session, "new");
        assert_eq!(oldest.expect("an answer"), [], "the oldest goes first");
    }
}
