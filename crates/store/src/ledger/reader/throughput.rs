use super::QueryError;
use super::matching::Matching;
use crate::ledger::row::{key_at, started_ms};
use crate::ledger::throughput::LEVELS;
use crate::query::Filter;
use rusqlite::{Connection, Row, params_from_iter};
use tokengauge_core::call::TpsUnavailable;
use tokengauge_core::throughput::{Generated, Steps};

/// How long before a time calls may have begun that generated in it, in milliseconds.
const EARLIER: i64 = 3_600_000;

/// The tokens per step from `from` to `to`, in seconds since 1970, and their part from whole
/// answers. `None` for steps that have calls but no sums.
pub(super) fn rates(
    connection: &Connection,
    filter: &Filter,
    matching: &Matching,
    (from, to): (i64, i64),
    step: i64,
) -> Result<Vec<Option<(f64, f64)>>, QueryError> {
    let count = usize::try_from((to - from) / step).unwrap_or(0);
    let mut steps = Steps::new(from.max(0) as u64, step as u64, count);
    if filter.throughput().is_none() {
        each_call(connection, matching, (from, to), |call| {
            steps.add_call(call)
        })?;
        return Ok((0..count).map(|at| Some(steps.rate(at))).collect());
    }
    let known = known_since(connection, step)?;
    let Some((level, first)) = known else {
        return Ok(vec![None; count]);
    };
    let mut sql = String::from(
        "SELECT start, sum(streamed), sum(spread) FROM throughput
         WHERE level = ? AND start >= ? AND start < ?",
    );
    let mut values = vec![level, from, to];
    for (column, id) in matching.of_throughput() {
        sql.push_str(&format!(" AND {column} = ?"));
        values.push(id);
    }
    sql.push_str(" GROUP BY start");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let second: i64 = row.get(0)?;
        let tokens = |at| row.get::<_, i64>(at).map(|tokens| tokens as f64);
        steps.add(second.max(0) as u64, tokens(1)?, tokens(2)?);
    }
    let known = |at: usize| from + (at as i64 + 1) * step > first;
    let rate = |at| known(at).then(|| steps.rate(at));
    Ok((0..count).map(rate).collect())
}

/// The longest sums that fit into a step, and the start of the first of them.
fn known_since(connection: &Connection, step: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut first =
        connection.prepare_cached("SELECT min(start) FROM throughput WHERE level = ?")?;
    let fits = LEVELS
        .into_iter()
        .rev()
        .find(|(level, _)| step % level == 0);
    let Some((level, _)) = fits else {
        return Ok(None);
    };
    let first: Option<i64> = first.query_row([level], |row| row.get(0))?;
    Ok(first.map(|first| (level, first)))
}

fn each_call(
    connection: &Connection,
    matching: &Matching,
    (from, to): (i64, i64),
    mut tell: impl FnMut(&Generated),
) -> Result<(), QueryError> {
    let buffered = TpsUnavailable::Buffered.as_str();
    let mut sql = format!(
        "SELECT key, series, coalesce(normalised_output, reported_output), streamed,
         connect_us, upload_us, ttft_us, last_token_us, duration_us,
         coalesce(tps_unavailable = (SELECT id FROM names
             WHERE kind = 'tps_unavailable' AND name = '{buffered}'), 0)
         FROM calls WHERE key >= ? AND key < ?"
    );
    let since = matching.since.unwrap_or(0).max(from * 1000 - EARLIER);
    let until = matching
        .until
        .unwrap_or(i64::MAX)
        .min(to.saturating_mul(1000));
    let mut values = vec![key_at(since), key_at(until)];
    matching.restrict(&mut sql, &mut values);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        if matching.series.contains_key(&row.get(1)?)
            && let Some(call) = generated(row)?
        {
            tell(&call);
        }
    }
    Ok(())
}

fn generated(row: &Row<'_>) -> rusqlite::Result<Option<Generated>> {
    let Some(tokens) = row.get::<_, Option<i64>>(2)? else {
        return Ok(None);
    };
    let seconds = |at: usize| -> rusqlite::Result<Option<f64>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(|us| us as f64 / 1e6))
    };
    let streamed: Option<bool> = row.get(3)?;
    let whole = streamed == Some(false) || row.get::<_, bool>(9)?;
    let before = seconds(4)?.unwrap_or(0.0) + seconds(5)?.unwrap_or(0.0);
    let (from, to) = match (whole, seconds(6)?, seconds(7)?) {
        (false, Some(first), Some(last)) => (first, last),
        _ => (before, seconds(8)?.unwrap_or(before)),
    };
    let started = started_ms(row.get(0)?) as f64 / 1000.0;
    Ok(Some(Generated {
        from: started + from,
        to: started + to.max(from),
        tokens: tokens as f64,
        whole,
    }))
}
