//! Marks in the ledger: the newest [`MAX_MARKS`], deleted at the age at which calls are deleted.

use super::QueryError;
use super::row::timestamp;
use crate::query::{Mark, MarkQuery, NewMark};
use rusqlite::{Connection, Row, ToSql, params};
use tokengauge_core::time::duration_since_1970;

pub const MAX_MARKS: i64 = 10_000;

pub(super) fn add(connection: &Connection, mark: &NewMark) -> rusqlite::Result<u64> {
    let tags = serde_json::to_string(&mark.tags).unwrap_or_default();
    let subject = &mark.subject;
    connection
        .prepare_cached(
            "INSERT INTO marks (at_us, kind, text, tags, model, upstream, route, workload)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            micros(mark.at),
            mark.kind.as_str(),
            mark.text,
            tags,
            subject.model,
            subject.upstream,
            subject.route,
            subject.workload,
        ])?;
    Ok(u64::try_from(connection.last_insert_rowid()).unwrap_or(0))
}

fn micros(at: std::time::SystemTime) -> i64 {
    i64::try_from(duration_since_1970(at).as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn forget(connection: &Connection, before_us: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM marks WHERE at_us < ?1 OR id <= (SELECT max(id) FROM marks) - ?2";
    let mut forget = connection.prepare_cached(sql)?;
    forget.execute([before_us, MAX_MARKS]).map(|_| ())
}

pub(super) fn marks(connection: &Connection, query: &MarkQuery) -> Result<Vec<Mark>, QueryError> {
    let from = query.from.map_or(i64::MIN, micros);
    let to = query.to.map_or(i64::MAX, micros);
    let kind = query.kind.map(|kind| kind.as_str());
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let about = |name: &str, place: usize| {
        format!(" AND (?{place} IS NULL OR {name} IS NULL OR {name} = ?{place})")
    };
    let sql = format!(
        "SELECT id, at_us, kind, text, tags, model, upstream, route, workload FROM marks
         WHERE at_us >= ?1 AND at_us < ?2 AND (?3 IS NULL OR kind = ?3){}{}{}{}
         ORDER BY at_us DESC, id DESC LIMIT ?4",
        about("model", 5),
        about("upstream", 6),
        about("route", 7),
        about("workload", 8),
    );
    let subject = &query.subject;
    let wanted: [&dyn ToSql; 8] = [
        &from,
        &to,
        &kind,
        &limit,
        &subject.model,
        &subject.upstream,
        &subject.route,
        &subject.workload,
    ];
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(&wanted[..], mark)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn mark(row: &Row<'_>) -> rusqlite::Result<Mark> {
    let text = |at: usize| row.get::<_, String>(at);
    let at: i64 = row.get(1)?;
    let kind = text(2)?.parse().map_err(|_| {
        let text = rusqlite::types::Type::Text;
        rusqlite::Error::FromSqlConversionFailure(2, text, "no kind of marks".into())
    })?;
    Ok(Mark {
        id: row.get::<_, i64>(0)?.try_into().unwrap_or(0),
        time: timestamp(at.div_euclid(1000)),
        kind,
        text: text(3)?,
        tags: serde_json::from_str(&text(4)?).unwrap_or_default(),
        model: row.get(5)?,
        upstream: row.get(6)?,
        route: row.get(7)?,
        workload: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::database::LedgerDatabase;
    use crate::ledger::retention::tidy_to_end;
    use crate::ledger::row::EPOCH_MS;
    use crate::ledger::{Limits, Reader};
    use crate::query::{MarkKind, MarkSubject};
    use std::time::{Duration, Instant, SystemTime};

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn note(second: u64, model: Option<&str>) -> NewMark {
        NewMark {
            at: at(second),
            kind: MarkKind::Note,
            text: format!("at {second}"),
            tags: vec!["deploy".into(), "a \"tag\"".into()],
            subject: MarkSubject {
                model: model.map(Into::into),
                ..MarkSubject::default()
            },
        }
    }

    #[test]
    fn marks_are_found_by_time_and_by_what_they_are_about_newest_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let added = [note(30, None), note(10, Some("m")), note(20, Some("n"))];
        let ids = added
            .iter()
            .map(|one| ledger.mark(one).expect("added"))
            .collect::<Vec<_>>();
        assert_eq!(ids, [1, 2, 3]);
        let reader = Reader::new(&path, Instant::now);
        let found = |query: MarkQuery| reader.marks(&query).expect("an answer");
        let all = MarkQuery {
            limit: 10,
            ..MarkQuery::default()
        };
        let expected = [(1, 0), (3, 2), (2, 1)].map(|(id, place)| Mark::of(id, &added[place]));
        assert_eq!(found(all.clone()), expected);
        let mut about_m = all.clone();
        about_m.subject.model = Some("m".into());
        assert_eq!(found(about_m), [expected[0].clone(), expected[2].clone()]);
        let between = MarkQuery {
            from: Some(at(10)),
            to: Some(at(30)),
            limit: 1,
            ..MarkQuery::default()
        };
        assert_eq!(found(between), [expected[1].clone()]);
        let alerts = MarkQuery {
            kind: Some(MarkKind::Alert),
            ..all
        };
        assert_eq!(found(alerts), []);
    }

    #[test]
    fn old_marks_and_those_beyond_the_bound_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let limits = Limits {
            age: Duration::from_secs(1_000),
            bytes: 1 << 40,
        };
        // No ledger is older.
        let begin = u64::try_from(EPOCH_MS / 1_000).expect("after 1970");
        let now = EPOCH_MS + 2_000_000;
        for second in [500, 1_500, 1_600] {
            ledger.mark(&note(begin + second, None)).expect("added");
        }
        tidy_to_end(&mut ledger, now, &limits);
        let reader = Reader::new(&path, Instant::now);
        let texts = || {
            let query = MarkQuery {
                limit: usize::MAX,
                ..MarkQuery::default()
            };
            let marks = reader.marks(&query).expect("an answer");
            marks.into_iter().map(|mark| mark.text).collect::<Vec<_>>()
        };
        let left = [1_600, 1_500].map(|second| format!("at {}", begin + second));
        assert_eq!(texts(), left);
        let many = format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MAX_MARKS})
             INSERT INTO marks (at_us, kind, text, tags) SELECT {begin} * 1000000 + 1700000000 + i, 'note', 'x', '[]' FROM n"
        );
        ledger.connection().execute(&many, []).expect("marks");
        tidy_to_end(&mut ledger, now, &limits);
        let left = texts();
        assert_eq!(left.len() as i64, MAX_MARKS);
        assert!(left.iter().all(|text| text == "x"));
    }
}
