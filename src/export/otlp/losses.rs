//! What an exporter could not deliver: counted by reason, told at most once a minute.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a failure is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Counts losses: of which exporter, why, and how many.
pub type Count = dyn Fn(&'static str, &'static str, u64) + Send + Sync;

/// Why something did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too much waited already.
    Full,
    /// The receiver could not be reached.
    Connect,
    /// The receiver took too long.
    Timeout,
    /// The receiver asked for less.
    Throttled,
    /// The receiver did not want it: a key, a path, a limit.
    Refused,
    /// The receiver is in trouble.
    Unavailable,
    /// The receiver took the message and left out some of it.
    Rejected,
}

impl Reason {
    /// The word used in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Full => "full",
            Reason::Connect => "connect",
            Reason::Timeout => "timeout",
            Reason::Throttled => "throttled",
            Reason::Refused => "refused",
            Reason::Unavailable => "unavailable",
            Reason::Rejected => "rejected",
        }
    }
}

/// Why an export failed, and what the receiver said: never its body, which may quote ours.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// In a word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}

/// The losses of one exporter.
pub struct Losses {
    exporter: &'static str,
    count: Arc<Count>,
    clock: fn() -> Instant,
    told: Mutex<Option<Instant>>,
    /// Why the export under way failed last: the exporters' own errors do not say.
    last: Mutex<Option<Failure>>,
}

impl Losses {
    /// None so far. `clock` is the monotonic clock; it only spaces out complaints.
    pub fn new(exporter: &'static str, count: Arc<Count>, clock: fn() -> Instant) -> Losses {
        Losses {
            exporter,
            count,
            clock,
            told: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// An attempt failed: it may be made again.
    pub fn failed(&self, failure: Failure) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// `items` did not arrive, after every attempt.
    pub fn gave_up(&self, items: usize) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = last.take().unwrap_or(Failure {
            reason: Reason::Timeout,
            message: "the export took too long".to_owned(),
        });
        drop(last);
        self.lost(failure.reason, items, &failure.message);
    }

    /// `items` were lost for `reason`.
    pub fn lost(&self, reason: Reason, items: usize, message: &str) {
        (self.count)(self.exporter, reason.as_str(), items as u64);
        let now = (self.clock)();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |told: Instant| now.saturating_duration_since(told) >= TELL_EVERY;
        if told.is_none_or(due) {
            *told = Some(now);
            let (exporter, reason) = (self.exporter, reason.as_str());
            tracing::warn!(
                exporter,
                reason,
                items,
                message,
                "export failed; calls go on"
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

/// The bound on what waits for an exporter: the queues of the SDK drop without saying so,
/// so they are never let get full.
#[derive(Debug)]
pub struct Gate {
    waiting: AtomicUsize,
    most: usize,
    losses: Arc<Losses>,
}

impl Gate {
    /// Lets in `most` items at a time.
    pub fn new(most: usize, losses: Arc<Losses>) -> Gate {
        Gate {
            waiting: AtomicUsize::new(0),
            most,
            losses,
        }
    }

    /// Whether `items` may wait too; counts them as lost where not.
    pub fn enter(&self, items: usize) -> bool {
        let room = |waiting| (waiting + items <= self.most).then_some(waiting + items);
        let entered = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        if entered.is_err() {
            self.losses.lost(Reason::Full, items, "too many wait");
        }
        entered.is_ok()
    }

    /// `items` have been exported, or not.
    pub fn leave(&self, items: usize, arrived: bool) {
        self.waiting.fetch_sub(items, Ordering::Relaxed);
        if !arrived {
            self.losses.gave_up(items);
        }
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
            into.lock().expect("no panic").push((reason, items));
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
        assert_eq!(
            *counted.lock().expect("no panic"),
            [("full", 2), ("full", 1)]
        );
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
        let counted = counted.lock().expect("no panic").clone();
        assert_eq!(counted, [("throttled", 5), ("timeout", 3)]);
    }
}
