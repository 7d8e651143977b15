use super::matching::{listed, outcomes, selected, text};
use super::{QueryError, calls};
use crate::answer::{count, mean_speed, tokens};
use crate::history::waterfall_row;
use crate::ledger::dictionary::NameKind;
use crate::ledger::row::{micros, milliseconds, timestamp};
use crate::ledger::sessions::{COLUMNS, read};
use crate::query::Dimension;
use crate::query::{
    Filter, Page, Paging, SessionDetail, SessionQuery, SessionRow, SessionSeconds, SessionSort,
    SessionTps, WaterfallCall,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

/// Maximum number of sessions with a name that are queried by index; otherwise all are scanned.
const FEW: i64 = 5_000;
/// Maximum number of agents whose names contain a searched text.
const MAX_AGENTS: i64 = 500;

#[derive(Default)]
struct Conditions {
    sql: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn and(&mut self, sql: impl Into<String>, values: impl IntoIterator<Item = Value>) {
        self.sql.push(sql.into());
        self.values.extend(values);
    }

    fn all(&self) -> String {
        if self.sql.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", self.sql.join(" AND "))
        }
    }
}

pub(super) fn sessions(
    connection: &Connection,
    query: &SessionQuery,
) -> Result<Page<SessionRow>, QueryError> {
    let mut conditions = Conditions::default();
    // A session without calls has only calls that are nested in calls of other sessions.
    conditions.and("calls > 0", []);
    if !narrow(connection, query, &mut conditions)? {
        return Ok(Page {
            rows: Vec::new(),
            next_cursor: None,
        });
    }
    let (by, nullable) = sorted_by(query.sort);
    let (than, direction) = if query.ascending {
        (">", "ASC")
    } else {
        ("<", "DESC")
    };
    if let Some(cursor) = &query.page.cursor {
        after(&mut conditions, cursor, by, nullable, than)?;
    }
    let unknown_last = if nullable {
        format!("{by} IS NULL, ")
    } else {
        String::new()
    };
    let condition = conditions.all();
    let more = query.page.limit.saturating_add(1);
    let sql = format!(
        "SELECT {COLUMNS}, id, name, workload, user, experiment, variant, {by} FROM sessions s \
         {condition} ORDER BY {unknown_last}{by} {direction}, id {direction} LIMIT {more}"
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(conditions.values))?;
    let (mut found, mut next, mut last) = (Vec::new(), None, None);
    while let Some(row) = rows.next()? {
        if found.len() == query.page.limit {
            next = last;
            break;
        }
        found.push(session_row(connection, row)?);
        let value: Option<i64> = row.get(20)?;
        let value = value.map_or("-".to_owned(), |value| value.to_string());
        last = Some(format!("{value}.{}", row.get::<_, i64>(14)?));
    }
    Ok(Page {
        rows: found,
        next_cursor: next,
    })
}

