//! `/metrics`: finished calls as Prometheus series.

use super::exemplar::Trace;
use super::label_values::ModelLabels;
use super::labels;
use super::names::{self, Family};
use super::process;
use super::protobuf;
use super::registry::{Counter, Gauge, Histogram, Registry, Threshold};
use super::series::{Identity, Series, THROUGHPUT, Watching, record_known};
use super::text::{self, Format};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::background::Pauses;
use tokengauge_core::call::Outcome;
use tokengauge_core::hash::FastMap;
use tokengauge_core::observer::FailureKind;
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{FinishedCall, MeterStats, Stream, Subscriber, TokenObserver};
use tokengauge_proxy::settings::Route;

const NO_WORKLOAD: &str = "none";

type ScrapeHook = Box<dyn Fn(&Registry, Instant) + Send + Sync>;

pub struct Prometheus {
    registry: Registry,
    models: ModelLabels,
    no_workload: Arc<str>,
    /// Bounded, because routes, upstreams and models are bounded.
    series: RwLock<FastMap<Identity, Arc<Series>>>,
    head_overhead: Histogram,
    chunk_overhead: Histogram,
    asked: Mutex<Vec<ScrapeHook>>,
    classic_histograms: AtomicBool,
}

impl Prometheus {
    pub fn new(routes: &[Arc<Route>], measure: &Measure) -> Arc<Prometheus> {
        Prometheus::with_thresholds(routes, measure, &[])
    }

    /// Like [`Prometheus::new`], but with additional histogram bounds.
    pub fn with_thresholds(
        routes: &[Arc<Route>],
        measure: &Measure,
        thresholds: &[Threshold],
    ) -> Arc<Prometheus> {
        let registry = Registry::new(thresholds);
        let overhead = |phase| registry.series(&names::PROXY_OVERHEAD, &labels::Phase { phase });
        let prometheus = Prometheus {
            head_overhead: overhead("head"),
            chunk_overhead: overhead("chunk"),
            models: ModelLabels::new(measure.max_models),
            no_workload: NO_WORKLOAD.into(),
            series: RwLock::default(),
            asked: Mutex::default(),
            classic_histograms: AtomicBool::new(true),
            registry,
        };
        let registry = &prometheus.registry;
        let version = env!("CARGO_PKG_VERSION");
        let labels = labels::Version { version };
        registry.series(&names::BUILD_INFO, &labels).set(1.0);
        prometheus.add_routes(routes, measure);
        Arc::new(prometheus)
    }

    /// Adds the series of `routes` that exist before the first call: gauges that an autoscaler
    /// needs, and counters of refusals before the model is known. The series of a model, about 190,
    /// exist from its first call on. Existing series keep their counts.
    pub fn add_routes(&self, routes: &[Arc<Route>], measure: &Measure) {
        let registry = &self.registry;
        let upstreams = |route: &Arc<Route>| route.upstreams().cloned().collect::<Vec<_>>();
        let pairs = routes
            .iter()
            .flat_map(|route| upstreams(route).into_iter().map(move |to| (route, to)));
        for (route, to) in pairs {
            let upstream = &*to.name;
            let labels = labels::Route {
                upstream,
                route: &route.name,
            };
            registry.series(&names::STREAMS_IN_FLIGHT, &labels);
            registry.series(&names::STREAMS_STALLED, &labels);
            registry.series(&names::RATE_LIMITED, &labels);
            let labels = labels::Upstream { upstream };
            if !registry.has(&names::UPSTREAM_WARMING, &labels) {
                let cold = measure.warm_up_calls > 0 || !measure.warm_up_for.is_zero();
                let warming = registry.series(&names::UPSTREAM_WARMING, &labels);
                warming.set(f64::from(u8::from(cold)));
            }
        }
    }

