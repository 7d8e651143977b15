//! `/metrics`: the meter's findings as Prometheus series.

use super::labels::{Models, UNKNOWN};
use super::names::{self, Kind, Metric};
use super::process;
use super::series::{Identity, Series, Watching, counter, gauge, histogram};
use crate::config::{Measure, Route};
use crate::meter::{Figures, Finding, Stream, Subscriber, Watch};
use metrics::{Counter, Histogram, KeyName, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// The workload of calls that belong to none.
const NO_WORKLOAD: &str = "none";

/// The Prometheus exporter.
pub struct Prometheus {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    started: Instant,
    models: Models,
    no_workload: Arc<str>,
    /// As many as routes and upstreams times models: both are bounded.
    series: RwLock<HashMap<Identity, Arc<Series>>>,
    head_overhead: Histogram,
    chunk_overhead: Histogram,
}

impl Prometheus {
    /// An exporter for calls on `routes`, whose series exist from now on. `started` is
    /// when the process started.
    pub fn new(routes: &[Arc<Route>], measure: &Measure, started: Instant) -> Arc<Prometheus> {
        let recorder = recorder();
        let overhead = |phase| histogram(&recorder, &names::PROXY_OVERHEAD, &[phase]);
        let prometheus = Prometheus {
            head_overhead: overhead("head"),
            chunk_overhead: overhead("chunk"),
            handle: recorder.handle(),
            started,
            models: Models::new(measure.max_models),
            no_workload: NO_WORKLOAD.into(),
            series: RwLock::default(),
            recorder,
        };
        gauge(
            &prometheus.recorder,
            &names::BUILD_INFO,
            &[env!("CARGO_PKG_VERSION")],
        )
        .set(1.0);
        for route in routes {
            prometheus.series(prometheus.identity(
                &route.name,
                &route.upstream.name,
                route.workload.as_ref(),
                UNKNOWN.into(),
            ));
            let place = [&*route.upstream.name, &*route.name];
            gauge(&prometheus.recorder, &names::STREAMS_IN_FLIGHT, &place).set(0.0);
        }
        Arc::new(prometheus)
    }

    /// Counts what an exporter could not write.
    pub fn export_failures(&self, exporter: &'static str, reason: &'static str) -> Counter {
        counter(&self.recorder, &names::EXPORT_FAILURES, &[exporter, reason])
    }

    /// Everything as it is at `now`, in the text format 0.0.4.
    pub fn render(&self, now: Instant, figures: &Figures) -> String {
        self.refresh(now, figures);
        let mut text = self.handle.render();
        header(&mut text, &names::DECODE_SECONDS);
        for series in self.all() {
            series.render(&mut text);
        }
        if let Some(figures) = process::figures() {
            let metric = &names::PROCESS_CPU_SECONDS;
            header(&mut text, metric);
            let _ = writeln!(text, "{} {}", metric.name, figures.cpu_seconds);
        }
        text
    }

    /// Brings what is only known when asked up to `now`.
    fn refresh(&self, now: Instant, figures: &Figures) {
        let recorder = &self.recorder;
        let since = now.saturating_duration_since(self.started);
        self.all().iter().for_each(|series| series.refresh(since));
        for (route, upstream, streams) in &figures.in_flight {
            let place = [&**upstream, &**route];
            gauge(recorder, &names::STREAMS_IN_FLIGHT, &place).set(f64::from(*streams));
        }
        for (metric, value) in [
            (&names::METER_LAGGED_FRAMES, figures.lagged_frames),
            (&names::METER_SKIPPED_BODIES, figures.skipped_bodies),
            (&names::METER_DROPPED_CALLS, figures.dropped_findings),
            (&names::METER_PANICS, figures.panics),
            (&names::SERIES_COLLAPSED, self.models.collapsed()),
        ] {
            counter(recorder, metric, &[]).absolute(value);
        }
        let set = |metric, value: u64| gauge(recorder, metric, &[]).set(value as f64);
        set(&names::METER_QUEUE_BYTES, figures.held_bytes as u64);
        if let Some(process) = process::figures() {
            set(&names::PROCESS_RESIDENT_MEMORY, process.resident_bytes);
            set(&names::PROCESS_OPEN_FDS, process.open_files);
            set(&names::PROCESS_THREADS, process.threads);
        }
    }

    fn identity(
        &self,
        route: &Arc<str>,
        upstream: &Arc<str>,
        workload: Option<&Arc<str>>,
        model: Arc<str>,
    ) -> Identity {
        Identity {
            upstream: Arc::clone(upstream),
            route: Arc::clone(route),
            workload: Arc::clone(workload.unwrap_or(&self.no_workload)),
            model,
        }
    }

    fn series(&self, identity: Identity) -> Arc<Series> {
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(&identity) {
            return Arc::clone(series);
        }
        drop(known);
        let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Series::new(&self.recorder, identity.clone()));
        Arc::clone(all.entry(identity.clone()).or_insert_with(fresh))
    }

    fn all(&self) -> Vec<Arc<Series>> {
        let all = self.series.read().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }
}

impl Subscriber for Prometheus {
    fn watch(&self, stream: &Stream<'_>) -> Option<Box<dyn Watch>> {
        let model = self.models.label(stream.model, stream.accepted);
        let series =
            self.series(self.identity(stream.route, stream.upstream, stream.workload, model));
        Some(Box::new(Watching {
            series,
            started: self.started,
        }))
    }

    fn finished(&self, finding: &Arc<Finding>) {
        let record = &finding.record;
        let model = record
            .model
            .as_deref()
            .or(record.model_requested.as_deref());
        let accepted = record.status.is_some_and(|status| status < 300);
        let model = self.models.label_finished(model, accepted);
        let workload = record.workload.as_deref().map(Arc::from);
        let (route, upstream) = (
            record.route.as_str().into(),
            record.upstream.as_str().into(),
        );
        let series = self.series(self.identity(&route, &upstream, workload.as_ref(), model));
        series.finished(&self.recorder, finding);
        if let Some(cost) = finding.head_overhead {
            self.head_overhead.record(cost);
        }
        if let Some(cost) = finding.chunk_overhead {
            self.chunk_overhead.record(cost);
        }
    }

    /// Histograms keep samples until they are drained: without this they would grow
    /// where nobody scrapes.
    fn tidy(&self) {
        self.handle.run_upkeep();
    }
}

/// A recorder with the buckets and the help of the table.
fn recorder() -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in names::ALL
        .iter()
        .filter(|metric| metric.kind == Kind::Histogram)
    {
        let matcher = Matcher::Full(metric.name.to_owned());
        builder = builder
            .set_buckets_for_metric(matcher, metric.buckets)
            .expect("the table gives every histogram buckets");
    }
    let recorder = builder.build_recorder();
    for metric in names::ALL {
        let (name, help) = (KeyName::from(metric.name), metric.help.into());
        match metric.kind {
            Kind::Counter => recorder.describe_counter(name, None, help),
            Kind::Gauge => recorder.describe_gauge(name, None, help),
            Kind::Histogram => recorder.describe_histogram(name, None, help),
        }
    }
    recorder
}

/// The two lines before a family that is rendered here: a counter of fractions.
fn header(text: &mut String, metric: &Metric) {
    let (name, help) = (metric.name, metric.help);
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
}
