//! The running proxy: puts all crates together, from bound sockets to the last drained stream. `run` and `demo` share
//! it.

use crate::ProcessError;
use crate::block_key;
use crate::finished_calls::FinishedCalls;
use crate::ledger;
use crate::marks::{self, AlertMarks};
use crate::objectives::Objectives;
use crate::operators::{Operators, Watchers};
use crate::output;
use crate::oversight::Oversight;
use crate::reload::{self, Source};
use crate::reload_status::Reloads;
use crate::running_proxy::RunningProxy;
use crate::scrape_hooks;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_admin::{CallSource, ProcessInfo, ProcessServices, Readiness, Services};
use tokengauge_config::Config;
use tokengauge_core::observer::Observer;
use tokengauge_meter::{Meter, RecentCalls};
use tokengauge_proxy::{ActiveListeners, BoundListener, Forwarder, Shutdown, TrafficRuntimes};
use tokengauge_sink::Sinks;
use tokengauge_telemetry::export::otlp::{ExporterContext, Otlp};
use tokengauge_telemetry::export::prometheus::Prometheus;

/// How long writing finished calls to the call log may take at the end of the process.
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
    oversight: Oversight,
    watchers: Watchers,
    otlp: Otlp,
    shutdown: Shutdown,
    runtimes: TrafficRuntimes,
    source: Option<Source>,
}

