use super::QueryError;
use super::matching::{Matching, text};
use crate::answer::count;
use crate::query::{Coverage, Covered, Filter};
use rusqlite::{Connection, params_from_iter};
use tokengauge_core::hash::FastMap;

pub(super) fn coverage(connection: &Connection, filter: &Filter) -> Result<Coverage, QueryError> {
    let mut coverage = Coverage::default();
    let Some(filter) = filter.of_counted_classes() else {
        return Ok(coverage);
    };
    let Some(matching) = Matching::of(connection, &filter)? else {
        return Ok(coverage);
    };
    let mut sql = String::from(
        "SELECT series, cost_nano_usd IS NOT NULL, cost_unavailable, tps_output_milli IS NOT NULL,
         tps_unavailable, skipped_events FROM calls WHERE key >= ? AND key < ?",
    );
    let mut values = vec![matching.from, matching.to];
    matching.restrict(&mut sql, &mut values);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut alike: FastMap<Covered<i64>, (u64, u64)> = FastMap::default();
    while let Some(row) = rows.next()? {
        if !matching.series.contains_key(&row.get(0)?) {
            continue;
        }
        let covered = Covered {
            priced: row.get(1)?,
            cost_unavailable: row.get(2)?,
            timed: row.get(3)?,
            tps_unavailable: row.get(4)?,
        };
        let (calls, skipped) = alike.entry(covered).or_default();
        *calls += 1;
        *skipped += count(row.get::<_, Option<i64>>(5)?.unwrap_or(0));
    }
    for (covered, (calls, skipped)) in alike {
        let cost = text(connection, covered.cost_unavailable)?;
        let speed = text(connection, covered.tps_unavailable)?;
        let covered = Covered {
            priced: covered.priced,
            cost_unavailable: cost.as_deref(),
            timed: covered.timed,
            tps_unavailable: speed.as_deref(),
        };
        coverage.add_calls(covered, calls, skipped);
    }
    Ok(coverage)
}
