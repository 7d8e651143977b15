//! `/api/v1/sinks`: how the sinks stand.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::ProcessServices;
use axum::Json;
use axum::extract::RawQuery;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_sink::SinkStatus;

#[derive(JsonSchema, Serialize)]
pub(super) struct AllSinks {
    /// Those of the configuration, in its order.
    sinks: Vec<SinkStatus>,
}

pub(super) async fn sinks(
    process: Arc<ProcessServices>,
    RawQuery(query): RawQuery,
) -> JsonResponse<AllSinks> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(AllSinks {
        sinks: process.sinks.statuses(),
    }))
}
