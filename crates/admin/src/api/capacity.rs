//! `/api/v1/capacity`: the throughput of each upstream by the number of concurrent calls.

use super::call_source::{CallSource, CallSourceName, ask};
use super::problem::JsonResponse;
use super::query_params::{FILTERS, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_store::query::CapacityRow;

#[derive(JsonSchema, Serialize)]
pub(super) struct Capacities {
    /// The store that answered. In memory the figures cover the time since the process started.
    store: CallSourceName,
    /// The upstreams in order of their names.
    upstreams: Vec<CapacityRow>,
}

/// The capacity of every upstream. Only the filters of time and upstream apply, since concurrency counts all
/// calls.
pub(super) async fn capacity(
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
