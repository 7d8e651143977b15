//! Tokens and costs by day of each user, key and combination of tools, which rollups do not
//! contain; updated with every batch. The number of rows per day is bounded: further calls are
//! added to rows with `other` instead of these names.

use super::aggregates::Sums;
use super::dictionary::{Dictionary, NameKind, OTHER};
use super::names::Names;
use super::row::Share;
use crate::query::Dimension;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, HashMap};
use tokengauge_core::dimension::SPENDING;

pub(super) const DAY: i64 = 86_400;
/// Maximum number of rows per day. Further calls have `other` as their tools, because requests can
/// name any number of tools. Above twice this number they also have `other` as user and key.
const MAX_ROWS: usize = 100_000;

const ROW_BYTES: u64 = 50;
/// Once a file has reached its bound, rows may take a quarter of it.
const SHARE_OF_FILE: u64 = 4;
/// Number of rows that any file may have: the number for the smallest bound that can be configured.
const ALWAYS: u64 = (16 << 20) / SHARE_OF_FILE / ROW_BYTES;

/// The columns of the sums, in the order of [`read`].
pub(super) const COLUMNS: &str = "calls, input_tokens, cached_input_tokens, output_tokens, \
    reasoning_tokens, cost_nano_usd, unpriced_calls";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpendingKey {
    /// Start of the day in seconds since 1970.
    day: i64,
    /// Ids of user, key and tools; 0 if the call does not have the name.
    own: [i64; SPENDING.len()],
    series: i64,
}

impl SpendingKey {
    /// The key of a call that began at `second` since 1970.
    pub(super) fn of(second: i64, series: i64, own: [Option<i64>; SPENDING.len()]) -> SpendingKey {
        SpendingKey {
            day: second - second.rem_euclid(DAY),
            own: own.map(|id| id.unwrap_or(0)),
            series,
        }
    }

    pub(super) fn of_names(second: i64, names: &Names) -> SpendingKey {
        SpendingKey::of(second, names.series, names.spending)
    }

    /// The key with `other` for the names that `which` selects.
    fn collapsed(
        mut self,
        which: impl Fn(NameKind) -> bool,
        connection: &Connection,
        dictionary: &mut Dictionary,
    ) -> rusqlite::Result<SpendingKey> {
        for (id, kind) in self.own.iter_mut().zip(SPENDING.map(NameKind::Of)) {
            if *id != 0 && which(kind) {
                *id = dictionary.name(connection, kind, OTHER)?;
            }
        }
        Ok(self)
    }

    fn columns(self) -> [i64; 5] {
        let [user, key_hash, tools] = self.own;
        [self.day, user, key_hash, self.series, tools]
    }
}

/// Number of rows in total and on the days that were written to. Must be counted again after a
/// failed transaction.
#[derive(Debug)]
pub(super) struct RowCounts {
    by_day: HashMap<i64, usize>,
    all: Option<u64>,
    /// Maximum number of rows per day.
    pub(super) max: usize,
}

impl Default for RowCounts {
    fn default() -> Self {
        RowCounts {
            by_day: HashMap::new(),
            all: None,
            max: MAX_ROWS,
        }
    }
}

impl RowCounts {
    fn all(&mut self, connection: &Connection) -> rusqlite::Result<u64> {
        if let Some(all) = self.all {
            return Ok(all);
        }
        let count = "SELECT count(*) FROM daily_spending";
        let all: i64 = connection.query_row(count, [], |row| row.get(0))?;
        Ok(*self.all.insert(all.unsigned_abs()))
    }

    /// Reserves another row on a day that may have `max` rows. Returns `false` if the day is full.
    fn admit(&mut self, connection: &Connection, day: i64, max: usize) -> rusqlite::Result<bool> {
        let rows = match self.by_day.entry(day) {
            Occupied(rows) => rows.into_mut(),
            Vacant(unknown) => {
                let sql = "SELECT count(*) FROM daily_spending WHERE day = ?";
                let mut count = connection.prepare_cached(sql)?;
                let rows: i64 = count.query_row([day], |row| row.get(0))?;
                unknown.insert(usize::try_from(rows).unwrap_or(0))
            }
        };
        let room = *rows < max;
        *rows += usize::from(room);
        self.all = self.all.map(|all| all + u64::from(room));
        Ok(room)
    }
}

#[derive(Debug, Default)]
pub(super) struct DailySpending {
    sums: BTreeMap<SpendingKey, Sums>,
}

