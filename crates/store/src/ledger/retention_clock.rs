//! The state of retention, and the clock that it measures ages with.
//!
//! One wrong reading of the wall clock must not delete the calls of a month. Therefore this clock
//! follows the wall clock only up to the time of the newest call, and at most by one day per hour.

use super::row::{EPOCH_MS, timestamp};
use rusqlite::{Connection, OptionalExtension};
use std::time::{Duration, Instant};

/// Maximum speed of the retention clock relative to real time: one day's calls are deleted per
/// hour.
const FASTEST: i64 = 24;
/// The clock is saved after it has moved by this number of milliseconds.
const SAVE_AFTER: i64 = 10 * 60 * 1_000;
/// A wall clock that is ahead by more than this number of milliseconds is logged.
const AHEAD: i64 = 24 * 3_600 * 1_000;
const LOG_EVERY: Duration = Duration::from_secs(3_600);
/// The retention clock in milliseconds since 1970. Older versions ignore the table, so it needs no
/// new file version.
pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS retention_clock \
    (id INTEGER PRIMARY KEY CHECK (id = 1), at_ms INTEGER NOT NULL)";

#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub monotonic: Instant,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

#[derive(Debug, Default)]
pub(super) struct Retention {
    /// Whether the file was too large; deletion continues until some of it is free.
    pub(super) shrinking: bool,
    /// Distributions of earlier hours have been deleted.
    pub(super) distributions_from: i64,
    /// The retention clock in milliseconds since 1970, and when it was updated; `None` before the
    /// first step.
    clock: Option<(i64, Instant)>,
    /// The saved clock; `None` in a new file.
    saved: Option<i64>,
    /// Calls deleted since the last log line: by age, and by size.
    pub(super) deleted: [usize; 2],
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

    /// The time for retention, in milliseconds since 1970; `None` if the wall clock is obviously
    /// wrong. `newest` is the start of the newest stored call.
    pub(super) fn follow(&mut self, now: Now, newest: Option<i64>) -> Option<i64> {
        // Before the first ledger was written.
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
        // Without newer calls the clock advances in real time.
        let known = before.saturating_add(passed).max(newest.unwrap_or(0));
        let most = passed.saturating_mul(FASTEST);
        let moved = now.wall_ms.min(known) - before;
        let clock = before.saturating_add(moved.clamp(-most, most));
        self.clock = Some((clock, now.monotonic));
        Some(clock.min(now.wall_ms))
    }

    /// Saves the clock for the next process if it has moved enough.
    pub(super) fn save(&mut self, connection: &Connection) -> rusqlite::Result<()> {
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

    /// Logs, at most once an hour, what was deleted and whether the wall clock is far ahead.
    pub(super) fn log(&mut self, now: Now, clock: i64, oldest: i64) {
        let is_due = |logged_at: Option<Instant>| {
            logged_at.is_none_or(|at| now.monotonic.saturating_duration_since(at) >= LOG_EVERY)
        };
        if self.deleted != [0, 0] && is_due(self.logged_at) {
            let [by_age, by_size] = std::mem::take(&mut self.deleted);
            let before = timestamp(oldest);
            tracing::info!(by_age, by_size, %before, "the ledger deleted old calls");
            self.logged_at = Some(now.monotonic);
        }
        let ahead = now.wall_ms - clock;
        if ahead > AHEAD && is_due(self.warned_at) {
            let hours = ahead / 3_600_000;
            tracing::warn!(
                hours,
                "the clock is ahead of the newest call in the ledger: in case the clock is \
                 wrong, retention follows it by at most one day per hour"
            );
            self.warned_at = Some(now.monotonic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    const NOW: i64 = 1_780_000_000_000;

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
        // New calls confirm the clock.
        let now = clocks.pass(HOUR_MS);
        assert_eq!(retention.follow(now, Some(now.wall_ms)), Some(now.wall_ms));
        // The clock continues without calls.
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
        // The wall clock was wrong.
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
