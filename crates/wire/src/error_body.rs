//! Error responses from the proxy in the dialect of the call, so that the vendor's SDK raises the
//! expected exception.

use super::Registration;
use super::own_error::OwnError;
use bytes::Bytes;
use http::StatusCode;
use tokengauge_core::observer::ErrorResponse;

/// The body of an error from the proxy, in the error format of `dialect`.
pub fn error_body(
    dialect: impl Into<&'static Registration>,
    status: StatusCode,
    code: &str,
    message: &str,
) -> ErrorResponse {
    let body = (dialect.into().error_body)(&OwnError {
        status,
        code,
        message,
    });
    ErrorResponse {
        content_type: "application/json",
        body: Bytes::from(body.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tokengauge_core::call::Dialect;

    fn body(dialect: Dialect, status: u16) -> Value {
        let status = StatusCode::from_u16(status).expect("a status");
        let response = error_body(dialect, status, "upstream_connect", "no \"route\"");
        assert_eq!(response.content_type, "application/json");
        serde_json::from_slice(&response.body).expect("valid JSON")
    }

    #[test]
    fn each_dialect_gets_the_shape_its_sdk_reads() {
        for (dialect, status, expected) in [
            (
                Dialect::OpenaiChat,
                502,
                json!({"error": {"message": "no \"route\"", "type": "server_error", "param": null, "code": "upstream_connect"}}),
            ),
            (
                Dialect::Unknown,
                429,
                json!({"error": {"message": "no \"route\"", "type": "rate_limit_error", "param": null, "code": "upstream_connect"}}),
            ),
            (
                Dialect::Anthropic,
                504,
                json!({"type": "error", "error": {"type": "timeout_error", "message": "no \"route\""}}),
            ),
            (
                Dialect::Gemini,
                502,
                json!({"error": {"code": 502, "message": "no \"route\"", "status": "UNAVAILABLE"}}),
            ),
            (
                Dialect::BedrockInvoke,
                502,
                json!({"__type": "ServiceUnavailableException", "message": "no \"route\""}),
            ),
            (Dialect::Ollama, 502, json!({"error": "no \"route\""})),
            (Dialect::CohereV2, 502, json!({"message": "no \"route\""})),
            (
                Dialect::Tgi,
                502,
                json!({"error": "no \"route\"", "error_type": "upstream_connect"}),
            ),
        ] {
            assert_eq!(body(dialect, status), expected, "{dialect:?}");
        }
    }
}
