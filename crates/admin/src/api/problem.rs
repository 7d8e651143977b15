//! Errors of the API, as JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

pub(super) type JsonResponse<T> = Result<Json<T>, Problem>;

#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    status: StatusCode,
    message: Cow<'static, str>,
    parameter: Option<&'static str>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemBody<'a> {
    /// The error.
    error: ErrorDetail<'a>,
}

#[derive(JsonSchema, Serialize)]
struct ErrorDetail<'a> {
    /// The HTTP status.
    status: u16,
    /// What happened, and what to do.
    message: &'a str,
    /// The invalid parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Problem {
        Problem {
            status,
            message: message.into(),
            parameter: None,
        }
    }

    /// Status 400: the `parameter` violates the `rule`.
    pub(super) fn of(parameter: &'static str, rule: &str) -> Problem {
        Problem::about(parameter, format!("{parameter} {rule}"))
    }

    /// Status 400 with a message about a parameter.
    pub(super) fn about(parameter: &'static str, message: String) -> Problem {
        Problem {
            parameter: Some(parameter),
            ..Problem::new(StatusCode::BAD_REQUEST, message)
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error = ErrorDetail {
            status: self.status.as_u16(),
            message: &self.message,
            parameter: self.parameter,
        };
        (self.status, Json(ProblemBody { error })).into_response()
    }
}
