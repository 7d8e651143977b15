//! Pages of calls, and one call.

use super::Warehouse;
use super::figure::{Kind, classes, measure, skipped};
use super::rows::call_row;
use super::sql::{Span, at, conditions};
use crate::columns::{CallRow, Value};
use crate::ledger::{ID_TOLERANCE, QueryError};
use crate::query::{Coverage, Covered, Filter, Page, Paging};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use uuid::Uuid;

/// Where the parts of a time end in which calls are looked for, in milliseconds before the newest: an hour, a day, a week.
const PARTS: [i64; 3] = [3_600_000, 86_400_000, 7 * 86_400_000];

impl Warehouse {
    /// The calls that match, the newest first.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn calls(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRecord>, QueryError> {
        self.page(filter, page, |row| row.record())
    }

    /// The same calls as [`Warehouse::calls`], each as the values of [`crate::columns::COLUMNS`].
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn call_rows(
        &self,
        filter: &Filter,
        page: &Paging,
    ) -> Result<Page<Vec<Value>>, QueryError> {
        self.page(filter, page, |row| row.values)
    }

    /// The calls that began within a time in the order of their start, at most `limit`: from the first on, or after a cursor.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn in_order(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRow>, QueryError> {
        let mut conditions = conditions(filter);
        let mut span = Span::of(filter);
        if let Some(cursor) = &page.cursor {
            let (ms, id) = place(cursor)?;
            span.since = Some(ms);
            conditions.push(format!("(started_at, id) > ({}, toUUID('{id}'))", at(ms)));
        }
        let rest = format!("ORDER BY started_at, id LIMIT {}", page.limit);
        let rows = self.objects(&self.select("*", span, &conditions, &rest)?)?;
        let rows: Vec<CallRow> = rows.iter().map(call_row).collect();
        let full = rows.len() == page.limit;
        Ok(Page {
            next_cursor: rows.last().filter(|_| full).map(cursor),
            rows,
        })
    }

    fn page<T>(
        &self,
        filter: &Filter,
        page: &Paging,
        read: impl Fn(CallRow) -> T,
    ) -> Result<Page<T>, QueryError> {
        let mut conditions = conditions(filter);
        let mut span = Span::of(filter);
        if let Some(cursor) = &page.cursor {
            let (ms, id) = place(cursor)?;
            span.until = Some(span.until.map_or(ms + 1, |until| until.min(ms + 1)));
            conditions.push(format!("(started_at, id) < ({}, toUUID('{id}'))", at(ms)));
        }
        let more = page.limit.saturating_add(1);
        let mut rows = Vec::new();
        for span in self.backwards(span)? {
            let rest = format!(
                "ORDER BY started_at DESC, id DESC LIMIT {}",
                more - rows.len()
            );
            rows.extend(self.objects(&self.select("*", span, &conditions, &rest)?)?);
            if rows.len() >= more {
                break;
            }
        }
        let there_is_more = rows.len() > page.limit;
        rows.truncate(page.limit);
        let rows: Vec<CallRow> = rows.iter().map(call_row).collect();
        let next_cursor = rows.last().filter(|_| there_is_more).map(cursor);
        Ok(Page {
            rows: rows.into_iter().map(read).collect(),
            next_cursor,
        })
    }

    /// The parts of a time, the newest first. ClickHouse sorts all calls of a part, so the first parts are short.
    fn backwards(&self, span: Span) -> Result<Vec<Span>, QueryError> {
        let newest = match span.until {
            Some(until) => Some(until),
            None => self.last_ms()?.map(|last| last.saturating_add(1)),
        };
        let Some(newest) = newest else {
            return Ok(vec![span]);
        };
        let mut until = span.until;
        let mut parts = Vec::new();
        for length in PARTS {
            let since = newest.saturating_sub(length);
            if span.since.is_some_and(|first| first >= since) {
                break;
            }
            parts.push(Span {
                since: Some(since),
                until,
            });
            until = Some(since);
        }
        parts.push(Span {
            since: span.since,
            until,
        });
        Ok(parts)
    }

    /// The call with this id; `None` if it is not known.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn call(&self, id: Uuid) -> Result<Option<CallRecord>, QueryError> {
        // The table is in the order of starts: the time in the id says where to look.
        let Some(timestamp) = id.get_timestamp() else {
            return Ok(None);
        };
        let (seconds, nanoseconds) = timestamp.to_unix();
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX / 2_000);
        let ms = seconds.saturating_mul(1_000) + i64::from(nanoseconds / 1_000_000);
        let span = Span {
            since: Some(ms.saturating_sub(ID_TOLERANCE)),
            until: Some(ms.saturating_add(ID_TOLERANCE)),
        };
        let is = [format!("id = toUUID('{id}')")];
        let rows = self.objects(&self.select("*", span, &is, "LIMIT 1")?)?;
        Ok(rows.first().map(|row| call_row(row).record()))
    }

    /// When the oldest call began; `None` without calls.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn oldest(&self) -> Result<Option<SystemTime>, QueryError> {
        let first = self.first_ms()?.and_then(|ms| u64::try_from(ms).ok());
        Ok(first.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms)))
    }

    /// How many calls have a cost and a speed, and why the others have none.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn coverage(&self, filter: &Filter) -> Result<Coverage, QueryError> {
        let mut coverage = Coverage::default();
        let Some(filter) = filter.of_counted_classes() else {
            return Ok(coverage);
        };
        let [_, keys @ ..] = classes();
        let figures = [measure("calls"), skipped()];
        let span = Span::of(&filter);
        let from = self.summed(Kind::Calls, &filter, span, &keys, &figures, [&[]; 2])?;
        let keys = "s.by_priced, s.by_cost_unavailable, s.by_timed, s.by_tps_unavailable";
        let [calls, skipped] = figures.map(|figure| figure.merged());
        let statement = format!("SELECT {keys}, {calls}, {skipped} FROM {from} GROUP BY {keys}");
        for row in self.rows(&statement)? {
            let (cost, speed) = (row.text(1), row.text(3));
            let covered = Covered {
                priced: row.flag(0),
                cost_unavailable: cost.as_deref(),
                timed: row.flag(2),
                tps_unavailable: speed.as_deref(),
            };
            coverage.add_calls(covered, row.count(4), row.count(5));
        }
        Ok(coverage)
    }
}

/// The cursor of the page that follows this call.
fn cursor(row: &CallRow) -> String {
    format!("{}.{}", row.started_ms(), row.id())
}

/// The start and the id of the last call of the previous page.
fn place(cursor: &str) -> Result<(i64, Uuid), QueryError> {
    let (ms, id) = cursor.split_once('.').ok_or_else(QueryError::cursor)?;
    let ms = ms.parse().map_err(|_| QueryError::cursor())?;
    let id = Uuid::parse_str(id).map_err(|_| QueryError::cursor())?;
    Ok((ms, id))
}
