//! `/api/v1/prompt-tools`: tokens that each tool adds to prompts, and their cost.

use super::call_source::{CallSource, CallSourceName, ask};
use super::finished::Times;
use super::problem::JsonResponse;
use super::query_params::{DEFAULT_LIMIT, FILTERS, MAX_LIMIT, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_store::query::{InputPrices, PromptToolRow, priced};

pub(super) const OF_TOOLS: [&str; 1] = ["limit"];

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PromptTools")]
pub(super) struct ToolsOfPrompts {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    /// The tools that prompts define or have results of, those with the most tokens first.
    tools: Vec<PromptToolRow>,
    /// Tools that are not in the list.
    others: usize,
}

pub(super) async fn prompt_tools(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<ToolsOfPrompts> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_TOOLS])?;
    let now = (services.wall)();
    let filter = asked.filter(now)?;
    let most = asked.count("limit", DEFAULT_LIMIT, MAX_LIMIT)?;
    let prices = services.live.prices();
    let question = move |source: &CallSource| {
        let uses = source.prompt_tools(&filter)?;
        let mut tools = priced(uses, |place| {
            let (uncached, cached) = prices.input_prices(
                &place.upstream,
                place.endpoint.as_deref(),
                place.model.as_deref()?,
                now,
            )?;
            Some(InputPrices { uncached, cached })
        });
        let others = tools.len().saturating_sub(most);
        tools.truncate(most);
        Ok(ToolsOfPrompts {
            store: source.name(),
            span: Times::of(source.span(&filter, None, now)?),
            tools,
            others,
        })
    };
    ask(&services, question).await.map(Json)
}
