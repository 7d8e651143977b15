//! Why the ledger cannot take records: whose fault it is, and what to do.

use rusqlite::ErrorCode;
use std::io;

/// Why records are lost.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// No room.
    #[error("the disk is full: {0}; make room or lower retention_bytes")]
    Full(String),
    /// No permission, or no such folder.
    #[error("the file cannot be written to: {0}; check the folder and its permissions")]
    Unwritable(String),
    /// Somebody else writes.
    #[error("another process writes to it: {0}")]
    Locked(String),
    /// A later version of the program wrote it.
    #[error(
        "it is of version {found}, this program knows {known}; run the newer program, or name another file"
    )]
    Newer {
        /// The file's version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// A database of another program.
    #[error("it is a database of another program; name another file")]
    Foreign,
    /// The file is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The disk, or something unforeseen.
    #[error("{0}")]
    Failed(String),
}

impl Trouble {
    /// Every word that [`Trouble::reason`] can give, and `queue`: too many waited.
    pub const REASONS: [&'static str; 8] = [
        "queue",
        "disk_full",
        "unwritable",
        "locked",
        "newer_version",
        "foreign",
        "damaged",
        "failed",
    ];

    /// The word used as a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Trouble::Full(_) => "disk_full",
            Trouble::Unwritable(_) => "unwritable",
            Trouble::Locked(_) => "locked",
            Trouble::Newer { .. } => "newer_version",
            Trouble::Foreign => "foreign",
            Trouble::Damaged(_) => "damaged",
            Trouble::Failed(_) => "failed",
        }
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Trouble::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Trouble::Unwritable(text)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Trouble::Locked(text),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Trouble::Damaged(text),
            _ => Trouble::Failed(text),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind;
        let text = error.to_string();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Trouble::Full(text),
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::IsADirectory => Trouble::Unwritable(text),
            _ => Trouble::Failed(text),
        }
    }
}
