//! Why a benchmark cannot be run.

use std::path::PathBuf;

/// Why a benchmark cannot be run, or has no result: whose fault it is, what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{url}: {reason}")]
    Url {
        /// As it was given.
        url: String,
        reason: String,
    },
    #[error("the header `{0}` is no NAME: VALUE that HTTP can carry")]
    Header(String),
    /// The first call failed, so that no load was put on the backend.
    #[error("{url}: the first call failed, so nothing was measured: {reason}")]
    FirstCall {
        url: String,
        /// How it failed and what to do.
        reason: String,
    },
    /// A file with prompts or a trace cannot be used.
    #[error("{}: {reason}", path.display())]
    Input { path: PathBuf, reason: String },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
}
