//! State that all calls share.

use super::background::BackgroundResponses;
use super::model_names::ModelNames;
use super::nesting::OpenSpans;
use super::prompts::Prompts;
use super::route_stats::AllRouteStats;
use super::subscriber::Subscribers;
use super::worker::Worker;
use crate::settings::Measure;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_accounting::Accounting;
use tokengauge_accounting::attribution::Conversations;
use tokengauge_core::call::Dialect;
use tokengauge_core::memory::{AdmissionMemory, Memory};
use tokengauge_core::throughput::Throughput;
use tokengauge_core::trace::Tracer;
use tokengauge_wire::Limits;

/// The limit for one decompressed response body, in bytes. It is far above any stream of text, and
/// low enough not to block a thread for long.
const DECODED_BYTES: u64 = 128 << 20;

const MAX_LOGGED_USAGE: usize = 256;

/// Whether `name` can be the name of a JSON member, and is not other text that a server put in its place.
fn is_word(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.len() <= 100 && name.bytes().all(plain)
}

pub(crate) struct Shared {
    /// Loaded once per call, which then keeps these settings.
    pub(crate) measure: ArcSwap<Measure>,
    /// Prices, budgets and quotas, also loaded once per call.
    pub(crate) accounting: ArcSwap<Accounting>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) admission_memory: AdmissionMemory,
    pub(crate) worker: Worker,
    pub(crate) subscribers: Subscribers,
    pub(crate) route_stats: AllRouteStats,
    pub(crate) throughput: Arc<Throughput>,
    pub(crate) background: BackgroundResponses,
    pub(crate) spans: Arc<OpenSpans>,
    pub(crate) conversations: Conversations,
    pub(crate) model_names: ModelNames,
    pub(crate) prompts: Prompts,
    pub(crate) counters: Counters,
    /// Creates the spans of calls; `None` if tracing is off.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl Shared {
    /// The bytes that calls hold.
    pub(crate) fn calls_hold(&self) -> usize {
        self.memory.used().saturating_sub(self.prompts.held())
    }
}

pub(crate) fn limits(measure: &Measure) -> Limits {
    Limits {
        body_bytes: measure.body_bytes,
        decoded_bytes: DECODED_BYTES,
        ..Limits::default()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    lagged_chunks: AtomicU64,
    skipped_bodies: AtomicU64,
    unknown_usage: AtomicU64,
    unsearched_texts: AtomicU64,
    logged_usage: Mutex<BTreeSet<(Dialect, Box<str>)>>,
    panics: AtomicU64,
}

impl Counters {
    pub(crate) fn lagged(&self, chunks: u64) {
        self.lagged_chunks.fetch_add(chunks, Ordering::Relaxed);
    }

    pub(crate) fn body_skipped(&self) {
        self.skipped_bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a usage that has numbers under these unknown names, and logs each name once.
    pub(crate) fn unknown_usage(&self, dialect: Dialect, names: &[Box<str>]) {
        if names.is_empty() {
            return;
        }
        self.unknown_usage.fetch_add(1, Ordering::Relaxed);
        let mut logged = self.logged_usage.lock();
        for name in names {
            let is_new = logged.len() < MAX_LOGGED_USAGE && logged.insert((dialect, name.clone()));
            if is_new && is_word(name) {
                tracing::warn!(?dialect, %name, "the usage in a response has a number with an unknown name, \
                    which is not counted; please report the name");
            }
        }
    }

    pub(crate) fn unknown_usages(&self) -> u64 {
        self.unknown_usage.load(Ordering::Relaxed)
    }

    /// Counts texts that were not searched for repetitions to their end.
    pub(crate) fn unsearched(&self, texts: u64) {
        self.unsearched_texts.fetch_add(texts, Ordering::Relaxed);
    }

    pub(crate) fn unsearched_texts(&self) -> u64 {
        self.unsearched_texts.load(Ordering::Relaxed)
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lagged_chunks(&self) -> u64 {
        self.lagged_chunks.load(Ordering::Relaxed)
    }

    pub(crate) fn skipped_bodies(&self) -> u64 {
        self.skipped_bodies.load(Ordering::Relaxed)
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}
