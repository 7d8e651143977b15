//! Measures how late the client itself is, because a client that is too busy to send and read in time measures its own
//! delay.

use crate::clock::now;
use crate::quota::Throttled;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(20);
/// Timers of the runtime round up to the next millisecond, which does not count as lag.
const RESOLUTION: Duration = Duration::from_millis(1);

/// Delays of the client, each with the instant at which something was due.
#[derive(Debug, Default)]
pub struct Delays {
    /// One entry for every 20 ms, so that a share of ticks is a share of the time.
    ticks: Mutex<Vec<(Instant, Duration)>>,
    starts: Mutex<Vec<(Instant, Duration)>>,
    /// The pauses by a CPU quota before the measurement.
    throttled_before: OnceLock<Throttled>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lag {
    pub p95: f64,
    pub p99: f64,
    /// The pauses by a CPU quota since the start of the measurement.
    pub throttled: Throttled,
}

impl Delays {
    pub fn starts(&self, due: Instant) {
        self.starts.lock().push((due, late(due, now())));
    }

    fn tick(&self, mut due: Instant) -> Instant {
        let now = now();
        let mut ticks = self.ticks.lock();
        while due <= now {
            ticks.push((due, late(due, now)));
            due += EVERY;
        }
        due
    }

    pub fn between(&self, from: Instant, to: Instant) -> Lag {
        let within = |all: &Mutex<Vec<(Instant, Duration)>>| {
            let all = all.lock();
            let within = all.iter().filter(|(due, _)| (from..to).contains(due));
            let mut delays: Vec<_> = within.map(|(_, late)| late.as_secs_f64()).collect();
            delays.sort_unstable_by(f64::total_cmp);
            delays
        };
        let (ticks, starts) = (within(&self.ticks), within(&self.starts));
        let percentile = |percent| at_most(&ticks, percent).max(at_most(&starts, percent));
        Lag {
            p95: percentile(95),
            p99: percentile(99),
            throttled: match self.throttled_before.get() {
                Some(before) => Throttled::so_far().since(*before),
                None => Throttled::default(),
            },
        }
    }
}

fn late(due: Instant, now: Instant) -> Duration {
    let late = now.saturating_duration_since(due);
    late.saturating_sub(RESOLUTION)
}

fn at_most(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).map_or(0.0, |rank| sorted[rank])
}

/// Records the delay of ticks on the runtime of the calls until it is dropped. Pauses by a CPU quota count from
/// `measure_from`.
pub async fn watch(delays: Arc<Delays>, measure_from: Instant) {
    let mut due = now() + EVERY;
    loop {
        tokio::time::sleep_until(due.into()).await;
        if due >= measure_from {
            delays.throttled_before.get_or_init(Throttled::so_far);
        }
        due = delays.tick(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_that_95_and_99_of_100_are_not_above() {
        let now = Instant::now();
        let delays = Delays::default();
        let seen = (1..=100).map(|late| (now, Duration::from_millis(late)));
        delays.starts.lock().extend(seen);
        let later = now + Duration::from_secs(1);
        let lag = delays.between(now, later);
        assert_eq!((lag.p95, lag.p99), (0.095, 0.099));
        assert_eq!(delays.between(later, later + EVERY), Lag::default());
    }

    #[test]
    fn starts_in_time_do_not_hide_late_ticks() {
        let (now, delays) = (Instant::now(), Delays::default());
        let tick = |number: u32| (now + EVERY * number, Duration::from_millis(80));
        delays.ticks.lock().extend((0..10).map(tick));
        let in_time = (0..100_000).map(|_| (now, Duration::ZERO));
        delays.starts.lock().extend(in_time);
        assert_eq!(delays.between(now, now + EVERY * 10).p95, 0.08);
    }

    /// A block of 100 ms in every 600 ms delays five of thirty ticks.
    #[tokio::test]
    async fn a_blocked_runtime_is_late_for_as_long_as_it_is_blocked() {
        let delays = Arc::new(Delays::default());
        let began = Instant::now();
        let watching = tokio::spawn(watch(Arc::clone(&delays), began));
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            std::thread::sleep(Duration::from_millis(100));
        }
        tokio::time::sleep(EVERY).await;
        watching.abort();
        let ticks = delays.ticks.lock();
        let ended = ticks.last().expect("ticks").0;
        let due = (ended - began).as_secs_f64() / EVERY.as_secs_f64();
        assert!((ticks.len() as f64 / due - 1.0).abs() < 0.05, "{due}");
        let late = |(_, late): &&(Instant, Duration)| *late > Duration::from_millis(10);
        let late = ticks.iter().filter(late).count() as f64 / ticks.len() as f64;
        assert!(late > 0.12, "{late}");
        drop(ticks);
        assert!(delays.between(began, ended).p95 > 0.03);
    }
}
