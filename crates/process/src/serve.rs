//! The running proxy: puts all crates together, from bound sockets to the last drained
//! stream. `run` and `demo` share it.

use crate::Error;
use crate::ledger;
use crate::marks::{self, AlertMarks, WarmUps};
use crate::notify::{self, Receivers};
use crate::objectives::{self, Objectives};
use crate::operators::{Operators, Watchers};
use crate::output;
use crate::page_link::PageLink;
use crate::periodic::Periodic;
use crate::quota_store::SharedLimits;
use crate::reload::{self, Source};
use crate::reload_status::Reloads;
use crate::running_proxy::{RunningProxy, cache_price};
use crate::scrape_hooks;
use crate::spending::Spending;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_admin::{
    EventBus, GateAudit, ProcessInfo, ProcessServices, Readiness, Services, Store as CallStore,
};
use tokengauge_config::Config;
use tokengauge_core::observer::Observer;
use tokengauge_meter::{Accounting, Meter, RecentCalls, Subscriber};
use tokengauge_proxy::{ActiveListeners, BoundListener, Forwarder, Shutdown, TrafficRuntimes};
use tokengauge_sessions::SessionWatch;
use tokengauge_sink::SinkQueues;
use tokengauge_slo::{Slos, Store};
use tokengauge_telemetry::export::lines::Lines;
use tokengauge_telemetry::export::log::{CallLog, Losses, Target};
use tokengauge_telemetry::export::otlp::{ExporterContext, Otlp};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::slo;

/// How long finished calls may take to reach the call log at the end of the process.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// A proxy with bound sockets that does not serve yet.
pub struct Proxy {
    config: Arc<Config>,
    bound: Vec<BoundListener>,
    operators: Operators,
    forwarder: Arc<Forwarder>,
    services: Services,
    process: Arc<ProcessServices>,
    recent: Arc<RecentCalls>,
    objectives: Objectives,
    store: Option<Arc<Mutex<Store>>>,
    receivers: Receivers,
    watchers: Watchers,
    spending: Spending,
    shared_limits: SharedLimits,
    otlp: Otlp,
    shutdown: Shutdown,
    /// Those that serve agents.
    runtimes: TrafficRuntimes,
    /// The source of reloads.
    source: Option<Source>,
}

impl Proxy {
    /// Binds every socket and opens every file, so that errors show at the start. `commit` is
    /// what the program is built from. Needs a runtime.
    pub async fn bind(
        mut config: Config,
        call_log: Option<&Path>,
        runtimes: &TrafficRuntimes,
        commit: &'static str,
    ) -> Result<Proxy, Error> {
        let fd_limits = crate::fd_limit::raise(config.limits.connections, runtimes.number());
        fd_limits.apply(&mut config.limits);
        tokengauge_config::warn_of_memory_limit(config.measure.memory_bytes);
        for warning in &config.warnings {
            tracing::warn!("{}{warning}", config.origin);
        }
        let config = Arc::new(config);
        let shutdown = Shutdown::new();
        let prometheus = exporter(&config);
        let recent = RecentCalls::new(config.measure.recent_calls);
        let event_bus = EventBus::new();
        let mut subscribers: Vec<Arc<dyn Subscriber>> =
            vec![prometheus.clone(), recent.clone(), event_bus.clone()];
        if let Some(path) = call_log {
            subscribers.push(open_call_log(path, &prometheus)?);
        }
        let queues = SinkQueues::new(&config.sinks);
        let ledger = ledger::start(&config, &prometheus, queues.subscribers())?;
        match &ledger {
            Some(ledger) => subscribers.push(Arc::clone(ledger) as _),
            None => subscribers.extend(queues.subscribers()),
        }
        let reader = ledger.as_deref().map(ledger::reader);
        let marks = marks::open(ledger.clone(), reader.clone(), &prometheus);
        subscribers.push(WarmUps::new(&marks));
        let sinks = crate::sinks::start(&config, &queues, ledger.as_ref(), &prometheus)?;
        let (slos, store) = objectives::open(&config)?;
        subscribers.push(slos.clone());
        subscribers.push(Arc::new(Lines));
        let spending = Spending::open(&config)?;
        subscribers.push(spending.accounting.budgets.clone());
        let shared_limits = SharedLimits::start(&config, &spending.accounting)?;
        let session_watch = session_watch(&config, &spending.accounting);
        subscribers.push(session_watch.clone());
        let limits = (&spending, &shared_limits);
        let receivers = receivers(&config, &prometheus, &slos, limits, &session_watch)?;
        crate::check::files(&config)?;
        // From here on only binding addresses can fail. Where something above fails, all of it is
        // repeated with the fallback, and OTLP must not be started twice.
        let otlp = start_otlp(&config, &prometheus);
        subscribers.extend(otlp.subscribers());
        let accounting = spending.accounting.clone();
        let measure = config.measure.clone();
        let meter = Meter::with(measure, accounting, subscribers, otlp.tracer());
        shared_limits.measure(&meter);
        otlp.begin_metrics(&prometheus, &meter);
        ledger::look(ledger.as_ref(), &meter);
        let observer: Arc<dyn Observer> = meter.clone();
        let forwarder = Forwarder::new(config.forwarding(), observer)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let forwarder = Arc::new(forwarder);
        forwarder.limit_descriptors(fd_limits.upstreams);
        let sources = scrape_hooks::Sources {
            forwarder: &forwarder,
            slos: &slos,
            event_bus: &event_bus,
            budgets: &spending.accounting.budgets,
            meter: &meter,
            shared_limits: &shared_limits,
            session_watch: &session_watch,
            runtimes,
            shutdown: &shutdown,
        };
        scrape_hooks::install(&prometheus, &sources);
        let bound = bind_listeners(&config)?;
        let addresses: Vec<_> = bound.iter().map(BoundListener::address).collect();
        let store = store.map(|store| Arc::new(Mutex::new(store)));
        let objectives = Objectives::start(&slos, store.as_ref(), &meter, &session_watch);
        let operators = Operators::bind(&config, &prometheus)?;
        let mut watchers = operators.watchers(&prometheus, &meter, marks::restarts(&marks));
        watchers.change(watchers.prepare(&config.scrapes)?);
        let about = ProcessInfo {
            commit,
            pod: crate::sinks::origin().pod(),
            ..ProcessInfo::new(&config, &addresses, SystemTime::now())
        };
        let weak_forwarder = Arc::downgrade(&forwarder);
        let process = Arc::new(ProcessServices {
            meter,
            slos,
            sinks,
            upstreams: Box::new(move || {
                let forwarder = weak_forwarder.upgrade();
                forwarder.map_or(Vec::new(), |forwarder| forwarder.upstreams())
            }),
            drifts: ArcSwap::default(),
            gates: ArcSwap::from_pointee(crate::evaluations::gates::configured(&config)),
            gate_audit: GateAudit::new(config.state_dir.as_deref()),
            session_watch,
        });
        let services = Services {
            live: process.clone(),
            store: CallStore::new(reader, &recent),
            prometheus,
            about: Arc::new(ArcSwap::from_pointee(about)),
            experiments: Arc::new(ArcSwap::from_pointee(config.experiments.clone())),
            readiness: Arc::default(),
            marks,
            event_bus,
            clock: Instant::now,
            wall: SystemTime::now,
        };
        Ok(Proxy {
            bound,
            operators,
            forwarder,
            config,
            services,
            process,
            recent,
            objectives,
            store,
            receivers,
            watchers,
            spending,
            shared_limits,
            otlp,
            shutdown,
            runtimes: runtimes.clone(),
            source: None,
        })
    }

