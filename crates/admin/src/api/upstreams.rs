//! `/api/v1/upstreams`: the connections and endpoints of each upstream, and what its engine reports.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tokengauge_fleet::PodsAsked;
use tokengauge_proxy::UpstreamConnections;
use tokengauge_telemetry::export::labels::Upstream as Labels;
use tokengauge_telemetry::export::names;

/// Every upstream.
#[derive(JsonSchema, Serialize, Deserialize)]
pub(super) struct Upstreams {
    /// The upstreams in order of their names. A fleet adds up the figures of its pods.
    upstreams: Vec<UpstreamNow>,
    /// Which pods of a fleet are included.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pods: Option<PodsAsked>,
}

/// The current state of an upstream.
#[derive(JsonSchema, Serialize, Deserialize)]
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
#[derive(Clone, JsonSchema, Serialize, Deserialize)]
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
#[derive(JsonSchema, Serialize, Deserialize)]
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
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Upstreams> {
    QueryParams::of(query.as_deref(), &[])?;
    if let Some(fleet) = services.live.fleet() {
        let (of_pods, pods) = fleet.ask("/api/v1/upstreams").await;
        return Ok(Json(Upstreams {
            upstreams: together(of_pods),
            pods: Some(pods),
        }));
    }
    let known = Arc::clone(&services.live).process();
    let known = known.map_or(Vec::new(), |process| (process.upstreams)());
    let upstreams = known
        .into_iter()
        .map(|known| now(&services, known))
        .collect();
    Ok(Json(Upstreams {
        upstreams,
        pods: None,
    }))
}

/// The upstreams of all pods, each once.
fn together(of_pods: Vec<Upstreams>) -> Vec<UpstreamNow> {
    let mut found: BTreeMap<Arc<str>, UpstreamNow> = BTreeMap::new();
    for upstream in of_pods.into_iter().flat_map(|pod| pod.upstreams) {
        match found.entry(Arc::clone(&upstream.name)) {
            Entry::Vacant(place) => {
                place.insert(upstream);
            }
            Entry::Occupied(mut place) => place.get_mut().add(upstream),
        }
    }
    found.into_values().collect()
}

impl UpstreamNow {
    /// Adds the figures of another pod. An endpoint counts as ejected if a pod has ejected it.
    fn add(&mut self, other: UpstreamNow) {
        self.connections += other.connections;
        self.pending += other.pending;
        self.refused += other.refused;
        for endpoint in other.endpoints {
            let known = self.endpoints.iter_mut();
            match known.into_iter().find(|one| one.name == endpoint.name) {
                Some(one) => {
                    one.in_flight += endpoint.in_flight;
                    one.ejected_seconds = larger(one.ejected_seconds, endpoint.ejected_seconds);
                }
                None => self.endpoints.push(endpoint),
            }
        }
        // All pods read the same engine, so its figures are not added up.
        match (&mut self.engine, other.engine) {
            (Some(one), Some(engine)) => {
                one.up |= engine.up;
                one.queue_depth = larger(one.queue_depth, engine.queue_depth);
                one.running = larger(one.running, engine.running);
                one.kv_cache = larger(one.kv_cache, engine.kv_cache);
            }
            (None, engine) => self.engine = engine,
            (Some(_), None) => {}
        }
    }
}

fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Upstreams {
        serde_json::from_value(json).expect("upstreams")
    }

    #[test]
    fn upstreams_of_pods_are_added_up() {
        let engine = serde_json::json!({"up": false, "queue_depth": null, "running": null, "kv_cache": null});
        let other =
            serde_json::json!({"up": true, "queue_depth": 3.0, "running": 2.0, "kv_cache": 0.5});
        let one = |name: &str, in_flight: u64, ejected: Option<f64>, engine: &serde_json::Value| {
            pod(serde_json::json!({"upstreams": [{
                "name": name, "connections": 2, "pending": 1, "refused": 4, "engine": engine,
                "endpoints": [{"name": "e", "in_flight": in_flight, "ejected_seconds": ejected}],
            }]}))
        };
        let all = together(vec![
            one("b", 1, None, &engine),
            one("a", 5, None, &serde_json::Value::Null),
            one("b", 2, Some(1.5), &other),
        ]);
        let all = serde_json::to_value(all).expect("JSON");
        assert_eq!(all[0]["name"], "a");
        assert_eq!(all[1]["connections"], 4);
        assert_eq!(
            all[1]["endpoints"],
            serde_json::json!([{"name": "e", "in_flight": 3, "ejected_seconds": 1.5}])
        );
        assert_eq!(all[1]["engine"], other);
    }
}
