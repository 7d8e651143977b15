//! Retention: deletes old and excess calls in small steps, so that batches hardly wait.

use super::daily_spending;
use super::database::LedgerDatabase;
use super::distributions::{HOUR, SeriesIds};
use super::experiment_units::UnitCounts;
use super::marks;
use super::retention_clock::Now;
use super::rollups::{FINE_FOR, LEVELS};
use super::row::{EPOCH_MS, key_at, started_ms};
use super::scores;
use super::throughput;
use super::undelivered;
use super::write_error::WriteError;
use rusqlite::Connection;
use std::time::Duration;

const STEP: usize = 2_000;
/// Free pages that are kept for new data.
const SPARE_PAGES: i64 = 512;
const PAGES: i64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub age: Duration,
    /// The size of the file in bytes, including indices.
    pub bytes: u64,
}

impl LedgerDatabase {
    /// Runs a step of retention. Returns whether there is more to do.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn tidy(&mut self, now: Now, limits: &Limits) -> Result<bool, WriteError> {
        let unsummed = self.add_unsummed()?;
        let connection = &self.opened.connection;
        let transaction = self.opened.begin()?;
        let newest = newest_ms(&transaction)?;
        // An obviously wrong clock cannot determine ages.
        let clock = self.retention.follow(now, newest).unwrap_or(EPOCH_MS);
        let age = i64::try_from(limits.age.as_millis()).unwrap_or(i64::MAX);
        let oldest = clock.saturating_sub(age);
        let by_age = forget_calls(&transaction, key_at(oldest))?;
        self.retention.deleted[0] += by_age;
        let mut more = by_age == STEP;
        let oldest_us = oldest.saturating_mul(1000);
        let units = forget_units(&transaction, oldest_us, &mut self.unit_counts)?;
        // Units refer to sessions, so they are deleted first.
        more |= units || forget_sessions(&transaction, oldest_us)?;
        more |= forget_sums(&transaction, clock, oldest)?;
        let day = oldest.div_euclid(1000).saturating_sub(daily_spending::DAY);
        more |= daily_spending::forget(&transaction, day, &mut self.spending_rows)?;
        marks::forget(&transaction, oldest_us)?;
        scores::forget(&transaction, oldest_us)?;
        let hour = oldest.div_euclid(1000) - HOUR;
        if hour >= self.retention.distributions_from + HOUR {
            forget_distributions(&transaction, hour, &self.distribution_series)?;
            self.retention.distributions_from = hour;
        }
        let shrinking = self.too_big(limits)?;
        if shrinking {
            let by_size = shrink(
                &transaction,
                &mut self.unit_counts,
                &self.distribution_series,
            )?;
            self.retention.deleted[1] += by_size;
            more |= by_size == STEP;
            more |= daily_spending::shrink(
                &transaction,
                daily_spending::most_rows(limits.bytes),
                &mut self.spending_rows,
            )?;
        }
        more |= undelivered::forget_deleted(&transaction)?;
        self.retention.save(&transaction)?;
        transaction.commit()?;
        self.retention.log(now, clock, oldest);
        let freed = give_back(connection)?;
        self.retention.shrinking = shrinking;
        Ok(more || freed || unsummed)
    }

    /// Whether to delete calls: starts at the limit, and continues until a twentieth of it is free.
    fn too_big(&self, limits: &Limits) -> rusqlite::Result<bool> {
        let connection = self.connection();
        let pages = pragma(connection, "page_count")? - pragma(connection, "freelist_count")?;
        let used = (pages * pragma(connection, "page_size")?).max(0) as u64;
        let low = limits.bytes - limits.bytes / 20;
        let bound = if self.retention.shrinking {
            low
        } else {
            limits.bytes
        };
        Ok(used > bound)
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

fn newest_ms(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT max(key) FROM calls";
    let newest: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(newest.map(started_ms))
}

fn forget_calls(connection: &Connection, key: i64) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM calls WHERE key IN \
        (SELECT key FROM calls WHERE key < ? ORDER BY key LIMIT ?)";
    let gone = connection
        .prepare_cached(sql)?
        .execute((key, STEP as i64))?;
    if gone > 0 {
        let rest = "DELETE FROM analyses WHERE key < \
            coalesce((SELECT min(key) FROM calls), 9223372036854775807)";
        connection.prepare_cached(rest)?.execute([])?;
    }
    Ok(gone)
}

fn forget_sessions(connection: &Connection, us: i64) -> rusqlite::Result<bool> {
    let old = "SELECT id FROM sessions WHERE last_us < ?1 ORDER BY last_us LIMIT ?2";
    let names = format!("DELETE FROM session_names WHERE session IN ({old})");
    let step = STEP as i64;
    connection.prepare_cached(&names)?.execute([us, step])?;
    let sessions = format!("DELETE FROM sessions WHERE id IN ({old})");
    let gone = connection.prepare_cached(&sessions)?.execute([us, step])?;
    Ok(gone == STEP)
}

