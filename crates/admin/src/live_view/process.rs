//! A process: its calls in flight and objectives, and the services that a fleet does not have.

use super::{CallInFlight, LiveView, SloList, Slos, Visit};
use crate::Services;
use crate::api::{Problem, StreamFilter};
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokengauge_accounting::cost::Prices;
use tokengauge_accounting::quota::LeftOfQuota;
use tokengauge_core::throughput::{Rates, ThroughputTick};
use tokengauge_fleet::Streams;
use tokengauge_meter::{Meter, MeterStats};
use tokengauge_proxy::UpstreamConnections;
use tokengauge_sessions::SessionWatch;
use tokengauge_sink::Sinks;
use tokengauge_slo::{Objective, Slos as Objectives};

/// The services that a proxy has and `tokengauge fleet` does not. An endpoint whose handler takes these services does not
/// exist in a fleet.
pub struct ProcessServices {
    pub meter: Arc<Meter>,
    pub slos: Arc<Objectives>,
    pub sinks: Arc<Sinks>,
    pub upstreams: Box<dyn Fn() -> Vec<UpstreamConnections> + Send + Sync>,
    pub session_watch: Arc<SessionWatch>,
}

impl ProcessServices {
    /// Creates the services without sinks and upstreams.
    pub fn new(meter: Arc<Meter>, slos: Arc<Objectives>) -> ProcessServices {
        ProcessServices {
            meter,
            slos,
            sinks: Arc::default(),
            upstreams: Box::new(Vec::new),
            session_watch: SessionWatch::new(),
        }
    }
}

impl LiveView for ProcessServices {
    fn streams(&self, now: Instant, filter: &StreamFilter, limit: usize) -> Streams {
        let read = if filter.is_empty() { limit } else { usize::MAX };
        let mut streams = self.meter.streams(now, read);
        streams.retain(|stream| filter.matches(stream));
        let mut total = streams.len();
        if filter.is_empty() {
            let counted = self.meter.in_flight().in_flight;
            let counted = counted.iter().map(|(.., streams)| *streams as usize);
            total = total.max(counted.sum());
        }
        let tokens_per_second = match filter.rates() {
            // Throughput by second is not counted by agent and some other dimensions.
            None => Rates {
                // The sum of no values would be -0.
                now: streams
                    .iter()
                    .filter_map(|stream| stream.tps)
                    .fold(0.0, |sum, tps| sum + tps),
                ..Rates::default()
            },
            Some(filter) => self.meter.throughput().rates(now, &filter),
        };
        streams.truncate(limit);
        Streams {
            total,
            tokens_per_second,
            streams,
        }
    }

    fn visit_in_flight(&self, now: Instant, wall: SystemTime, visit: Visit<'_>) {
        self.meter.progress(|progress| {
            let since = now.saturating_duration_since(progress.received);
            visit(&CallInFlight {
                started: wall.checked_sub(since).unwrap_or(UNIX_EPOCH),
                route: &progress.route,
                upstream: &progress.upstream,
                model: progress.model.as_deref(),
                workload: progress.workload.as_deref(),
                agent: progress.agent.as_deref(),
                session: progress.session.as_deref(),
                payer: [
                    progress.payer.team.as_deref(),
                    progress.payer.cost_center.as_deref(),
                    progress.payer.tenant.as_deref(),
                ],
                class: progress.operation_class,
                pod: None,
            });
        });
    }

    fn slos(&self, now: Instant) -> Slos {
        Slos {
            slos: SloList::Own(self.slos.status(now)),
            source: None,
            total: None,
        }
    }

    fn objective(&self, name: &str) -> Option<Arc<Objective>> {
        self.slos.objective(name)
    }

    fn prices(&self) -> Arc<Prices> {
        self.meter.accounting().prices.clone()
    }

    fn left_to_key(&self, key: &str) -> Vec<LeftOfQuota> {
        self.meter.accounting().quotas.left_to_key(key)
    }

    fn meter_stats(&self, now: Instant) -> MeterStats {
        self.meter.stats(now)
    }

    fn tick(&self, now: Instant, wall: SystemTime) -> ThroughputTick {
        self.meter.tick(now, wall)
    }

    fn process(self: Arc<Self>) -> Option<Arc<ProcessServices>> {
        Some(self)
    }
}

impl FromRequestParts<Services> for Arc<ProcessServices> {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, services: &Services) -> Result<Self, Problem> {
        let message = "a fleet does not have this endpoint of a single process: ask a pod at its address in /api/v1/pods";
        let process = Arc::clone(&services.live).process();
        process.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, message))
    }
}
