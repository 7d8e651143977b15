use super::QueryError;
use super::matching::text;
use crate::answer::count;
use crate::history::{CapacityBucket, capacity_since_change};
use crate::ledger::row::milliseconds;
use crate::query::CapacitySums;
use crate::query::Dimension;
use crate::query::{CapacityRow, Filter};
use rusqlite::Connection;
use std::collections::BTreeMap;

pub(super) fn capacity(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<CapacityRow>, QueryError> {
    let hour = |at| milliseconds(at).div_euclid(3_600_000) * 3600;
    let since = filter.since.map_or(0, hour);
    let until = filter.until.map_or(i64::MAX, |until| hour(until) + 3600);
    let mut statement = connection.prepare_cached(
        "SELECT upstream, hour, concurrency, busy_ms, tokens, decode_tokens, decode_us
         FROM capacity WHERE hour >= ? AND hour < ? ORDER BY upstream, hour, concurrency",
    )?;
    let mut rows = statement.query([since, until])?;
    let mut upstreams: BTreeMap<i64, Vec<CapacityBucket>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let hours = upstreams.entry(row.get(0)?).or_default();
        let at = count(row.get(1)?);
        if hours.last().is_none_or(|hour| hour.at != at) {
            let sums = BTreeMap::new();
            hours.push(CapacityBucket { at, sums });
        }
        let sums = CapacitySums {
            busy_millis: count(row.get(3)?),
            tokens: count(row.get(4)?),
            decoded: count(row.get(5)?),
            decode_millis: count(row.get(6)?) / 1000,
        };
        if let Some(hour) = hours.last_mut() {
            hour.sums.entry(row.get(2)?).or_default().merge(&sums);
        }
    }
    let mut all = Vec::new();
    for (upstream, hours) in upstreams {
        let name = text(connection, Some(upstream))?.unwrap_or_default();
        let wanted = filter.names.get(Dimension::Upstream);
        if wanted.is_none_or(|wanted| wanted == name) {
            all.push(capacity_since_change(&name, &hours));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}
