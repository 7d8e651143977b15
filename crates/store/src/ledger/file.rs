//! The database file: locked by its writer, private, and migrated to the newest version.

use super::retention_clock;
use super::undelivered;
use super::write_error::{WriteError, is_damage};
use crate::columns;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokengauge_files::private::{self, with_ending};

/// SQLite's `application_id` of ledgers: "tokg".
const APPLICATION: i64 = 0x746f_6b67;
/// The migrations; the one at index `n` upgrades a file from version `n`.
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    // Without this index, paging by start would sort all sessions for each page.
    "CREATE INDEX sessions_by_start ON sessions (started_us)",
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
    // A dimension. Calls of version 11 have its value in `calls`.
    "ALTER TABLE series ADD COLUMN served_by INTEGER",
    "ALTER TABLE series ADD COLUMN reasoning_effort INTEGER",
    include_str!("schema_14.sql"),
    include_str!("schema_15.sql"),
];
const SESSIONS_READABLE: &str = include_str!("sessions_readable.sql");
const BUSY: Duration = Duration::from_secs(5);

pub(super) const VERSION: i64 = STEPS.len() as i64;

/// Number of attempts to take the writer's lock, and the pause between them. A child process
/// inherits locks until it executes its own program, so a released lock can seem taken for a
/// moment.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

const LOGS: [&str; 2] = ["-wal", "-shm"];

/// Suffixes of damaged files that are kept, newest first.
const DAMAGED: [&str; 3] = [".damaged", ".damaged-2", ".damaged-3"];

/// Device and inode. An open file keeps its identity when it is renamed or deleted.
pub(super) type Identity = (u64, u64);

/// The identity of the file with this name; `None` if the file does not exist or the system has no
/// such identity.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
pub(super) fn identity(_: &Path) -> Option<Identity> {
    None
}

/// The identities of the file's write-ahead log and of the log's index.
pub(super) fn log_identities(path: &Path) -> [Option<Identity>; 2] {
    LOGS.map(|ending| identity(&with_ending(path, ending)))
}

/// The contents of a lost file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileContents {
    /// Number of calls; `None` if the file cannot be read.
    pub(super) calls: Option<u64>,
    /// Number of undelivered calls by sink; `None` if the file cannot be read.
    pub(super) undelivered: Option<HashMap<String, u64>>,
}

impl FileContents {
    /// The contents without the newest calls, which are written to another file.
    pub(super) fn without(mut self, newest: u64) -> FileContents {
        let undelivered = self.undelivered.iter_mut().flat_map(HashMap::values_mut);
        let counts = self.calls.iter_mut().chain(undelivered);
        counts.for_each(|count| *count = count.saturating_sub(newest));
        self
    }

    fn of(connection: &Connection) -> FileContents {
        let count = "SELECT count(*) FROM calls";
        let count: rusqlite::Result<i64> = connection.query_row(count, [], |row| row.get(0));
        let calls = count.ok().map(i64::unsigned_abs);
        FileContents {
            calls: calls.or_else(|| summed_calls(connection)),
            undelivered: undelivered::waiting(connection).ok(),
        }
    }

    /// The contents of a file that is not in use.
    fn of_file(path: &Path) -> FileContents {
        let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        opened.map_or_else(|_| FileContents::default(), |file| FileContents::of(&file))
    }
}

/// The number of calls in the sums by day, which have few pages; `None` if they cannot be read.
pub(super) fn summed_calls(connection: &Connection) -> Option<u64> {
    let sql = "SELECT coalesce(sum(calls), 0) FROM rollups WHERE level = 86400";
    let sum: rusqlite::Result<i64> = connection.query_row(sql, [], |row| row.get(0));
    sum.ok().map(i64::unsigned_abs)
}

/// Whether the file at the path is the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Same,
    /// The file is the open one, but its log is not. Data in the log is lost unless the file is
    /// closed.
    WithoutLog,
    /// The path has another file, or none.
    Gone,
}

