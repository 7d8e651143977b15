//! Prompt-cache misses by their cause.

use super::QueryError;
use super::matching::{Matching, text};
use crate::ledger::row::timestamp;
use crate::query::{CacheBreakCause, CacheBreakSums, CacheBreaks, Dimension, Filter};
use rusqlite::{Connection, params_from_iter};
use tokengauge_core::prompt::PromptBreakCause;

pub(super) fn cache_breaks(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<CacheBreaks>, QueryError> {
    let mut sums = CacheBreakSums::default();
    let Some(matching) = Matching::of(connection, filter)? else {
        return Ok(Vec::new());
    };
    let mut sql =
        "SELECT series, cache_break_cause, cache_break_section, cache_break_change, count(*),
        sum(cache_break_tokens), sum(cache_break_cost_usd), min(started_ms), max(started_ms)
        FROM calls JOIN analyses USING (key)
        WHERE key >= ? AND key < ? AND cache_break_cause IS NOT NULL"
            .to_owned();
    let mut values = vec![matching.from, matching.to];
    matching.restrict(&mut sql, &mut values);
    sql.push_str(" GROUP BY 1, 2, 3, 4");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let (common, cause) = (matching.series.get(&row.get(0)?), row.get_ref(1)?);
        let cause = PromptBreakCause::named(cause.as_str().unwrap_or_default());
        let Some((common, cause)) = common.zip(cause) else {
            continue;
        };
        sums.add(CacheBreaks {
            of: CacheBreakCause {
                agent: text(connection, common.of(Dimension::Agent))?,
                cause,
                section: row.get(2)?,
                change: row.get(3)?,
            },
            calls: row.get::<_, i64>(4)?.unsigned_abs(),
            tokens: row.get::<_, Option<i64>>(5)?.unwrap_or(0).unsigned_abs(),
            cost_usd: row.get(6)?,
            first_at: timestamp(row.get(7)?),
            last_at: timestamp(row.get(8)?),
        });
    }
    Ok(sums.rows())
}