fn forget_units(
    connection: &Connection,
    us: i64,
    counts: &mut UnitCounts,
) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM experiment_units WHERE id IN (SELECT id FROM experiment_units \
        WHERE last_us < ? ORDER BY last_us LIMIT ?) RETURNING experiment";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([us, STEP as i64])?;
    let mut gone = 0;
    while let Some(row) = rows.next()? {
        counts.gone(row.get(0)?);
        gone += 1;
    }
    Ok(gone == STEP)
}

fn forget_distributions(
    connection: &Connection,
    hour: i64,
    series: &SeriesIds,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM distributions WHERE series = ? AND hour < ?";
    let mut forget = connection.prepare_cached(sql)?;
    for id in series.all() {
        forget.execute([id, hour])?;
    }
    Ok(())
}

/// Deletes rollups and throughput from before a time, one day at a time.
fn forget_sums(connection: &Connection, clock: i64, oldest: i64) -> rusqlite::Result<bool> {
    let mut more = false;
    let sql = "DELETE FROM rollups WHERE level = ?1 AND start < min(?2, \
        86400 + (SELECT min(start) FROM rollups WHERE level = ?1))";
    let mut forget = connection.prepare_cached(sql)?;
    for level in LEVELS {
        let fine = clock.div_euclid(1000).saturating_sub(FINE_FOR);
        let oldest = oldest.div_euclid(1000);
        let before = if level == LEVELS[0] {
            fine.max(oldest)
        } else {
            oldest
        };
        // A step that is only partly too old is kept.
        more |= forget.execute([level, before.saturating_sub(level)])? > 0;
    }
    let clock = clock.div_euclid(1000);
    let sql = "DELETE FROM throughput WHERE level = ?1 AND start < min(?2, \
        3600 + (SELECT min(start) FROM throughput WHERE level = ?1))";
    let mut forget = connection.prepare_cached(sql)?;
    for (level, kept_for) in throughput::LEVELS {
        let age = kept_for.map_or(i64::MIN, |kept_for| clock.saturating_sub(kept_for));
        let before = age.max(oldest.div_euclid(1000)).saturating_sub(level);
        more |= forget.execute([level, before])? > 0;
    }
    let sql = "DELETE FROM capacity WHERE hour < ?";
    let hour = oldest.div_euclid(1000) - 3600;
    connection.prepare_cached(sql)?.execute([hour])?;
    Ok(more)
}

/// Deletes the oldest calls, then sessions and units that ended before the oldest remaining call,
/// and the finer sums and distributions from before it. Sums by day are kept. Returns the number of
/// deleted calls.
fn shrink(
    connection: &Connection,
    counts: &mut UnitCounts,
    series: &SeriesIds,
) -> rusqlite::Result<usize> {
    let gone = forget_calls(connection, i64::MAX)?;
    let oldest = connection.query_row("SELECT min(key) FROM calls", [], |row| {
        row.get::<_, Option<i64>>(0)
    })?;
    let oldest = oldest.map_or(i64::MAX / 2_000, started_ms);
    let oldest_us = oldest.saturating_mul(1000);
    if !forget_units(connection, oldest_us, counts)? {
        forget_sessions(connection, oldest_us)?;
    }
    forget_distributions(connection, oldest.div_euclid(1000) - HOUR, series)?;
    scores::forget(connection, oldest_us)?;
    let sql = "DELETE FROM rollups WHERE level = ?1 AND start < min(?2, \
        86400 + (SELECT min(start) FROM rollups WHERE level = ?1))";
    for level in [LEVELS[0], LEVELS[1]] {
        let before = oldest.div_euclid(1000) - level;
        connection.prepare_cached(sql)?.execute([level, before])?;
    }
    let sql = "DELETE FROM throughput WHERE level < 3600 AND start < ?";
    let before = oldest.div_euclid(1000) - 60;
    connection.prepare_cached(sql)?.execute([before])?;
    Ok(gone)
}

fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let free = pragma(connection, "freelist_count")? - SPARE_PAGES;
    if free <= 0 {
        return Ok(false);
    }
    let pages = free.min(PAGES);
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(free > pages)
}

/// Runs retention, with a century between two steps, until nothing is left to do.
#[cfg(test)]
pub(super) fn tidy_to_end(ledger: &mut LedgerDatabase, wall_ms: i64, limits: &Limits) {
    let mut now = Now {
        monotonic: std::time::Instant::now(),
        wall_ms,
    };
    let mut step = || {
        let more = ledger.tidy(now, limits).expect("a step");
        now.monotonic += Duration::from_secs(100 * 365 * 86_400);
        more
    };
    step();
    while step() {}
}
