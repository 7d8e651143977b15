//! Analyses of a session: its critical path, its prompt cache misses, and its trace.

use super::call_source::{CallSource, CallSourceName, ask};
use super::problem::{JsonResponse, Problem};
use super::query_params::QueryParams;
use crate::Services;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokengauge_core::call::CallRecord;
use tokengauge_sessions::{Analysis, Session, last_calls, otlp, perfetto};
use tokengauge_store::history::TimedCall;

pub(super) const TRACE_FORMATS: [(&str, TraceFormat); 2] = [("perfetto", perfetto), ("otlp", otlp)];
pub(super) const OF_TRACES: [&str; 1] = ["format"];

type TraceFormat = fn(&str, &Session<'_>) -> Value;

#[derive(JsonSchema, Serialize)]
pub(super) struct SessionAnalysis {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    analysis: Analysis,
}

pub(super) async fn analysis(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<SessionAnalysis> {
    let id = session_id(path)?;
    QueryParams::of(query.as_deref(), &[])?;
    let prices = services.live.prices();
    let question = move |source: &CallSource| {
        let calls = calls_of(source, &id)?;
        let session = Session::of(calls.iter().map(TimedCall::of));
        let price = |record: &CallRecord, cached| prices.cost_if_cached(record, cached);
        Ok(SessionAnalysis {
            store: source.name(),
            analysis: session.analysis(price),
        })
    };
    ask(&services, question).await.map(Json)
}

pub(super) async fn trace(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Problem> {
    let id = session_id(path)?;
    let asked = QueryParams::of(query.as_deref(), &[&OF_TRACES])?;
    let format = asked.word("format", &TRACE_FORMATS)?.unwrap_or(perfetto);
    let question = move |source: &CallSource| {
        let calls = calls_of(source, &id)?;
        let session = Session::of(calls.iter().map(TimedCall::of));
        Ok(format(&id, &session))
    };
    let trace = ask(&services, question).await?;
    // The browser uses this file name.
    let name = "attachment; filename=\"session.json\"";
    Ok(([(header::CONTENT_DISPOSITION, name)], Json(trace)))
}

fn session_id(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let id = path.map_err(|_| Problem::of("id", "must be UTF-8, percent-encoded"))?;
    Ok(id.0)
}

fn calls_of(source: &CallSource, id: &str) -> Result<Vec<CallRecord>, Problem> {
    let calls = last_calls(id, |filter, paging| source.calls(filter, paging))?;
    if calls.is_empty() {
        Err(source.unknown_session())
    } else {
        Ok(calls)
    }
}
