//! `/api/v1/experiments`: the state of the experiments.

use super::call_source::{CallSource, CallSourceName, ask};
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
use tokengauge_experiments::{Experiment, Observed, Report, Rules, judge, score_query};
use tokengauge_store::query::{UnitKind, UnitQuery};

#[derive(JsonSchema, Serialize)]
pub(super) struct Experiments {
    /// The store that answered.
    store: CallSourceName,
    /// The configured experiments, in the order of the configuration.
    experiments: Vec<Report>,
}

pub(super) async fn experiments(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Experiments> {
    QueryParams::of(query.as_deref(), &[])?;
    let (configured, now) = (services.experiments.load_full(), (services.wall)());
    let question = move |source: &CallSource| {
        Ok(Experiments {
            store: source.name(),
            experiments: reports(source, &configured, now)?,
        })
    };
    ask(&services, question).await.map(Json)
}

pub(super) async fn experiment(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Report> {
    let name = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
    let name = name.0;
    QueryParams::of(query.as_deref(), &[])?;
    let configured = services.experiments.load_full();
    let configured = configured.iter().find(|experiment| experiment.name == name);
    let (known, now) = (configured.is_some(), (services.wall)());
    let experiment = configured.cloned().unwrap_or_else(|| Experiment {
        name,
        arms: Vec::new(),
        unit: UnitKind::Session,
        rules: Rules::default(),
    });
    let question = move |source: &CallSource| report(source, &experiment, now);
    let report = ask(&services, question).await?;
    let calls = report.calls_without_unit + report.collapsed_calls;
    if !known && report.arms.is_empty() && calls == 0 {
        let unknown = "neither an [[experiment]] nor a finished call has this name; /api/v1/experiments lists the \
            configured experiments";
        return Err(Problem::new(StatusCode::NOT_FOUND, unknown));
    }
    Ok(Json(report))
}

pub fn experiments_now(services: &Services) -> Result<Vec<Report>, Problem> {
    let configured = services.experiments.load_full();
    reports(&services.call_source, &configured, (services.wall)())
}

fn reports(
    source: &CallSource,
    configured: &[Experiment],
    now: SystemTime,
) -> Result<Vec<Report>, Problem> {
    let reports = configured.iter();
    let reports = reports.map(|experiment| report(source, experiment, now));
    reports.collect()
}

fn report(
    source: &CallSource,
    experiment: &Experiment,
    now: SystemTime,
) -> Result<Report, Problem> {
    let found = source.experiment_units(&UnitQuery {
        experiment: experiment.name.clone(),
        unit: experiment.unit,
        ..UnitQuery::default()
    })?;
    let mut observed = Observed::of(&found, experiment.unit, &experiment.rules);
    if !experiment.rules.scores.is_empty() {
        let query = score_query(&experiment.name, experiment.unit);
        observed = observed.with_scores(source.scored_units(&query)?);
    }
    Ok(judge(experiment, &observed, now))
}
