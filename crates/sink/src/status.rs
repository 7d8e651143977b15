//! What is known of a sink while it runs: its metrics, and its state for people.

use crate::sink::SendErrorKind;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_core::cells::{Counter, Gauge};

/// Why calls never reach a store.
pub(crate) const LOST: [&str; 4] = ["retention", "queue", "refused", "ended"];
/// Why a batch was not taken, besides [`SendErrorKind`]: the ledger did not give it.
pub(crate) const LEDGER: &str = "ledger";

/// The metrics of a sink.
#[derive(Clone, Debug)]
pub struct SinkMetrics {
    /// Calls that wait.
    pub waiting: Gauge,
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
        (waiting, lag): (Gauge, Gauge),
        (batches, rows): (Counter, Counter),
        failures: impl Fn(&'static str) -> Counter,
        lost: impl Fn(&'static str) -> Counter,
    ) -> SinkMetrics {
        let reasons = SendErrorKind::ALL.map(SendErrorKind::as_str);
        let reasons = reasons.into_iter().chain([LEDGER]);
        SinkMetrics {
            waiting,
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
    /// Whether calls wait in the ledger, and outlive the process; else in memory.
    pub durable: bool,
    /// Calls that wait to be stored.
    pub waiting: u64,
    /// Seconds since the oldest of them ended.
    pub lag_seconds: f64,
    /// Calls that were stored since the process began.
    pub rows: u64,
    /// Batches, likewise.
    pub batches: u64,
    /// Calls that never reach the store, likewise: deleted by retention before they were sent, more than the queue
    /// holds, refused by the store.
    pub lost: u64,
    /// Batches in a row that were not taken.
    pub failing: u64,
    /// What the last failure was, where the last batch failed.
    pub error: Option<String>,
    /// When the last batch was stored.
    #[schemars(extend("format" = "date-time"))]
    pub stored_at: Option<String>,
}

/// A state that the sink's thread changes and others read.
pub(crate) type SharedStatus = Arc<Mutex<SinkStatus>>;
