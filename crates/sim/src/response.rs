//! Small responses: errors in the format of the dialect, and plain JSON.

use super::route::Shape;
use super::stream::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

pub fn json(status: StatusCode, value: &Value) -> Response<Body> {
    bytes(status, "application/json", value.to_string().into_bytes())
}

pub fn bytes(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::plain(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

pub fn error_body(shape: Option<Shape>, status: StatusCode, message: &str) -> Value {
    let kind = kind(status);
    match shape {
        Some(Shape::Anthropic) => {
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Some(Shape::Gemini { .. } | Shape::GeminiEmbed { .. }) => json!({
            "error": {"code": status.as_u16(), "message": message, "status": kind.to_uppercase()},
        }),
        Some(
            Shape::Converse
            | Shape::Invoke
            | Shape::CohereV1
            | Shape::CohereV2
            | Shape::CohereEmbed,
        ) => {
            json!({"message": message})
        }
        Some(Shape::OllamaChat | Shape::OllamaGenerate | Shape::OllamaEmbed { .. }) => {
            json!({"error": message})
        }
        Some(Shape::Tgi) => json!({"error": message, "error_type": kind}),
        _ => json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}),
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 | 503 => "overloaded_error",
        _ => "api_error",
    }
}
