//! Queries about the present: calls in flight, objectives, pods.

use super::problem::{JsonResponse, Problem};
use super::query_params::QueryParams;
use super::stream_filter::{STREAM_NAMES, StreamFilter};
use crate::live_view::{AllPods, Slos};
use crate::{ProcessServices, Services};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use std::sync::Arc;
use tokengauge_fleet::Streams;
use tokengauge_slo::BurnDown;

pub(super) async fn streams(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Streams> {
    let asked = QueryParams::of(query.as_deref(), &[&STREAM_NAMES, &["limit"]])?;
    let limit = asked.limit()?;
    let filter = StreamFilter::of(&asked)?;
    Ok(Json(services.live.streams(
        (services.clock)(),
        &filter,
        limit,
    )))
}

pub(super) async fn slos(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Slos> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(services.live.slos((services.clock)())))
}

pub(super) async fn budget(
    process: Arc<ProcessServices>,
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<BurnDown> {
    QueryParams::of(query.as_deref(), &[])?;
    let Path(name) = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
    let unknown = "no [[slo]] has this name; /api/v1/slos lists them";
    let told = process.slos.burn_down(&name, (services.clock)());
    told.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))
        .map(Json)
}

pub(super) async fn pods(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<AllPods> {
    QueryParams::of(query.as_deref(), &[])?;
    let message = "a single process has no pods; run `tokengauge fleet` for many processes";
    let pods = services.live.pods();
    pods.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, message))
        .map(Json)
}
