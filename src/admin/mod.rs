//! The operators' address: health, `/metrics`, and what the API tells of calls.

mod about;
mod accept;
mod api;
mod beside;
mod door;
mod feed;
mod health;
mod host;
mod page;
mod server;
mod shares;
mod token;
mod working;

use crate::export::names;
use crate::export::prometheus::Prometheus;
use crate::history::Capacity;
use crate::ledger::Reader;
use crate::meter::{Meter, RecentCalls};
use crate::slo::Slos;
use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use server::Closed;
use std::io::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::net::TcpListener;

pub use about::About;
pub use beside::Beside;
pub use door::Door;
pub use feed::{Feed, Listening};
pub use health::Readiness;
pub(crate) use server::{Slots, Source, serve as serve_router};
pub(crate) use shares::{Share, Shares};

/// Where Prometheus asks.
const METRICS: &str = "/metrics";

/// What the operators' address tells of.
#[derive(Clone)]
pub struct Admin {
    /// The calls under way.
    pub meter: Arc<Meter>,
    /// The finished ones.
    pub recent: Arc<RecentCalls>,
    /// The metrics.
    pub prometheus: Arc<Prometheus>,
    /// The promises.
    pub slos: Arc<Slos>,
    /// What the process is.
    pub about: Arc<ArcSwap<About>>,
    /// Whether traffic is welcome.
    pub readiness: Arc<Readiness>,
    /// The finished calls of longer ago, where a ledger is kept.
    pub ledger: Option<Arc<Reader>>,
    /// What upstreams gave, where no ledger is kept.
    pub capacity: Option<Arc<Capacity>>,
    /// Tells listeners what happens.
    pub feed: Arc<Feed>,
    /// The monotonic clock.
    pub clock: fn() -> Instant,
    /// The wall clock.
    pub wall: fn() -> SystemTime,
}

/// Serves operators on `listener` until `shutdown` is over; `door` says who they are.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    door: Door,
    shutdown: impl Future<Output = ()>,
) {
    let tls = door.tls.clone();
    let guard = door::Guard {
        clock: admin.clock,
        door: Arc::new(door),
    };
    let feed = Arc::clone(&admin.feed);
    let slots = Arc::<Slots>::default();
    count_connections(&admin.prometheus, &slots);
    let ticking = tokio::spawn(feed::tick(admin.clone()));
    let service = router(admin)
        .layer(from_fn_with_state(
            Arc::<working::Gate>::default(),
            working::apart,
        ))
        .layer(from_fn_with_state(guard, door::guard))
        .layer(map_response(as_told));
    // Who listens would never end by itself.
    let shutdown = async {
        shutdown.await;
        feed.end();
    };
    server::serve(listener, service, tls, slots, shutdown).await;
    ticking.abort();
}

/// Brings the series of connections up to date with every scrape.
fn count_connections(prometheus: &Prometheus, slots: &Arc<Slots>) {
    let slots = Arc::downgrade(slots);
    prometheus.before_scrape(move |registry, _| {
        let Some(slots) = slots.upgrade() else {
            return;
        };
        let gauge = registry.gauge(&names::ADMIN_CONNECTIONS, &[]);
        gauge.set(slots.open() as f64);
        for reason in Closed::ALL {
            let counter = registry.counter(&names::ADMIN_CONNECTIONS_CLOSED, &[reason.as_str()]);
            counter.absolute(slots.closed(reason));
        }
    });
}

/// What is answered to whoever the door lets in.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/page/{*file}", get(page::file))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route(METRICS, get(metrics))
        .merge(api::router())
        .fallback(|| async {
            api::Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; / lists what there is",
            )
        })
        .method_not_allowed_fallback(|| async {
            api::Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are answered here",
            )
        })
        .with_state(admin)
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let format = accept::format(&headers);
    let now = (admin.clock)();
    let figures = admin.meter.figures(now);
    let text = admin.prometheus.render(now, &figures, format);
    let head = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::VARY, "accept, accept-encoding"),
    ];
    if accept::takes_gzip(&headers) {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (head, encoding, gzip(text.as_bytes())).into_response();
    }
    (head, text).into_response()
}

/// The fastest level: the text repeats itself so much that it shrinks to a seventeenth.
fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.expect("memory takes every write")
}

/// No browser shall take an answer for anything but what its type says.
async fn as_told(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    let head = response.headers_mut();
    head.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
