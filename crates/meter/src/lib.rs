#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod background;
mod backlog;
mod call;
mod call_state;
mod clip;
mod context;
mod counts;
mod ended_prompt;
mod finish;
mod generation;
mod guard;
mod hidden;
mod live;
mod live_generation;
mod model_names;
mod nesting;
mod operation;
mod prompts;
mod reading;
mod realtime_turns;
mod recent;
mod record;
mod repetition;
mod request;
mod route_stats;
mod script;
pub mod settings;
mod shared;
mod subscriber;
mod think;
mod timeline;
mod tool_calls;
mod verdict;
mod worker;

use crate::settings::Measure;
use arc_swap::ArcSwap;
use call::Call;
use context::CallContext;
use live::Registry;
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_accounting::attribution::Conversations;
use tokengauge_core::experiment::{RequestHead, SplitBy};
use tokengauge_core::memory::{AdmissionMemory, Memory};
use tokengauge_core::observer::{CallStart, ObservedCall, Observer};
use tokengauge_core::throughput::{RateKey, Rates, Throughput, ThroughputTick};
use tokengauge_core::trace::Tracer;

pub use live::{Progress, StreamNow, TokensNow};
pub use prompts::AnalysisStats;
pub use recent::RecentCalls;
pub use tokengauge_core::finished::{CallTimestamps, FinishedCall, RequestParameters};
pub use tokengauge_core::inter_token::{INTER_TOKEN_BOUNDS, InterToken};
pub use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

pub struct Meter {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
}

/// Statistics about the measurement itself, for exporters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeterStats {
    /// Streams in flight by route and upstream.
    pub in_flight: Vec<(Arc<str>, Arc<str>, u32)>,
    /// Streams in flight whose last token is older than the stall threshold, by route and upstream.
    pub stalled: Vec<(Arc<str>, Arc<str>, u32)>,
    /// Upstreams that were called, and whether a call would be marked `warm_up` now.
    pub warming: Vec<(Arc<str>, bool)>,
    pub throughput: BTreeMap<RateKey, Rates>,
    /// Chunks that were not measured because time or memory was short.
    pub lagged_chunks: u64,
    /// Bodies that were not measured because they exceeded a limit or the background queue was
    /// full.
    pub skipped_bodies: u64,
    /// Calls whose usage has numbers with unknown names.
    pub unknown_usages: u64,
    /// Texts of answers that were not searched for repetitions to their end, because of a limit.
    pub unsearched_texts: u64,
    pub dropped_calls: u64,
    pub panics: u64,
    /// Bytes that measurement holds now for calls, without the memory of the analysis.
    pub held_bytes: usize,
}

impl Meter {
    /// Creates a meter that sends finished calls to `subscribers`.
    ///
    /// Starts two threads, which end with the meter. From now on a panic during measurement is
    /// logged without its message, because the message could quote a prompt.
    pub fn new(measure: Measure, subscribers: Vec<Arc<dyn Subscriber>>) -> Arc<Meter> {
        Meter::with(measure, Accounting::default(), subscribers, None)
    }

    /// Creates a meter with prices, budgets and quotas, and with spans if there is a `tracer`.
    pub fn with(
        measure: Measure,
        accounting: Accounting,
        subscribers: Vec<Arc<dyn Subscriber>>,
        tracer: Option<Arc<Tracer>>,
    ) -> Arc<Meter> {
        guard::hide_messages();
        let (measuring, admission) = memory_parts(&measure, &accounting);
        let memory = Memory::new(measuring);
        let prompts = prompts::Prompts::new(&measure.analysis, &memory);
        let throughput = Arc::new(Throughput::new(measure.max_models));
        let shared = Shared {
            measure: ArcSwap::from_pointee(measure),
            accounting: ArcSwap::from_pointee(accounting),
            worker: worker::Worker::start(&memory),
            memory,
            admission_memory: AdmissionMemory::new(admission),
            subscribers: subscriber::Subscribers::new(subscribers),
            route_stats: route_stats::AllRouteStats::default(),
            throughput,
            background: background::BackgroundResponses::default(),
            spans: Arc::default(),
            conversations: Conversations::default(),
            model_names: Default::default(),
            prompts,
            counters: shared::Counters::default(),
            tracer,
        };
        Arc::new(Meter {
            shared: Arc::new(shared),
            registry: Arc::default(),
        })
    }

