//! Which dialect a path speaks.

use crate::call::{Dialect, Operation};
use http::{Method, Uri};

/// What a request's method and path say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// The shapes on the wire.
    pub dialect: Dialect,
    /// What is asked for.
    pub operation: Operation,
    /// The model, where the path names it.
    pub model: Option<String>,
    /// Whether a stream is asked for, where the path says.
    pub stream: Option<bool>,
}

/// Reads the dialect off a path.
pub fn detect(_method: &Method, _uri: &Uri) -> Detected {
    Detected::default()
}
