//! `/api/v1/sinks`: the state of the sinks.

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
    /// The configured sinks, in the order of the configuration.
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
