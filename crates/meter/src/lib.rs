#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nobody reads any more
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod accounting;
mod admission;
pub mod attribution;
mod background;
mod backlog;
mod call;
mod call_state;
mod context;
mod conversations;
pub mod cost;
mod counts;
mod finish;
mod generation;
mod guard;
mod hidden;
mod live;
mod live_generation;
mod nesting;
mod operation;
pub mod quota;
mod reading;
mod realtime_turns;
mod recent;
mod record;
mod request;
mod route_stats;
mod script;
pub mod settings;
mod shared;
mod subscriber;
mod timeline;
mod token_ratios;
mod verdict;
mod worker;
mod workload;

use crate::settings::Measure;
use arc_swap::ArcSwap;
use call::Call;
use context::CallContext;
use conversations::Conversations;
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::memory::{AdmissionMemory, Memory};
use tokengauge_core::observer::{CallStart, ObservedCall, Observer};
use tokengauge_core::throughput::{RateKey, Rates, Throughput, ThroughputTick};
use tokengauge_core::trace::Tracer;

pub use accounting::Accounting;
pub use live::{Progress, StreamNow, TokensNow};
pub use recent::RecentCalls;
pub use tokengauge_core::finished::{CallTimestamps, FinishedCall, RequestParameters};
pub use tokengauge_core::inter_token::{INTER_TOKEN_BOUNDS, InterToken};
pub use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

/// Watches every call of the process.
pub struct Meter {
    shared: Arc<Shared>,
}

/// Figures on measuring itself, for exporters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeterStats {
    /// Streams in flight by route and upstream.
    pub in_flight: Vec<(Arc<str>, Arc<str>, u32)>,
    /// Those of them whose last token is longer ago than the stall threshold.
    pub stalled: Vec<(Arc<str>, Arc<str>, u32)>,
    /// Upstreams that were called, and whether a call would be marked `warm_up` now.
    pub warming: Vec<(Arc<str>, bool)>,
    /// Tokens of streams over wall time.
    pub throughput: BTreeMap<RateKey, Rates>,
    /// Frames that were not measured, for want of time or memory.
    pub lagged_frames: u64,
    /// Bodies that were not measured: over a bound, or the background was full.
    pub skipped_bodies: u64,
    /// Finished calls that the subscribers were too slow for.
    pub dropped_calls: u64,
    /// Panics behind the tap.
    pub panics: u64,
    /// Bytes held for measuring now.
    pub held_bytes: usize,
}

impl Meter {
    /// A meter that tells `subscribers` what it finds. Starts two threads, which end
    /// with it. Panics while measuring are logged without their message from now on, since
    /// it could quote a prompt.
    pub fn new(measure: Measure, subscribers: Vec<Arc<dyn Subscriber>>) -> Arc<Meter> {
        Meter::with(measure, Accounting::default(), subscribers, None)
    }

    /// The same by these prices, budgets and quotas, with each call's spans from `tracer` where
    /// there is one.
    pub fn with(
        measure: Measure,
        accounting: Accounting,
        subscribers: Vec<Arc<dyn Subscriber>>,
        tracer: Option<Arc<Tracer>>,
    ) -> Arc<Meter> {
        guard::hide_messages();
        let (measuring, admission) = memory_parts(&measure, &accounting);
        let memory = Memory::new(measuring);
        let throughput = Arc::new(Throughput::new(measure.max_models));
        let shared = Shared {
            measure: ArcSwap::from_pointee(measure),
            accounting: ArcSwap::from_pointee(accounting),
            worker: worker::Worker::start(&memory),
            memory,
            admission_memory: AdmissionMemory::new(admission),
            subscribers: subscriber::Subscribers::new(subscribers),
            route_stats: route_stats::AllRouteStats::default(),
            registry: Arc::default(),
            throughput,
            background: background::BackgroundResponses::default(),
            spans: Arc::default(),
            conversations: Conversations::default(),
            token_ratios: token_ratios::TokenRatios::default(),
            counters: shared::Counters::default(),
            tracer,
        };
        Arc::new(Meter {
            shared: Arc::new(shared),
        })
    }

    /// What calls cost and may take now.
    pub fn accounting(&self) -> Arc<Accounting> {
        self.shared.accounting.load_full()
    }

    /// How calls are measured now.
    pub fn measure(&self) -> Arc<Measure> {
        self.shared.measure.load_full()
    }

