//! `/api/v1/sinks`: how the sinks stand.

use super::finished::reply;
use super::query_params::QueryParams;
use crate::Services;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_sink::SinkStatus;

#[derive(JsonSchema, Serialize)]
pub(super) struct AllSinks {
    /// Those of the configuration, in its order.
    sinks: Vec<SinkStatus>,
}

pub(super) async fn sinks(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(AllSinks {
            sinks: services.sinks.statuses(),
        })
    })
    .await
}
