//! What a warehouse is to the rest of the crate, and why it did not take a batch.

use std::fmt;
use std::time::Duration;
use tokengauge_store::columns::Value;

/// The longest message of a warehouse that is logged.
const MESSAGE: usize = 300;

/// A call: a value for each of [`COLUMNS`](tokengauge_store::columns::COLUMNS).
pub type Row = Vec<Value>;

pub trait Sink: Send + Sync {
    /// Stores all rows. It may be called again with the same rows in the same order, and the warehouse then has each of
    /// them once.
    ///
    /// # Errors
    /// Why not all of them are known to be stored. After [`SendErrorKind::Refused`] none is.
    fn send(&self, rows: &[Row]) -> impl Future<Output = Result<(), SendError>> + Send;

    /// Those of the rows that have to be sent to be stored once, where others may have been sent in other batches.
    /// All of them, where the warehouse knows each row by itself.
    ///
    /// # Errors
    /// Why it is not known.
    fn missing(&self, rows: Vec<Row>) -> impl Future<Output = Result<Vec<Row>, SendError>> + Send {
        std::future::ready(Ok(rows))
    }
}

/// The kind of a failure, which decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SendErrorKind {
    /// No connection, or it was lost.
    Unreachable,
    Timeout,
    /// The warehouse says that it is at fault, or busy.
    Unavailable,
    /// The warehouse asks for fewer requests.
    Throttled,
    /// The warehouse does not let us: credentials, permissions, a missing table or bucket.
    Denied,
    /// The warehouse does not take these rows, now or later.
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

    /// Its label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    pub kind: SendErrorKind,
    /// What happened and what to do, without secrets.
    pub message: String,
    /// When the warehouse wants to be asked again.
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

/// The first line of what a warehouse says, cut, without control characters.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars()
        .filter(|character| !character.is_control())
        .take(MESSAGE)
        .collect()
}
