//! Errors that end a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{error, io};

/// Why a command fails. `main` maps each variant to an exit code.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The configuration cannot be used. The text names line and key.
    #[error("{0}")]
    Configuration(String),
    /// Something failed while running. The text says what failed and what to do.
    #[error("tokengauge: {0}")]
    Failed(#[source] Box<dyn error::Error + Send + Sync>),
    /// The command finished except for a part, which the text names.
    #[error("tokengauge: {0}")]
    LeftOut(String),
    /// The command finished and found what it searches for, such as a fault.
    #[error("tokengauge: {0}")]
    Found(String),
    /// The command finished, but the question is still undecided.
    #[error("tokengauge: {0}")]
    Undecided(String),
    /// An address cannot be listened on, for reasons outside of the configuration. The text names the address, the
    /// reason and the fix.
    #[error("tokengauge: {0}")]
    Address(String),
    /// A signal stopped the work early. The finished part is written.
    #[error("tokengauge: {0}")]
    Interrupted(String),
    /// The reader of standard output closed it, as `| head -1` does.
    #[error("tokengauge: nobody reads standard output")]
    OutputClosed,
}

impl From<tokengauge_config::Invalid> for ProcessError {
    fn from(invalid: tokengauge_config::Invalid) -> Self {
        ProcessError::Configuration(invalid.to_string())
    }
}

/// An error that ends a command. Its text names what failed, so that `?` can turn it into [`ProcessError::Failed`].
pub trait Fatal: error::Error + Send + Sync + 'static {}

impl<E: Fatal> From<E> for ProcessError {
    fn from(error: E) -> Self {
        ProcessError::Failed(Box::new(error))
    }
}

impl Fatal for SystemError {}
impl Fatal for tokengauge_sink::SendError {}
impl Fatal for tokengauge_store::export::ExportError {}
impl Fatal for tokengauge_store::ledger::QueryError {}

#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("cannot open the call log {path}: {1}", path = .0.display())]
    CallLog(PathBuf, #[source] io::Error),
    #[error("cannot read {path}: {1}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot {0}: {1}")]
    Task(&'static str, #[source] io::Error),
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("cannot write {path}: {1}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
}

impl SystemError {
    pub fn read(path: &Path) -> impl Fn(io::Error) -> SystemError {
        |source| SystemError::Read(path.to_owned(), source)
    }

    pub fn write(path: &Path) -> impl Fn(io::Error) -> SystemError {
        |source| SystemError::Write(path.to_owned(), source)
    }
}
