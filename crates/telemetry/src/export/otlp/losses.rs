//! Items that an exporter could not deliver, counted by reason and logged at most once a minute.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokengauge_core::log_interval::LogInterval;

/// Counts losses: exporter, reason, number of items.
pub type Count = dyn Fn(&'static str, &'static str, u64) + Send + Sync;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    Full,
    Connect,
    Timeout,
    Throttled,
    /// The receiver refused the message: a wrong key or path, or a limit.
    Refused,
    Unavailable,
    /// The receiver accepted only a part of the message.
    Rejected,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why an export failed. Response bodies are not included, because they may quote our messages.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub reason: Reason,
    /// A sentence for the log.
    pub message: String,
}

pub struct Losses {
    exporter: &'static str,
    count: Arc<Count>,
    clock: fn() -> Instant,
    failure_log: LogInterval,
    /// Total number of lost items.
    items: AtomicU64,
    /// The latest failure of the current export, which the SDK's errors do not contain.
    last: Mutex<Option<Failure>>,
}

impl Losses {
    /// Losses of an exporter, none yet. `clock` is the monotonic clock, which limits the log rate.
    pub fn new(exporter: &'static str, count: Arc<Count>, clock: fn() -> Instant) -> Losses {
        Losses {
            exporter,
            count,
            clock,
            failure_log: LogInterval::default(),
            items: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    pub fn failed(&self, failure: Failure) {
        self.tell(&failure);
        *self.last.lock() = Some(failure);
    }

    pub fn arrived(&self) {
        self.last.lock().take();
    }

    /// Counts `items` as lost after all attempts, with the latest reason.
    pub fn gave_up(&self, items: usize) {
        let mut last = self.last.lock();
        let failure = last.take().unwrap_or(Failure {
            reason: Reason::Timeout,
            message: "the export took too long".to_owned(),
        });
        drop(last);
        self.lost(failure, items);
    }

    pub fn lost(&self, failure: Failure, items: usize) {
        (self.count)(self.exporter, failure.reason.as_str(), items as u64);
        self.items.fetch_add(items as u64, Ordering::Relaxed);
        self.tell(&failure);
    }

    fn tell(&self, failure: &Failure) {
        if self.failure_log.should_log((self.clock)()) {
            tracing::warn!(
                exporter = self.exporter,
                reason = failure.reason.as_str(),
                lost = self.items.load(Ordering::Relaxed),
                message = failure.message,
                "export failed; traffic continues"
            );
        }
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses")
            .field("exporter", &self.exporter)
            .finish_non_exhaustive()
    }
}

/// A bound on the number of items in an exporter's queue. The SDK's queues drop items without
/// counting them, so they must never be full.
#[derive(Debug)]
pub struct Gate {
    inside: Mutex<Inside>,
    most: usize,
    losses: Arc<Losses>,
}

#[derive(Debug, Default)]
struct Inside {
    items: usize,
    closed: bool,
}

impl Gate {
    pub fn new(most: usize, losses: Arc<Losses>) -> Gate {
        Gate {
            inside: Mutex::default(),
            most,
            losses,
        }
    }

    fn inside(&self) -> parking_lot::MutexGuard<'_, Inside> {
        self.inside.lock()
    }

    /// Returns whether `items` may be queued; otherwise counts them as lost.
    pub fn enter(&self, items: usize) -> bool {
        let mut inside = self.inside();
        let enters = !inside.closed && inside.items.saturating_add(items) <= self.most;
        if enters {
            inside.items += items;
            return true;
        }
        let message = if inside.closed {
            "the exporter has stopped"
        } else {
            "too many wait"
        };
        drop(inside);
        let failure = Failure {
            reason: Reason::Full,
            message: message.to_owned(),
        };
        self.losses.lost(failure, items);
        false
    }

    pub fn leave(&self, items: usize, arrived: bool) {
        let mut inside = self.inside();
        // Items in the queue were counted as lost when the gate closed.
        if inside.closed {
            return;
        }
        inside.items = inside.items.saturating_sub(items);
        drop(inside);
        if !arrived {
            self.losses.gave_up(items);
        }
    }

    /// Closes the gate, and counts the items in the queue as lost. Returns whether the queue was
    /// empty.
    pub fn close(&self) -> bool {
        let mut inside = self.inside();
        inside.closed = true;
        let items = std::mem::take(&mut inside.items);
        drop(inside);
        if items > 0 {
            self.losses.gave_up(items);
        }
        items == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Counted = Arc<Mutex<Vec<(&'static str, u64)>>>;

    fn losses() -> (Arc<Losses>, Counted) {
        let counted = Counted::default();
        let into = Arc::clone(&counted);
        let count = move |exporter, reason, items| {
            assert_eq!(exporter, "otlp_traces");
            into.lock().push((reason, items));
        };
        let losses = Losses::new("otlp_traces", Arc::new(count), Instant::now);
        (Arc::new(losses), counted)
    }

    #[test]
    fn what_is_over_the_bound_is_lost_and_counted_and_what_left_makes_room() {
        let (losses, counted) = losses();
        let gate = Gate::new(4, losses);
        assert!(gate.enter(2) && gate.enter(2));
        assert!(!gate.enter(2));
        gate.leave(2, true);
        assert!(gate.enter(1) && gate.enter(1) && !gate.enter(1));
        assert_eq!(*counted.lock(), [("full", 2), ("full", 1)]);
    }

    #[test]
    fn an_export_that_was_given_up_is_counted_with_its_last_reason() {
        let (losses, counted) = losses();
        let gate = Gate::new(10, Arc::clone(&losses));
        assert!(gate.enter(5));
        losses.failed(Failure {
            reason: Reason::Throttled,
            message: "429".to_owned(),
        });
        gate.leave(5, false);
        gate.enter(3);
        gate.leave(3, false);
        let counted = counted.lock().clone();
        assert_eq!(counted, [("throttled", 5), ("timeout", 3)]);
    }

    #[test]
    fn what_is_inside_when_the_gate_closes_is_lost_once() {
        let (losses, counted) = losses();
        let gate = Gate::new(10, losses);
        assert!(gate.enter(4) && gate.enter(2));
        gate.leave(2, true);
        assert!(!gate.close());
        gate.leave(4, false);
        assert!(!gate.enter(1));
        assert!(gate.close(), "nothing is left");
        let counted = counted.lock().clone();
        assert_eq!(counted, [("timeout", 4), ("full", 1)]);
    }
}
