//! Errors of ours in the shape of a call's dialect.

use crate::call::Dialect;
use crate::observer::ErrorReply;
use bytes::Bytes;
use http::StatusCode;

/// The body of an error of ours, in the shape that `dialect` gives its own.
pub fn error_body(
    _dialect: Dialect,
    _status: StatusCode,
    _code: &str,
    _message: &str,
) -> ErrorReply {
    ErrorReply {
        content_type: "application/json",
        body: Bytes::new(),
    }
}
