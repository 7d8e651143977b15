use super::QueryError;
use crate::ledger::dictionary::{NameKind, SeriesNames, select_series};
use crate::ledger::row::{key_at, milliseconds};
use crate::query::{Dimension, Filter};
use rusqlite::{Connection, OptionalExtension, params};
use tokengauge_core::dimension::TOOLS_BETWEEN;
use tokengauge_core::hash::FastMap;

type IdsOfColumn = (&'static str, Vec<i64>);

/// A filter with ids instead of names.
pub(super) struct Matching {
    pub(super) from: i64,
    /// Key after the last.
    pub(super) to: i64,
    /// Bounds in milliseconds since 1970; `None` is unbounded.
    pub(super) since: Option<i64>,
    pub(super) until: Option<i64>,
    pub(super) series: FastMap<i64, SeriesNames>,
    /// The filter's names that are in series.
    names: Vec<(Dimension, i64)>,
    pub(super) all: bool,
    /// Columns that only calls have, such as session and user, and the ids that each may have.
    of_calls: Vec<IdsOfColumn>,
}

/// The id of a name; `None` if the name is unknown, so that nothing can match.
pub(super) fn name(
    connection: &Connection,
    kind: NameKind,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM names WHERE kind = ? AND name = ?")?
        .query_row(params![kind.as_str(), name], |row| row.get(0))
        .optional()
}

impl Matching {
    /// `None` if no call can match.
    pub(super) fn of(
        connection: &Connection,
        filter: &Filter,
    ) -> Result<Option<Matching>, QueryError> {
        let mut names = Vec::new();
        for (by, wanted) in filter.names.iter().filter(|(by, _)| by.is_in_series()) {
            let Some(id) = name(connection, NameKind::Of(by), wanted)? else {
                return Ok(None);
            };
            names.push((by, id));
        }
        let classes = classes(connection, filter)?;
        let outcomes = outcomes(connection, filter)?;
        let Some(of_calls) = of_calls(connection, filter)? else {
            return Ok(None);
        };
        let since = filter.since.map(milliseconds);
        let until = filter.until.map(milliseconds);
        Ok(Some(Matching {
            from: since.map_or(0, key_at),
            to: until.map_or(i64::MAX, key_at),
            since,
            until,
            series: series(connection, &names, classes.as_deref(), outcomes.as_deref())?,
            all: names.is_empty() && classes.is_none() && outcomes.is_none(),
            names,
            of_calls,
        }))
    }

    /// The columns of `throughput` that must match, with their ids.
    pub(super) fn of_throughput(&self) -> impl Iterator<Item = (&'static str, i64)> {
        self.names.iter().map(|(by, id)| (by.column(), *id))
    }

    /// Whether rollups can answer. They have no sessions, users, keys and tools.
    pub(super) fn summed(&self) -> bool {
        self.of_calls.is_empty()
    }

    /// Restricts a query on `calls` or `daily_spending` by columns that are not in series; `values`
    /// are the query's parameters.
    pub(super) fn restrict(&self, sql: &mut String, values: &mut Vec<i64>) {
        for (column, ids) in &self.of_calls {
            match ids.as_slice() {
                [id] => {
                    sql.push_str(&format!(" AND {column} = ?"));
                    values.push(*id);
                }
                // SQLite's limit on parameters does not allow one per id.
                ids => sql.push_str(&format!(" AND {column} IN ({})", listed(ids))),
            }
        }
    }
}

/// The columns of `calls` with the ids that each may have; `None` if a name is unknown, so that
/// nothing can match.
fn of_calls(
    connection: &Connection,
    filter: &Filter,
) -> rusqlite::Result<Option<Vec<IdsOfColumn>>> {
    let mut found = Vec::new();
    if let Some(session) = filter.session.as_deref() {
        let Some(id) = session_id(connection, session)? else {
            return Ok(None);
        };
        found.push(("session", vec![id]));
    }
    for (by, wanted) in filter.names.iter().filter(|(by, _)| !by.is_in_series()) {
        let ids = selected(connection, by, wanted)?;
        if ids.is_empty() {
            return Ok(None);
        }
        found.push((by.column(), ids));
    }
    let cost = filter.cost_unavailable.map(|reason| reason.as_str());
    let tps = filter.tps_unavailable.map(|reason| reason.as_str());
    for (kind, wanted) in [
        (NameKind::CostUnavailable, cost),
        (NameKind::TpsUnavailable, tps),
    ] {
        let Some(wanted) = wanted else { continue };
        let Some(id) = name(connection, kind, wanted)? else {
            return Ok(None);
        };
        found.push((kind.as_str(), vec![id]));
    }
    Ok(Some(found))
}

pub(super) fn selected(
    connection: &Connection,
    by: Dimension,
    wanted: &str,
) -> rusqlite::Result<Vec<i64>> {
    let kind = NameKind::Of(by);
    if by != Dimension::Tool || wanted.contains(TOOLS_BETWEEN) {
        return Ok(name(connection, kind, wanted)?.into_iter().collect());
    }
    let mut named = connection.prepare_cached(
        "SELECT id FROM names WHERE kind = ?1 AND instr(?3 || name || ?3, ?3 || ?2 || ?3) > 0",
    )?;
    let between = TOOLS_BETWEEN.to_string();
    let ids = named.query_map(params![kind.as_str(), wanted, between], |row| row.get(0))?;
    ids.collect()
}

pub(super) fn listed(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    ids.join(", ")
}

fn session_id(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM sessions WHERE name = ?")?
        .query_row([name], |row| row.get(0))
        .optional()
}

fn classes(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<Vec<i64>>> {
    if filter.operation_classes.is_empty() {
        return Ok(None);
    }
    let mut ids = Vec::new();
    for class in &filter.operation_classes {
        ids.extend(name(connection, NameKind::OperationClass, class.as_str())?);
    }
    Ok(Some(ids))
}

pub(super) fn outcomes(
    connection: &Connection,
    filter: &Filter,
) -> rusqlite::Result<Option<Vec<i64>>> {
    if filter.outcomes.is_empty() {
        return Ok(None);
    }
    let mut ids = Vec::new();
    for outcome in &filter.outcomes {
        ids.extend(name(
            connection,
            NameKind::Of(Dimension::Outcome),
            outcome.as_str(),
        )?);
    }
    Ok(Some(ids))
}

/// The combinations with all these names, one of these classes and one of these outcomes.
fn series(
    connection: &Connection,
    names: &[(Dimension, i64)],
    classes: Option<&[i64]>,
    outcomes: Option<&[i64]>,
) -> rusqlite::Result<FastMap<i64, SeriesNames>> {
    let mut statement = connection.prepare_cached(&select_series())?;
    let mut rows = statement.query([])?;
    let mut found = FastMap::default();
    while let Some(row) = rows.next()? {
        let common = SeriesNames::read(row, 1)?;
        let has = |(by, id): &(Dimension, i64)| common.of(*by) == Some(*id);
        // Calls that are older than classes match any class.
        let class = common.class();
        let meant = classes.is_none_or(|all| class.is_none_or(|class| all.contains(&class)));
        let outcome = common.of(Dimension::Outcome);
        let ended = outcomes.is_none_or(|all| outcome.is_some_and(|one| all.contains(&one)));
        if meant && ended && names.iter().all(has) {
            found.insert(row.get(0)?, common);
        }
    }
    Ok(found)
}

pub(super) fn text(connection: &Connection, id: Option<i64>) -> rusqlite::Result<Option<String>> {
    let Some(id) = id else { return Ok(None) };
    connection
        .prepare_cached("SELECT name FROM names WHERE id = ?")?
        .query_row([id], |row| row.get(0))
        .optional()
}
