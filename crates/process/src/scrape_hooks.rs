//! Updates metrics before every scrape.

use crate::finished_calls::FinishedCalls;
use crate::operators;
use crate::oversight::Oversight;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_core::time::whole_seconds_since_1970;
use tokengauge_meter::{AnalysisStats, Meter};
use tokengauge_proxy::{Forwarder, Shutdown, TrafficRuntimes, UpstreamConnections};
use tokengauge_quota_store::ClaimCounts;
use tokengauge_sessions::{RunawayReason, SessionWatch};
use tokengauge_telemetry::export::names::{self, Family};
use tokengauge_telemetry::export::registry::{Gauge, Registry};
use tokengauge_telemetry::export::{cost, labels, quota, runtime, slo};

pub(crate) struct Sources<'a> {
    pub(crate) calls: &'a FinishedCalls,
    pub(crate) oversight: &'a Oversight,
    pub(crate) meter: &'a Arc<Meter>,
    pub(crate) forwarder: &'a Arc<Forwarder>,
    pub(crate) runtimes: &'a TrafficRuntimes,
    pub(crate) shutdown: &'a Shutdown,
}

pub(crate) fn install(sources: &Sources<'_>) {
    let &Sources {
        calls,
        oversight,
        meter,
        forwarder,
        runtimes,
        shutdown,
    } = sources;
    let prometheus = &calls.prometheus;
    let of_agents = shutdown.clone();
    prometheus.before_scrape(move |registry, _| {
        let counter = |family: &'static _| registry.series(family, &());
        let closed = of_agents.idle_connections_closed();
        counter(&names::AGENT_IDLE_CONNECTIONS_CLOSED).absolute(closed);
        counter(&names::AGENT_STREAMS_REFUSED).absolute(of_agents.streams_refused());
    });
    // A weak reference, because the forwarder already holds the exporter through the meter.
    let weak_forwarder = Arc::downgrade(forwarder);
    prometheus.before_scrape(move |registry, _| {
        let panics = registry.series(&names::OBSERVER_PANICS, &());
        let count = weak_forwarder
            .upgrade()
            .map(|forwarder| forwarder.observer_panics());
        panics.absolute(count.unwrap_or(0));
    });
    let weak_forwarder = Arc::downgrade(forwarder);
    prometheus.before_scrape(move |registry, _| {
        let upstreams = weak_forwarder
            .upgrade()
            .map(|forwarder| forwarder.upstreams());
        for upstream in upstreams.unwrap_or_default() {
            connections(registry, &upstream);
        }
    });
    let slos = Arc::clone(&oversight.slos);
    prometheus.before_scrape(move |registry, now| slo::refresh(registry, &slos, now));
    let event_bus = Arc::clone(&calls.event_bus);
    prometheus.before_scrape(move |registry, _| operators::refresh(registry, &event_bus));
    let budgets = Arc::clone(&oversight.spending.accounting.budgets);
    prometheus.before_scrape(move |registry, _| {
        cost::budgets(
            registry,
            &budgets,
            whole_seconds_since_1970(SystemTime::now()),
        );
    });
    let weak_meter = Arc::downgrade(meter);
    prometheus.before_scrape(move |registry, _| {
        if let Some(meter) = weak_meter.upgrade() {
            let accounting = meter.accounting();
            cost::gpus(registry, &accounting.prices);
            cost::facts(registry, &meter.measure());
            quota::quotas(registry, &accounting.quotas);
            analysis(registry, &meter.analysis());
            if let Some(sharing) = &accounting.sharing {
                quota::sharing(registry, &sharing.status(Instant::now()));
            }
        }
    });
    if let Some(quota_store) = oversight.shared_limits.quota_store.clone() {
        prometheus.before_scrape(move |registry, _| alerts(registry, quota_store.alerts.counts()));
    }
    let session_watch = Arc::clone(&oversight.session_watch);
    prometheus.before_scrape(move |registry, now| sessions(registry, &session_watch, now));
    prometheus.before_scrape(runtime::figures(
        "traffic",
        runtimes.handles().cloned().collect(),
    ));
}

fn sessions(registry: &Registry, session_watch: &SessionWatch, now: Instant) {
    let counts = session_watch.counts(now);
    for (cause, sum) in counts.breaks {
        let labels = labels::ByCause {
            cause: cause.as_str(),
        };
        let breaks = registry.series(&names::PROMPT_CACHE_BREAKS, &labels);
        breaks.absolute(sum.breaks);
        let usd = registry.series(&names::PROMPT_CACHE_BREAK_USD, &labels);
        usd.absolute(sum.usd);
    }
    let by = |reason: RunawayReason| labels::ByReason {
        reason: reason.as_str(),
    };
    for (reason, found) in counts.found {
        let series = registry.series(&names::RUNAWAY_SESSIONS_FOUND, &by(reason));
        series.absolute(found);
    }
    for (reason, sessions) in counts.now {
        let series = registry.series(&names::RUNAWAY_SESSIONS, &by(reason));
        series.set(sessions as f64);
    }
    let forgotten = registry.series(&names::SESSIONS_FORGOTTEN, &());
    forgotten.absolute(counts.forgotten);
}

fn analysis(registry: &Registry, stats: &AnalysisStats) {
    let skipped = registry.series(&names::ANALYSIS_SKIPPED_CALLS, &());
    skipped.absolute(stats.skipped);
    let forgotten = registry.series(&names::ANALYSIS_FORGOTTEN, &());
    forgotten.absolute(stats.counts.evicted);
    let held = registry.series(&names::ANALYSIS_BYTES, &());
    held.set(stats.counts.held_bytes as f64);
    for potential in &stats.potentials {
        let [million, ten_million] = potential.lru;
        for (cache, share) in [
            ("provider", potential.counted),
            ("1M", million),
            ("10M", ten_million),
            ("infinite", potential.infinite),
        ] {
            let upstream = &potential.upstream;
            let labels = labels::ByCache { upstream, cache };
            let ratio = registry.series(&names::PROMPT_CACHE_POTENTIAL, &labels);
            ratio.set(share);
        }
    }
}

fn connections(registry: &Registry, upstream: &UpstreamConnections) {
    let labels = labels::Upstream {
        upstream: &upstream.upstream,
    };
    let gauge = |metric: &Family<Gauge, _>, value: usize| {
        registry.series(metric, &labels).set(value as f64);
    };
    gauge(&names::UPSTREAM_CONNECTIONS, upstream.open);
    gauge(&names::UPSTREAM_PENDING, upstream.pending);
    let refused = registry.series(&names::UPSTREAM_REFUSED, &labels);
    refused.absolute(upstream.refused);
    let resent = registry.series(&names::UPSTREAM_RESENT, &labels);
    resent.absolute(upstream.resent);
}

/// Counts which process sent alerts, among the processes that share a quota store.
fn alerts(registry: &Registry, counts: ClaimCounts) {
    for (result, count) in [
        ("claimed", counts.claimed),
        ("delivered_elsewhere", counts.delivered_elsewhere),
        ("alone", counts.alone),
    ] {
        let labels = labels::ByResult { result };
        let series = registry.series(&names::QUOTA_STORE_ALERTS, &labels);
        series.absolute(count);
    }
    let elected = registry.series(&names::QUOTA_STORE_ELECTED, &());
    elected.set(counts.elected as f64);
}
