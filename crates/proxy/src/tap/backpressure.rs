//! Measures backpressure: how long a stream is not read because the agent accepts no data.

use std::time::{Duration, Instant};

/// Shorter waits are scheduling delays. The server requests the next chunk as soon as the agent has accepted the last
/// one.
const SCHEDULING_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Backpressure {
    since: Option<Instant>,
    waited: Duration,
}

impl Backpressure {
    /// The agent accepts no data: begins a wait, unless one is in progress.
    pub fn begin(&mut self, now: impl Fn() -> Instant) {
        self.since.get_or_insert_with(now);
    }

    /// The agent has accepted all data: ends the wait.
    pub fn end(&mut self, now: impl Fn() -> Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now().saturating_duration_since(since);
        }
    }

    pub fn chunk_given(&mut self, at: Instant) {
        self.since = Some(at);
    }

    /// Call this when the server requests the next chunk. Returns whether the proxy waited for the agent since the last
    /// one.
    pub fn chunk_requested(&mut self, now: impl Fn() -> Instant) -> bool {
        let Some(since) = self.since.take() else {
            return false;
        };
        let waited = now().saturating_duration_since(since);
        let is_backpressure = waited >= SCHEDULING_DELAY;
        if is_backpressure {
            self.waited += waited;
        }
        is_backpressure
    }

    pub fn take(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// The waiting time since the last chunk, if no chunk follows.
    pub fn take_at_end(&mut self, at: Instant) -> Duration {
        self.chunk_requested(|| at);
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn waits_add_up_until_they_are_taken() {
        let start = now();
        let at = |millis| move || start + Duration::from_millis(millis);
        let mut backpressure = Backpressure::default();
        backpressure.begin(at(0));
        backpressure.begin(at(50));
        backpressure.end(at(100));
        backpressure.end(at(500));
        backpressure.begin(at(600));
        backpressure.end(at(605));
        assert_eq!(backpressure.take(), Duration::from_millis(105));
        assert_eq!(backpressure.take(), Duration::ZERO);
    }

    #[test]
    fn a_chunk_requested_at_once_is_no_backpressure() {
        let start = now();
        let at = |millis| move || start + Duration::from_millis(millis);
        let mut backpressure = Backpressure::default();
        backpressure.chunk_given(at(0)());
        backpressure.chunk_requested(at(9));
        backpressure.chunk_given(at(20)());
        backpressure.chunk_requested(at(60));
        backpressure.chunk_requested(at(900));
        assert_eq!(backpressure.take(), Duration::from_millis(40));
    }
}
