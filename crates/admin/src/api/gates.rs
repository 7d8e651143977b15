//! `/api/v1/gates`: whether rollouts may continue, and the hooks of Flagger.

use super::call_source::{CallSource, CallSourceName, QueryResult, ask};
use super::problem::{JsonResponse, Problem};
use super::query_params::QueryParams;
use crate::Services;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::SystemTime;
use tokengauge_core::call::CallRecord;
use tokengauge_gate::{Asked, Calls, Gate, GateVerdict, Plan, Report, evaluate_calls};
use tokengauge_store::query::{
    CallUnitQuery, CallUnits, Filter, Page, Paging, ScoreQuery, ScoredUnit,
};

pub(super) const OF_GATES: [&str; 1] = ["since"];
const PREFIX: &str = "/api/v1/gates/";
const CONFIRM: &str = "/confirm-promotion";
const ROLLBACK: &str = "/rollback";

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Gates")]
pub(super) struct AllGates {
    /// The store that answered.
    store: CallSourceName,
    /// The configured gates, in the order of the configuration.
    gates: Vec<Report>,
}

pub(crate) fn is_hook(path: &str) -> bool {
    let hook = path.ends_with(CONFIRM) || path.ends_with(ROLLBACK);
    hook && path.starts_with(PREFIX)
}

pub(super) async fn gates(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<AllGates> {
    QueryParams::of(query.as_deref(), &[])?;
    let (configured, now) = (services.verdicts.gates.load_full(), (services.wall)());
    let question = move |source: &CallSource| {
        let reports = configured.gates.iter();
        let reports = reports.map(|gate| report(source, gate, (None, now), &configured.digest));
        Ok(AllGates {
            store: source.name(),
            gates: reports.collect::<Result<_, _>>()?,
        })
    };
    let all = ask(&services, question).await?;
    for report in &all.gates {
        let audit = &services.verdicts.gate_audit;
        audit.note(report, "api", false, (services.clock)());
    }
    Ok(Json(all))
}

pub(super) async fn gate(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Report> {
    let asked = (path, query.as_deref());
    let report = found(&services, asked, ("api", false)).await;
    report.map(Json)
}

pub(super) async fn plan(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Plan> {
    QueryParams::of(query.as_deref(), &[])?;
    let (gate, _) = configured(&services, path)?;
    let now = (services.wall)();
    ask(&services, move |source: &CallSource| {
        tokengauge_gate::plan(&gate, now, source)
    })
    .await
    .map(Json)
}

/// Flagger's hook before promotion. Status 200 confirms the promotion; any other status makes Flagger wait.
pub(super) async fn confirm_promotion(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<(StatusCode, Json<Report>), Problem> {
    let asked = (path, query.as_deref());
    let found = found(&services, asked, ("confirm-promotion", true)).await;
    decide(found, GateVerdict::Pass)
}

/// Flagger's hook while Flagger waits. Status 200 makes Flagger roll back.
pub(super) async fn rollback(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<(StatusCode, Json<Report>), Problem> {
    let asked = (path, query.as_deref());
    let found = found(&services, asked, ("rollback", true)).await;
    decide(found, GateVerdict::Fail)
}

/// The verdict, with status 200 if it is the one on which the hook acts, otherwise 409.
fn decide(
    found: Result<Report, Problem>,
    acts_on: GateVerdict,
) -> Result<(StatusCode, Json<Report>), Problem> {
    let report = found?;
    let status = if report.verdict == acts_on {
        StatusCode::OK
    } else {
        StatusCode::CONFLICT
    };
    Ok((status, Json(report)))
}

/// The result of the gate in the path. It is also written to the log of verdicts.
async fn found(
    services: &Services,
    (path, query): (Result<Path<String>, PathRejection>, Option<&str>),
    (asked_by, decides): (&str, bool),
) -> Result<Report, Problem> {
    let (gate, digest) = configured(services, path)?;
    let now = (services.wall)();
    let since = QueryParams::of(query, &[&OF_GATES])?.filter(now)?.since;
    let question = move |source: &CallSource| report(source, &gate, (since, now), &digest);
    let report = ask(services, question).await?;
    let audit = &services.verdicts.gate_audit;
    audit.note(&report, asked_by, decides, (services.clock)());
    Ok(report)
}

/// The gate in the path, and the digest of the configuration that defines it.
fn configured(
    services: &Services,
    path: Result<Path<String>, PathRejection>,
) -> Result<(Gate, String), Problem> {
    let name = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
    let configured = services.verdicts.gates.load();
    let gate = configured.gates.iter().find(|gate| gate.name == name.0);
    let Some(gate) = gate.cloned() else {
        let unknown =
            "no [[gate]] in the configuration has this name; /api/v1/gates lists the gates";
        return Err(Problem::new(StatusCode::NOT_FOUND, unknown));
    };
    Ok((gate, configured.digest.clone()))
}

fn report(
    source: &CallSource,
    gate: &Gate,
    (since, now): (Option<SystemTime>, SystemTime),
    digest: &str,
) -> Result<Report, Problem> {
    let asked = Asked {
        now,
        since,
        config_sha256: digest.to_owned(),
    };
    evaluate_calls(gate, &asked, source)
}

impl Calls for CallSource {
    type Error = Problem;

    fn units(&self, query: &CallUnitQuery) -> QueryResult<CallUnits> {
        self.call_units(query)
    }

    fn page(&self, filter: &Filter, paging: &Paging) -> QueryResult<Page<CallRecord>> {
        self.calls(filter, paging)
    }

    fn scores(&self, query: &ScoreQuery) -> QueryResult<Vec<ScoredUnit>> {
        self.scored_units(query)
    }
}
