//! The scores of the calls that match, by group and unit.

use super::QueryError;
use super::experiment_units::unit_name;
use super::groups::Value;
use super::matching::{Matching, name};
use crate::ledger::dictionary::NameKind;
use crate::ledger::row::{SHARE_COLUMNS, Share, started_ms};
use crate::ledger::scores;
use crate::query::{
    CallIds, Dimension, ScoreId, ScoreIndex, ScoreQuery, ScoreTally, ScoredUnit, UnitKind,
};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use tokengauge_core::hash::FastMap;

/// The newest calls that are read. A scan of more would take seconds.
const MAX_CALLS: i64 = 300_000;

/// A unit within a group: the id of its name, or the key of a call that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnitId {
    Named(i64),
    Call(i64),
}

pub(super) fn scored_units(
    connection: &Connection,
    query: &ScoreQuery,
) -> Result<Vec<ScoredUnit>, QueryError> {
    let index = scores::index(connection, query.filter.since)?;
    if index.is_empty() {
        return Ok(Vec::new());
    }
    let Some(mut matching) = Matching::of(connection, &query.filter)? else {
        return Ok(Vec::new());
    };
    if let Some(wanted) = &query.variant {
        let variant = name(connection, NameKind::Of(Dimension::Variant), wanted)?;
        matching
            .series
            .retain(|_, common| variant.is_some() && common.of(Dimension::Variant) == variant);
    }
    let scan = Scan {
        sessions: session_ids(connection, &index)?,
        index: &index,
        query,
        matching: &matching,
    };
    let tally = scan.run(connection)?;
    let mut units = Vec::new();
    for ((group, unit), scores) in tally.into_units(&index) {
        let names = group.into_iter().map(|value| value.text(connection));
        units.push(ScoredUnit {
            names: names.collect::<Result<_, _>>()?,
            unit: match unit {
                UnitId::Named(id) => Some(unit_name(connection, query.unit, id)?),
                UnitId::Call(_) => None,
            },
            scores,
        });
    }
    Ok(units)
}

/// The scored sessions by their ids in the ledger.
fn session_ids(
    connection: &Connection,
    index: &ScoreIndex,
) -> rusqlite::Result<FastMap<i64, Vec<ScoreId>>> {
    let mut find = connection.prepare_cached("SELECT id FROM sessions WHERE name = ?")?;
    let mut sessions = FastMap::default();
    for (name, ids) in index.sessions() {
        if let Some(id) = find.query_row([name], |row| row.get(0)).optional()? {
            sessions.insert(id, ids.to_vec());
        }
    }
    Ok(sessions)
}

struct Scan<'a> {
    index: &'a ScoreIndex,
    sessions: FastMap<i64, Vec<ScoreId>>,
    query: &'a ScoreQuery,
    matching: &'a Matching,
}

impl Scan<'_> {
    fn run(&self, connection: &Connection) -> rusqlite::Result<ScoreTally<Vec<Value>, UnitId>> {
        let mut sql = format!(
            "SELECT key, series, {SHARE_COLUMNS}, session, id, trace_id, response_id FROM calls \
             WHERE key >= ? AND key < ?"
        );
        let mut values = vec![self.matching.from, self.matching.to];
        self.matching.restrict(&mut sql, &mut values);
        sql.push_str(" ORDER BY key DESC LIMIT ?");
        values.push(MAX_CALLS);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut tally = ScoreTally::new();
        while let Some(row) = rows.next()? {
            self.call(row, &mut tally)?;
        }
        Ok(tally)
    }

    fn call(
        &self,
        row: &Row<'_>,
        tally: &mut ScoreTally<Vec<Value>, UnitId>,
    ) -> rusqlite::Result<()> {
        let Some(common) = self.matching.series.get(&row.get(1)?) else {
            return Ok(());
        };
        let session: Option<i64> = row.get(10)?;
        let trace: Option<[u8; 16]> = row.get(12)?;
        let response = row.get_ref(13)?.as_str_or_null()?;
        let ids = CallIds {
            id: u128::from_be_bytes(row.get(11)?),
            response,
            trace: trace.map(u128::from_be_bytes),
        };
        let mut scores: Vec<ScoreId> = self.index.ids_of_call(ids).collect();
        let of_session = session.and_then(|session| self.sessions.get(&session));
        scores.extend(of_session.into_iter().flatten());
        if scores.is_empty() {
            return Ok(());
        }
        let key: i64 = row.get(0)?;
        let share = Share::read(row, 2)?;
        let by = self.query.by.iter();
        let group = by.map(|by| Value::of(*by, common, Some(&share))).collect();
        let unit = match self.query.unit {
            UnitKind::Session => session,
            UnitKind::Agent => common.of(Dimension::Agent),
            UnitKind::User => share.spending[0],
            UnitKind::Block(_) => {
                let us = started_ms(key).saturating_mul(1000);
                Some(self.query.unit.block(us))
            }
        };
        let unit = unit.map_or(UnitId::Call(key), UnitId::Named);
        tally.add(group, unit, &scores);
        Ok(())
    }
}
