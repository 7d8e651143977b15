//! Queries about single calls: pages of them, those that spent the budget of an objective, and
//! one by its id.

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

/// The parameters of calls alone.
pub(super) const OF_CALLS: [&str; 3] = ["slo", "cost_unavailable", "tps_unavailable"];
/// Calls, and pages of them, that are judged by an objective for one answer.
const MAX_JUDGED: usize = 20_000;
const MAX_PAGES: usize = 400;

#[derive(JsonSchema, Serialize)]
pub(super) struct Calls {
    /// Which store answered.
    store: CallSourceName,
    /// A page of them, the newest first.
    calls: Vec<CallRecord>,
    /// Names the next page; null where this is the last.
    next_cursor: Option<String>,
}

/// The finished calls, newest first.
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
    let unknown = "no [[slo]] of the configuration has this name; /api/v1/slos lists them";
    Problem::new(StatusCode::NOT_FOUND, unknown)
}

/// The calls that match and are bad events of the objective. The page may be short, and even empty,
/// and have a next one: so many calls are judged at most.
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
        // Small pages are slow: with most of the rows the page ends.
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

/// Whether the call is a bad event, by its record.
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
    /// Which store answered.
    store: CallSourceName,
    /// Its record.
    call: CallRecord,
    /// Its phases in the order of time, without gaps; seconds are from its start.
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
    let question = move |source: &CallSource| Ok((source.name(), source.call(id)?));
    let (store, call) = ask(&services, question).await?;
    let unknown =
        "no finished call that is kept has this id; while it is under way it is in /api/v1/streams";
    let call = call.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))?;
    Ok(Json(Call {
        store,
        phases: history::phases(&call, 0.0),
        call,
    }))
}
