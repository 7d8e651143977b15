#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod accept;
mod access;
mod api;
mod blocking;
mod drifts;
mod event_bus;
mod fair_shares;
mod gates;
mod health;
mod host;
mod live_view;
mod metrics;
mod own_use_limit;
mod page;
mod process_info;
mod runbooks;
mod runtime;
mod server;
mod token;

use arc_swap::ArcSwap;
use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use server::{Bounds, Closed};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};
use tokengauge_experiments::Experiment;
use tokengauge_net::tls::Acceptor;
use tokengauge_store::marks::Marks;
use tokengauge_store::scores::Scores;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::{labels, names};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use access::Access;
pub use api::{CallSource, MARKS, MAX_SCORES, SCORES, capsule_of_ledger, experiments_now};
pub use drifts::Drifts;
pub use event_bus::{EventBus, ListenerStats};
pub use fair_shares::{FairShares, Share};
pub use gates::line as gate_audit_line;
pub use gates::{GateAudit, Gates, Verdicts};
pub use health::{Readiness, Running};
pub use live_view::{FleetServices, LiveView, ProcessServices};
pub use process_info::ProcessInfo;
pub use runbooks::PATH as RUNBOOKS;
pub use runtime::AdminRuntime;
pub use server::{Slots, Source, serve as serve_router};

const METRICS: &str = "/metrics";

/// The services that handlers share: metrics, the source of finished calls, events, and a view of the present.
#[derive(Clone)]
pub struct Services {
    pub live: Arc<dyn LiveView>,
    pub call_source: CallSource,
    pub prometheus: Arc<Prometheus>,
    pub about: Arc<ArcSwap<ProcessInfo>>,
    pub experiments: Arc<ArcSwap<Vec<Experiment>>>,
    pub verdicts: Arc<Verdicts>,
    pub readiness: Arc<Readiness>,
    /// Events other than calls.
    pub marks: Arc<Marks>,
    /// Scores from outside. Without a ledger, [`CallSource`] has the same ones.
    pub scores: Arc<Scores>,
    pub event_bus: Arc<EventBus>,
    pub clock: fn() -> Instant,
    pub wall: fn() -> SystemTime,
}

#[derive(Debug, Default)]
pub struct Listeners {
    pub admin: Option<TcpListener>,
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

/// Serves `listeners` until `shutdown` completes. `access` decides which clients have access.
pub async fn serve(
    listeners: impl Into<Listeners>,
    services: Services,
    access: Access,
    shutdown: impl Future<Output = ()>,
) {
    let listeners = listeners.into();
    let clock = services.clock;
    let guard = |access| access::Guard {
        clock,
        access: Arc::new(access),
    };
    let gate = Arc::<blocking::HandlerLimits>::default();
    let tls = access.tls.clone();
    let event_bus = Arc::clone(&services.event_bus);
    // Each address has its own slots, so that connections to one do not use up the slots of the other.
    let places = Arc::<Slots>::default();
    let metrics_places = Arc::new(Slots::within(Bounds::METRICS));
    count_connections(&services.prometheus, [&places, &metrics_places]);
    let ticking = tokio::spawn(event_bus::tick(services.clone()));
    let metrics = metrics::router(services.clone(), &gate, guard(access.for_metrics()))
        .layer(map_response(with_nosniff));
    let service = if access.restricted {
        metrics::router(services, &gate, guard(access))
    } else {
        router(services)
            .layer(from_fn_with_state(gate, blocking::run))
            .layer(from_fn_with_state(guard(access), access::guard))
    };
    let service = service.layer(map_response(with_nosniff));
    let ending = watch::Sender::new(false);
    let shutdown = async {
        shutdown.await;
        // Event streams do not end by themselves.
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

/// The router of the admin address, without access control.
pub fn router(services: Services) -> Router {
    let views = page::VIEWS.iter().fold(Router::new(), |views, path| {
        views.route(path, get(page::view))
    });
    Router::new()
        .merge(views)
        .route("/", get(page::index))
        .route("/page/{*file}", get(page::file))
        .route(runbooks::PATH, get(runbooks::runbooks))
        .route(health::LIVE, get(health::live))
        .route(health::READY, get(health::ready))
        .route(METRICS, get(metrics::metrics))
        .merge(api::router())
        .fallback(|| async {
            api::Problem::new(
                StatusCode::NOT_FOUND,
                "the path does not exist; / is the page, and /api/v1/openapi.json lists the paths of the API",
            )
        })
        .method_not_allowed_fallback(only_get)
        .with_state(services)
}

async fn only_get() -> api::Problem {
    api::Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "only GET and HEAD are accepted, and POST at /api/v1/marks, /api/v1/scores and the hooks of gates",
    )
}

/// Adds `nosniff`, so that browsers do not guess content types.
async fn with_nosniff(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    let head = response.headers_mut();
    head.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
