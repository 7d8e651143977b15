use std::error::Error as Cause;

#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The request is impossible. The string says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// Input or output could not be parsed or written; `source` says why.
    #[error("{what}: {source}")]
    Text {
        what: String,
        source: Box<dyn Cause + Send + Sync>,
    },
    /// An error in a named part, such as a document or a file.
    #[error("{part}: {source}")]
    Part {
        part: String,
        source: Box<InjectError>,
    },
}

impl InjectError {
    pub(super) fn text(
        what: impl Into<String>,
        source: impl Into<Box<dyn Cause + Send + Sync>>,
    ) -> InjectError {
        InjectError::Text {
            what: what.into(),
            source: source.into(),
        }
    }

    pub(super) fn of(self, part: impl Into<String>) -> InjectError {
        InjectError::Part {
            part: part.into(),
            source: Box::new(self),
        }
    }
}

impl From<String> for InjectError {
    fn from(reason: String) -> InjectError {
        InjectError::Refused(reason)
    }
}

impl From<&str> for InjectError {
    fn from(reason: &str) -> InjectError {
        InjectError::Refused(reason.to_owned())
    }
}
