//! `tokengauge fleet`: the page and the API for a warehouse and the event streams of pods.

mod metrics;
mod prometheus;

use super::error::CommandError;
use crate::Error;
use crate::cli::{COMMIT, FleetArgs};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_accounting::cost::Prices;
use tokengauge_admin::{CallSource, EventBus, FleetServices, ProcessInfo, Services};
use tokengauge_config::{Config, DEFAULT_ADMIN, Token};
use tokengauge_fleet::{Fleet, FleetSettings, MAX_PODS, ObjectiveSource};
use tokengauge_net::tls::ClientTls;
use tokengauge_process::operators::{self, Operators};
use tokengauge_process::output;
use tokengauge_proxy::Shutdown;
use tokengauge_sink::Secret;
use tokengauge_store::stored_calls::StoredCalls;
use tokengauge_store::warehouse::Warehouse;
use tokengauge_telemetry::export::prometheus::Prometheus;

pub(super) async fn fleet(args: FleetArgs) -> Result<(), Error> {
    let config = config(&args)?;
    tokengauge_process::fd_limit::raise(MAX_PODS, 1);
    let shutdown = Shutdown::new();
    tokengauge_process::signals::watch(shutdown.clone())?;
    let event_bus = EventBus::new();
    let fleet = start_fleet(&args, &event_bus);
    let warehouse = args.warehouse.open();
    let warehouse =
        warehouse.map_err(|error| CommandError::refused(args.warehouse.address(), error))?;
    let warehouse = Arc::new(warehouse);
    let services = services(&config, &fleet, event_bus, &warehouse);
    let operators = Operators::bind(&config, &services.prometheus)?;
    tokio::spawn(Arc::clone(&fleet).watch_warehouse(warehouse));
    tokio::spawn(Arc::clone(&fleet).follow_pods());
    if let Some(address) = &args.prometheus {
        let rules = prometheus::Rules::new(address, &args.credentials, &config.slos)?;
        tokio::spawn(rules.follow(Arc::clone(&fleet)));
    }
    if let Some(address) = operators.address() {
        output::note(&format!("admin on {address}"));
    }
    if let Some(address) = operators.metrics_address() {
        output::note(&format!("metrics on {address}"));
    }
    services.readiness.listening();
    let config = Arc::new(ArcSwap::from_pointee(config));
    let _evaluations = tokengauge_process::evaluations::start(&config, &services);
    let _serving = operators.start(services);
    shutdown.drain_started().await;
    tracing::info!("ended");
    Ok(())
}

fn config(args: &FleetArgs) -> Result<Config, Error> {
    let (mut config, _) = super::load(&args.config)?;
    let configured = config.admin.address.unwrap_or(DEFAULT_ADMIN);
    config.admin.address = Some(args.listen.unwrap_or(configured));
    super::take_admin_token(&mut config)?;
    if let Some(file) = &args.token_file {
        config.admin.token = Some(Token::File(file.clone()));
    }
    Ok(config)
}

fn start_fleet(args: &FleetArgs, event_bus: &Arc<EventBus>) -> Arc<Fleet> {
    let bus = Arc::clone(event_bus);
    let settings = FleetSettings {
        addresses: args.pods.clone(),
        token: args.pods_token_file.clone().map(Secret::File),
        tls: ClientTls {
            ca: args.pods_ca.clone(),
            ..ClientTls::default()
        },
        finished: Box::new(move |record, pod| bus.forward(record, pod)),
    };
    let objectives = match args.prometheus {
        Some(_) => ObjectiveSource::Prometheus,
        None => ObjectiveSource::Pods,
    };
    Fleet::new(settings, args.warehouse.address(), objectives)
}

/// What the address answers from.
fn services(
    config: &Config,
    fleet: &Arc<Fleet>,
    event_bus: Arc<EventBus>,
    warehouse: &Arc<Warehouse>,
) -> Services {
    let prometheus = Prometheus::new(&[], &config.measure);
    metrics::install(&prometheus, fleet);
    let bus = Arc::clone(&event_bus);
    prometheus.before_scrape(move |registry, _| operators::refresh(registry, &bus));
    let about = ProcessInfo {
        commit: COMMIT,
        routes: Vec::new(),
        pod: tokengauge_process::sinks::origin().pod(),
        fleet: Some(fleet.info()),
        ..ProcessInfo::new(config, &[], SystemTime::now())
    };
    let live = FleetServices {
        fleet: Arc::clone(fleet),
        objectives: config.slos.clone(),
        prices: Prices::new(&config.prices),
    };
    Services {
        live: Arc::new(live),
        call_source: CallSource::Stored(StoredCalls::Warehouse(Arc::clone(warehouse))),
        prometheus,
        about: Arc::new(ArcSwap::from_pointee(about)),
        experiments: Arc::new(ArcSwap::from_pointee(config.experiments.clone())),
        verdicts: tokengauge_process::evaluations::verdicts(config),
        readiness: Arc::default(),
        marks: Arc::default(),
        scores: Arc::default(),
        event_bus,
        clock: Instant::now,
        wall: SystemTime::now,
    }
}
