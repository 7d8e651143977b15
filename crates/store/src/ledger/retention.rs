//! Retention: deletes old and excess calls in small steps, so that batches hardly wait.
//!
//! Age is measured by a separate clock, since one wrong reading of the wall clock must not cost the calls of a month. This
//! clock follows the wall clock only as far as calls were written by it, and by a day in an hour at most.

use super::daily_spending;
use super::distributions::{HOUR, SeriesIds};
use super::experiment_units::UnitCounts;
use super::marks;
use super::rollups::{FINE_FOR, LEVELS};
use super::row::{EPOCH_MS, key_at, started_ms, written};
use super::store::Store;
use super::throughput;
use super::undelivered;
use super::write_error::WriteError;
use rusqlite::{Connection, OptionalExtension};
use std::time::{Duration, Instant};

/// Calls and sessions that are deleted in one step.
const STEP: usize = 2_000;
/// Free pages that are kept for new data.
const SPARE_PAGES: i64 = 512;
/// Pages that are vacuumed in one step.
const PAGES: i64 = 512;

/// How many times as fast as time the clock of retention goes at most: a day's worth is deleted in an hour.
const FASTEST: i64 = 24;
/// How far the clock of retention may move, in milliseconds, until it is saved.
const SAVE_AFTER: i64 = 10 * 60 * 1_000;
/// How far, in milliseconds, the wall clock has to be ahead of it for that to be logged.
const AHEAD: i64 = 24 * 3_600 * 1_000;
/// The time between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(3_600);
/// The clock of retention, in milliseconds since 1970. Older programs do not use the table, so that it needs no new version.
pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS retention_clock \
    (id INTEGER PRIMARY KEY CHECK (id = 1), at_ms INTEGER NOT NULL)";

/// A moment on two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// The limits of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The age up to which records are kept.
    pub age: Duration,
    /// The size of the file in bytes, indices included.
    pub bytes: u64,
}

/// The state of retention.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// Whether it was over the size, and goes on until some of it is free.
    shrinking: bool,
    /// Whether it ever was, since the file was opened.
    was_full: bool,
    /// Distributions of hours before are gone.
    distributions_from: i64,
    /// The clock of retention, in milliseconds since 1970, and when it was that; `None` before the first step.
    clock: Option<(i64, Instant)>,
    /// The clock in the file; `None` in a new file.
    saved: Option<i64>,
    /// Calls deleted since the last log line: by age, and by size.
    deleted: [usize; 2],
    logged_at: Option<Instant>,
    warned_at: Option<Instant>,
}

impl Retention {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Retention> {
        let sql = "SELECT at_ms FROM retention_clock";
        let saved = connection.query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(Retention {
            saved,
            ..Retention::default()
        })
    }

    /// The time for retention, in milliseconds since 1970. `newest` is when the newest stored call began. `None` if the wall
    /// clock cannot be right.
    fn follow(&mut self, now: Now, newest: Option<i64>) -> Option<i64> {
        // Before there were ledgers.
        if now.wall_ms < EPOCH_MS {
            return None;
        }
        let (before, passed) = match self.clock {
            Some((before, at)) => (before, now.monotonic.saturating_duration_since(at)),
            None => {
                let newest = newest.map_or(now.wall_ms, |newest| newest.min(now.wall_ms));
                (self.saved.unwrap_or(newest), Duration::ZERO)
            }
        };
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        // Without newer calls it goes as fast as time.
        let known = before.saturating_add(passed).max(newest.unwrap_or(0));
        let most = passed.saturating_mul(FASTEST);
        let moved = now.wall_ms.min(known) - before;
        let clock = before.saturating_add(moved.clamp(-most, most));
        self.clock = Some((clock, now.monotonic));
        Some(clock.min(now.wall_ms))
    }

    /// Keeps the clock for the next process, now and then.
    fn save(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some((clock, _)) = self.clock else {
            return Ok(());
        };
        if self
            .saved
            .is_some_and(|saved| (clock - saved).abs() < SAVE_AFTER)
        {
            return Ok(());
        }
        let sql = "INSERT INTO retention_clock VALUES (1, ?) \
            ON CONFLICT (id) DO UPDATE SET at_ms = excluded.at_ms";
        connection.prepare_cached(sql)?.execute([clock])?;
        self.saved = Some(clock);
        Ok(())
    }

