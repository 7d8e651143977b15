//! Exports metrics: every series of the registry under dotted names, with the values of `/metrics`,
//! and the histograms of the GenAI conventions.

use super::ExporterContext;
use super::client::Client;
use super::conventions;
use super::gen_ai::GenAi;
use super::losses::{Gate, Losses};
use super::message::{self, Span};
use super::settings::Settings;
use crate::export::otlp::Conventions;
use crate::export::prometheus::Prometheus;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use parking_lot::Mutex;
use prost::Message;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_meter::{FinishedCall, Meter, Subscriber};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub struct Metrics {
    client: Client,
    gate: Gate,
    resource: v1::Resource,
    gen_ai: GenAi,
    conventions: Conventions,
    interval: Duration,
    delta: bool,
    clock: fn() -> Instant,
    wall: fn() -> SystemTime,
    runtime: Handle,
    /// The values of the last message, for delta temporality.
    sent: Mutex<message::Sent>,
    source: Mutex<Option<Source>>,
}

/// The series, and the task that sends them periodically.
struct Source {
    series: Arc<Prometheus>,
    meter: Arc<Meter>,
    task: Option<JoinHandle<()>>,
}

impl Metrics {
    /// An exporter that sends nothing until the series are set.
    pub(super) fn new(
        client: Client,
        losses: Arc<Losses>,
        resource: &Resource,
        settings: &Settings,
        conventions: Conventions,
        around: &ExporterContext,
    ) -> Arc<Metrics> {
        let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
        Arc::new(Metrics {
            client,
            // The gate counts messages, one at a time, so it needs no bound on items.
            gate: Gate::new(usize::MAX, losses),
            resource: v1::Resource {
                attributes,
                ..v1::Resource::default()
            },
            gen_ai: GenAi::new(conventions, around.max_models),
            conventions,
            interval: settings.interval,
            delta: settings.delta,
            clock: around.clock,
            wall: around.wall,
            runtime: around.runtime.clone(),
            sent: Mutex::new(message::Sent::since((around.wall)())),
            source: Mutex::default(),
        })
    }

    pub(super) fn begin(self: &Arc<Self>, series: Arc<Prometheus>, meter: Arc<Meter>) {
        let exporter = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            let mut ticks = tokio::time::interval(exporter.interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            // The first tick is immediate, when there is nothing to export.
            ticks.tick().await;
            loop {
                tokio::select! {
                    _ = ticks.tick() => exporter.send().await,
                    () = exporter.client.closed() => break,
                };
            }
        });
        let source = Source {
            series,
            meter,
            task: Some(task),
        };
        *self.source() = Some(source);
    }

    fn source(&self) -> parking_lot::MutexGuard<'_, Option<Source>> {
        self.source.lock()
    }

    async fn send(&self) -> bool {
        let Some((request, points)) = self.request() else {
            return true;
        };
        let message = request.encode_to_vec();
        let (message, gzip) = if self.client.settings().gzip {
            (compressed(&message), true)
        } else {
            (message, false)
        };
        if !self.gate.enter(points) {
            return false;
        }
        let sent = self.client.post(Bytes::from(message), gzip).await.is_ok();
        self.gate.leave(points, sent);
        sent
    }

    fn request(&self) -> Option<(ExportMetricsServiceRequest, usize)> {
        let now = (self.clock)();
        let source = self.source();
        let source = source.as_ref()?;
        source.series.refresh(now, &source.meter.stats(now));
        let mut sent = self.sent.lock();
        let mut span = Span::new(&mut sent, (self.wall)(), self.delta);
        let mut metrics = message::of_registry(source.series.registry(), &mut span);
        metrics.extend(self.gen_ai.metrics(&mut span));
        let points = span.points();
        let scope = ScopeMetrics {
            scope: Some(message::scope()),
            metrics,
            schema_url: conventions::schema_url(self.conventions).to_owned(),
        };
        let resource = ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        };
        let resource_metrics = vec![resource];
        Some((ExportMetricsServiceRequest { resource_metrics }, points))
    }

    /// Sends all values a last time within `timeout`. Blocks.
    pub(super) fn shutdown(&self, timeout: Duration) -> bool {
        self.client.close();
        let task = self.source().as_mut().and_then(|source| source.task.take());
        let last = async {
            // An export in progress is finished first, because lost deltas are not sent again.
            if let Some(task) = task {
                let _ = task.await;
            }
            self.send().await
        };
        let last = async { tokio::time::timeout(timeout, last).await };
        let sent = self.runtime.block_on(last).unwrap_or(false);
        self.gate.close() && sent
    }
}

impl Subscriber for Metrics {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        self.gen_ai.finished(finished_call);
    }
}

fn compressed(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let done = encoder.write_all(message).and_then(|()| encoder.finish());
    done.expect("writing to memory does not fail")
}
