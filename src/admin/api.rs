//! The JSON of calls and streams.

use super::Admin;
use crate::call::CallRecord;
use crate::meter::StreamNow;
use crate::slo::Status;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Calls or streams in an answer when nobody says how many.
const DEFAULT_LIMIT: usize = 100;

#[derive(Serialize)]
struct Calls<'a> {
    calls: Vec<&'a CallRecord>,
}

#[derive(Serialize)]
struct Slos {
    slos: Vec<Status>,
}

#[derive(Serialize)]
struct Streams {
    streams: Vec<StreamNow>,
}

/// The last finished calls, newest first.
pub(super) async fn calls(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let limit = match limit(query.as_deref()) {
        Ok(limit) => limit,
        Err(problem) => return error(StatusCode::BAD_REQUEST, &problem),
    };
    let newest = admin.recent.newest(limit);
    let calls = newest.iter().map(|finding| &finding.record).collect();
    Json(Calls { calls }).into_response()
}

/// The calls under way, newest first.
pub(super) async fn streams(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    match limit(query.as_deref()) {
        Ok(limit) => {
            let streams = admin.meter.streams((admin.clock)(), limit);
            Json(Streams { streams }).into_response()
        }
        Err(problem) => error(StatusCode::BAD_REQUEST, &problem),
    }
}

/// How every objective stands.
pub(super) async fn slos(State(admin): State<Admin>) -> Response {
    let slos = admin.slos.status((admin.clock)());
    Json(Slos { slos }).into_response()
}

/// The `limit` of a query: a whole number, 1 or more.
fn limit(query: Option<&str>) -> Result<usize, String> {
    let mut limit = DEFAULT_LIMIT;
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        match pair.split_once('=') {
            Some(("limit", value)) => {
                let number = value.parse().ok().filter(|number| *number > 0);
                limit = number.ok_or("limit must be a whole number of 1 or more")?;
            }
            _ => return Err("the only parameter is limit".to_owned()),
        }
    }
    Ok(limit)
}

/// An error as JSON.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "status": status.as_u16(), "message": message } });
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_whole_number_of_one_or_more() {
        assert_eq!(limit(None), Ok(DEFAULT_LIMIT));
        assert_eq!(limit(Some("limit=7")), Ok(7));
        for bad in [
            "limit=0",
            "limit=-1",
            "limit=x",
            "limit=",
            "limit=1.5",
            "limits=3",
            "limit",
        ] {
            assert!(limit(Some(bad)).is_err(), "{bad}");
        }
    }
}
