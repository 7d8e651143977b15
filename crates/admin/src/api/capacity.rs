//! `/api/v1/capacity`: the throughput of each upstream by the number of concurrent calls.

use super::call_source::{CallSource, CallSourceName, ask};
use super::problem::JsonResponse;
use super::query_params::{FILTERS, QueryParams};
use crate::{ProcessServices, Services};
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_store::query::CapacityRow;

#[derive(JsonSchema, Serialize)]
pub(super) struct Capacities {
    /// Which store answered; memory has the time since the process started.
    store: CallSourceName,
    /// By name.
    upstreams: Vec<CapacityRow>,
}

/// Every upstream. Of the filters only times and upstream count: a concurrency is of all
/// calls.
pub(super) async fn capacity(
    // A fleet's ledger does not say how many calls a process had at once.
    _: Arc<ProcessServices>,
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Capacities> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS])?;
    let filter = asked.filter((services.wall)())?;
    let question = move |source: &CallSource| {
        Ok(Capacities {
            store: source.name(),
            upstreams: source.capacity(&filter)?,
        })
    };
    ask(&services, question).await.map(Json)
}