    pub fn accounting(&self) -> Arc<Accounting> {
        self.shared.accounting.load_full()
    }

    pub fn measure(&self) -> Arc<Measure> {
        self.shared.measure.load_full()
    }

    /// Applies new settings to future calls. Calls in flight keep their settings.
    pub fn change(&self, measure: Measure, accounting: Accounting) {
        let (measuring, admission) = memory_parts(&measure, &accounting);
        self.shared.memory.resize(measuring);
        self.shared.admission_memory.resize(admission);
        let before = self.shared.measure.load().analysis;
        self.shared.prompts.change(&before, &measure.analysis);
        self.shared.measure.store(Arc::new(measure));
        self.shared.accounting.store(Arc::new(accounting));
    }

    /// Drops the state of routes and upstreams that are not `configured` and have no stream in
    /// flight.
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

    pub fn streams(&self, now: Instant, limit: usize) -> Vec<StreamNow> {
        self.registry.snapshot(now, limit)
    }

    /// Tokens of all streams, by the second in which they arrived.
    pub fn throughput(&self) -> &Arc<Throughput> {
        &self.shared.throughput
    }

    /// The tokens that were added to the throughput since the previous call. Only the one component
    /// that distributes them may call this, once a second.
    pub fn tick(&self, now: Instant, wall: SystemTime) -> ThroughputTick {
        let unanswered = self.registry.unanswered();
        self.shared.throughput.tick(now, wall, &unanswered)
    }

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

    pub fn progress(&self, visit: impl FnMut(Progress)) {
        self.registry.progress(visit);
    }

    pub fn stats(&self, now: Instant) -> MeterStats {
        let measure = self.shared.measure.load();
        let threshold = measure.stall_threshold;
        let mut stalled = self.registry.stalled(now, threshold);
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
            lagged_chunks: self.shared.counters.lagged_chunks(),
            skipped_bodies: self.shared.counters.skipped_bodies(),
            unknown_usages: self.shared.counters.unknown_usages(),
            unsearched_texts: self.shared.counters.unsearched_texts(),
            dropped_calls: self.shared.subscribers.dropped(),
            panics: self.shared.counters.panics(),
            held_bytes: self.shared.calls_hold() + self.shared.admission_memory.used(),
        }
    }

    /// What the analysis of prompts holds, knows and left out.
    pub fn analysis(&self) -> AnalysisStats {
        self.shared.prompts.stats()
    }

    /// Starts a new warm-up of `upstream`, because its metrics show a restart.
    pub fn upstream_restarted(&self, upstream: &str) {
        self.shared.route_stats.restarted(upstream);
    }

    /// Waits until every finished call has reached every subscriber and every subscriber has
    /// flushed. Returns `false` if a step takes longer than `patience`.
    ///
    /// This blocks the thread. Use it at the end of the process and in tests.
    pub fn flush(&self, patience: Duration) -> bool {
        self.shared.worker.flush(patience) && self.shared.subscribers.flush(patience)
    }
}

/// Bytes for measurement and for bodies that are read before admission. Admission gets half if a
/// limit depends on bodies, so that measurement does not cause refusals.
fn memory_parts(measure: &Measure, accounting: &Accounting) -> (usize, usize) {
    let all = measure.memory_bytes;
    let admission = if accounting.may_depend_on_bodies() {
        all / 2
    } else {
        0
    };
    (all - admission, admission)
}

impl Observer for Meter {
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall> {
        Arc::new(Call::new(
            CallContext::new(&self.shared, &start),
            &self.registry,
            start.received,
        ))
    }

    fn split_position(&self, by: SplitBy, salt: &str, head: RequestHead<'_>) -> Option<f64> {
        let measure = self.shared.measure.load();
        tokengauge_accounting::split_position(by, salt, head, &measure.attribution)
    }
}
