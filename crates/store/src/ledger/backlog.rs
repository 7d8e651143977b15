//! How many finished calls wait to be written, and for how long.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum time from the end of a call until it is in the file, if the writer keeps up with
/// traffic. A process that is killed loses the calls of this time.
pub const COMMIT_WITHIN: Duration = Duration::from_millis(500);
/// The writer hurries when the oldest call has waited this long.
const HURRY_AFTER: Duration = Duration::from_millis(COMMIT_WITHIN.as_millis() as u64 * 3 / 5);
const NONE: u64 = u64::MAX;

/// Counts the finished calls in the queue, because a channel of the standard library does not
/// report its length.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: AtomicUsize,
    room: usize,
    clock: fn() -> Instant,
    begun: Instant,
    /// Nanoseconds from `begun` until the end of the oldest call that is not in the file.
    oldest: AtomicU64,
}

impl Backlog {
    pub fn new(room: usize, clock: fn() -> Instant) -> Backlog {
        Backlog {
            waiting: AtomicUsize::new(0),
            room,
            clock,
            begun: clock(),
            oldest: AtomicU64::new(NONE),
        }
    }

    /// Counts a call. Must be called before the call is queued, because the writer may take it at
    /// once.
    pub fn add(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that was taken from the queue or did not fit into it.
    pub fn remove(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that the writer is busy. `oldest` is the end of the oldest call that it has or that
    /// may have arrived meanwhile.
    pub fn work(&self, oldest: Instant) {
        let since = oldest.saturating_duration_since(self.begun);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(NONE);
        self.oldest.store(nanos, Ordering::Relaxed);
    }

    pub fn rest(&self) {
        self.oldest.store(NONE, Ordering::Relaxed);
    }

    /// Whether the writer must hurry: the queue is more than half full, or a call has waited too
    /// long.
    pub fn is_high(&self) -> bool {
        if self.waiting.load(Ordering::Relaxed) > self.room / 2 {
            return true;
        }
        let oldest = self.oldest.load(Ordering::Relaxed);
        let is_late = || {
            let oldest = self.begun + Duration::from_nanos(oldest);
            (self.clock)().saturating_duration_since(oldest) >= HURRY_AFTER
        };
        oldest != NONE && is_late()
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_high_while_more_than_half_of_the_room_is_taken() {
        let backlog = Backlog::new(4, Instant::now);
        backlog.add();
        backlog.add();
        assert!(!backlog.is_high());
        backlog.add();
        assert!(backlog.is_high());
        backlog.remove();
        assert!(!backlog.is_high());
    }

    #[test]
    fn it_is_high_once_a_call_has_waited_for_long_however_few_wait() {
        let ended = Instant::now();
        let backlog = Backlog {
            begun: ended - COMMIT_WITHIN,
            ..Backlog::new(4, Instant::now)
        };
        backlog.work(ended);
        assert!(!backlog.is_high());
        backlog.work(ended - HURRY_AFTER);
        assert!(backlog.is_high());
        backlog.rest();
        assert!(!backlog.is_high());
    }
}