    /// Removes the series of routes and upstreams for which `configured` is false. It is called
    /// with route and upstream, or with an upstream only.
    pub fn forget(&self, configured: impl Fn(Option<&str>, &str) -> bool) {
        let mut series = self.series.write();
        series.retain(|place, _| configured(Some(&place.route), &place.upstream));
        self.registry.retain(|labels| match labels.of("upstream") {
            Some(upstream) => configured(labels.of("route"), upstream),
            None => true,
        });
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds a hook that is called before every scrape. It must be quick and must not block.
    pub fn before_scrape(&self, ask: impl Fn(&Registry, Instant) + Send + Sync + 'static) {
        let mut asked = self.asked.lock();
        asked.push(Box::new(ask));
    }

    /// The counter of items that an exporter could not write.
    pub fn export_failures(&self, exporter: &'static str, reason: &'static str) -> Counter {
        let labels = labels::ExportFailure { exporter, reason };
        self.registry.series(&names::EXPORT_FAILURES, &labels)
    }

    /// Whether histograms have classic buckets (the default) or only native buckets, which text
    /// formats cannot represent.
    pub fn set_classic_histograms(&self, shown: bool) {
        self.classic_histograms.store(shown, Ordering::Relaxed);
    }

    pub fn render(&self, now: Instant, figures: &MeterStats, format: Format) -> String {
        self.refresh(now, figures);
        text::render(&self.registry, format, self.shows_classic_histograms())
    }

    /// Renders all series in the protobuf format, with native histograms.
    pub fn render_protobuf(&self, now: Instant, figures: &MeterStats) -> Vec<u8> {
        self.refresh(now, figures);
        protobuf::render(&self.registry, self.shows_classic_histograms())
    }

    fn shows_classic_histograms(&self) -> bool {
        self.classic_histograms.load(Ordering::Relaxed)
    }

    pub fn refresh(&self, now: Instant, figures: &MeterStats) {
        let registry = &self.registry;
        let mut pauses = Pauses::default();
        for (place, rates) in &figures.throughput {
            pauses.between();
            let labels = labels::Model {
                upstream: &place.upstream,
                route: &place.route,
                model: &place.model,
                workload: place.workload.as_ref().unwrap_or(&self.no_workload),
            };
            let values = [rates.now, rates.peak, rates.sustained];
            for (gauge, value) in THROUGHPUT.into_iter().zip(values) {
                registry.series(gauge, &labels).set(value);
            }
        }
        for (metric, streams) in [
            (&names::STREAMS_IN_FLIGHT, &figures.in_flight),
            (&names::STREAMS_STALLED, &figures.stalled),
        ] {
            for (route, upstream, streams) in streams {
                let gauge = registry.series(metric, &labels::Route { upstream, route });
                gauge.set(f64::from(*streams));
            }
        }
        for (upstream, warming) in &figures.warming {
            let gauge = registry.series(&names::UPSTREAM_WARMING, &labels::Upstream { upstream });
            gauge.set(f64::from(u8::from(*warming)));
        }
        for (metric, value) in [
            (&names::METER_LAGGED_CHUNKS, figures.lagged_chunks),
            (&names::METER_SKIPPED_BODIES, figures.skipped_bodies),
            (&names::METER_UNKNOWN_USAGE, figures.unknown_usages),
            (&names::METER_UNSEARCHED_TEXTS, figures.unsearched_texts),
            (&names::METER_DROPPED_CALLS, figures.dropped_calls),
            (&names::METER_PANICS, figures.panics),
            (&names::SERIES_COLLAPSED, self.models.collapsed()),
        ] {
            registry.series(metric, &()).absolute(value);
        }
        let held = registry.series(&names::METER_QUEUE_BYTES, &());
        held.set(figures.held_bytes as f64);
        pauses.between();
        if let Some(process) = process::figures() {
            refresh_process(registry, &process);
        }
        for ask in self.asked.lock().iter() {
            pauses.between();
            ask(registry, now);
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
        let known = self.series.read();
        if let Some(series) = known.get(&identity) {
            return Arc::clone(series);
        }
        drop(known);
        let mut all = self.series.write();
        let fresh = || Arc::new(Series::new(&self.registry, identity.clone()));
        Arc::clone(all.entry(identity.clone()).or_insert_with(fresh))
    }
}

impl Subscriber for Prometheus {
    fn watch(&self, stream: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        let model = self.models.label(stream.model, stream.accepted);
        let series =
            self.series(self.identity(stream.route, stream.upstream, stream.workload, model));
        Some(Box::new(Watching { series }))
    }

    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let record = &finished_call.record;
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
        series.finished(&self.registry, finished_call);
        let refused = finished_call.failure == Some(FailureKind::RateLimited);
        if refused && record.outcome == Outcome::Rejected {
            let labels = labels::Route {
                upstream: &record.upstream,
                route: &record.route,
            };
            let limited = self.registry.series(&names::RATE_LIMITED, &labels);
            limited.increment(1);
        }
        let trace = Trace::of(finished_call);
        let seconds = |cost: Option<Duration>| cost.map(|cost| cost.as_secs_f64());
        record_known(
            &self.head_overhead,
            seconds(finished_call.head_overhead),
            trace,
        );
        record_known(
            &self.chunk_overhead,
            seconds(finished_call.chunk_overhead),
            trace,
        );
    }
}

fn refresh_process(registry: &Registry, process: &process::Process) {
    let set = |metric: &Family<Gauge, _>, value: f64| registry.series(metric, &()).set(value);
    set(
        &names::PROCESS_RESIDENT_MEMORY,
        process.resident_bytes as f64,
    );
    set(&names::PROCESS_OPEN_FDS, process.open_files as f64);
    set(&names::PROCESS_MAX_FDS, process.max_open_files as f64);
    set(&names::PROCESS_THREADS, process.threads as f64);
    set(&names::PROCESS_START_TIME, process.started);
    let cpu = registry.series(&names::PROCESS_CPU_SECONDS, &());
    cpu.absolute(process.cpu_seconds);
}
