//! Errors that several commands share.

use http::Uri;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use tokengauge_fleet::FollowerError;
use tokengauge_process::Fatal;

pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a command, unless its area has a separate error type.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("{0}")]
    Capsule(String),
    #[error(
        "{0} has not evaluated drift yet, or has no [[drift]] in its configuration; --ledger FILE reads a ledger without it"
    )]
    DriftNotEvaluated(String),
    #[error(transparent)]
    Follower(#[from] FollowerError),
    #[error("{0}")]
    GateFailed(String),
    #[error(
        "line {0} of standard input is no key: it has spaces, commas, quotes or letters beyond ASCII; give the key alone, one a line, without `Bearer`"
    )]
    InvalidKey(usize),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("there is no key on standard input: printf '%s' \"$KEY\" | tokengauge print key-hash")]
    NoKey,
    #[error("there is no ledger at {path}", path = .0.display())]
    NoLedger(PathBuf),
    #[error(
        "{0} keeps no ledger; name a file with --ledger, or set `state_dir` or `path` in [ledger]"
    )]
    NoLedgerConfigured(String),
    #[error("top needs a terminal; `tokengauge report` and /api/v1 are for scripts")]
    NoTerminal,
    #[error(
        "no finished call is in a variant of the experiment `{0}`: is that its name, is there traffic, and do headers name its units?"
    )]
    NoUnits(String),
    #[error("{0} cannot be injected. {1}")]
    NotInjected(usize, &'static str),
    #[error("{0}: {1}; no better answer in time (--within)")]
    NotReady(Uri, #[source] io::Error),
    #[error("Parquet is no text for a terminal; name a file with -o")]
    ParquetOnTerminal,
    /// A file, option or address cannot be used for a reason without a variant.
    #[error("{what}: {reason}")]
    Refused {
        what: String,
        #[source]
        reason: BoxedError,
    },
    #[error("no call of the session has a start that can be read")]
    SessionWithoutStart,
    #[error("--since must be before --until")]
    SinceAfterUntil,
    #[error("--spreadsheet is for --format csv: the others are no files for spreadsheets")]
    SpreadsheetOfOtherFormat,
    #[error("there are warnings")]
    StrictWarnings,
    #[error("the terminal: {0}")]
    Terminal(#[source] io::Error),
    #[error("there is no dashboard {0}; there are:\n{1}")]
    UnknownDashboard(String, String),
    #[error("there is no [[drift]] named `{0}`")]
    UnknownDrift(String),
    #[error("{origin} has no call of the session {id}")]
    UnknownSession { origin: String, id: String },
}

impl CommandError {
    pub(super) fn refused(what: impl Display, reason: impl Into<BoxedError>) -> CommandError {
        let (what, reason) = (what.to_string(), reason.into());
        CommandError::Refused { what, reason }
    }

    pub(super) fn file<E: Into<BoxedError>>(path: &Path) -> impl Fn(E) -> CommandError {
        |reason| CommandError::refused(path.display(), reason)
    }
}

impl Fatal for CommandError {}