#[derive(Debug)]
pub(super) struct LedgerFile {
    pub(super) connection: Connection,
    path: PathBuf,
    pub(super) identity: Option<Identity>,
    logs: [Option<Identity>; 2],
    /// The contents of a damaged file that was renamed to make room for this one.
    pub(super) put_aside: Option<FileContents>,
    /// Whether the file was missing or empty.
    pub(super) is_new: bool,
    /// Held as long as the file is open.
    _lock: File,
}

impl LedgerFile {
    fn new(
        path: &Path,
        (connection, is_new): (Connection, bool),
        put_aside: Option<FileContents>,
        lock: File,
    ) -> Result<LedgerFile, WriteError> {
        // Reading makes SQLite open its log.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(LedgerFile {
            connection,
            path: path.to_owned(),
            identity: identity(path),
            logs: log_identities(path),
            put_aside,
            is_new,
            _lock: lock,
        })
    }

    /// Begins a write transaction, which waits for the lock of another connection. A transaction
    /// that reads first would fail at once.
    pub(super) fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
    }

    pub(super) fn place(&self) -> Place {
        if identity(&self.path) != self.identity {
            return Place::Gone;
        }
        if log_identities(&self.path) == self.logs {
            Place::Same
        } else {
            Place::WithoutLog
        }
    }

    /// Copies the write-ahead log into the file. Closing does this only if no reader has the file open.
    pub(super) fn fold(&self) {
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        let _ = self.connection.query_row(fold, [], |_| Ok(()));
    }

    /// Closes a ledger file that is no longer at its path, and returns its contents. First copies
    /// SQLite's write-ahead log into the file, so that a renamed file is complete. Then deletes the
    /// log, because SQLite would apply it to another file at the path.
    pub(super) fn leave(self) -> FileContents {
        let contents = FileContents::of(&self.connection);
        self.fold();
        drop(self.connection);
        for (ending, own) in LOGS.iter().zip(self.logs) {
            let log = with_ending(&self.path, ending);
            if own.is_some() && identity(&log) == own {
                let _ = std::fs::remove_file(log);
            }
        }
        contents
    }

    /// Whether the header of the file was overwritten. A second connection reads it, because this
    /// connection has it in memory.
    pub(super) fn seems_damaged(&self) -> bool {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let version = Connection::open_with_flags(&self.path, flags)
            .and_then(|file| file.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)));
        match version {
            Ok(found) => found != VERSION,
            Err(error) => is_damage(&error),
        }
    }
}

/// Opens the file, or creates it if it is missing; a damaged file is renamed. A `suspect` file is
/// first checked completely.
///
/// # Errors
/// Returns an error if the file cannot be written to, is in use by another process, or has a newer version.
pub(super) fn open(path: &Path, suspect: bool) -> Result<LedgerFile, WriteError> {
    let lock = locked(path)?;
    remove_emptied(path);
    let opened = connect(path, STEPS).and_then(|opened| {
        if suspect {
            check(&opened.0)?;
        }
        Ok(opened)
    });
    let (opened, contents) = match opened {
        Err(WriteError::Damaged(reason)) => {
            let aside = put_aside(path)?;
            let contents = FileContents::of_file(&aside);
            let (calls, file) = (contents.calls, path.display());
            tracing::error!(%file, reason, calls, aside = %aside.display(), "the ledger \
                file is damaged; it was renamed, and a new file was created");
            (connect(path, STEPS)?, Some(contents))
        }
        other => (other?, None),
    };
    LedgerFile::new(path, opened, contents, lock)
}

fn check(connection: &Connection) -> Result<(), WriteError> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(WriteError::Damaged(found)),
    }
}

/// Takes the writer's lock, which is released when this process ends.
fn locked(path: &Path) -> Result<File, WriteError> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    let file = private::append(&with_ending(path, ".lock"))?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Err(WriteError::Locked(path.display().to_string()))
}

