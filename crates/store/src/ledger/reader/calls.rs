//! Pages of call records, newest first.

use super::QueryError;
use super::matching::Matching;
use super::scan::word;
use crate::ledger::row::key_at;
use crate::query::{Filter, Page, Paging};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use std::collections::BinaryHeap;
use std::sync::Arc;
use tokengauge_core::call::{
    Bytes, CallRecord, EngineReport, Normalised, Operation, Outcome, Seconds, SpeedSegment, Tokens,
    Tps, Usage,
};
use uuid::Uuid;

/// The most series that are queried by index; beyond it, all calls are scanned.
const FEW: usize = 400;
/// Calls that are scanned for a page of a filter without an index: a page may be short and
/// still have a next one.
const MAX_STEPS: usize = 50_000;

pub(super) fn calls(
    connection: &Connection,
    filter: &Filter,
    page: &Paging,
) -> Result<Page<CallRecord>, QueryError> {
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
    let alone = matching.session.is_none() && matching.user.is_none();
    let (keys, next) = if alone && !matching.all && matching.series.len() <= FEW {
        by_series(connection, &matching, page.limit)?
    } else {
        by_key_order(connection, &matching, page.limit)?
    };
    let mut rows = Vec::new();
    for key in keys {
        rows.extend(by_key(connection, key)?);
    }
    Ok(Page {
        rows,
        next_cursor: next.map(|next| next.to_string()),
    })
}

type Keys = (Vec<i64>, Option<i64>);

/// The newest keys of each combination, put together.
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
        // The smallest of those that are kept is on top.
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

/// As many as asked for, and the last of them where there are more.
fn cut(mut keys: Vec<i64>, limit: usize) -> Keys {
    let more = keys.len() > limit;
    keys.truncate(limit);
    let next = keys.last().copied().filter(|_| more);
    (keys, next)
}

