//! The operators' addresses: health, `/metrics`, and what the API reports of calls; and one for
//! health and `/metrics` alone.

mod accept;
mod access;
mod api;
mod event_bus;
mod health;
mod host;
mod metrics;
mod page;
mod process_info;
mod runtime;
mod server;
mod shares;
mod token;
mod working;

use crate::export::prometheus::Prometheus;
use crate::export::{labels, names};
use crate::history::ThroughputHistory;
use crate::ledger::Reader;
use crate::meter::{Meter, RecentCalls};
use crate::slo::Slos;
use arc_swap::ArcSwap;
use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use server::{Bounds, Closed};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};
use tokengauge_net::tls::Acceptor;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use access::Access;
pub use event_bus::{EventBus, Listening};
pub use health::{Readiness, Running};
use metrics::METRICS;
pub use process_info::ProcessInfo;
pub use runtime::AdminRuntime;
pub(crate) use server::{Slots, Source, serve as serve_router};
pub(crate) use shares::{Share, Shares};

/// What the operators' address reports on.
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
    pub about: Arc<ArcSwap<ProcessInfo>>,
    /// Whether traffic is welcome.
    pub readiness: Arc<Readiness>,
    /// The finished calls of longer ago, where a ledger is kept.
    pub ledger: Option<Arc<Reader>>,
    /// Throughput over time, where no ledger is kept.
    pub throughput: Option<Arc<ThroughputHistory>>,
    /// Tells listeners what happens.
    pub event_bus: Arc<EventBus>,
    /// The monotonic clock.
    pub clock: fn() -> Instant,
    /// The wall clock.
    pub wall: fn() -> SystemTime,
}

/// The operators' addresses, bound.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The address of the API, the page and `/metrics`.
    pub admin: Option<TcpListener>,
    /// For `/metrics` and health alone.
    pub metrics: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(admin: TcpListener) -> Listeners {
        Listeners {
            admin: Some(admin),
            metrics: None,
        }
    }
}

/// Serves operators on `listeners` until `shutdown` is over; `access` says who they are.
pub async fn serve(
    listeners: impl Into<Listeners>,
    admin: Admin,
    access: Access,
    shutdown: impl Future<Output = ()>,
) {
    let listeners = listeners.into();
    let clock = admin.clock;
    let guard = |access| access::Guard {
        clock,
        access: Arc::new(access),
    };
    let gate = Arc::<working::Gate>::default();
    let tls = access.tls.clone();
    let event_bus = Arc::clone(&admin.event_bus);
    // Of their own, so that whoever holds the places of one leaves the other's free.
    let places = Arc::<Slots>::default();
    let metrics_places = Arc::new(Slots::within(Bounds::METRICS));
    count_connections(&admin.prometheus, [&places, &metrics_places]);
    let ticking = tokio::spawn(event_bus::tick(admin.clone()));
    let metrics = metrics::router(admin.clone(), &gate, guard(access.for_metrics()))
        .layer(map_response(as_told));
    let service = if access.restricted {
        metrics::router(admin, &gate, guard(access))
    } else {
        router(admin)
            .layer(from_fn_with_state(gate, working::apart))
            .layer(from_fn_with_state(guard(access), access::guard))
    };
    let service = service.layer(map_response(as_told));
    let ending = watch::Sender::new(false);
    let shutdown = async {
        shutdown.await;
        // Who listens would never end by itself.
        event_bus.end();
        ending.send_replace(true);
    };
    tokio::join!(
        serve_on(listeners.admin, service, tls.clone(), places, &ending),
        serve_on(listeners.metrics, metrics, tls, metrics_places, &ending),
        shutdown,
    );
    ticking.abort();
}

/// Serves `service` where there is an address, until `ending` says so.
async fn serve_on(
    listener: Option<TcpListener>,
    service: Router,
    tls: Option<Arc<Acceptor>>,
    slots: Arc<Slots>,
    ending: &watch::Sender<bool>,
) {
    let Some(listener) = listener else {
        return;
    };
    let mut ending = ending.subscribe();
    let ended = async move {
        let _ = ending.wait_for(|ending| *ending).await;
    };
    server::serve(listener, service, tls, slots, ended).await;
}

/// Brings the series of connections, those of all addresses together, up to date with every
/// scrape.
fn count_connections(prometheus: &Prometheus, slots: [&Arc<Slots>; 2]) {
    let slots = slots.map(Arc::downgrade);
    prometheus.before_scrape(move |registry, _| {
        let slots: Vec<_> = slots.iter().filter_map(Weak::upgrade).collect();
        let gauge = registry.series(&names::ADMIN_CONNECTIONS, &());
        gauge.set(slots.iter().map(|slots| slots.open()).sum::<usize>() as f64);
        for reason in Closed::ALL {
            let labels = labels::ByReason {
                reason: reason.as_str(),
            };
            let counter = registry.series(&names::ADMIN_CONNECTIONS_CLOSED, &labels);
            counter.absolute(slots.iter().map(|slots| slots.closed(reason)).sum());
        }
    });
}

/// What is answered to whoever has access.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/page/{*file}", get(page::file))
        .route(health::LIVE, get(health::live))
        .route(health::READY, get(health::ready))
        .route(METRICS, get(metrics::metrics))
        .merge(api::router())
        .fallback(|| async {
            api::Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; / lists what there is",
            )
        })
        .method_not_allowed_fallback(only_get)
        .with_state(admin)
}

async fn only_get() -> api::Problem {
    api::Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "only GET and HEAD are answered here",
    )
}

/// No browser shall take an answer for anything but what its type says.
async fn as_told(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    let head = response.headers_mut();
    head.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