    /// Logs, at most once an hour, what was deleted, and that the wall clock is far ahead.
    fn log(&mut self, now: Now, clock: i64, oldest: i64) {
        let is_due = |logged_at: Option<Instant>| {
            logged_at.is_none_or(|at| now.monotonic.saturating_duration_since(at) >= LOG_EVERY)
        };
        if self.deleted != [0, 0] && is_due(self.logged_at) {
            let [by_age, by_size] = std::mem::take(&mut self.deleted);
            let before = written(oldest);
            tracing::info!(by_age, by_size, before, "the ledger deleted old calls");
            self.logged_at = Some(now.monotonic);
        }
        let ahead = now.wall_ms - clock;
        if ahead > AHEAD && is_due(self.warned_at) {
            let hours = ahead / 3_600_000;
            tracing::warn!(
                hours,
                "the clock is ahead of what the ledger has: retention follows it by a day an hour, in case it is wrong"
            );
            self.warned_at = Some(now.monotonic);
        }
    }
}

impl Store {
    /// Runs a step of retention. Returns whether there is more to do.
    ///
    /// # Errors
    /// Where the file cannot be written to; then reopen it.
    pub fn tidy(&mut self, now: Now, limits: &Limits) -> Result<bool, WriteError> {
        let unsummed = self.add_unsummed()?;
        let connection = &self.opened.connection;
        let transaction = self.opened.begin()?;
        let newest = newest_ms(&transaction)?;
        // No age can be told by a clock that cannot be right.
        let clock = self.retention.follow(now, newest).unwrap_or(EPOCH_MS);
        let age = i64::try_from(limits.age.as_millis()).unwrap_or(i64::MAX);
        let oldest = clock.saturating_sub(age);
        let by_age = forget_calls(&transaction, key_at(oldest))?;
        self.retention.deleted[0] += by_age;
        let mut more = by_age == STEP;
        let oldest_us = oldest.saturating_mul(1000);
        let units = forget_units(&transaction, oldest_us, &mut self.unit_counts)?;
        // Units are of sessions: those go first.
        more |= units || forget_sessions(&transaction, oldest_us)?;
        more |= forget_sums(&transaction, clock, oldest)?;
        let day = oldest.div_euclid(1000).saturating_sub(daily_spending::DAY);
        more |= daily_spending::forget(&transaction, day, &mut self.spending_rows)?;
        marks::forget(&transaction, oldest_us)?;
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
        self.retention.was_full |= shrinking;
        Ok(more || freed || unsummed)
    }

    /// Whether calls were deleted for want of room since the file was opened.
    pub fn was_full(&self) -> bool {
        self.retention.was_full
    }

    /// Goes on from the limit until a twentieth of it is free.
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

/// When the newest call began.
fn newest_ms(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT max(key) FROM calls";
    let newest: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(newest.map(started_ms))
}

/// Deletes a step of the calls with a smaller key, the oldest first; returns how many.
fn forget_calls(connection: &Connection, key: i64) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM calls WHERE key IN \
        (SELECT key FROM calls WHERE key < ? ORDER BY key LIMIT ?)";
    connection.prepare_cached(sql)?.execute((key, STEP as i64))
}

/// Sessions whose last call ended before.
fn forget_sessions(connection: &Connection, us: i64) -> rusqlite::Result<bool> {
    let old = "SELECT id FROM sessions WHERE last_us < ?1 ORDER BY last_us LIMIT ?2";
    let names = format!("DELETE FROM session_names WHERE session IN ({old})");
    let step = STEP as i64;
    connection.prepare_cached(&names)?.execute([us, step])?;
    let sessions = format!("DELETE FROM sessions WHERE id IN ({old})");
    let gone = connection.prepare_cached(&sessions)?.execute([us, step])?;
    Ok(gone == STEP)
}

/// Units of experiments whose last call ended before.
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

/// Distributions of hours before.
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

/// Sums by time from before, a day's worth at a time.
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
        // A step that is partly young enough stays.
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

