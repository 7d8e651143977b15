//! `/metrics`, and the address that has nothing else but health.

use super::accept::Exposition;
use super::access::{self, Guard};
use super::{Admin, accept, api, health, only_get, working};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;

/// The path that Prometheus scrapes.
pub(super) const METRICS: &str = "/metrics";

/// What is answered at the address for metrics: health and `/metrics`.
pub(super) fn router(admin: Admin, gate: &Arc<working::Gate>, guard: Guard) -> Router {
    Router::new()
        .route(health::LIVE, get(health::live))
        .route(health::READY, get(health::ready))
        .route(METRICS, get(metrics))
        // What is not there is not there for anybody, whatever they show.
        .route_layer(from_fn_with_state(Arc::clone(gate), working::apart))
        .route_layer(from_fn_with_state(guard, access::guard))
        .fallback(|| async {
            api::Problem::new(
                StatusCode::NOT_FOUND,
                "this address has /metrics, /livez and /readyz alone; the rest is at `listen` of [admin]",
            )
        })
        .method_not_allowed_fallback(only_get)
        .with_state(admin)
}

pub(super) async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let exposition = accept::exposition(&headers);
    let now = (admin.clock)();
    let stats = admin.meter.figures(now);
    let body = match exposition {
        Exposition::Text(format) => admin.prometheus.render(now, &stats, format).into_bytes(),
        Exposition::Protobuf => admin.prometheus.render_protobuf(now, &stats),
    };
    let head = [
        (header::CONTENT_TYPE, exposition.content_type()),
        (header::VARY, "accept, accept-encoding"),
    ];
    if accept::takes_gzip(&headers) {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (head, encoding, gzip(&body)).into_response();
    }
    (head, body).into_response()
}

/// The fastest level: the text repeats itself so much that it shrinks to a seventeenth.
fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.expect("memory takes every write")
}