/// Scans calls from the newest on, of one session or user where the filter has one.
fn by_key_order(
    connection: &Connection,
    matching: &Matching,
    limit: usize,
) -> Result<Keys, QueryError> {
    let mut sql = String::from("SELECT key, series FROM calls WHERE key >= ? AND key < ?");
    let mut values = vec![matching.from, matching.to];
    for (column, id) in [("session", matching.session), ("user", matching.user)] {
        if let Some(id) = id {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(id);
        }
    }
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

/// Milliseconds by which the time in an id and the call's start may differ.
const ID_TOLERANCE: i64 = 2_000;

/// The record with this id; `None` where there is none.
pub(super) fn by_id(connection: &Connection, id: Uuid) -> Result<Option<CallRecord>, QueryError> {
    // Keys sort by start, as ids do: the time in the id says where to look.
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

/// The record with this key.
pub(in crate::ledger) fn by_key(
    connection: &Connection,
    key: i64,
) -> rusqlite::Result<Option<CallRecord>> {
    connection
        .prepare_cached("SELECT * FROM calls_readable WHERE key = ?")?
        .query_row([key], record)
        .optional()
}

/// A record from a row of `calls_readable`.
pub(in crate::ledger) fn record(row: &Row<'_>) -> rusqlite::Result<CallRecord> {
    let text = |name: &str| row.get::<_, Option<String>>(name);
    let finish: Option<String> = text("finish_reasons")?;
    let operation: Operation = parsed(text("operation")?).unwrap_or_default();
    Ok(CallRecord {
        id: row.get("id")?,
        started_at: row.get("started_at")?,
        route: text("route")?.unwrap_or_default(),
        upstream: text("upstream")?.unwrap_or_default(),
        upstream_facts: text("upstream_facts")?
            .and_then(|facts| Some(Arc::new(facts.parse().ok()?))),
        endpoint: text("endpoint")?,
        dialect: parsed(text("dialect")?).unwrap_or_default(),
        operation,
        operation_class: parsed(text("operation_class")?).unwrap_or(operation.class()),
        method: text("method")?,
        path: text("path")?,
        model_requested: text("model_requested")?,
        model: text("model")?,
        streamed: row.get("streamed")?,
        status: row.get("status")?,
        outcome: parsed(text("outcome")?).unwrap_or(Outcome::Complete),
        error_type: text("error_type")?,
        finish_reasons: finish
            .and_then(|reasons| serde_json::from_str(&reasons).ok())
            .unwrap_or_default(),
        session: text("session")?,
        session_guess: parsed(text("session_guess")?),
        agent: text("agent")?,
        parent_agent: text("parent_agent")?,
        user: text("user")?,
        workload: text("workload")?,
        experiment: text("experiment")?,
        variant: text("variant")?,
        trace_id: text("trace_id")?,
        hop: row.get("hop")?,
        response_id: text("response_id")?,
        service_tier: text("service_tier")?,
        warm_up: row.get::<_, Option<bool>>("warm_up")?.unwrap_or(false),
        tokens: tokens(row)?,
        seconds: seconds(row)?,
        tps: Tps {
            output: row.get("output_tokens_per_second")?,
            answer: row.get("answer_tokens_per_second")?,
            total: row.get("total_tokens_per_second")?,
            reported: row.get("reported_tokens_per_second")?,
            prefill: row.get("prefill_tokens_per_second")?,
            unavailable: parsed(text("tps_unavailable")?),
            total_unavailable: parsed(text("tps_total_unavailable")?),
        },
        frames: count(row, "frames")?.unwrap_or(0),
        stalls: count(row, "stalls")?.unwrap_or(0),
        segments: segments(text("segments")?),
        first_token_event: count(row, "first_token_event")?,
        bytes: Bytes {
            request: count(row, "request_bytes")?.unwrap_or(0),
            response: count(row, "response_bytes")?.unwrap_or(0),
        },
        cost_usd: row.get("cost_usd")?,
        cost_source: parsed(text("cost_source")?),
        engine: engine(row)?,
    })
}

/// Pairs of tokens and seconds from their JSON.
fn segments(written: Option<String>) -> Vec<SpeedSegment> {
    let pairs = written.and_then(|json| serde_json::from_str::<Vec<(u64, f64)>>(&json).ok());
    let pairs = pairs.unwrap_or_default().into_iter();
    pairs
        .map(|(tokens, seconds)| SpeedSegment { tokens, seconds })
        .collect()
}

fn parsed<T: serde::de::DeserializeOwned>(text: Option<String>) -> Option<T> {
    word(&text?)
}

fn count(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<u64>> {
    let count: Option<i64> = row.get(name)?;
    Ok(count.and_then(|count| u64::try_from(count).ok()))
}

fn tokens(row: &Row<'_>) -> rusqlite::Result<Tokens> {
    Ok(Tokens {
        normalised: Normalised {
            answer: count(row, "normalised_answer_tokens")?,
            reasoning: count(row, "normalised_reasoning_tokens")?,
            tool_call: count(row, "normalised_tool_call_tokens")?,
            output: count(row, "normalised_output_tokens")?,
            input: count(row, "normalised_input_tokens")?,
        },
        reported: Usage {
            input: count(row, "reported_input_tokens")?,
            cached_input: count(row, "reported_cached_input_tokens")?,
            cache_write: count(row, "reported_cache_write_tokens")?,
            output: count(row, "reported_output_tokens")?,
            reasoning: count(row, "reported_reasoning_tokens")?,
            cache_write_1h: None,
        },
        source: parsed(row.get("token_source")?),
    })
}

fn seconds(row: &Row<'_>) -> rusqlite::Result<Seconds> {
    Ok(Seconds {
        ttft: row.get("ttft_seconds")?,
        ttft_upstream: row.get("ttft_upstream_seconds")?,
        first_answer: row.get("first_answer_seconds")?,
        connect: row.get("connect_seconds")?,
        upload: row.get("upload_seconds")?,
        last_token: row.get("last_token_seconds")?,
        longest_gap: row.get("longest_gap_seconds")?,
        duration: row.get("duration_seconds")?,
        agent_blocked: row.get("agent_blocked_seconds")?,
    })
}

fn engine(row: &Row<'_>) -> rusqlite::Result<Option<EngineReport>> {
    fn of<T: FromSql>(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<T>> {
        row.get(name)
    }
    let engine = EngineReport {
        prompt_tokens: count(row, "engine_prompt_tokens")?,
        prompt_seconds: of(row, "engine_prompt_seconds")?,
        output_tokens: count(row, "engine_output_tokens")?,
        output_seconds: of(row, "engine_output_seconds")?,
        load_seconds: of(row, "engine_load_seconds")?,
        total_seconds: of(row, "engine_total_seconds")?,
    };
    Ok((engine != EngineReport::default()).then_some(engine))
}
