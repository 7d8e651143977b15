//! What each upstream gave at which number of calls at once, and where that stops paying.

use super::groups::count;
use super::matching::text;
use super::{CapacityPoint, CapacityRow, Filter, Knee, QueryError};
use crate::ledger::entry::milliseconds;
use rusqlite::Connection;

/// A concurrency that was seen for less is left out of the search for the knee.
const SEEN_FOR: u64 = 10;
/// Concurrencies that a knee is looked for in.
const MIN_POINTS: usize = 4;
/// As good as the best.
const NEAR: f64 = 0.95;

pub(super) fn capacity(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<CapacityRow>, QueryError> {
    let hour = |at| milliseconds(at).div_euclid(3_600_000) * 3600;
    let since = filter.since.map_or(0, hour);
    let until = filter.until.map_or(i64::MAX, |until| hour(until) + 3600);
    let mut statement = connection.prepare_cached(
        "SELECT upstream, concurrency, sum(seconds), sum(tokens), sum(decode_tokens),
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
        let (seconds, tokens): (i64, i64) = (row.get(2)?, row.get(3)?);
        let (decoded, us): (i64, i64) = (row.get(4)?, row.get(5)?);
        let point = CapacityPoint {
            concurrency: row.get(1)?,
            system_tps: tokens as f64 / seconds.max(1) as f64,
            request_tps: (us > 0).then(|| decoded as f64 * 1e6 / us as f64),
            seconds: count(seconds),
        };
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
            Err(reason) => row.reason = Some(reason),
        }
    }
    Ok(rows)
}

/// The smallest concurrency that gives nearly the most, where more was tried.
pub fn knee(points: &[CapacityPoint]) -> Result<Knee, String> {
    let seen: Vec<_> = points
        .iter()
        .filter(|point| point.seconds >= SEEN_FOR && point.system_tps > 0.0)
        .collect();
    if seen.len() < MIN_POINTS {
        return Err(format!(
            "{} concurrencies were seen for {SEEN_FOR} s or longer; a knee needs {MIN_POINTS}",
            seen.len()
        ));
    }
    let most = seen
        .iter()
        .map(|point| point.system_tps)
        .fold(0.0, f64::max);
    let near = seen
        .iter()
        .position(|point| point.system_tps >= NEAR * most);
    let at = near.unwrap_or(seen.len() - 1);
    let point = seen[at];
    // One more step that brings little may be chance; two are a curve that is flat.
    if seen.len() - at < 3 {
        return Err(format!(
            "throughput still grows at {} calls at once",
            point.concurrency
        ));
    }
    Ok(Knee {
        concurrency: point.concurrency,
        system_tps: point.system_tps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(tps: &[f64]) -> Vec<CapacityPoint> {
        let points = tps.iter().zip(1..);
        let point = |(tps, concurrency): (&f64, u32)| CapacityPoint {
            concurrency,
            system_tps: *tps,
            request_tps: None,
            seconds: 60,
        };
        points.map(point).collect()
    }

    #[test]
    fn the_knee_is_where_the_curve_turns_flat() {
        let flat = curve(&[50.0, 95.0, 140.0, 180.0, 183.0, 181.0, 184.0]);
        assert_eq!(knee(&flat).expect("a knee").concurrency, 4);
        let grows = curve(&[50.0, 100.0, 150.0, 200.0, 250.0]);
        assert!(knee(&grows).expect_err("none yet").contains("still grows"));
        let few = curve(&[50.0, 100.0]);
        assert!(knee(&few).expect_err("too few").contains("needs 4"));
    }
}
