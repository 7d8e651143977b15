//! `tokengauge fleet`: the page and the API for a warehouse and the event streams of pods.

mod metrics;
mod prometheus;

use super::error::CommandError;
use crate::Error;
use crate::cli::{COMMIT, FleetArgs};
use arc_swap::ArcSwap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_accounting::cost::Prices;
use tokengauge_admin::{CallSource, EventBus, FleetServices, ProcessInfo, Services};
use tokengauge_config::{Config, DEFAULT_ADMIN, Token};
use tokengauge_fleet::{
    Fleet, FleetSettings, Follower, FollowerSettings, MAX_PODS, ObjectiveSource,
};
use tokengauge_net::tls::ClientTls;
use tokengauge_process::ledger::work_clock;
use tokengauge_process::operators::{self, Operators};
use tokengauge_process::{SystemError, output};
use tokengauge_proxy::Shutdown;
use tokengauge_sink::Secret;
use tokengauge_store::ledger::{Limits, Reader};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokio::runtime::Builder;

/// The name of the ledger file, which differs from a proxy's, so that both can share a `state_dir`.
const FILE: &str = "fleet.sqlite";

pub(super) async fn fleet(args: FleetArgs) -> Result<(), Error> {
    let config = config(&args)?;
    tokengauge_process::fd_limit::raise(MAX_PODS, 1);
    let shutdown = Shutdown::new();
    tokengauge_process::signals::watch(shutdown.clone())?;
    let event_bus = EventBus::new();
    let fleet = start_fleet(&args, &event_bus);
    let (path, _temporary) = ledger(&args, &config)?;
    let services = services(&config, &fleet, event_bus, &path);
    let operators = Operators::bind(&config, &services.prometheus)?;
    follow_warehouse(&args, &config, &fleet, path)?;
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

/// Returns the ledger file. If no folder is configured, also returns the temporary folder that is deleted with it.
fn ledger(args: &FleetArgs, config: &Config) -> Result<(PathBuf, Option<TempDir>), SystemError> {
    if let Some(folder) = args.state_dir.as_ref().or(config.state_dir.as_ref()) {
        return Ok((folder.join(FILE), None));
    }
    let folder =
        tempfile::tempdir().map_err(|error| SystemError::Task("make a temporary folder", error))?;
    Ok((folder.path().join(FILE), Some(folder)))
}

/// Follows the warehouse on a separate thread, because it writes to disk.
fn follow_warehouse(
    args: &FleetArgs,
    config: &Config,
    fleet: &Arc<Fleet>,
    path: PathBuf,
) -> Result<(), Error> {
    let kept = config.ledger.clone();
    let kept = kept.unwrap_or_else(|| tokengauge_config::Ledger::new(path.clone()));
    let settings = FollowerSettings {
        url: args.warehouse.clone(),
        ledger: path,
        limits: Limits {
            // Calls are kept at least for the period that is read at the start.
            age: kept.retention_age.max(args.since),
            bytes: kept.retention_bytes,
        },
        since: args.since,
    };
    let follower = Follower::new(settings, fleet).map_err(CommandError::from)?;
    let failed = |error| SystemError::Task("start a thread", error);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let thread = std::thread::Builder::new().name("store".into());
    let run = move || runtime.block_on(follower.run());
    thread.spawn(run).map_err(failed)?;
    Ok(())
}

fn services(
    config: &Config,
    fleet: &Arc<Fleet>,
    event_bus: Arc<EventBus>,
    ledger: &Path,
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
        call_source: CallSource::Ledger(Reader::new(ledger, work_clock)),
        prometheus,
        about: Arc::new(ArcSwap::from_pointee(about)),
        experiments: Arc::new(ArcSwap::from_pointee(config.experiments.clone())),
        readiness: Arc::default(),
        marks: Arc::default(),
        event_bus,
        clock: Instant::now,
        wall: SystemTime::now,
    }
}
