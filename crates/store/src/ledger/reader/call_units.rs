use super::QueryError;
use super::experiment_units::unit_name;
use super::matching::{Matching, name};
use crate::ledger::dictionary::NameKind;
use crate::ledger::ledger_figures::FiguresReader;
use crate::query::Dimension;
use crate::query::{CallUnit, CallUnitQuery, CallUnits, UnitKind, UnitSums};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Selects the rows of `calls` in the sample: those with a small hash (Knuth's multiplicative hash)
/// of the session's id, so that sessions are complete. Without a session, the time in the call's
/// key is hashed. The masks keep the product within 64 bits.
const SAMPLED: &str =
    "((((coalesce(session, key >> 22)) & 2147483647) * 2654435761) & 4294967295) < ?";
const HASHES: u64 = 1 << 32;

pub(super) fn call_units(
    connection: &Connection,
    query: &CallUnitQuery,
) -> Result<CallUnits, QueryError> {
    let mut found = CallUnits::default();
    let Some(matching) = Matching::of(connection, &query.filter)? else {
        return Ok(found);
    };
    let mut series: Vec<i64> = matching.series.keys().copied().collect();
    if let Some(wanted) = &query.variant {
        let variant = name(connection, NameKind::Of(Dimension::Variant), wanted)?;
        series.retain(|id| {
            matching.series[id].of(Dimension::Variant) == variant && variant.is_some()
        });
    }
    let between = [matching.from, matching.to];
    let mut count = connection
        .prepare_cached("SELECT count(*) FROM calls WHERE series = ? AND key >= ? AND key < ?")?;
    for id in &series {
        let calls: i64 = count.query_row(params![id, between[0], between[1]], |row| row.get(0))?;
        found.calls += u64::try_from(calls).unwrap_or(0);
    }
    while found.calls / found.one_in > query.max_calls {
        found.one_in *= 2;
    }
    let hash_below = i64::try_from(HASHES / found.one_in).unwrap_or(0);
    let condition = format!("series = ? AND key >= ? AND key < ? AND {SAMPLED}");
    let mut units: BTreeMap<i64, UnitSums> = BTreeMap::new();
    let mut reader = FiguresReader::new(connection);
    for id in series {
        let values = params![id, between[0], between[1], hash_below];
        reader.read(&condition, values, |call| {
            let [_, _, session, agent, user] = call.names;
            let sums = UnitSums::of(&call.figures);
            let unit = match query.unit {
                UnitKind::Session => session,
                UnitKind::Agent => agent,
                UnitKind::User => user,
                UnitKind::Block(_) => query.unit.block(call.figures.started_us),
            };
            match unit {
                0 => found.units.push(CallUnit { name: None, sums }),
                _ => units.entry(unit).or_default().merge(&sums),
            }
        })?;
    }
    for (unit, sums) in units {
        found.units.push(CallUnit {
            name: Some(unit_name(connection, query.unit, unit)?),
            sums,
        });
    }
    found.scale_costs(query.unit);
    Ok(found)
}
