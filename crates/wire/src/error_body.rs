//! Errors of ours in the shape of a call's dialect, so that the vendor's SDK raises
//! the exception its user expects.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokengauge_core::call::Dialect;
use tokengauge_core::observer::ErrorReply;

/// The body of an error of ours, in the shape that `dialect` gives its own.
pub fn error_body(dialect: Dialect, status: StatusCode, code: &str, message: &str) -> ErrorReply {
    let body = match dialect {
        Dialect::Anthropic | Dialect::AnthropicComplete => json!({
            "type": "error",
            "error": {"type": anthropic_type(status), "message": message},
        }),
        Dialect::Gemini | Dialect::GeminiInteractions => json!({
            "error": {"code": status.as_u16(), "message": message, "status": google_status(status)},
        }),
        Dialect::BedrockConverse | Dialect::BedrockInvoke => json!({
            "__type": amazon_type(status),
            "message": message,
        }),
        Dialect::Ollama => json!({"error": message}),
        Dialect::CohereV1 | Dialect::CohereV2 => json!({"message": message}),
        Dialect::Tgi => json!({"error": message, "error_type": code}),
        _ => openai(status, code, message),
    };
    ErrorReply {
        content_type: "application/json",
        body: Bytes::from(body.to_string()),
    }
}

fn openai(status: StatusCode, code: &str, message: &str) -> Value {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        _ if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

fn google_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..500 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

fn amazon_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 | 504 => "ModelTimeoutException",
        429 => "ThrottlingException",
        502 | 503 => "ServiceUnavailableException",
        400..500 => "ValidationException",
        _ => "InternalServerException",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(dialect: Dialect, status: u16) -> Value {
        let status = StatusCode::from_u16(status).expect("a status");
        let reply = error_body(dialect, status, "upstream_connect", "no \"route\"");
        assert_eq!(reply.content_type, "application/json");
        serde_json::from_slice(&reply.body).expect("valid JSON")
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
