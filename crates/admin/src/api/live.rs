//! Queries about the present: calls in progress, objectives, pods.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::QueryParams;
use super::stream_filter::{STREAM_NAMES, StreamFilter};
use crate::{ProcessServices, Services};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;

/// The calls in progress, newest first.
pub(super) async fn streams(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async {
        let asked = QueryParams::of(query.as_deref(), &[&STREAM_NAMES, &["limit"]])?;
        let limit = asked.limit()?;
        let filter = StreamFilter::of(&asked)?;
        Ok(services.live.streams((services.clock)(), &filter, limit))
    })
    .await
}

/// The status of every objective.
pub(super) async fn slos(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(services.live.slos((services.clock)()))
    })
    .await
}

/// How the budget of an objective was spent.
pub(super) async fn budget(
    process: Arc<ProcessServices>,
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        let Path(name) = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
        let unknown = "no [[slo]] has this name; /api/v1/slos lists them";
        let told = process.slos.burn_down(&name, (services.clock)());
        told.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))
    })
    .await
}

/// Every pod of a fleet, and the store.
pub(super) async fn pods(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        let message =
            "this is one process, which knows no others; `tokengauge fleet` answers for many";
        let pods = services.live.pods();
        pods.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, message))
    })
    .await
}
