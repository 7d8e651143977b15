use rusqlite::ErrorCode;
use std::io;

/// Why records are lost.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the disk is full: {0}; make room or lower retention_bytes")]
    Full(String),
    /// Permission is denied, or the folder does not exist.
    #[error("the file cannot be written to: {0}; check the folder and its permissions")]
    Unwritable(String),
    #[error("another process is writing to the file: {0}")]
    Locked(String),
    /// A newer version of tokengauge wrote the file.
    #[error(
        "the file has version {found}, but this version of tokengauge supports only {known}. The \
         file is unchanged: run the newer tokengauge again, or set `path` in [ledger] to another \
         file"
    )]
    Newer {
        /// The file's version.
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// The file is a database of another program.
    #[error("the file is a database of another program; configure another file")]
    Foreign,
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// The file at the path is not the open file.
    #[error("the file was removed, replaced or emptied while it was in use")]
    Removed,
    /// The disk failed, or another error occurred.
    #[error("{0}")]
    Failed(String),
}

impl WriteError {
    /// All values of [`WriteError::reason`], and `queue` for a full queue.
    pub const REASONS: [&'static str; 9] = [
        "queue",
        "disk_full",
        "unwritable",
        "locked",
        "newer_version",
        "foreign",
        "damaged",
        "removed",
        "failed",
    ];

    /// The value of the label.
    pub fn reason(&self) -> &'static str {
        match self {
            WriteError::Full(_) => "disk_full",
            WriteError::Unwritable(_) => "unwritable",
            WriteError::Locked(_) => "locked",
            WriteError::Newer { .. } => "newer_version",
            WriteError::Foreign => "foreign",
            WriteError::Damaged(_) => "damaged",
            WriteError::Removed => "removed",
            WriteError::Failed(_) => "failed",
        }
    }
}

/// Whether SQLite reports that the file is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_CORRUPTFS, SQLITE_IOERR_DATA, SQLITE_IOERR_SHORT_READ};
    let broken = [
        SQLITE_IOERR_CORRUPTFS,
        SQLITE_IOERR_DATA,
        SQLITE_IOERR_SHORT_READ,
    ];
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.code,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase
        ) || broken.contains(&error.extended_code)
    })
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        if is_damage(&error) {
            return WriteError::Damaged(text);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => WriteError::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                WriteError::Unwritable(text)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => WriteError::Locked(text),
            _ => WriteError::Failed(text),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind;
        let text = error.to_string();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => WriteError::Full(text),
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::IsADirectory => WriteError::Unwritable(text),
            _ => WriteError::Failed(text),
        }
    }
}
