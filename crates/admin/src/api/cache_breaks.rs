//! `/api/v1/cache-breaks`: why prompts missed the cache, and what that cost.

use super::call_source::{CallSource, CallSourceName, ask};
use super::finished::Times;
use super::problem::JsonResponse;
use super::query_params::{DEFAULT_LIMIT, FILTERS, MAX_LIMIT, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_store::query::CacheBreaks;

pub(super) const OF_BREAKS: [&str; 1] = ["limit"];

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CacheBreaks")]
pub(super) struct BreaksByCause {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    /// Causes of prompt-cache misses by agent, those with the most missed tokens first.
    breaks: Vec<CacheBreaks>,
    /// Causes that are not in the list.
    others: usize,
}

pub(super) async fn cache_breaks(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<BreaksByCause> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_BREAKS])?;
    let now = (services.wall)();
    let filter = asked.filter(now)?;
    let most = asked.count("limit", DEFAULT_LIMIT, MAX_LIMIT)?;
    let question = move |source: &CallSource| {
        let mut breaks = source.cache_breaks(&filter)?;
        let others = breaks.len().saturating_sub(most);
        breaks.truncate(most);
        Ok(BreaksByCause {
            store: source.name(),
            span: Times::of(source.span(&filter, None, now)?),
            breaks,
            others,
        })
    };
    ask(&services, question).await.map(Json)
}
