//! Runs on a separate thread, apart from traffic: the admin address and the scrapers of the upstreams' metrics.

use crate::{ProcessError, SystemError};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_admin::{self as admin, Access, AdminRuntime, EventBus, Listeners, Services};
use tokengauge_config::{Config, Scrape};
use tokengauge_meter::Meter;
use tokengauge_net::address;
use tokengauge_net::client::NoClient;
use tokengauge_telemetry::engine::{self, RestartHook, Watcher};
use tokengauge_telemetry::export::names::{self, Family};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::registry::{Counter, Registry};
use tokengauge_telemetry::export::runtime;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The bound admin and metrics addresses, and the runtime that serves them.
pub struct Operators {
    runtime: AdminRuntime,
    admin: Option<TcpListener>,
    metrics: Option<TcpListener>,
    access: Access,
}

pub(crate) struct Watchers {
    handle: Handle,
    prometheus: Arc<Prometheus>,
    meter: Arc<Meter>,
    restarted: RestartHook,
    running: Vec<(Scrape, JoinHandle<()>)>,
}

/// The scrapers of a new configuration, with all files read.
pub(crate) struct PreparedWatchers {
    wanted: Vec<Scrape>,
    new: Vec<(Scrape, Watcher)>,
}

pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
    let mut scrapes = config.scrapes.iter();
    scrapes.try_for_each(|scrape| Watcher::check(scrape).map_err(|error| unusable(scrape, &error)))
}

fn unusable(scrape: &Scrape, error: &NoClient) -> ProcessError {
    ProcessError::Configuration(format!("upstream {}: {error}", scrape.upstream))
}

impl Watchers {
    pub(crate) fn prepare(&self, wanted: &[Scrape]) -> Result<PreparedWatchers, ProcessError> {
        let known = |wanted: &Scrape| self.running.iter().any(|(scrape, _)| scrape == wanted);
        let new = wanted.iter().filter(|wanted| !known(wanted));
        let new = new.map(|scrape| {
            let restarted = Arc::clone(&self.restarted);
            let watcher = Watcher::new(scrape, &self.prometheus, &self.meter, restarted)
                .map_err(|error| unusable(scrape, &error))?;
            Ok((scrape.clone(), watcher))
        });
        Ok(PreparedWatchers {
            new: new.collect::<Result<_, ProcessError>>()?,
            wanted: wanted.to_vec(),
        })
    }

    pub(crate) fn change(&mut self, next: PreparedWatchers) {
        let registry = self.prometheus.registry();
        self.running.retain(|(scrape, task)| {
            let stays = next.wanted.contains(scrape);
            if !stays {
                task.abort();
                let mut others = next.wanted.iter();
                if !others.any(|other| other.upstream == scrape.upstream) {
                    engine::forget(registry, &scrape.upstream);
                }
            }
            stays
        });
        for (scrape, watcher) in next.new {
            let task = self.handle.spawn(watcher.run());
            self.running.push((scrape, task));
        }
    }
}

impl Operators {
    /// Binds the addresses and reads every file, so that errors appear at the start.
    pub fn bind(config: &Config, prometheus: &Arc<Prometheus>) -> Result<Operators, ProcessError> {
        let runtime =
            AdminRuntime::start().map_err(|error| SystemError::Task("start a thread", error))?;
        prometheus.before_scrape(runtime::figures("admin", vec![runtime.handle().clone()]));
        Ok(Operators {
            access: Access::new(&config.admin, Instant::now())
                .map_err(|error| ProcessError::Configuration(error.to_string()))?,
            admin: bind(config.admin.address, "--admin")?,
            metrics: bind(config.admin.metrics_address, "--metrics-listen")?,
            runtime,
        })
    }

    pub(crate) fn watchers(
        &self,
        prometheus: &Arc<Prometheus>,
        meter: &Arc<Meter>,
        restarted: RestartHook,
    ) -> Watchers {
        Watchers {
            handle: self.runtime.handle().clone(),
            prometheus: Arc::clone(prometheus),
            meter: Arc::clone(meter),
            restarted,
            running: Vec::new(),
        }
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref()?.local_addr().ok()
    }

    /// Serves the addresses until the returned runtime is dropped, also while streams drain.
    pub fn start(self, services: Services) -> AdminRuntime {
        let handle = self.runtime.handle();
        if self.admin.is_some() || self.metrics.is_some() {
            handle.spawn(serve(self.admin, self.metrics, services, self.access));
        }
        self.runtime
    }
}

pub fn refresh(registry: &Registry, event_bus: &EventBus) {
    let listening = event_bus.listening();
    let gauge = registry.series(&names::EVENT_LISTENERS, &());
    gauge.set(listening.listeners as f64);
    let count = |metric: &Family<Counter, _>, count| registry.series(metric, &()).absolute(count);
    count(&names::EVENTS_LOST, listening.lost);
    count(&names::EVENT_LISTENERS_REFUSED, listening.refused);
}

async fn serve(
    on_admin: Option<TcpListener>,
    on_metrics: Option<TcpListener>,
    services: Services,
    access: Access,
) {
    let listeners = Listeners {
        admin: on_admin.and_then(asynchronous),
        metrics: on_metrics.and_then(asynchronous),
    };
    admin::serve(listeners, services, access, std::future::pending()).await;
}

/// Converts a listener for tokio. Must be called in the runtime that serves it.
fn asynchronous(listener: TcpListener) -> Option<tokio::net::TcpListener> {
    let listener = tokio::net::TcpListener::from_std(listener);
    let failed = |error: &std::io::Error| {
        tracing::error!(%error, "cannot serve the admin or metrics address; calls are still forwarded");
    };
    listener.inspect_err(failed).ok()
}

/// Binds `address`. Errors name `option`, the command-line option that overrides it.
fn bind(address: Option<SocketAddr>, option: &str) -> Result<Option<TcpListener>, ProcessError> {
    let Some(address) = address else {
        return Ok(None);
    };
    address::listen(address).map(Some).map_err(|error| {
        ProcessError::Address(format!(
            "cannot listen on the admin address {address}: {error}; set another address with {option}"
        ))
    })
}