/// Durations in seconds of the sessions whose last call ended within the time.
pub(super) fn task_seconds(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<f64>, QueryError> {
    let mut conditions = Conditions::default();
    conditions.and("calls > 0", []);
    let query = SessionQuery {
        filter: filter.clone(),
        ..SessionQuery::default()
    };
    if !narrow(connection, &query, &mut conditions)? {
        return Ok(Vec::new());
    }
    if let Some(until) = filter.until {
        let until = milliseconds(until).saturating_mul(1000);
        conditions.and("last_us < ?", [Value::Integer(until)]);
    }
    let sql = format!(
        "SELECT last_us - started_us FROM sessions s {}",
        conditions.all()
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(conditions.values), |row| {
        row.get::<_, i64>(0)
    })?;
    let seconds = rows.map(|us| us.map(|us| us as f64 / 1e6));
    Ok(seconds.collect::<Result<_, _>>()?)
}

/// Adds the filter's conditions. Returns `false` if nothing can match.
fn narrow(
    connection: &Connection,
    query: &SessionQuery,
    conditions: &mut Conditions,
) -> Result<bool, QueryError> {
    let filter = &query.filter;
    let us = |at| Value::Integer(milliseconds(at).saturating_mul(1000));
    if let Some(since) = filter.since {
        conditions.and("last_us >= ?", [us(since)]);
    }
    if let Some(until) = filter.until {
        conditions.and("started_us < ?", [us(until)]);
    }
    if let Some(session) = &filter.session {
        conditions.and("name = ?", [Value::Text(session.clone())]);
    }
    for (by, wanted) in filter.names.iter() {
        let ids = selected(connection, by, wanted)?;
        if ids.is_empty() {
            return Ok(false);
        }
        conditions.and(named(connection, &ids)?, []);
    }
    if let Some(ids) = outcomes(connection, filter)? {
        conditions.and(named(connection, &ids)?, []);
    }
    if let Some(search) = query.search.as_deref().filter(|search| !search.is_empty()) {
        searched(connection, search, conditions)?;
    }
    Ok(true)
}

/// The condition for sessions that have one of these names.
fn named(connection: &Connection, ids: &[i64]) -> rusqlite::Result<String> {
    let ids = listed(ids);
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM session_names WHERE name IN ({ids}) LIMIT {FEW})"
    );
    let sessions: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
    Ok(if sessions < FEW {
        format!("id IN (SELECT session FROM session_names WHERE name IN ({ids}))")
    } else {
        format!(
            "EXISTS (SELECT 1 FROM session_names n WHERE n.session = s.id AND n.name IN ({ids}))"
        )
    })
}

fn searched(
    connection: &Connection,
    search: &str,
    conditions: &mut Conditions,
) -> rusqlite::Result<()> {
    let mut pattern = String::from("%");
    for letter in search.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    let mut agents = connection.prepare_cached(
        "SELECT id FROM names WHERE kind = 'agent' AND name LIKE ? ESCAPE '\\' LIMIT ?",
    )?;
    let agents: Vec<String> = agents
        .query_map(rusqlite::params![pattern, MAX_AGENTS], |row| {
            row.get::<_, i64>(0)
        })?
        .map(|id| id.map(|id| id.to_string()))
        .collect::<Result<_, _>>()?;
    let by_agent = if agents.is_empty() {
        String::new()
    } else {
        let agents = agents.join(", ");
        format!(" OR id IN (SELECT session FROM session_names WHERE name IN ({agents}))")
    };
    let condition = format!("(name LIKE ? ESCAPE '\\'{by_agent})");
    conditions.and(condition, [Value::Text(pattern)]);
    Ok(())
}

fn sorted_by(sort: SessionSort) -> (&'static str, bool) {
    match sort {
        SessionSort::LastAt => ("last_us", false),
        SessionSort::StartedAt => ("started_us", false),
        SessionSort::Cost => ("cost_nano_usd", true),
        SessionSort::Tokens => (
            "iif(coalesce(input_tokens, output_tokens) IS NULL, NULL, \
             coalesce(input_tokens, 0) + coalesce(output_tokens, 0))",
            true,
        ),
        SessionSort::Calls => ("calls", false),
        SessionSort::Duration => ("(last_us - started_us)", false),
        SessionSort::Errors => ("errors", false),
        SessionSort::Ttft => ("ttft_p50_us", true),
        SessionSort::Tps => (
            "iif(decode_us > 0, CAST(decode_tokens * 1e9 / decode_us AS INTEGER), NULL)",
            true,
        ),
    }
}

fn after(
    conditions: &mut Conditions,
    cursor: &str,
    by: &str,
    nullable: bool,
    than: &str,
) -> Result<(), QueryError> {
    let (value, id) = cursor.split_once('.').ok_or_else(QueryError::cursor)?;
    let number = |text: &str| text.parse::<i64>().map_err(|_| QueryError::cursor());
    let id = Value::Integer(number(id)?);
    if value == "-" {
        conditions.and(format!("{by} IS NULL AND id {than} ?"), [id]);
        return Ok(());
    }
    let value = Value::Integer(number(value)?);
    let unknown = if nullable {
        format!(" OR {by} IS NULL")
    } else {
        String::new()
    };
    let condition = format!("(({by}, id) {than} (?, ?){unknown})");
    conditions.and(condition, [value, id]);
    Ok(())
}

