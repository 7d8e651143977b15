use super::QueryError;
use super::matching::{name, text};
use crate::ledger::dictionary::NameKind;
use crate::ledger::experiment_units::{COLLAPSED, COLUMNS, UnitKey, read};
use crate::ledger::ledger_figures::FiguresReader;
use crate::ledger::unsummed_marks::Marks;
use crate::query::Dimension;
use crate::query::{ExperimentUnit, ExperimentUnits, UnitKind, UnitQuery, UnitSums};
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeMap;

pub(super) fn experiment_units(
    connection: &Connection,
    query: &UnitQuery,
) -> Result<ExperimentUnits, QueryError> {
    let mut found = Found::of(query.unit);
    if let Some(experiment) = name(
        connection,
        NameKind::Of(Dimension::Experiment),
        &query.experiment,
    )? {
        if let UnitKind::Block(_) = query.unit {
            every_call(connection, experiment, &mut found)?;
        } else {
            summed(connection, experiment, &mut found)?;
            unsummed(connection, experiment, &mut found)?;
        }
    }
    let mut units = Vec::new();
    for ((variant, unit), sums) in found.units {
        if query.matches(sums.first_at()) {
            units.push(ExperimentUnit {
                variant: text(connection, Some(variant))?,
                unit: unit_name(connection, query.unit, unit)?,
                sums,
            });
        }
    }
    units.sort_by(|one, other| {
        let order = |unit: &ExperimentUnit| (unit.variant.clone(), unit.sums.first_us);
        (order(one), &one.unit).cmp(&(order(other), &other.unit))
    });
    Ok(ExperimentUnits {
        units,
        calls_without_unit: found.calls_without_unit,
        collapsed_calls: found.collapsed_calls,
    })
}

struct Found {
    kind: UnitKind,
    units: BTreeMap<(i64, i64), UnitSums>,
    calls_without_unit: u64,
    collapsed_calls: u64,
}

impl Found {
    fn of(kind: UnitKind) -> Found {
        Found {
            kind,
            units: BTreeMap::new(),
            calls_without_unit: 0,
            collapsed_calls: 0,
        }
    }

    fn add(&mut self, [_, variant, session, agent, user]: UnitKey, sums: &UnitSums) {
        let unit = match self.kind {
            UnitKind::Session => session,
            UnitKind::Agent => agent,
            UnitKind::User => user,
            UnitKind::Block(_) => {
                let block = self.kind.block(sums.first_us);
                return self.merge(variant, block, sums);
            }
        };
        match unit {
            COLLAPSED => self.collapsed_calls += sums.calls,
            0 => self.calls_without_unit += sums.calls,
            _ => self.merge(variant, unit, sums),
        }
    }

    fn merge(&mut self, variant: i64, unit: i64, sums: &UnitSums) {
        self.units.entry((variant, unit)).or_default().merge(sums);
    }
}

fn summed(connection: &Connection, experiment: i64, found: &mut Found) -> Result<(), QueryError> {
    let sql = format!(
        "SELECT {COLUMNS}, variant, session, agent, user FROM experiment_units WHERE experiment = ?"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([experiment])?;
    while let Some(row) = rows.next()? {
        let ids = [row.get(23)?, row.get(24)?, row.get(25)?, row.get(26)?];
        let [variant, session, agent, user] = ids;
        found.add([experiment, variant, session, agent, user], &read(row)?);
    }
    Ok(())
}

fn unsummed(connection: &Connection, experiment: i64, found: &mut Found) -> Result<(), QueryError> {
    let mark = Marks::load(connection)?.units;
    match mark {
        0 => Ok(()),
        _ => calls_before(connection, experiment, mark, found),
    }
}

fn every_call(
    connection: &Connection,
    experiment: i64,
    found: &mut Found,
) -> Result<(), QueryError> {
    calls_before(connection, experiment, i64::MAX, found)
}

fn calls_before(
    connection: &Connection,
    experiment: i64,
    mark: i64,
    found: &mut Found,
) -> Result<(), QueryError> {
    let mut series = connection.prepare_cached("SELECT id FROM series WHERE experiment = ?")?;
    let series = series.query_map([experiment], |row| row.get::<_, i64>(0))?;
    let mut reader = FiguresReader::new(connection);
    for id in series {
        reader.read("series = ? AND key < ?", [id?, mark], |call| {
            if let Some(key) = call.experiment_unit().filter(|_| call.figures.counts()) {
                found.add(key, &UnitSums::of(&call.figures));
            }
        })?;
    }
    Ok(())
}

pub(super) fn unit_name(
    connection: &Connection,
    kind: UnitKind,
    id: i64,
) -> rusqlite::Result<String> {
    let found = match kind {
        UnitKind::Session => connection
            .prepare_cached("SELECT name FROM sessions WHERE id = ?")?
            .query_row([id], |row| row.get(0))
            .optional()?,
        UnitKind::Agent | UnitKind::User => text(connection, Some(id))?,
        UnitKind::Block(_) => Some(kind.block_name(id)),
    };
    Ok(found.unwrap_or_else(|| id.to_string()))
}
