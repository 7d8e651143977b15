use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{url}: {reason}")]
    Url { url: String, reason: String },
    #[error("the header `{0}` is not valid; write `NAME: VALUE`")]
    Header(String),
    #[error("{url}: the first call failed, so nothing was measured: {reason}")]
    FirstCall { url: String, reason: String },
    #[error("{}: {reason}", path.display())]
    Input { path: PathBuf, reason: String },
    #[error("{0}")]
    Settings(String),
}
