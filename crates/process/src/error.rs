//! Why a process ends with an error.

/// Why a command fails. `main` has a separate exit code for each variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator's configuration cannot be used; the text names line and key.
    #[error("{0}")]
    Configuration(String),
    /// Something failed while running; the text says what and what to do.
    #[error("tokengauge: {0}")]
    Failed(String),
    /// The command was done except for a part, which the text names.
    #[error("tokengauge: {0}")]
    LeftOut(String),
    /// The command was done, and what it looks for is there.
    #[error("tokengauge: {0}")]
    Found(String),
    /// The command was done, and what it was asked is not known yet.
    #[error("tokengauge: {0}")]
    Undecided(String),
    /// An address cannot be listened on: another configuration would not help. The text says
    /// which, why and what to do.
    #[error("tokengauge: {0}")]
    Address(String),
    /// Work was stopped by a signal before its end; what was done until then is written.
    #[error("tokengauge: {0}")]
    Interrupted(String),
    /// Standard output was closed by its reader, as by `| head -1`: there is nothing more to do.
    #[error("tokengauge: nobody reads standard output")]
    OutputClosed,
}

impl From<tokengauge_config::Invalid> for Error {
    fn from(invalid: tokengauge_config::Invalid) -> Self {
        Error::Configuration(invalid.to_string())
    }
}