impl DailySpending {
    pub(super) fn add(&mut self, key: SpendingKey, call: &Share) {
        let sums = self.sums.entry(key).or_default();
        sums.add(&call.without_times());
    }

    /// Writes the rows. Calls of rows beyond the bound are counted as collapsed names.
    pub(super) fn save(
        self,
        connection: &Connection,
        rows: &mut RowCounts,
        dictionary: &mut Dictionary,
    ) -> rusqlite::Result<()> {
        let mut find = connection.prepare_cached(&find_sql())?;
        let mut put = connection.prepare_cached(&put_sql())?;
        let max = rows.max;
        let mut left = self.sums;
        for (max, beyond) in [
            (max, Beyond::LosesTools),
            (2 * max, Beyond::LosesAll),
            (usize::MAX, Beyond::LosesAll),
        ] {
            let mut more: BTreeMap<SpendingKey, Sums> = BTreeMap::new();
            for (key, mut sums) in left {
                if let Some(known) = find.query_row(key.columns(), read).optional()? {
                    sums.merge_counts(&known);
                } else if !rows.admit(connection, key.day, max)? {
                    let which =
                        |kind| beyond == Beyond::LosesAll || kind == NameKind::Of(Dimension::Tool);
                    let other = key.collapsed(which, connection, dictionary)?;
                    if other != key {
                        dictionary.collapsed += sums.calls.unsigned_abs();
                    }
                    more.entry(other).or_default().merge_counts(&sums);
                    continue;
                }
                write(&mut put, key, &sums)?;
            }
            left = more;
        }
        Ok(())
    }
}

/// Which names a call loses when the day has no room for another row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beyond {
    LosesTools,
    LosesAll,
}

fn find_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM daily_spending
         WHERE day = ? AND user = ? AND key_hash = ? AND series = ? AND tools = ?"
    )
}

