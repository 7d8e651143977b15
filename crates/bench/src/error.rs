use std::path::PathBuf;

/// The reason why a benchmark cannot run or has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{url}: {reason}")]
    Url {
        /// The URL as the user wrote it.
        url: String,
        reason: String,
    },
    #[error("the header `{0}` is not a valid NAME: VALUE")]
    Header(String),
    /// The first call failed, so no load was put on the backend.
    #[error("{url}: the first call failed, so nothing was measured: {reason}")]
    FirstCall {
        url: String,
        /// How the call failed and what to do.
        reason: String,
    },
    /// A file with prompts or a trace cannot be used.
    #[error("{}: {reason}", path.display())]
    Input { path: PathBuf, reason: String },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
}
