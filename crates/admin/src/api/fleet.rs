//! `/api/v1/pods`: what a fleet is made of, and what it does not answer.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::QueryParams;
use crate::Services;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tokengauge_fleet::{ObjectiveSource, PodState, PodStatus, StoreStatus};

/// What a fleet is made of.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Pods")]
pub(super) struct AllPods {
    /// The store that finished calls are read from.
    store: StoreStatus,
    /// Where objectives come from.
    objectives: ObjectiveSource,
    /// Why they cannot be asked for.
    objectives_error: Option<String>,
    /// Pods that cannot be reached.
    unreachable: usize,
    /// Pods that are not followed because there are too many.
    left_out: u64,
    /// Every pod, those that cannot be reached first.
    pods: Vec<PodStatus>,
}

/// Every pod, and the store.
pub(super) async fn pods(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        let Some(fleet) = &services.fleet else {
            let message =
                "this is one process, which knows no others; `tokengauge fleet` answers for many";
            return Err(Problem::new(StatusCode::NOT_FOUND, message));
        };
        let pods = fleet.pods();
        let away = pods.iter().filter(|pod| pod.state == PodState::Unreachable);
        Ok(AllPods {
            store: fleet.store(),
            objectives: fleet.objective_source(),
            objectives_error: fleet.objectives().0.error,
            unreachable: away.count(),
            left_out: fleet.left_out(),
            pods,
        })
    })
    .await
}

/// Answers in place of what only a process can.
pub(super) async fn not_of_a_fleet(_: Request, _: Next) -> Problem {
    let message = "this is of one process, and a fleet does not answer it: ask a pod, whose addresses are at /api/v1/pods";
    Problem::new(StatusCode::NOT_FOUND, message)
}
