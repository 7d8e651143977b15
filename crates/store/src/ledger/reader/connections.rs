//! A pool of a few read-only connections, with a time limit for each query.

use super::QueryError;
use crate::ledger::file::{Identity, VERSION, identity, keep_statements, log_identities};
use crate::ledger::write_error::is_damage;
use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokengauge_core::background::Pauses;

/// Maximum number of concurrent queries; further queries wait.
const MAX_OPEN: usize = 4;
/// Instructions of SQLite's virtual machine between two checks of the clock: about ten
/// microseconds.
const STEPS: i32 = 2_000;
/// The version of a new file without tables: a proxy that is starting is about to create them.
const EMPTY: i64 = 0;
/// How long to wait for the tables, and the interval between checks.
const FOR_ITS_MAKER: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub(super) struct Connections {
    pub(super) path: PathBuf,
    clock: fn() -> Instant,
    limit: Duration,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Open>,
    open: usize,
}

struct Open {
    connection: Connection,
    file: Option<Identity>,
    logs: [Option<Identity>; 2],
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connections")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn new(path: &Path, clock: fn() -> Instant, limit: Duration) -> Connections {
        Connections {
            path: path.to_owned(),
            clock,
            limit,
            state: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Runs a query in one transaction, so that it sees a consistent snapshot.
    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(&Connection) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let deadline = (self.clock)() + self.limit;
        // A connection to a replaced file or log is not used again.
        let file = identity(&self.path);
        let is_current = |idle: &Open| idle.file == file && idle.logs == log_identities(&self.path);
        let idle = self.borrow()?.filter(is_current);
        let open = || {
            let connection = self.connect()?;
            let logs = log_identities(&self.path);
            Ok(Open {
                connection,
                file,
                logs,
            })
        };
        let mut open = match idle.map_or_else(open, Ok) {
            Ok(open) => open,
            Err(error) => {
                self.give_back(None);
                return Err(error);
            }
        };
        let answer = self.within(&mut open.connection, deadline, ask);
        let sound = !matches!(
            answer,
            Err(QueryError::Unavailable { .. } | QueryError::Damaged { .. })
        );
        self.give_back(sound.then_some(open));
        answer
    }

    fn within<T>(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        ask: impl FnOnce(&Connection) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let (clock, mut pauses) = (self.clock, Pauses::default());
        let is_late = move || {
            // Lets traffic on this core run.
            pauses.between();
            clock() >= deadline
        };
        let limited = connection.progress_handler(STEPS, Some(is_late));
        let answer = limited.map_err(QueryError::from).and_then(|()| {
            let moment = connection.unchecked_transaction()?;
            let answer = ask(&moment)?;
            moment.finish()?;
            Ok(answer)
        });
        answer.map_err(|error| match error {
            QueryError::Sqlite(error) => self.explain(&error),
            other => other,
        })
    }

    fn explain(&self, error: &rusqlite::Error) -> QueryError {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => QueryError::TimeLimit(self.limit),
            _ if is_locked(error) => QueryError::Busy,
            _ => self.unreadable(error),
        }
    }

    fn unreadable(&self, error: &rusqlite::Error) -> QueryError {
        let (path, reason) = (self.path.clone(), error.to_string());
        if is_damage(error) {
            QueryError::Damaged { path, reason }
        } else {
            QueryError::Unavailable { path, reason }
        }
    }

    fn unavailable(&self, reason: String) -> QueryError {
        QueryError::Unavailable {
            path: self.path.clone(),
            reason,
        }
    }

    fn borrow(&self) -> Result<Option<Open>, QueryError> {
        let mut state = self.state.lock();
        while state.open >= MAX_OPEN {
            let waited = self.returned.wait_for(&mut state, self.limit);
            if waited.timed_out() && state.open >= MAX_OPEN {
                return Err(QueryError::Busy);
            }
        }
        state.open += 1;
        Ok(state.idle.pop())
    }

    fn give_back(&self, connection: Option<Open>) {
        let mut state = self.state.lock();
        state.open -= 1;
        state.idle.extend(connection);
        drop(state);
        self.returned.notify_one();
    }

    /// Waits for a proxy that is creating the file: it locks the file, and the file has no version
    /// yet.
    fn connect(&self) -> Result<Connection, QueryError> {
        let until = (self.clock)() + FOR_ITS_MAKER;
        let (connection, version) = loop {
            let opened = self.open();
            let is_being_made = match &opened {
                Ok((_, version)) => *version == EMPTY,
                Err(error) => is_locked(error),
            };
            if !is_being_made || (self.clock)() >= until {
                break opened.map_err(|error| self.unreadable(&error))?;
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        let todo = match version.cmp(&VERSION) {
            Ordering::Equal => return Ok(connection),
            Ordering::Less => "run a proxy of this version with the file to upgrade it",
            Ordering::Greater => "read the file with the newer tokengauge that wrote it",
        };
        Err(self.unavailable(format!(
            "the file has version {version}, but this version of tokengauge reads {VERSION}; {todo}"
        )))
    }

    fn open(&self) -> rusqlite::Result<(Connection, i64)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::from_millis(250))?;
        keep_statements(&connection)?;
        connection.execute_batch(
            "PRAGMA query_only = ON; PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY;",
        )?;
        let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((connection, version))
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::database::LedgerDatabase;

    #[test]
    fn a_file_that_a_proxy_is_making_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        std::fs::write(&path, "").expect("created");
        let connections = Connections::new(&path, Instant::now, Duration::from_secs(5));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(LOOK_AGAIN * 10);
                LedgerDatabase::open(&path).expect("made");
            });
            connections.ask(|_| Ok(())).expect("it is read");
        });
    }

    #[test]
    fn a_file_that_is_locked_while_a_proxy_makes_it_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        drop(LedgerDatabase::open(&path).expect("made"));
        let maker = Connection::open(&path).expect("opens");
        let lock = "PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE";
        maker.execute_batch(lock).expect("locked");
        let connections = Connections::new(&path, Instant::now, Duration::from_secs(5));
        std::thread::scope(|threads| {
            let asking = threads.spawn(|| connections.ask(|_| Ok(())));
            // Longer than SQLite's own wait.
            std::thread::sleep(Duration::from_millis(600));
            maker.execute_batch("COMMIT").expect("given back");
            asking.join().expect("no panic").expect("it is read");
        });
    }

    #[test]
    fn a_file_that_nobody_makes_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        std::fs::write(&path, "").expect("created");
        let connections = Connections::new(&path, Instant::now, Duration::from_secs(5));
        let error = connections.ask(|_| Ok(())).expect_err("no ledger");
        assert!(
            error.to_string().contains("the file has version 0"),
            "{error}"
        );
    }
}
