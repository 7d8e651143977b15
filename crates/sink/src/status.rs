//! The metrics and the status of a running sink.

use crate::sink::SendErrorKind;
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_core::cells::{Counter, Gauge};
use tokengauge_core::time::Timestamp;

/// Reasons why calls never reach a warehouse.
pub(crate) const LOST: [&str; 5] = ["retention", "queue", "refused", "ended", LEDGER];
/// As a reason of failures, in addition to [`SendErrorKind`]: the batch could not be read from the
/// ledger. As a reason of losses: the calls were in a ledger file that was removed or damaged.
pub(crate) const LEDGER: &str = "ledger";

#[derive(Clone, Debug)]
pub struct SinkMetrics {
    pub waiting: Gauge,
    pub in_memory: Gauge,
    /// Seconds since the oldest waiting call ended.
    pub lag: Gauge,
    pub batches: Counter,
    pub rows: Counter,
    failures: HashMap<&'static str, Counter>,
    lost: HashMap<&'static str, Counter>,
}

impl SinkMetrics {
    /// Takes one cell for each reason.
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

/// The status of a sink.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "Sink")]
pub struct SinkStatus {
    /// The sink's name.
    pub name: String,
    /// `clickhouse` or `s3`.
    pub kind: String,
    /// Address that the sink writes to.
    pub address: String,
    /// Whether new calls wait in the ledger and survive a restart. Otherwise they wait in memory.
    pub durable: bool,
    /// Why the ledger cannot be written, so that new calls wait in memory. `null` if the ledger
    /// works or there is none.
    pub ledger_error: Option<String>,
    /// Number of calls that wait to be stored.
    pub waiting: u64,
    /// Number of waiting calls that are only in memory.
    pub in_memory: u64,
    /// Seconds since the oldest waiting call ended.
    pub lag_seconds: f64,
    /// Calls stored since the process began.
    pub rows: u64,
    /// Batches stored since the process began.
    pub batches: u64,
    /// Calls since the process began that never reach the sink. Retention deleted them before they
    /// were sent, their ledger file was removed or damaged, the memory queue was full, or the sink
    /// refused them.
    pub lost: u64,
    /// Number of consecutive batches that failed.
    pub failing: u64,
    /// The last error, if the last batch failed.
    pub error: Option<String>,
    /// When the last batch was stored.
    pub stored_at: Option<Timestamp>,
}

impl SinkStatus {
    /// Adds the status for calls of another source.
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

/// The status of a sink for each source of calls. Each delivery thread updates one entry.
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
