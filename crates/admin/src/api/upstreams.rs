//! `/api/v1/upstreams`: the connections and endpoints of each upstream, and what its engine reports.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::{ProcessServices, Services};
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_proxy::UpstreamConnections;
use tokengauge_telemetry::export::labels::Upstream as Labels;
use tokengauge_telemetry::export::names;

/// Every upstream.
#[derive(JsonSchema, Serialize)]
pub(super) struct Upstreams {
    /// By name.
    upstreams: Vec<UpstreamNow>,
}

/// An upstream as it is now.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Upstream")]
struct UpstreamNow {
    /// Its name.
    name: Arc<str>,
    /// Open connections, idle ones included.
    connections: usize,
    /// Requests that wait for a connection.
    pending: usize,
    /// Requests that were refused because no connection became free, since the process started.
    refused: u64,
    /// Its endpoints that are known; none before the first request has resolved a name.
    endpoints: Vec<EndpointNow>,
    /// What the engine's own metrics say; null where they are not read.
    engine: Option<Engine>,
}

/// An endpoint of an upstream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Endpoint")]
struct EndpointNow {
    /// Its name, with the address where the name may have several.
    name: String,
    /// Requests in flight.
    in_flight: usize,
    /// For how many seconds it will get no request, since a connection to it failed; null where it
    /// is not ejected.
    ejected_seconds: Option<f64>,
}

/// An engine by its own metrics. What it does not report is null.
#[derive(JsonSchema, Serialize)]
struct Engine {
    /// Whether its metrics can be read.
    up: bool,
    /// Requests that wait within it.
    queue_depth: Option<f64>,
    /// Requests that it works on.
    running: Option<f64>,
    /// The part of its KV cache in use, from 0 to 1.
    kv_cache: Option<f64>,
}

pub(super) async fn upstreams(
    process: Arc<ProcessServices>,
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Upstreams> {
    QueryParams::of(query.as_deref(), &[])?;
    let known = (process.upstreams)();
    let upstreams = known
        .into_iter()
        .map(|known| now(&services, known))
        .collect();
    Ok(Json(Upstreams { upstreams }))
}

fn now(services: &Services, known: UpstreamConnections) -> UpstreamNow {
    UpstreamNow {
        engine: engine(services, &known.upstream),
        name: known.upstream,
        connections: known.open,
        pending: known.pending,
        refused: known.refused,
        endpoints: known
            .endpoints
            .into_iter()
            .map(|endpoint| EndpointNow {
                name: endpoint.name,
                in_flight: endpoint.in_flight,
                ejected_seconds: (!endpoint.ejected_for.is_zero())
                    .then_some(endpoint.ejected_for.as_secs_f64()),
            })
            .collect(),
    }
}

fn engine(services: &Services, upstream: &str) -> Option<Engine> {
    let registry = services.prometheus.registry();
    let labels = Labels { upstream };
    Some(Engine {
        up: registry.gauge(&names::UPSTREAM_UP, &labels)? > 0.0,
        queue_depth: registry.gauge(&names::UPSTREAM_QUEUE_DEPTH, &labels),
        running: registry.gauge(&names::UPSTREAM_RUNNING, &labels),
        kv_cache: registry.gauge(&names::UPSTREAM_KV_CACHE, &labels),
    })
}
