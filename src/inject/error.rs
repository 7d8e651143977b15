//! Why a sidecar cannot be put somewhere.

use std::error::Error as Cause;

/// Why a pod, a file of manifests, a review or the injector's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It asks for what cannot be: what, and what to do.
    #[error("{0}")]
    Refused(String),
    /// A text cannot be read or written; its cause is a part of what is shown.
    #[error("{what}: {source}")]
    Text {
        /// The text, and what failed.
        what: String,
        /// The reader's or the writer's own error.
        source: Box<dyn Cause + Send + Sync>,
    },
    /// Of a part that has a name: a document, a file.
    #[error("{part}: {source}")]
    Part {
        /// The part.
        part: String,
        /// What is wrong with it.
        source: Box<Error>,
    },
}

impl Error {
    /// A text that cannot be read or written.
    pub(super) fn text(
        what: impl Into<String>,
        source: impl Into<Box<dyn Cause + Send + Sync>>,
    ) -> Error {
        Error::Text {
            what: what.into(),
            source: source.into(),
        }
    }

    /// The same of a part of something larger.
    pub(super) fn of(self, part: impl Into<String>) -> Error {
        Error::Part {
            part: part.into(),
            source: Box::new(self),
        }
    }
}

impl From<String> for Error {
    fn from(reason: String) -> Error {
        Error::Refused(reason)
    }
}

impl From<&str> for Error {
    fn from(reason: &str) -> Error {
        Error::Refused(reason.to_owned())
    }
}
