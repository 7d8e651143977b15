//! `/metrics`, and the address that serves only health checks and metrics.

use super::accept::Exposition;
use super::access::{self, Guard};
use super::{METRICS, Services, accept, api, blocking, health, only_get};
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
use tokengauge_core::background::Pauses;

pub(super) fn router(
    services: Services,
    gate: &Arc<blocking::HandlerLimits>,
    guard: Guard,
) -> Router {
    Router::new()
        .route(health::LIVE, get(health::live))
        .route(health::READY, get(health::ready))
        .route(METRICS, get(metrics))
        // Unknown paths are 404 with or without a token.
        .route_layer(from_fn_with_state(Arc::clone(gate), blocking::run))
        .route_layer(from_fn_with_state(guard, access::guard))
        .fallback(|| async {
            api::Problem::new(
                StatusCode::NOT_FOUND,
                "this address has only /metrics, /livez and /readyz; all other paths are at `listen` of [admin]",
            )
        })
        .method_not_allowed_fallback(only_get)
        .with_state(services)
}

pub(super) async fn metrics(State(services): State<Services>, headers: HeaderMap) -> Response {
    let exposition = accept::exposition(&headers);
    let now = (services.clock)();
    let stats = services.live.meter_stats(now);
    let body = match exposition {
        Exposition::Text(format) => services.prometheus.render(now, &stats, format).into_bytes(),
        Exposition::Protobuf => services.prometheus.render_protobuf(now, &stats),
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

/// Compresses at the fastest level, which shrinks the repetitive text to a seventeenth. The thread pauses in between, so
/// that traffic on the same core can run.
fn gzip(body: &[u8]) -> Vec<u8> {
    const AT_ONCE: usize = 16 * 1024;
    let mut pauses = Pauses::default();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for part in body.chunks(AT_ONCE) {
        encoder.write_all(part).expect("memory takes every write");
        pauses.between();
    }
    encoder.finish().expect("memory takes every write")
}
