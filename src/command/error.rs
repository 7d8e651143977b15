//! Errors that several commands share.

use http::Uri;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use tokengauge_process::Fatal;

pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a command, unless its area has a separate error type.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("{0}")]
    Capsule(String),
    #[error(
        "{0} has not evaluated drift yet, or has no [[drift]] in its configuration; to evaluate a ledger file instead, use --ledger FILE"
    )]
    DriftNotEvaluated(String),
    #[error("{0}")]
    GateFailed(String),
    #[error(
        "line {0} of standard input is not a key: it contains spaces, commas, quotes or non-ASCII letters; write one key per line, without `Bearer`"
    )]
    InvalidKey(usize),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(
        "there is no key on standard input; try: printf '%s' \"$KEY\" | tokengauge print key-hash"
    )]
    NoKey,
    #[error("there is no ledger file at {path}", path = .0.display())]
    NoLedger(PathBuf),
    #[error(
        "{0} configures no ledger; name a ledger file with --ledger, or set `state_dir` or `path` in [ledger]"
    )]
    NoLedgerConfigured(String),
    #[error("`tokengauge top` needs a terminal; in scripts use `tokengauge report` or /api/v1")]
    NoTerminal,
    #[error(
        "no finished call belongs to a variant of the experiment `{0}`: check the name, the traffic, and the headers that name its units"
    )]
    NoUnits(String),
    #[error("{0} cannot be injected. {1}")]
    NotInjected(usize, &'static str),
    #[error("{0}: {1}; the address did not become ready in time (--within)")]
    NotReady(Uri, #[source] io::Error),
    #[error("Parquet cannot be written to a terminal; name a file with -o")]
    ParquetOnTerminal,
    /// A file, option or address cannot be used for a reason without a variant.
    #[error("{what}: {reason}")]
    Refused {
        what: String,
        #[source]
        reason: BoxedError,
    },
    #[error("`{0}` is not a score; give a number, `true` or `false`")]
    NoScore(String),
    #[error("line {0} is not a JSON object: {1}")]
    ScoreLine(usize, #[source] serde_json::Error),
    #[error("no call of the session has a readable start time")]
    SessionWithoutStart,
    #[error("--since must be before --until")]
    SinceAfterUntil,
    #[error("--spreadsheet works only with --format csv")]
    SpreadsheetOfOtherFormat,
    #[error("the configuration has warnings, and --strict is set")]
    StrictWarnings,
    #[error("cannot use the terminal: {0}")]
    Terminal(#[source] io::Error),
    #[error("there is no dashboard {0}; the dashboards are:\n{1}")]
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
