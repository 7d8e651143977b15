//! Errors of the proxy, and OpenAI's error format.

use http::StatusCode;
use serde_json::{Value, json};

/// An error of the proxy.
pub struct OwnError<'a> {
    /// The HTTP status of the response.
    pub status: StatusCode,
    /// The kind of error, such as `upstream_connect`.
    pub code: &'a str,
    /// What happened and what to do, for people.
    pub message: &'a str,
}

/// OpenAI's error format, which most servers use.
pub fn openai_error(error: &OwnError<'_>) -> Value {
    let kind = match error.status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": error.message, "type": kind, "param": null, "code": error.code}})
}
