//! Exports finished calls as OTLP traces and logs, and metrics, configured by the standard
//! variables. Traffic never waits for the exporters: items that a receiver does not accept in time
//! are dropped and counted.

mod client;
pub mod conventions;
mod exporter;
mod gen_ai;
mod grpc;
mod logs;
mod losses;
mod message;
mod metrics;
mod resource;
mod retry;
pub mod settings;
mod span;
mod traces;

pub use losses::Count;
pub use message::dotted;
pub use resource::attribute_of as resource_attribute;

use crate::export::prometheus::Prometheus;
use client::Client;
use logs::Logs;
use losses::Losses;
use metrics::Metrics;
use opentelemetry_sdk::Resource;
use settings::{Destination, Settings, Signal, Variables};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::trace::Tracer;
use tokengauge_meter::{Meter, Subscriber};
use tokio::runtime::Handle;
use traces::Traces;

const DEFAULT_QUEUE: usize = 2048;

/// A version of the OpenTelemetry GenAI conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Conventions {
    /// v1.41.
    #[default]
    #[serde(rename = "v1.41")]
    Current,
    /// The draft of v1.36, in which providers do not have a separate name.
    #[serde(rename = "v1.36")]
    Draft,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

pub struct ExporterContext {
    pub conventions: Conventions,
    /// Whether CLIENT spans also carry attributes for Langfuse.
    pub langfuse: bool,
    /// Default of `service.instance.id`.
    pub instance: String,
    pub count: Arc<Count>,
    /// Maximum number of distinct model names that become attributes of metrics.
    pub max_models: usize,
    pub clock: fn() -> Instant,
    pub wall: fn() -> SystemTime,
    /// The runtime that drives connections.
    pub runtime: Handle,
}

#[derive(Default)]
pub struct Otlp {
    traces: Option<Arc<Traces>>,
    metrics: Option<Arc<Metrics>>,
    logs: Option<Arc<Logs>>,
    tracer: Option<Arc<Tracer>>,
}

impl Otlp {
    /// Starts the exporters that the variables configure. An exporter that cannot be started is
    /// logged and left out. `call_records` says whether call records are exported as logs.
    pub fn start(variables: Variables<'_>, call_records: bool, around: &ExporterContext) -> Otlp {
        let (settings, problems) = Settings::read(variables, call_records);
        for problem in problems {
            tracing::warn!(variable = problem.variable, "{}", problem.reason);
        }
        let conventions = if settings.newest_names {
            Conventions::Current
        } else {
            around.conventions
        };
        let resource = resource::resource(variables, &around.instance);
        let start = Start {
            around,
            resource: &resource,
        };
        let metrics = settings.metrics.clone();
        let metrics = start.signal(Signal::Metrics, metrics, |client, losses| {
            Ok(Metrics::new(
                client,
                losses,
                &resource,
                &settings,
                conventions,
                around,
            ))
        });
        let traces = start.signal(Signal::Traces, settings.traces, |client, losses| {
            Traces::start(client, losses, &resource, conventions, around.langfuse)
        });
        let logs = start.signal(Signal::Logs, settings.logs, |client, losses| {
            Logs::start(client, losses, &resource)
        });
        let tracer = traces
            .is_some()
            .then(|| traces::tracer(settings.propagates));
        Otlp {
            traces,
            metrics,
            logs,
            tracer,
        }
    }

    pub fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let traces = self
            .traces
            .iter()
            .cloned()
            .map(|one| one as Arc<dyn Subscriber>);
        let logs = self
            .logs
            .iter()
            .cloned()
            .map(|one| one as Arc<dyn Subscriber>);
        let metrics = self.metrics.iter().cloned();
        let metrics = metrics.map(|one| one as Arc<dyn Subscriber>);
        traces.chain(metrics).chain(logs).collect()
    }

    pub fn tracer(&self) -> Option<Arc<Tracer>> {
        self.tracer.clone()
    }

    pub fn begin_metrics(&self, series: &Arc<Prometheus>, meter: &Arc<Meter>) {
        if let Some(metrics) = &self.metrics {
            metrics.begin(Arc::clone(series), Arc::clone(meter));
        }
    }

    /// Sends queued items within `timeout` and stops. Returns whether all were delivered, and
    /// counts the rest as lost. Metrics are sent last, because they include the other exporters'
    /// losses. Blocks.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let most = timeout - timeout / 4;
        let sent = std::thread::scope(|scope| {
            let traces = self.traces.as_deref();
            let traces = traces.map(|traces| scope.spawn(move || traces.shutdown(most)));
            let logs = self.logs.as_deref();
            let logs = logs.map(|logs| scope.spawn(move || logs.shutdown(most)));
            let all = [traces, logs].into_iter().flatten();
            // All threads are joined, even if the first one failed.
            let sent: Vec<_> = all.map(|one| one.join().unwrap_or(false)).collect();
            sent.into_iter().all(|sent| sent)
        });
        let left = until.saturating_duration_since(Instant::now());
        let metrics = self.metrics.as_ref();
        metrics.is_none_or(|metrics| metrics.shutdown(left)) && sent
    }
}

struct Start<'a> {
    around: &'a ExporterContext,
    resource: &'a Resource,
}

impl Start<'_> {
    fn signal<T>(
        &self,
        signal: Signal,
        destination: Option<Destination>,
        start: impl FnOnce(Client, Arc<Losses>) -> Result<T, Failed>,
    ) -> Option<T> {
        let destination = destination?;
        let exporter = signal.exporter();
        let to = destination.url.to_string();
        let ExporterContext { count, clock, .. } = self.around;
        let losses = Arc::new(Losses::new(exporter, Arc::clone(count), *clock));
        let client = Client::new(destination, Arc::clone(&losses), self.around)
            .map_err(|error| Failed(error.to_string()));
        match client.and_then(|client| start(client, losses)) {
            Ok(started) => {
                let service = self.resource.get(&"service.name".into());
                let service = service.map(|name| name.to_string()).unwrap_or_default();
                tracing::info!(exporter, to, service, "exporting");
                Some(started)
            }
            Err(error) => {
                tracing::error!(exporter, %error, "cannot start the exporter; traffic continues \
                    without it");
                None
            }
        }
    }
}

fn bound(name: &str) -> usize {
    let named = std::env::var(name).ok();
    let bound = named.and_then(|value| value.parse().ok());
    bound.unwrap_or(DEFAULT_QUEUE)
}
