//! Tokens by the second in which they arrived.

use super::dictionary::{Dictionary, NameKind};
use super::row::whole;
use crate::query::Dimension;
use rusqlite::{Connection, params};
use std::sync::Arc;
use tokengauge_core::throughput::{ThroughputDelta, UNKNOWN};

/// Lengths of the sums in seconds, and how long they are kept; the longest are kept as long as
/// calls.
pub(super) const LEVELS: [(i64, Option<i64>); 3] =
    [(1, Some(2 * DAY)), (60, Some(8 * DAY)), (3_600, None)];
const DAY: i64 = 86_400;

pub(super) fn save(
    deltas: &[ThroughputDelta],
    dictionary: &mut Dictionary,
    connection: &Connection,
) -> rusqlite::Result<()> {
    let mut add = connection.prepare_cached(
        "INSERT INTO throughput VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (level, start, route, upstream, model, workload) DO UPDATE SET
         streamed = streamed + excluded.streamed, spread = spread + excluded.spread",
    )?;
    for delta in deltas {
        let [route, upstream, model, workload] = names(delta, dictionary, connection)?;
        let second = whole(delta.second);
        for (level, _) in LEVELS {
            let start = second - second.rem_euclid(level);
            let (streamed, spread) = (delta.streamed, delta.spread);
            add.execute(params![
                level, start, route, upstream, model, workload, streamed, spread
            ])?;
        }
    }
    Ok(())
}

/// Ids of route, upstream, model and workload; 0 for a missing name.
fn names(
    delta: &ThroughputDelta,
    dictionary: &mut Dictionary,
    connection: &Connection,
) -> rusqlite::Result<[i64; 4]> {
    let key = &delta.key;
    let model = Some(&key.model).filter(|name| ***name != *UNKNOWN);
    let mut name = |kind, name: Option<&Arc<str>>| -> rusqlite::Result<i64> {
        let id = dictionary.maybe(connection, kind, name.map(|name| &**name))?;
        Ok(id.unwrap_or(0))
    };
    Ok([
        name(NameKind::Of(Dimension::Route), Some(&key.route))?,
        name(NameKind::Of(Dimension::Upstream), Some(&key.upstream))?,
        name(NameKind::Of(Dimension::Model), model)?,
        name(NameKind::Of(Dimension::Workload), key.workload.as_ref())?,
    ])
}
