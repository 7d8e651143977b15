//! What is known of a sink while it runs: its metrics, and its state for people.

use crate::sink::SendErrorKind;
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_core::cells::{Counter, Gauge};
use tokengauge_core::time::Timestamp;

/// Why calls never reach a store.
pub(crate) const LOST: [&str; 5] = ["retention", "queue", "refused", "ended", LEDGER];
/// A reason of failures, in addition to [`SendErrorKind`]: the ledger did not give the batch. A reason of losses: the calls were
/// in a file of the ledger that was removed or damaged.
pub(crate) const LEDGER: &str = "ledger";

#[derive(Clone, Debug)]
pub struct SinkMetrics {
    pub waiting: Gauge,
    /// Those of them that are in memory only.
    pub in_memory: Gauge,
    /// Seconds since the oldest of them ended.
    pub lag: Gauge,
    /// Batches that are stored.
    pub batches: Counter,
    /// Calls that are stored.
    pub rows: Counter,
    failures: HashMap<&'static str, Counter>,
    lost: HashMap<&'static str, Counter>,
}

impl SinkMetrics {
    /// With a cell for each reason.
    pub fn new(
        (waiting, in_memory, lag): (Gauge, Gauge, Gauge),
        (batches, rows): (Counter, Counter),
        failures: impl Fn(&'static str) -> Counter,
        lost: impl Fn(&'static str) -> Counter,
    ) -> SinkMetrics {
        let reasons = SendErrorKind::ALL.map(SendErrorKind::as_str);
        let reasons = reasons.into_iter().chain([LEDGER]);
        SinkMetrics {
            waiting,
            in_memory,
            lag,
            batches,
            rows,
            failures: reasons.map(|reason| (reason, failures(reason))).collect(),
            lost: LOST.map(|reason| (reason, lost(reason))).into(),
        }
    }

    pub(crate) fn fail(&self, reason: &'static str) {
        if let Some(counter) = self.failures.get(reason) {
            counter.increment(1);
        }
    }

    pub(crate) fn lose(&self, reason: &'static str, rows: u64) {
        if let Some(counter) = self.lost.get(reason) {
            counter.increment(rows);
        }
    }
}

/// How a sink stands.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "Sink")]
pub struct SinkStatus {
    /// Its name.
    pub name: String,
    /// `clickhouse` or `s3`.
    pub kind: String,
    /// Where it writes to.
    pub address: String,
    /// Whether new calls wait in the ledger, and outlive the process; otherwise in memory.
    pub durable: bool,
    /// Why the ledger cannot be written; new calls wait in memory. `null` while it can, and without a ledger.
    pub ledger_error: Option<String>,
    /// Calls that wait to be stored.
    pub waiting: u64,
    /// How many of these calls are in memory only.
    pub in_memory: u64,
    /// Seconds since the oldest of them ended.
    pub lag_seconds: f64,
    /// Calls that were stored since the process began.
    pub rows: u64,
    /// Batches, likewise.
    pub batches: u64,
    /// Calls since the process began that never reach the store: deleted by retention before they were sent, in a file of the
    /// ledger that was removed or damaged, more than the queue holds, refused by the store.
    pub lost: u64,
    /// Batches in a row that were not taken.
    pub failing: u64,
    /// What the last failure was, where the last batch failed.
    pub error: Option<String>,
    /// When the last batch was stored.
    pub stored_at: Option<Timestamp>,
}

impl SinkStatus {
    /// Adds how the sink stands with calls from another source.
    pub(crate) fn add(&mut self, other: &SinkStatus) {
        self.waiting += other.waiting;
        self.in_memory += other.in_memory;
        self.lag_seconds = self.lag_seconds.max(other.lag_seconds);
        self.rows += other.rows;
        self.batches += other.batches;
        self.lost += other.lost;
        self.failing = self.failing.max(other.failing);
        self.error = self.error.take().or_else(|| other.error.clone());
        self.stored_at = self.stored_at.max(other.stored_at);
    }
}

/// How a sink stands with the calls of each source: its threads change their own, and others read them.
#[derive(Clone, Debug)]
pub(crate) struct SharedStatus(Arc<[Mutex<SinkStatus>]>);

impl SharedStatus {
    pub(crate) fn new(of_sources: Vec<SinkStatus>) -> SharedStatus {
        SharedStatus(of_sources.into_iter().map(Mutex::new).collect())
    }

    pub(crate) fn of(&self, source: usize) -> MutexGuard<'_, SinkStatus> {
        self.0[source].lock()
    }

    pub(crate) fn all(&self) -> SinkStatus {
        let mut all = self.of(0).clone();
        for other in &self.0[1..] {
            all.add(&other.lock());
        }
        all
    }
}
