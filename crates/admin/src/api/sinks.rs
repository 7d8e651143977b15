//! `/api/v1/sinks`: how the sinks stand.

use super::finished::reply;
use super::query_params::QueryParams;
use crate::ProcessServices;
use axum::extract::RawQuery;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_sink::SinkStatus;

#[derive(JsonSchema, Serialize)]
pub(super) struct AllSinks {
    /// Those of the configuration, in its order.
    sinks: Vec<SinkStatus>,
}

pub(super) async fn sinks(process: Arc<ProcessServices>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(AllSinks {
            sinks: process.sinks.statuses(),
        })
    })
    .await
}