    /// Sets the source of reloads.
    pub fn reloads(mut self, source: Source) -> Proxy {
        self.source = Some(source);
        self
    }

    /// The configuration in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The handle that shuts the proxy down.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// The first address on which agents connect.
    pub fn address(&self) -> SocketAddr {
        self.bound[0].address()
    }

    /// The address on which operators connect.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.operators.address()
    }

    /// Serves until the shutdown, and until streams have ended or were cut off.
    pub async fn serve(self) -> Result<(), Error> {
        self.announce();
        let readiness = Arc::clone(&self.services.readiness);
        readiness.listening();
        tokio::spawn(drain_when_told(readiness, self.shutdown.clone()));
        tokio::spawn(self.spending.clone().keep_up());
        let (marks, slos) = (&self.services.marks, &self.process.slos);
        let budgets = &self.spending.accounting.budgets;
        AlertMarks::start(marks, slos, budgets, &self.process.session_watch);
        let meter = Arc::clone(&self.process.meter);
        let config = Arc::new(ArcSwap::from(self.config));
        let threads = self.runtimes.number();
        let listening = Arc::new(ActiveListeners::start(
            self.bound,
            Arc::clone(&self.forwarder),
            &config.load().limits,
            self.shutdown,
            self.runtimes,
        ));
        // Held here until the end: `live` is dropped where no configuration is reloaded, and dropping them stops them.
        let evaluations = Arc::new(evaluations(&config, &self.services, &self.process));
        let live = RunningProxy {
            config: Arc::clone(&config),
            forwarder: self.forwarder,
            listening: Arc::clone(&listening),
            threads,
            services: self.services.clone(),
            process: Arc::clone(&self.process),
            recent: self.recent,
            store: self.store,
            receivers: self.receivers,
            watchers: self.watchers,
            evaluations: Arc::clone(&evaluations),
        };
        let status = Reloads::new(
            &live.services.prometheus,
            &live.services.readiness,
            &config.load(),
        );
        let reloading = self
            .source
            .map(|source| tokio::spawn(reload::run(live, source, status)));
        let sinks = Arc::clone(&self.process.sinks);
        let _beside = self.operators.start(self.services);
        let drained = listening.drained(|| config.load().drain_timeout).await;
        drop(evaluations);
        if let Some(reloading) = reloading {
            reloading.abort();
        }
        let (objectives, spending, otlp) = (self.objectives, self.spending, self.otlp);
        let shared_limits = self.shared_limits;
        let end = move || {
            let flushed = meter.flush(FLUSH_WITHIN);
            // What has just been written is sent while the others end.
            let sinks = std::thread::spawn(move || sinks.finish(FLUSH_WITHIN));
            objectives.stop();
            shared_limits.finish(FLUSH_WITHIN);
            spending.keep();
            let exported = otlp.shutdown(FLUSH_WITHIN);
            (flushed, exported, sinks.join().unwrap_or(false))
        };
        let ended = tokio::task::spawn_blocking(end).await;
        let (logged, exported, sent) = ended.unwrap_or((false, false, false));
        if !sent {
            tracing::warn!("a sink did not end in time");
        }
        if !logged {
            tracing::warn!("the last call records did not reach the call log in time");
        }
        if !exported {
            tracing::warn!("the last calls did not reach the OTLP receiver in time");
        }
        tracing::info!(cut = drained.aborted, "ended");
        Ok(())
    }

    /// Prints the bound addresses on standard error, so that scripts can read the ports.
    fn announce(&self) {
        for bound in &self.bound {
            output::note(&format!("listening on {}", bound.address()));
        }
        if let Some(address) = self.operators.address() {
            output::note(&format!("admin on {address}"));
        }
        if let Some(address) = self.operators.metrics_address() {
            output::note(&format!("metrics on {address}"));
        }
        for line in self.config.of_each_replica() {
            tracing::info!("{line}");
        }
    }
}

