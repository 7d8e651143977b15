//! Queries about single calls: pages of calls, calls that spent the budget of an objective, and one call by its id.

use super::call_source::{CallSource, CallSourceName, ask};
use super::problem::{JsonResponse, Problem};
use super::query_params::{FILTERS, PAGING, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_core::call::CallRecord;
use tokengauge_slo::{CallVerdict, Finished, Objective, judge};
use tokengauge_store::history;
use tokengauge_store::query::{Filter, Page, Paging, Phase};
use uuid::Uuid;

pub(super) const OF_CALLS: [&str; 3] = ["slo", "cost_unavailable", "tps_unavailable"];
/// The number of calls that an objective judges for one response.
const MAX_JUDGED: usize = 20_000;
const MAX_PAGES: usize = 400;

#[derive(JsonSchema, Serialize)]
pub(super) struct Calls {
    /// The store that answered.
    store: CallSourceName,
    /// A page of calls, the newest first.
    calls: Vec<CallRecord>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

pub(super) async fn calls(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Calls> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_CALLS, &PAGING])?;
    let (filter, paging) = (asked.filter((services.wall)())?, asked.paging()?);
    let objective = objective_of(&services, &asked)?;
    let question = move |source: &CallSource| {
        let page = match &objective {
            Some(objective) => spent(source, objective, &filter, paging)?,
            None => source.calls(&filter, &paging)?,
        };
        Ok(Calls {
            store: source.name(),
            calls: page.rows,
            next_cursor: page.next_cursor,
        })
    };
    ask(&services, question).await.map(Json)
}

pub(super) fn objective_of(
    services: &Services,
    asked: &QueryParams,
) -> Result<Option<Arc<Objective>>, Problem> {
    let Some(name) = asked.name("slo")? else {
        return Ok(None);
    };
    let objective = services.live.objective(&name);
    objective.map(Some).ok_or_else(unknown_objective)
}

pub(super) fn unknown_objective() -> Problem {
    let unknown =
        "no [[slo]] in the configuration has this name; /api/v1/slos lists the objectives";
    Problem::new(StatusCode::NOT_FOUND, unknown)
}

/// The calls that match and are bad events of the objective. At most [`MAX_JUDGED`] calls are judged, so a page may be
/// short or empty although there is a next page.
pub(super) fn spent(
    source: &CallSource,
    objective: &Objective,
    filter: &Filter,
    paging: Paging,
) -> Result<Page<CallRecord>, Problem> {
    let mut found = Page {
        rows: Vec::new(),
        next_cursor: paging.cursor,
    };
    let mut judged = 0;
    for page in 0..MAX_PAGES {
        let missing = paging.limit - found.rows.len();
        // Small pages are slow to read, so the page ends once it has most of its rows.
        if missing == 0 || missing * 4 < paging.limit || judged >= MAX_JUDGED {
            break;
        }
        if page > 0 && found.next_cursor.is_none() {
            break;
        }
        let part = Paging {
            limit: missing,
            cursor: found.next_cursor.take(),
        };
        let part = source.calls(filter, &part)?;
        judged += part.rows.len();
        found.next_cursor = part.next_cursor;
        let bad = part.rows.into_iter().filter(|call| spends(objective, call));
        found.rows.extend(bad);
    }
    Ok(found)
}

pub(super) fn spends(objective: &Objective, call: &CallRecord) -> bool {
    let finished = Finished::of_record(call);
    let judgement = &objective.judgement;
    judgement.select.matches(&finished.names())
        && judge(judgement, &finished)
            .iter()
            .any(|events| events.verdict == CallVerdict::Bad)
}

/// A finished call.
#[derive(JsonSchema, Serialize)]
pub(super) struct Call {
    /// The store that answered.
    store: CallSourceName,
    /// The record of the call.
    call: CallRecord,
    /// The cost of the output tokens that repeat earlier text, in US dollars. `null` without a repetition, or if the
    /// price is not per token.
    repetition_cost_usd: Option<f64>,
    /// The phases of the call in order of time, without gaps. Seconds are relative to the start of the call.
    phases: Vec<Phase>,
}

pub(super) async fn call(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Call> {
    QueryParams::of(query.as_deref(), &[])?;
    let id = path.ok().and_then(|id| Uuid::parse_str(&id).ok());
    let id = id.ok_or_else(|| Problem::of("id", "must be the id of a call, a UUID"))?;
    let prices = services.live.prices();
    let question = move |source: &CallSource| Ok((source.name(), source.call(id)?));
    let (store, call) = ask(&services, question).await?;
    let unknown = "no stored call has this id; /api/v1/streams lists calls in flight";
    let call = call.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))?;
    Ok(Json(Call {
        store,
        repetition_cost_usd: prices.cost_of_repetition(&call),
        phases: history::phases(&call, 0.0),
        call,
    }))
}