    /// Measures calls to come by `measure` and `accounting`; those under way end as they began.
    pub fn change(&self, measure: Measure, accounting: Accounting) {
        let (measuring, admission) = memory_parts(&measure, &accounting);
        self.shared.memory.resize(measuring);
        self.shared.admission_memory.resize(admission);
        self.shared.measure.store(Arc::new(measure));
        self.shared.accounting.store(Arc::new(accounting));
    }

    /// Forgets routes and upstreams that `configured` does not know and no stream is on.
    pub fn forget(&self, configured: impl Fn(&str, &str) -> bool) {
        self.shared.route_stats.retain(configured);
        let all_stats = self.shared.route_stats.all();
        let known = |route: &str, upstream: &str| {
            let is = |stats: &Arc<route_stats::RouteStats>| {
                *stats.route == *route && *stats.upstream == *upstream
            };
            all_stats.iter().any(is)
        };
        self.shared.throughput.forget(known);
    }

    /// The newest streams in flight, at most `limit`, as they are at `now`.
    pub fn streams(&self, now: Instant, limit: usize) -> Vec<StreamNow> {
        self.shared.registry.snapshot(now, limit)
    }

    /// The tokens of all streams by the second in which they came.
    pub fn throughput(&self) -> &Arc<Throughput> {
        &self.shared.throughput
    }

    /// What is new of it. To be asked once a second, by one who hands it on.
    pub fn tick(&self, now: Instant, wall: SystemTime) -> ThroughputTick {
        let unanswered = self.shared.registry.unanswered();
        self.shared.throughput.tick(now, wall, &unanswered)
    }

    /// Calls under way by route and upstream, and nothing else of the figures.
    pub fn in_flight(&self) -> MeterStats {
        let all_stats = self.shared.route_stats.all();
        let streams = all_stats.iter().map(|stats| {
            let (route, upstream) = (Arc::clone(&stats.route), Arc::clone(&stats.upstream));
            (route, upstream, stats.in_flight())
        });
        MeterStats {
            in_flight: streams.collect(),
            ..MeterStats::default()
        }
    }

    /// Where every call under way stands.
    pub fn progress(&self, visit: impl FnMut(Progress)) {
        self.shared.registry.progress(visit);
    }

    /// Figures on measuring itself, as they are at `now`.
    pub fn stats(&self, now: Instant) -> MeterStats {
        let measure = self.shared.measure.load();
        let threshold = measure.stall_threshold;
        let mut stalled = self.shared.registry.stalled(now, threshold);
        let all_stats = self.shared.route_stats.all();
        let by_route = all_stats.iter().map(|stats| {
            let place = (Arc::clone(&stats.route), Arc::clone(&stats.upstream));
            let stalled = stalled.remove(&place).unwrap_or(0);
            let (route, upstream) = place;
            let in_flight = (route.clone(), upstream.clone(), stats.in_flight());
            (in_flight, (route, upstream, stalled))
        });
        let (in_flight, stalled) = by_route.unzip();
        MeterStats {
            in_flight,
            stalled,
            warming: self.shared.route_stats.warming(now, &measure),
            throughput: self.shared.throughput.streamed(now),
            lagged_frames: self.shared.counters.lagged_frames(),
            skipped_bodies: self.shared.counters.skipped_bodies(),
            dropped_calls: self.shared.subscribers.dropped(),
            panics: self.shared.counters.panics(),
            held_bytes: self.shared.memory.used() + self.shared.admission_memory.used(),
        }
    }

    /// `upstream` has restarted, as its own metrics say: its next calls warm it up.
    pub fn upstream_restarted(&self, upstream: &str) {
        self.shared.route_stats.restarted(upstream);
    }

    /// Waits until every call that has ended has reached every subscriber and has been
    /// flushed by it; `false` where that took longer than `patience` at any step.
    /// Blocks: for the end of the process, and for tests.
    pub fn flush(&self, patience: Duration) -> bool {
        self.shared.worker.flush(patience) && self.shared.subscribers.flush(patience)
    }
}

/// Bytes for measuring, and for bodies that decide whether their request may leave: half of
/// all where a limit depends on bodies, so that measuring does not have them refused.
fn memory_parts(measure: &Measure, accounting: &Accounting) -> (usize, usize) {
    let all = measure.memory_bytes;
    let admission = match accounting.may_depend_on_bodies() {
        true => all / 2,
        false => 0,
    };
    (all - admission, admission)
}

impl Observer for Meter {
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall> {
        Arc::new(Call::new(
            CallContext::new(&self.shared, &start),
            start.received,
        ))
    }
}