/// Starts what is evaluated in the background.
fn evaluations(
    config: &Arc<ArcSwap<Config>>,
    services: &Services,
    process: &Arc<ProcessServices>,
) -> Vec<Periodic> {
    let drift = crate::evaluations::drift::start(config, services, process);
    let all = [
        drift,
        crate::evaluations::gates::start(services, process),
        Some(crate::evaluations::experiments::start(services)),
    ];
    all.into_iter().flatten().collect()
}

fn exporter(config: &Config) -> Arc<Prometheus> {
    let thresholds = slo::thresholds(&config.slos);
    let prometheus = Prometheus::with_thresholds(&config.routes, &config.measure, &thresholds);
    prometheus.set_classic_histograms(!config.admin.native_histograms_alone);
    prometheus
}

fn bind_listeners(config: &Config) -> Result<Vec<BoundListener>, Error> {
    let bound = config.listeners.iter().map(BoundListener::bind);
    let bound: Result<Vec<_>, _> = bound.collect();
    bound.map_err(|error| Error::Address(error.to_string()))
}

/// Follows sessions by the ceilings and prices of `config`.
fn session_watch(config: &Config, accounting: &Accounting) -> Arc<SessionWatch> {
    let watch = SessionWatch::new();
    watch.change(&config.runaway, cache_price(&accounting.prices));
    watch
}

/// The receivers of alerts.
fn receivers(
    config: &Config,
    prometheus: &Arc<Prometheus>,
    slos: &Arc<Slos>,
    (spending, shared_limits): (&Spending, &SharedLimits),
    session_watch: &Arc<SessionWatch>,
) -> Result<Receivers, Error> {
    let delivery_state = notify::delivery_state(config)?;
    let failures = Arc::clone(prometheus);
    let failures = move |kind| failures.export_failures("notify", kind);
    let page = PageLink::new(&config.admin, |name| std::env::var(name).ok());
    let budgets = &spending.accounting.budgets;
    let store = shared_limits.store.clone();
    let mut receivers = Receivers::new(
        slos,
        budgets,
        session_watch,
        delivery_state,
        page,
        failures,
        store,
    );
    receivers.change(receivers.prepare(&config.receivers)?);
    Ok(receivers)
}

/// Starts the OTLP exporters that OpenTelemetry's standard variables configure.
fn start_otlp(config: &Config, prometheus: &Arc<Prometheus>) -> Otlp {
    let failures = Arc::clone(prometheus);
    let around = ExporterContext {
        conventions: config.otlp.conventions,
        langfuse: config.otlp.langfuse,
        instance: uuid::Uuid::new_v4().to_string(),
        count: Arc::new(move |exporter, reason, items| {
            failures.export_failures(exporter, reason).increment(items);
        }),
        max_models: config.measure.max_models,
        clock: Instant::now,
        wall: SystemTime::now,
        runtime: tokio::runtime::Handle::current(),
    };
    let variables = |name: &str| std::env::var(name).ok();
    Otlp::start(&variables, config.otlp.call_records, &around)
}

async fn drain_when_told(readiness: Arc<Readiness>, shutdown: Shutdown) {
    shutdown.drain_started().await;
    readiness.draining();
}

fn open_call_log(path: &Path, prometheus: &Prometheus) -> Result<Arc<CallLog>, Error> {
    let losses = Losses {
        failed: prometheus.export_failures("call_log", "write"),
        dropped: prometheus.export_failures("call_log", "full"),
    };
    let target = match path.to_str() {
        Some("-") => Target::Stream(output::stdout()),
        _ => Target::File(path.to_owned()),
    };
    CallLog::open(target, losses, Instant::now).map_err(|error| {
        Error::Failed(format!(
            "cannot open the call log {}: {error}",
            path.display()
        ))
    })
}