fn put_sql() -> String {
    format!(
        "INSERT OR REPLACE INTO daily_spending (day, user, key_hash, series, tools, {COLUMNS})
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
}

fn write(put: &mut CachedStatement<'_>, key: SpendingKey, sums: &Sums) -> rusqlite::Result<()> {
    let [day, user, key_hash, series, tools] = key.columns();
    put.execute(params![
        day,
        user,
        key_hash,
        series,
        tools,
        sums.calls,
        sums.input,
        sums.cached_input,
        sums.output,
        sums.reasoning,
        sums.cost_nano,
        sums.unpriced,
    ])?;
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Sums> {
    Ok(Sums {
        calls: row.get(0)?,
        input: row.get(1)?,
        cached_input: row.get(2)?,
        output: row.get(3)?,
        reasoning: row.get(4)?,
        cost_nano: row.get(5)?,
        unpriced: row.get(6)?,
        ..Sums::default()
    })
}

pub(super) fn forget(
    connection: &Connection,
    second: i64,
    rows: &mut RowCounts,
) -> rusqlite::Result<bool> {
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT min(day) FROM daily_spending")?
        .query_row([], |row| row.get(0))?;
    let Some(day) = oldest.filter(|day| *day < second) else {
        return Ok(false);
    };
    connection
        .prepare_cached("DELETE FROM daily_spending WHERE day = ?")?
        .execute([day])?;
    let deleted = connection.changes();
    rows.by_day.remove(&day);
    rows.all = rows.all.map(|all| all.saturating_sub(deleted));
    Ok(true)
}

/// Maximum number of rows in a file that has reached its bound of `bytes`.
pub(super) fn most_rows(bytes: u64) -> u64 {
    ALWAYS.max(bytes / SHARE_OF_FILE / ROW_BYTES)
}

pub(super) fn shrink(
    connection: &Connection,
    most: u64,
    rows: &mut RowCounts,
) -> rusqlite::Result<bool> {
    if rows.all(connection)? <= most {
        return Ok(false);
    }
    let newest = "SELECT coalesce(max(day), 0) FROM daily_spending";
    let newest: i64 = connection.query_row(newest, [], |row| row.get(0))?;
    forget(connection, newest, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerDatabase;

    #[test]
    fn rows_beyond_the_bound_are_other_and_counted_and_a_day_that_goes_makes_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut dictionary = Dictionary::load(connection).expect("names");
        let mut rows = RowCounts {
            max: 3,
            ..RowCounts::default()
        };
        let call = Share {
            input: Some(10),
            cost_nano: Some(7),
            ..Share::default()
        };
        let mut save = |second: i64, users: std::ops::Range<i64>| {
            let mut spending = DailySpending::default();
            for user in users {
                let user = Some(100 + user).filter(|_| user > 0);
                spending.add(SpendingKey::of(second, 1, [user, None, None]), &call);
            }
            spending
                .save(connection, &mut rows, &mut dictionary)
                .expect("saved");
            std::mem::take(&mut dictionary.collapsed)
        };
        assert_eq!(save(5, 1..3), 0);
        assert_eq!(save(DAY - 1, 1..6), 0, "there is room without tools");
        assert_eq!(save(DAY - 1, 1..9), 2, "six of eight have a row");
        assert_eq!(save(7, 8..9), 1);
        assert_eq!(save(7, 0..1), 0, "a call that names nothing loses nothing");
        assert_eq!(save(DAY, 3..6), 0, "another day has room");
        let of = |condition: &str| -> (i64, i64) {
            let sql = format!(
                "SELECT sum(calls), sum(cost_nano_usd) FROM daily_spending
                 LEFT JOIN names ON names.id = user WHERE {condition}"
            );
            connection
                .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .expect("sums")
        };
        assert_eq!(of("day = 0 AND user > 100"), (13, 91));
        assert_eq!(of("day = 0 AND name = 'other'"), (3, 21));
        assert_eq!(of("day = 0 AND user = 0"), (1, 7));
        assert!(!forget(connection, 0, &mut rows).expect("nothing is older"));
        assert!(forget(connection, DAY, &mut rows).expect("the first day"));
        assert_eq!(of("day >= 0"), (3, 21));
        assert!(!rows.by_day.contains_key(&0));
    }

    #[test]
    fn names_of_tools_go_first_so_that_they_take_no_room_of_users() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut dictionary = Dictionary::load(connection).expect("names");
        let mut rows = RowCounts {
            max: 3,
            ..RowCounts::default()
        };
        let mut spending = DailySpending::default();
        for tool in 0..50 {
            let own = [Some(101), None, Some(200 + tool)];
            spending.add(SpendingKey::of(5, 1, own), &Share::default());
        }
        spending
            .save(connection, &mut rows, &mut dictionary)
            .expect("saved");
        assert_eq!(std::mem::take(&mut dictionary.collapsed), 47);
        let mut spending = DailySpending::default();
        let own = [Some(102), Some(300), Some(999)];
        spending.add(SpendingKey::of(5, 1, own), &Share::default());
        spending
            .save(connection, &mut rows, &mut dictionary)
            .expect("saved");
        let of = "SELECT sum(calls) FROM daily_spending WHERE user = ? AND key_hash = ?";
        let calls = |user, key| -> i64 {
            connection
                .query_row(of, [user, key], |row| row.get(0))
                .expect("sums")
        };
        assert_eq!((calls(101, 0), calls(102, 300)), (50, 1));
    }

    #[test]
    fn days_that_fill_the_file_go_before_all_calls_do_but_for_the_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut dictionary = Dictionary::load(connection).expect("names");
        let mut rows = RowCounts::default();
        for day in 0..3 {
            let mut spending = DailySpending::default();
            for user in 1..=10 {
                let own = [Some(user), None, None];
                spending.add(SpendingKey::of(day * DAY, 1, own), &Share::default());
            }
            spending
                .save(connection, &mut rows, &mut dictionary)
                .expect("saved");
        }
        let mut shrinks = |most| shrink(connection, most, &mut rows).expect("deleted");
        assert!(!shrinks(30));
        assert!(shrinks(29));
        assert!(!shrinks(20));
        assert!(shrinks(1));
        assert!(!shrinks(1), "the last day stays");
        assert_eq!(rows.all(connection).expect("a number"), 10);
    }

    #[test]
    fn sums_beyond_what_sqlite_counts_stop_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let connection = ledger.connection();
        let mut dictionary = Dictionary::load(connection).expect("names");
        let call = Share {
            input: Some(i64::MAX),
            ..Share::default()
        };
        for _ in 0..2 {
            let mut spending = DailySpending::default();
            spending.add(SpendingKey::of(5, 1, [None; 3]), &call);
            let rows = &mut RowCounts::default();
            spending
                .save(connection, rows, &mut dictionary)
                .expect("saved");
        }
        let mut find = connection.prepare(&find_sql()).expect("a query");
        let key = SpendingKey::of(9, 1, [None; 3]);
        let sums = find.query_row(key.columns(), read).expect("a row");
        assert_eq!((sums.calls, sums.input), (2, Some(i64::MAX)));
    }
}
