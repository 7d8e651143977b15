//! `/api/v1/runaways`: the sessions that are runaways now.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::{ProcessServices, Services};
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_sessions::Runaway;

const MAX_ROWS: usize = 100;

/// The sessions that are runaways now.
#[derive(JsonSchema, Serialize)]
pub(super) struct Runaways {
    /// The number of runaways, including those that are not listed.
    total: usize,
    /// The runaways that began last, at most 100, newest first.
    runaways: Vec<Runaway>,
}

pub(super) async fn runaways(
    process: Arc<ProcessServices>,
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Runaways> {
    QueryParams::of(query.as_deref(), &[])?;
    let mut runaways = process.session_watch.runaways((services.clock)());
    let total = runaways.len();
    runaways.truncate(MAX_ROWS);
    Ok(Json(Runaways { total, runaways }))
}
