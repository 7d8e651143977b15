//! `/api/v1/coverage`: how many calls have a cost and a speed, and why the others have none.

use super::call_source::{CallSource, CallSourceName, ask};
use super::finished::Times;
use super::problem::JsonResponse;
use super::query_params::{FILTERS, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_store::query;

#[derive(JsonSchema, Serialize)]
pub(super) struct Coverage {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    #[serde(flatten)]
    coverage: query::Coverage,
}

pub(super) async fn coverage(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Coverage> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS])?;
    let now = (services.wall)();
    let filter = asked.filter(now)?;
    let question = move |source: &CallSource| {
        Ok(Coverage {
            store: source.name(),
            span: Times::of(source.span(&filter, None, now)?),
            coverage: source.coverage(&filter)?,
        })
    };
    ask(&services, question).await.map(Json)
}
