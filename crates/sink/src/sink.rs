//! The interface of a warehouse, and the kinds of errors when it does not store a batch.

use std::fmt;
use std::time::Duration;
use tokengauge_store::columns::Value;

/// Maximum length of a warehouse's message in the log.
const MESSAGE: usize = 300;

/// A call, as a value for each of [`COLUMNS`](tokengauge_store::columns::COLUMNS).
pub type Row = Vec<Value>;

pub trait Sink: Send + Sync {
    /// Stores all rows. A second call with equal rows in equal order must not store them twice.
    ///
    /// # Errors
    /// Returns an error if some rows may not be stored. After [`SendErrorKind::Refused`] none is
    /// stored.
    fn send(&self, rows: &[Row]) -> impl Future<Output = Result<(), SendError>> + Send;

    /// The rows that must be sent so that each is stored once, if some may have been sent in other
    /// batches. All rows, if the warehouse recognizes each row.
    ///
    /// # Errors
    /// Returns an error if the stored rows cannot be determined.
    fn missing(&self, rows: Vec<Row>) -> impl Future<Output = Result<Vec<Row>, SendError>> + Send {
        std::future::ready(Ok(rows))
    }
}

/// The kind of a failure, which decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SendErrorKind {
    /// The connection failed or was lost.
    Unreachable,
    Timeout,
    /// The warehouse reports an internal error, or is busy.
    Unavailable,
    /// The warehouse asks for fewer requests.
    Throttled,
    /// Access is denied or incomplete: credentials, permissions, a missing table or bucket.
    Denied,
    /// The warehouse will never accept these rows.
    Refused,
}

impl SendErrorKind {
    pub const ALL: [SendErrorKind; 6] = [
        SendErrorKind::Unreachable,
        SendErrorKind::Timeout,
        SendErrorKind::Unavailable,
        SendErrorKind::Throttled,
        SendErrorKind::Denied,
        SendErrorKind::Refused,
    ];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    pub kind: SendErrorKind,
    /// What happened and what to do, without secrets.
    pub message: String,
    /// When the warehouse asks to be tried again.
    pub retry_after: Option<Duration>,
}

impl SendError {
    pub(crate) fn new(kind: SendErrorKind, message: impl Into<String>) -> SendError {
        SendError {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SendError {}

/// The first line of a warehouse's message, shortened and without control characters.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars()
        .filter(|character| !character.is_control())
        .take(MESSAGE)
        .collect()
}
