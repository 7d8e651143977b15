//! The progress of adding older calls to sums.

use rusqlite::Connection;

/// The marks; 0 if all calls have been added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) units: i64,
    pub(super) spending: i64,
}

impl Marks {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Marks> {
        let sql = "SELECT below_key, spending_below_key FROM unsummed";
        connection.prepare_cached(sql)?.query_row([], |row| {
            Ok(Marks {
                units: row.get(0)?,
                spending: row.get(1)?,
            })
        })
    }

    pub(super) fn save(self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "UPDATE unsummed SET below_key = ?, spending_below_key = ?";
        let values = [self.units, self.spending];
        connection.prepare_cached(sql)?.execute(values).map(|_| ())
    }

    pub(super) fn any(self) -> bool {
        self.units > 0 || self.spending > 0
    }
}

/// The mark after a step that begins below `mark`.
pub(super) fn next(connection: &Connection, mark: i64, step: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT min(key), count(*) FROM \
        (SELECT key FROM calls WHERE key < ? ORDER BY key DESC LIMIT ?)";
    let (first, calls): (Option<i64>, i64) = connection
        .prepare_cached(sql)?
        .query_row([mark, step], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(first.filter(|_| calls == step).unwrap_or(0))
}