impl Proxy {
    /// Binds every socket and opens every file, so that errors appear at the start. `commit` is the commit that the
    /// program was built from. Needs a runtime.
    pub async fn bind(
        mut config: Config,
        call_log: Option<&Path>,
        runtimes: &TrafficRuntimes,
        commit: &'static str,
    ) -> Result<Proxy, ProcessError> {
        let fd_limits = crate::fd_limit::raise(config.limits.connections, runtimes.number());
        fd_limits.apply(&mut config.limits);
        tokengauge_config::warn_of_memory_limit(config.measure.memory_bytes);
        for warning in &config.warnings {
            tracing::warn!("{}{warning}", config.origin);
        }
        let config = Arc::new(config);
        let shutdown = Shutdown::new();
        let mut calls = FinishedCalls::open(&config, call_log)?;
        let oversight = Oversight::open(&config, &calls.prometheus, &mut calls.subscribers)?;
        crate::check::files(&config)?;
        // Only binding addresses can fail after this line. If an earlier step fails, all steps are repeated with the
        // fallback, and OTLP must not be started twice.
        let otlp = start_otlp(&config, &calls.prometheus);
        let meter = start_meter(&config, &oversight, &mut calls, &otlp);
        let observer: Arc<dyn Observer> = meter.clone();
        let forwarder = Forwarder::new(config.forwarding(), observer)
            .map_err(|error| ProcessError::Configuration(error.to_string()))?;
        let forwarder = Arc::new(forwarder);
        forwarder.limit_descriptors(fd_limits.upstreams);
        let sources = scrape_hooks::Sources {
            calls: &calls,
            oversight: &oversight,
            meter: &meter,
            forwarder: &forwarder,
            runtimes,
            shutdown: &shutdown,
        };
        scrape_hooks::install(&sources);
        let bound = bind_listeners(&config)?;
        let objectives = oversight.start_objectives(&meter);
        let operators = Operators::bind(&config, &calls.prometheus)?;
        let restarts = marks::restarts(&calls.marks);
        let mut watchers = operators.watchers(&calls.prometheus, &meter, restarts);
        watchers.change(watchers.prepare(&config.scrapes)?);
        let about = about(&config, &bound, commit);
        let process = process_services(&forwarder, meter, &oversight, calls.sinks);
        let services = Services {
            live: process.clone(),
            call_source: CallSource::new(calls.reader, &calls.recent, &calls.scores),
            prometheus: calls.prometheus,
            about: Arc::new(ArcSwap::from_pointee(about)),
            experiments: Arc::new(ArcSwap::from_pointee(config.experiments.clone())),
            verdicts: crate::evaluations::verdicts(&config),
            readiness: Arc::default(),
            marks: calls.marks,
            scores: calls.scores,
            event_bus: calls.event_bus,
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
            recent: calls.recent,
            objectives,
            oversight,
            watchers,
            otlp,
            shutdown,
            runtimes: runtimes.clone(),
            source: None,
        })
    }

    pub fn reloads(mut self, source: Source) -> Proxy {
        self.source = Some(source);
        self
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    pub fn address(&self) -> SocketAddr {
        self.bound[0].address()
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.operators.address()
    }

    /// Serves until shutdown, and until streams have ended or were cut off.
    pub async fn serve(self) -> Result<(), ProcessError> {
        self.announce();
        let readiness = Arc::clone(&self.services.readiness);
        readiness.listening();
        tokio::spawn(drain_when_told(readiness, self.shutdown.clone()));
        tokio::spawn(self.oversight.spending.clone().keep_up());
        let (marks, slos) = (&self.services.marks, &self.process.slos);
        let budgets = &self.oversight.spending.accounting.budgets;
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
        // Kept here until the end, because dropping the evaluations stops them. `live` is dropped early if no
        // configuration is reloaded.
        let evaluations = Arc::new(crate::evaluations::start(&config, &self.services));
        let live = RunningProxy {
            config: Arc::clone(&config),
            forwarder: self.forwarder,
            listening: Arc::clone(&listening),
            threads,
            services: self.services.clone(),
            process: Arc::clone(&self.process),
            recent: self.recent,
            state_folder: self.oversight.state_folder,
            receivers: self.oversight.receivers,
            watchers: self.watchers,
            evaluations: Arc::clone(&evaluations),
        };
        let services = &live.services;
        let status = Reloads::new(&services.prometheus, &services.readiness, &config.load());
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
        let end = move || {
            let flushed = meter.flush(FLUSH_WITHIN);
            // Sinks send the calls that were just written while the other threads end.
            let sinks = std::thread::spawn(move || sinks.finish(FLUSH_WITHIN));
            self.objectives.stop();
            self.oversight.shared_limits.finish(FLUSH_WITHIN);
            self.oversight.spending.keep();
            let exported = self.otlp.shutdown(FLUSH_WITHIN);
            (flushed, exported, sinks.join().unwrap_or(false))
        };
        let ended = tokio::task::spawn_blocking(end).await;
        warn_of_losses(ended.unwrap_or((false, false, false)));
        tracing::info!(cut = drained.aborted, "ended");
        Ok(())
    }

    /// Prints the bound addresses to standard error, so that scripts can read the ports.
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

/// Logs whether the last calls reached the call log, the OTLP receiver and the sinks.
fn warn_of_losses((logged, exported, sent): (bool, bool, bool)) {
    if !sent {
        tracing::warn!("a sink did not finish in time");
    }
    if !logged {
        tracing::warn!("the last call records did not reach the call log in time");
    }
    if !exported {
        tracing::warn!("the last calls did not reach the OTLP receiver in time");
    }
}

fn bind_listeners(config: &Config) -> Result<Vec<BoundListener>, ProcessError> {
    let bound: Result<Vec<_>, _> = config.listeners.iter().map(BoundListener::bind).collect();
    bound.map_err(|error| ProcessError::Address(error.to_string()))
}

fn start_meter(
    config: &Config,
    oversight: &Oversight,
    calls: &mut FinishedCalls,
    otlp: &Otlp,
) -> Arc<Meter> {
    let mut subscribers = std::mem::take(&mut calls.subscribers);
    subscribers.extend(otlp.subscribers());
    let accounting = oversight.spending.accounting.clone();
    let meter = Meter::with(
        block_key::measure(config),
        accounting,
        subscribers,
        otlp.tracer(),
    );
    oversight.shared_limits.measure(&meter);
    otlp.begin_metrics(&calls.prometheus, &meter);
    ledger::look(calls.ledger.as_ref(), &meter);
    meter
}

fn about(config: &Config, bound: &[BoundListener], commit: &'static str) -> ProcessInfo {
    let addresses: Vec<_> = bound.iter().map(BoundListener::address).collect();
    ProcessInfo {
        commit,
        pod: crate::sinks::origin().pod(),
        ..ProcessInfo::new(config, &addresses, SystemTime::now())
    }
}

fn process_services(
    forwarder: &Arc<Forwarder>,
    meter: Arc<Meter>,
    oversight: &Oversight,
    sinks: Arc<Sinks>,
) -> Arc<ProcessServices> {
    let weak_forwarder = Arc::downgrade(forwarder);
    Arc::new(ProcessServices {
        meter,
        slos: oversight.slos.clone(),
        sinks,
        upstreams: Box::new(move || {
            let forwarder = weak_forwarder.upgrade();
            forwarder.map_or(Vec::new(), |forwarder| forwarder.upstreams())
        }),
        session_watch: oversight.session_watch.clone(),
    })
}

/// Starts the OTLP exporters that the standard variables of OpenTelemetry configure.
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
