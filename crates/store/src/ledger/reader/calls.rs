use super::QueryError;
use super::matching::Matching;
use crate::columns::CallRow;
use crate::ledger::row::{key_at, milliseconds};
use crate::query::{Filter, Page, Paging};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use std::collections::BinaryHeap;
use tokengauge_core::call::CallRecord;
use uuid::Uuid;

/// Maximum number of series that are queried by index; otherwise all calls are scanned.
const FEW: usize = 400;
/// Maximum number of calls that are scanned for a page without an index. A page may therefore be
/// short although it is not the last.
const MAX_STEPS: usize = 50_000;

/// A page of calls, which `read` converts from rows of `calls_readable`.
pub(super) fn calls<T>(
    connection: &Connection,
    filter: &Filter,
    page: &Paging,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Page<T>, QueryError> {
    let nothing = Page {
        rows: Vec::new(),
        next_cursor: None,
    };
    let Some(mut matching) = Matching::of(connection, filter)? else {
        return Ok(nothing);
    };
    if let Some(cursor) = &page.cursor {
        let before: i64 = cursor.parse().map_err(|_| QueryError::cursor())?;
        matching.to = matching.to.min(before);
    }
    let (keys, next) = if matching.summed() && !matching.all && matching.series.len() <= FEW {
        by_series(connection, &matching, page.limit)?
    } else {
        by_key_order(connection, &matching, page.limit)?
    };
    let mut rows = Vec::new();
    for key in keys {
        rows.extend(row_of(connection, key, &read)?);
    }
    Ok(Page {
        rows,
        next_cursor: next.map(|next| next.to_string()),
    })
}

type Keys = (Vec<i64>, Option<i64>);

/// The newest keys of each combination, merged.
fn by_series(
    connection: &Connection,
    matching: &Matching,
    limit: usize,
) -> Result<Keys, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT key FROM calls WHERE series = ? AND key >= ? AND key < ?
         ORDER BY key DESC",
    )?;
    let mut newest = BinaryHeap::new();
    for series in matching.series.keys() {
        let mut rows = statement.query([*series, matching.from, matching.to])?;
        // The smallest of the kept keys is on top.
        while let Some(row) = rows.next()? {
            let key: i64 = row.get(0)?;
            let full = newest.len() > limit;
            if full
                && newest
                    .peek()
                    .is_some_and(|std::cmp::Reverse(least)| key < *least)
            {
                break;
            }
            newest.push(std::cmp::Reverse(key));
            if full {
                newest.pop();
            }
        }
    }
    let mut keys: Vec<i64> = newest.into_iter().map(|key| key.0).collect();
    keys.sort_unstable_by(|one, other| other.cmp(one));
    Ok(cut(keys, limit))
}

/// At most `limit` keys, and the last of them if there are more.
fn cut(mut keys: Vec<i64>, limit: usize) -> Keys {
    let more = keys.len() > limit;
    keys.truncate(limit);
    let next = keys.last().copied().filter(|_| more);
    (keys, next)
}

/// Scans calls from the newest on. If the filter names a session, user or key, only its calls are
/// scanned.
fn by_key_order(
    connection: &Connection,
    matching: &Matching,
    limit: usize,
) -> Result<Keys, QueryError> {
    let mut sql = String::from("SELECT key, series FROM calls WHERE key >= ? AND key < ?");
    let mut values = vec![matching.from, matching.to];
    matching.restrict(&mut sql, &mut values);
    sql.push_str(" ORDER BY key DESC");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut keys, mut steps) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        if matching.series.contains_key(&row.get(1)?) {
            keys.push(key);
        }
        steps += 1;
        if keys.len() > limit {
            break;
        }
        if steps == MAX_STEPS {
            return Ok((keys, Some(key)));
        }
    }
    Ok(cut(keys, limit))
}

/// Maximum difference in milliseconds between the time in an id and the start of the call.
pub(crate) const ID_TOLERANCE: i64 = 2_000;

pub(super) fn by_id(connection: &Connection, id: Uuid) -> Result<Option<CallRecord>, QueryError> {
    // Keys and ids are sorted by start, so the time in the id tells where to search.
    let Some(timestamp) = id.get_timestamp() else {
        return Ok(None);
    };
    let (seconds, nanoseconds) = timestamp.to_unix();
    let Ok(seconds) = i64::try_from(seconds) else {
        return Ok(None);
    };
    let ms = seconds.saturating_mul(1000) + i64::from(nanoseconds / 1_000_000);
    let key: Option<i64> = connection
        .prepare_cached("SELECT key FROM calls WHERE key >= ? AND key < ? AND id = ?")?
        .query_row(
            params![
                key_at(ms.saturating_sub(ID_TOLERANCE)),
                key_at(ms.saturating_add(ID_TOLERANCE)),
                id.as_bytes().as_slice()
            ],
            |row| row.get(0),
        )
        .optional()?;
    Ok(match key {
        Some(key) => by_key(connection, key)?,
        None => None,
    })
}

pub(in crate::ledger) fn by_key(
    connection: &Connection,
    key: i64,
) -> rusqlite::Result<Option<CallRecord>> {
    row_of(connection, key, record)
}

fn row_of<T>(
    connection: &Connection,
    key: i64,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection
        .prepare_cached("SELECT * FROM calls_readable WHERE key = ?")?
        .query_row([key], |row| read(row))
        .optional()
}

pub(in crate::ledger) fn record(row: &Row<'_>) -> rusqlite::Result<CallRecord> {
    Ok(CallRow::of_ledger(row)?.record())
}

/// Calls in the order of their start, at most as many as the page may have. A cursor is the key of the last call before.
pub(super) fn in_order(
    connection: &Connection,
    filter: &Filter,
    page: &Paging,
) -> Result<Page<CallRow>, QueryError> {
    let mut from = filter.since.map_or(0, |since| key_at(milliseconds(since)));
    if let Some(cursor) = &page.cursor {
        let last: i64 = cursor.parse().map_err(|_| QueryError::cursor())?;
        from = from.max(last + 1);
    }
    let to = filter
        .until
        .map_or(i64::MAX, |until| key_at(milliseconds(until)));
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let sql = "SELECT * FROM calls_readable WHERE key >= ? AND key < ? ORDER BY key LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([from, to, limit])?;
    let (mut found, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        last = Some(row.get::<_, i64>("key")?);
        found.push(CallRow::of_ledger(row)?);
    }
    let full = found.len() == page.limit;
    Ok(Page {
        rows: found,
        next_cursor: last.filter(|_| full).map(|last| last.to_string()),
    })
}