fn session_row(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let session = read(row)?;
    let sums = &session.sums;
    let id: i64 = row.get(14)?;
    let seconds = |us: i64| us.max(0) as f64 / 1e6;
    let wall = session.last_us - session.started_us;
    let model = session.busy.length();
    let called = |at| text(connection, row.get(at)?);
    Ok(SessionRow {
        id: row.get(15)?,
        started_at: timestamp(session.started_us.div_euclid(1000)),
        last_at: timestamp(session.last_us.div_euclid(1000)),
        calls: count(sums.calls),
        errors: count(sums.errors),
        agents: names(connection, id, NameKind::Of(Dimension::Agent))?,
        models: names(connection, id, NameKind::Of(Dimension::Model))?,
        workload: called(16)?,
        user: called(17)?,
        experiment: called(18)?,
        variant: called(19)?,
        tokens: tokens(sums),
        cost_usd: sums.cost_nano.map(|nano| nano as f64 / 1e9),
        unpriced_calls: count(sums.unpriced),
        seconds: SessionSeconds {
            wall: seconds(wall),
            model: seconds(model),
            tools: seconds(wall - model),
            ttft_p50: sums.ttft.quantile(0.5),
        },
        tps: SessionTps {
            output: mean_speed(sums),
        },
        in_flight: 0,
    })
}

/// `CROSS JOIN` starts with the session's few names. Otherwise SQLite would start with all names of
/// the kind, because these are already in the requested order.
fn names(connection: &Connection, session: i64, kind: NameKind) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT n.name FROM session_names s CROSS JOIN names n ON n.id = s.name
         WHERE s.session = ? AND n.kind = ? ORDER BY n.name",
    )?;
    let names = statement.query_map(rusqlite::params![session, kind.as_str()], |row| row.get(0))?;
    names.collect()
}

pub(super) fn session(
    connection: &Connection,
    id: &str,
    page: &Paging,
) -> Result<Option<SessionDetail>, QueryError> {
    let sql = format!(
        "SELECT {COLUMNS}, id, name, workload, user, experiment, variant FROM sessions \
         WHERE name = ?"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([id], |row| {
        Ok((session_row(connection, row)?, row.get(14)?, row.get(0)?))
    });
    let Some((session, number, started_us)) = found.optional()? else {
        return Ok(None);
    };
    let (calls, next_cursor) = waterfall(connection, number, started_us, page)?;
    Ok(Some(SessionDetail {
        session,
        calls,
        next_cursor,
    }))
}

/// A page of the calls of a session by their start. A cursor consists of the key of the previous
/// call and the latest end of all calls before it.
fn waterfall(
    connection: &Connection,
    session: i64,
    started_us: i64,
    page: &Paging,
) -> Result<(Vec<WaterfallCall>, Option<String>), QueryError> {
    let (mut last, mut reached) = (0, None);
    if let Some(cursor) = &page.cursor {
        let (key, end) = cursor.split_once('.').ok_or_else(QueryError::cursor)?;
        last = key.parse().map_err(|_| QueryError::cursor())?;
        reached = Some(end.parse::<i64>().map_err(|_| QueryError::cursor())?);
    }
    let mut statement = connection.prepare_cached(
        "SELECT key, started_ms FROM calls WHERE session = ? AND key > ? ORDER BY key LIMIT ?",
    )?;
    let limit = i64::try_from(page.limit)
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    let mut rows = statement.query([session, last, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if found.len() == page.limit {
            let end = reached.unwrap_or(started_us);
            return Ok((found, Some(format!("{last}.{end}"))));
        }
        last = row.get(0)?;
        let start = row.get::<_, i64>(1)?.saturating_mul(1000);
        let Some(record) = calls::by_key(connection, last)? else {
            continue;
        };
        let wait = reached.map(|end: i64| (start - end).max(0) as f64 / 1e6);
        let offset = (start - started_us).max(0) as f64 / 1e6;
        let end = start + record.seconds.duration.and_then(micros).unwrap_or(0);
        reached = Some(reached.map_or(end, |before| before.max(end)));
        found.push(waterfall_row(&record, offset, wait));
    }
    Ok((found, None))
}
