//! How late the client itself is: a machine that is too busy to send and to read in time measures itself.

use crate::clock::now;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a timer is set and its lateness read.
const EVERY: Duration = Duration::from_millis(20);
/// A timer of the runtime is rounded up to its next millisecond, which is no lag.
const RESOLUTION: Duration = Duration::from_millis(1);

/// Delays of the client, each with the instant at which it was seen.
#[derive(Debug, Default)]
pub struct Delays(Mutex<Vec<(Instant, Duration)>>);

impl Delays {
    /// Something that was to happen at `due` happens now.
    pub fn happens(&self, due: Instant) {
        let now = now();
        let late = now.saturating_duration_since(due);
        self.0.lock().push((now, late.saturating_sub(RESOLUTION)));
    }

    /// The delay that 95 of 100 are not above, of those within the span; 0 without any.
    pub fn p95(&self, from: Instant, to: Instant) -> Duration {
        let all = self.0.lock();
        let within = all.iter().filter(|(at, _)| (from..to).contains(at));
        let mut delays: Vec<_> = within.map(|(_, late)| *late).collect();
        delays.sort_unstable();
        let rank = (delays.len() * 95).div_ceil(100);
        rank.checked_sub(1)
            .map_or(Duration::ZERO, |rank| delays[rank])
    }
}

/// Sets timers on the runtime of the calls, and notes how late they fire, until it is dropped.
pub async fn watch(delays: Arc<Delays>) {
    loop {
        let due = now() + EVERY;
        tokio::time::sleep_until(due.into()).await;
        delays.happens(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_that_95_of_100_are_not_above() {
        let now = Instant::now();
        let delays = Delays::default();
        let seen = (1..=100).map(|late| (now, Duration::from_millis(late)));
        delays.0.lock().extend(seen);
        let later = now + Duration::from_secs(1);
        assert_eq!(delays.p95(now, later), Duration::from_millis(95));
        assert_eq!(delays.p95(later, later + EVERY), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_blocked_runtime_is_seen() {
        let delays = Arc::new(Delays::default());
        let began = Instant::now();
        let watching = tokio::spawn(watch(Arc::clone(&delays)));
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_millis(60));
        }
        watching.abort();
        assert!(delays.p95(began, Instant::now()) > Duration::from_millis(20));
    }
}