/// A connection, and whether the file was missing or empty.
fn connect(path: &Path, steps: &[&str]) -> Result<(Connection, bool), WriteError> {
    // SQLite creates its `-wal` and `-shm` files with the mode of the file. An existing file is
    // opened only by SQLite: closing another descriptor would release the locks of all connections
    // of this process.
    if !path.exists() {
        drop(private::append(path)?);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    keep_statements(&connection)?;
    let is_new = migrate(&mut connection, steps)?;
    // A kill loses no committed data; a power failure loses at most the last moments.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -8000;
         PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
    )?;
    connection.execute_batch(retention_clock::TABLE)?;
    Ok((connection, is_new))
}

/// Prepares statements once. Otherwise, for a table with a partial index, SQLite prepares a
/// statement again for each bound value (see `SQLITE_DBCONFIG_ENABLE_QPSG` in its documentation).
pub(super) fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Migrates a file to the newest version in one transaction, so that a failed step changes nothing.
/// Returns whether the file was empty.
fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<bool, WriteError> {
    let number = |connection: &Connection, sql| connection.query_row(sql, [], |row| row.get(0));
    let found: i64 = number(connection, "PRAGMA user_version")?;
    let known = steps.len() as i64;
    let application: i64 = number(connection, "PRAGMA application_id")?;
    let tables: i64 = number(connection, "SELECT count(*) FROM sqlite_schema")?;
    if application != APPLICATION && (tables > 0 || application != 0) {
        return Err(WriteError::Foreign);
    }
    if found > known {
        return Err(WriteError::Newer { found, known });
    }
    if found == known {
        return Ok(false);
    }
    if tables == 0 {
        // Incremental vacuum can only be enabled in an empty file.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    let transaction = connection.transaction()?;
    for step in steps.iter().skip(found.max(0) as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.execute_batch(&columns::view())?;
    transaction.execute_batch(SESSIONS_READABLE)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(tables == 0)
}

/// Removes a file that was emptied while a reader had it open. Otherwise the reader would prevent
/// SQLite from creating a ledger in it.
fn remove_emptied(path: &Path) {
    let is_empty = std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
    let logs = LOGS.map(|ending| with_ending(path, ending));
    if is_empty && logs.iter().any(|log| log.exists()) {
        for file in logs.iter().map(PathBuf::as_path).chain([path]) {
            // A file that cannot be removed is reported when it is opened.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Renames a damaged file and its log. Earlier damaged files move to the next names; the oldest is
/// replaced.
fn put_aside(path: &Path) -> Result<PathBuf, WriteError> {
    let aside = DAMAGED.map(|ending| with_ending(path, ending));
    if let Some(oldest) = aside.last().filter(|oldest| oldest.exists()) {
        let file = oldest.display();
        tracing::warn!(%file, "too many damaged ledgers; the oldest one is deleted");
    }
    for at in (1..aside.len()).rev().filter(|at| aside[at - 1].exists()) {
        rename(&aside[at - 1], &aside[at])?;
    }
    let [newest, ..] = aside;
    rename(path, &newest)?;
    Ok(newest)
}

/// Renames a file with its log, so that the log is not mistaken for the log of a new file.
fn rename(from: &Path, to: &Path) -> Result<(), WriteError> {
    std::fs::rename(from, to)?;
    for ending in LOGS {
        let (from, to) = (with_ending(from, ending), with_ending(to, ending));
        if from.exists() {
            std::fs::rename(from, to)?;
        } else if to.exists() {
            std::fs::remove_file(to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    fn version(path: &Path) -> i64 {
        let connection = Connection::open(path).expect("opens");
        connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .expect("a version")
    }

    #[test]
    fn an_older_file_is_brought_forward_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let (connection, _) = connect(&path, STEPS).expect("opens");
        connection
            .execute("INSERT INTO names VALUES (1, 'model', 'm-1')", [])
            .expect("a name");
        drop(connection);
        let next = "ALTER TABLE names ADD COLUMN seen INTEGER; UPDATE names SET seen = 7";
        let steps: Vec<_> = STEPS.iter().copied().chain([next]).collect();
        let (connection, _) = connect(&path, &steps).expect("opens");
        let row: (String, i64) = connection
            .query_row("SELECT name, seen FROM names", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("the name");
        assert_eq!(row, ("m-1".to_owned(), 7));
        drop(connection);
        assert_eq!(version(&path), VERSION + 1);
        let refused = connect(&path, STEPS).expect_err("it is newer");
        assert_eq!(refused.reason(), "newer_version");
        assert!(refused.to_string().contains("to another file"), "{refused}");
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        drop(connect(&path, STEPS).expect("opens"));
        let bad = "CREATE TABLE half (a INTEGER); SELECT nothing FROM nowhere";
        let steps: Vec<_> = STEPS.iter().copied().chain([bad]).collect();
        assert!(connect(&path, &steps).is_err());
        assert_eq!(version(&path), VERSION);
        let connection = Connection::open(&path).expect("opens");
        assert!(connection.prepare("SELECT * FROM half").is_err());
    }

    #[test]
    fn a_statement_is_prepared_once_whatever_is_bound_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let (connection, _) = connect(&path, STEPS).expect("opens");
        let sql = "SELECT * FROM calls_readable WHERE key = ?";
        let mut statement = connection.prepare(sql).expect("SQL");
        for key in [1_i64, 2, 3] {
            assert!(!statement.exists([key]).expect("an answer"));
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }

    #[test]
    fn a_database_of_another_program_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("theirs.sqlite");
        let theirs = Connection::open(&path).expect("opens");
        theirs
            .execute_batch("CREATE TABLE songs (name TEXT)")
            .expect("a table");
        assert_eq!(open(&path, false).expect_err("theirs").reason(), "foreign");
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_one_process_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/ledger.sqlite");
        std::fs::create_dir(folder.path().join("deep")).expect("a folder");
        let damage = |name: &str| {
            std::fs::write(&path, name.repeat(500)).expect("a file");
            open(&path, false).expect("a new one")
        };
        for name in ["first", "second", "third"] {
            drop(damage(name));
        }
        let log = with_ending(&path, ".damaged-2-wal");
        std::fs::write(&log, "").expect("a log");
        let opened = damage("fourth");
        for (ending, name) in DAMAGED.iter().zip(["fourth", "third", "second"]) {
            let kept = std::fs::read_to_string(with_ending(&path, ending));
            assert_eq!(kept.expect("kept"), name.repeat(500));
        }
        assert!(!log.exists(), "it goes with its file");
        assert!(with_ending(&path, ".damaged-3-wal").exists());
        assert_eq!(open(&path, false).expect_err("taken").reason(), "locked");
        drop(opened);
        open(&path, false).expect("free again");
    }

    #[test]
    fn a_file_that_is_damaged_inside_is_put_aside_once_it_is_suspect() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let opened = open(&path, true).expect("sound");
        let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
            INSERT INTO names SELECT i, 'model', 'm-' || i FROM n";
        opened.connection.execute(fill, []).expect("names");
        drop(opened);
        let file = File::options().write(true).open(&path).expect("opens");
        for page in 40..60 {
            file.write_all_at(&[0xa5; 4096], page * 4096)
                .expect("damaged");
        }
        drop(open(&path, false).expect("its head is sound"));
        let opened = open(&path, true).expect("a new one");
        assert!(with_ending(&path, ".damaged").exists());
        let count = "SELECT count(*) FROM names";
        let names: i64 = opened
            .connection
            .query_row(count, [], |row| row.get(0))
            .expect("a count");
        assert_eq!(names, 0);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let opened = open(&path, false).expect("opens");
        opened
            .connection
            .execute("INSERT INTO names VALUES (1, 'model', 'm-1')", [])
            .expect("a name");
        for ending in ["", "-wal", "-shm", ".lock"] {
            let file = std::fs::metadata(with_ending(&path, ending)).expect("a file");
            assert_eq!(file.permissions().mode() & 0o777, 0o600, "{ending}");
        }
    }
}
