//! The throughput of each upstream by concurrency, and its knee.

use super::QueryError;
use super::groups::count;
use super::matching::text;
use crate::history::knee;
use crate::ledger::row::milliseconds;
use crate::query::CapacitySums;
use crate::query::{CapacityRow, Filter};
use rusqlite::Connection;

pub(super) fn capacity(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<CapacityRow>, QueryError> {
    let hour = |at| milliseconds(at).div_euclid(3_600_000) * 3600;
    let since = filter.since.map_or(0, hour);
    let until = filter.until.map_or(i64::MAX, |until| hour(until) + 3600);
    let mut statement = connection.prepare_cached(
        "SELECT upstream, concurrency, sum(busy_ms), sum(tokens), sum(decode_tokens),
         sum(decode_us) FROM capacity WHERE hour >= ? AND hour < ?
         GROUP BY upstream, concurrency ORDER BY upstream, concurrency",
    )?;
    let mut rows = statement.query([since, until])?;
    let mut all: Vec<(i64, CapacityRow)> = Vec::new();
    while let Some(row) = rows.next()? {
        let upstream = row.get(0)?;
        if all.last().is_none_or(|(last, _)| *last != upstream) {
            let name = text(connection, Some(upstream))?.unwrap_or_default();
            let fresh = CapacityRow {
                name,
                ..CapacityRow::default()
            };
            all.push((upstream, fresh));
        }
        let sums = CapacitySums {
            busy_millis: count(row.get(2)?),
            tokens: count(row.get(3)?),
            decoded: count(row.get(4)?),
            decode_millis: count(row.get(5)?) / 1000,
        };
        let point = sums.point(row.get(1)?);
        if let Some((_, last)) = all.last_mut() {
            last.points.push(point);
        }
    }
    let wanted = |name: &str| {
        filter
            .upstream
            .as_deref()
            .is_none_or(|wanted| wanted == name)
    };
    let rows = all.into_iter().map(|(_, row)| row);
    let mut rows: Vec<_> = rows.filter(|row| wanted(&row.name)).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    for row in &mut rows {
        match knee(&row.points) {
            Ok(knee) => row.knee = Some(knee),
            Err(reason) => row.reason = Some(reason.to_string()),
        }
    }
    Ok(rows)
}