/// The oldest calls, the sessions and units that ended before the oldest that is left, and the
/// finer sums and distributions from before it; sums of days stay. Returns how many calls went.
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

/// Vacuums free pages.
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
pub(super) fn tidy_to_end(store: &mut Store, wall_ms: i64, limits: &Limits) {
    let mut now = Now {
        monotonic: Instant::now(),
        wall_ms,
    };
    let mut step = || {
        let more = store.tidy(now, limits).expect("a step");
        now.monotonic += Duration::from_secs(100 * 365 * 86_400);
        more
    };
    step();
    while step() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    /// In 2026.
    const NOW: i64 = 1_780_000_000_000;

    /// Two clocks that can be set apart.
    struct Clocks {
        monotonic: Instant,
        wall_ms: i64,
    }

    impl Clocks {
        fn pass(&mut self, milliseconds: i64) -> Now {
            self.monotonic += Duration::from_millis(milliseconds.unsigned_abs());
            self.wall_ms += milliseconds;
            Now {
                monotonic: self.monotonic,
                wall_ms: self.wall_ms,
            }
        }
    }

    fn clocks() -> Clocks {
        Clocks {
            monotonic: Instant::now(),
            wall_ms: NOW,
        }
    }

    #[test]
    fn the_clock_of_retention_goes_with_the_wall_clock() {
        let (mut clocks, mut retention) = (clocks(), Retention::default());
        let newest = Some(NOW - HOUR_MS);
        assert_eq!(retention.follow(clocks.pass(0), newest), newest);
        // Calls come, and there it is.
        let now = clocks.pass(HOUR_MS);
        assert_eq!(retention.follow(now, Some(now.wall_ms)), Some(now.wall_ms));
        // Without calls it continues.
        for _ in 0..100 {
            let now = clocks.pass(HOUR_MS);
            assert_eq!(retention.follow(now, Some(NOW)), Some(now.wall_ms));
        }
    }

    #[test]
    fn a_wall_clock_that_is_ahead_is_followed_by_a_day_an_hour_if_calls_are_written_by_it() {
        let (mut clocks, mut retention) = (clocks(), Retention::default());
        assert_eq!(retention.follow(clocks.pass(0), Some(NOW)), Some(NOW));
        clocks.wall_ms += 40 * DAY_MS;
        let idle = retention.follow(clocks.pass(HOUR_MS), Some(NOW));
        assert_eq!(idle, Some(NOW + HOUR_MS), "no call was written by it");
        let now = clocks.pass(HOUR_MS);
        let busy = retention.follow(now, Some(now.wall_ms));
        assert_eq!(busy, Some(NOW + HOUR_MS + DAY_MS));
        // It was wrong.
        clocks.wall_ms -= 40 * DAY_MS;
        let now = clocks.pass(5_000);
        assert_eq!(retention.follow(now, None), Some(now.wall_ms), "at once");
    }

    #[test]
    fn a_wall_clock_that_was_behind_for_a_moment_changes_nothing() {
        for back in [40 * DAY_MS, NOW] {
            let (mut clocks, mut retention) = (clocks(), Retention::default());
            retention.follow(clocks.pass(0), Some(NOW));
            clocks.wall_ms -= back;
            let behind = retention.follow(clocks.pass(5_000), Some(NOW));
            assert!(behind.is_none_or(|behind| behind < NOW - 39 * DAY_MS));
            clocks.wall_ms += back;
            let now = clocks.pass(5_000);
            let found = retention.follow(now, Some(NOW)).expect("plausible");
            assert!((NOW - 2 * 60_000..=now.wall_ms).contains(&found), "{found}");
        }
    }

    #[test]
    fn it_begins_where_the_last_process_was_however_wrong_the_wall_clock_and_the_newest_call_are() {
        let mut retention = Retention {
            saved: Some(NOW),
            ..Retention::default()
        };
        let mut clocks = clocks();
        clocks.wall_ms += 40 * DAY_MS;
        let wrong = Some(NOW + 40 * DAY_MS);
        assert_eq!(retention.follow(clocks.pass(0), wrong), Some(NOW));
        let after = retention.follow(clocks.pass(5_000), wrong);
        assert_eq!(after, Some(NOW + 2 * 60_000), "two minutes' worth");
    }
}
