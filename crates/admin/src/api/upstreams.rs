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
    /// The upstreams in order of their names.
    upstreams: Vec<UpstreamNow>,
}

/// The current state of an upstream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Upstream")]
struct UpstreamNow {
    /// The name of the upstream.
    name: Arc<str>,
    /// Open connections, including idle ones.
    connections: usize,
    /// Requests that are waiting for a connection.
    pending: usize,
    /// Requests that were refused because no connection became free, since the process started.
    refused: u64,
    /// The known endpoints. A name has none before the first request has resolved it.
    endpoints: Vec<EndpointNow>,
    /// The engine's own metrics; null if they are not read.
    engine: Option<Engine>,
}

/// An endpoint of an upstream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Endpoint")]
struct EndpointNow {
    /// The name of the endpoint, with the address if the name may have several.
    name: String,
    /// Requests in flight.
    in_flight: usize,
    /// The seconds for which the endpoint is ejected because a connection failed; null if it is not ejected.
    ejected_seconds: Option<f64>,
}

/// The state of an engine according to its own metrics. Figures that it does not report are null.
#[derive(JsonSchema, Serialize)]
struct Engine {
    /// Whether the engine's metrics can be read.
    up: bool,
    /// Requests that are queued in the engine.
    queue_depth: Option<f64>,
    /// Requests that the engine is running.
    running: Option<f64>,
    /// The used part of the KV cache, from 0 to 1.
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
