//! Tokens of all streams over wall time, as they come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds that a throughput is taken over.
const WINDOW: u64 = 10;
/// Seconds that the peak and the mean are taken over.
const PAST: u64 = 300;
/// Slots of a second; more than are looked at, so that a slot is not read while it is
/// being taken over for a new second.
const SLOTS: usize = 312;

/// Tokens by second, for the last few minutes. Each slot holds a second (upper half) and
/// the tokens that came in it (lower half).
#[derive(Debug)]
pub(crate) struct Throughput {
    slots: Box<[AtomicU64]>,
}

/// Tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Over the last 10 whole seconds.
    pub(crate) now: f64,
    /// The largest over 10 whole seconds on end within the last 5 minutes.
    pub(crate) peak: f64,
    /// Over the last 5 minutes, or as many whole seconds as there were.
    pub(crate) sustained: f64,
}

impl Default for Throughput {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0));
        Throughput {
            slots: slots.collect(),
        }
    }
}

impl Throughput {
    /// So many came, `since` the start of the process.
    pub(crate) fn add(&self, since: Duration, tokens: u64) {
        let second = second(since);
        let slot = &self.slots[place(second)];
        let tokens = tokens.min(u64::from(u32::MAX));
        let add = |held: u64| {
            let fresh = held >> 32 != second;
            let before = if fresh { 0 } else { held & u64::from(u32::MAX) };
            Some((second << 32) | (before + tokens).min(u64::from(u32::MAX)))
        };
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// As it is `since` the start of the process.
    pub(crate) fn rates(&self, since: Duration) -> Rates {
        let now = second(since);
        let first = now.saturating_sub(PAST).max(1);
        let (mut all, mut window, mut peak) = (0, 0, 0);
        for second in first..now {
            all += self.tokens(second);
            window += self.tokens(second);
            if second >= first + WINDOW {
                window -= self.tokens(second - WINDOW).min(window);
            }
            peak = peak.max(window);
        }
        let seconds = now.saturating_sub(first).max(1);
        Rates {
            now: window as f64 / WINDOW as f64,
            peak: peak as f64 / WINDOW as f64,
            sustained: all as f64 / seconds as f64,
        }
    }

    /// Tokens that came in a second.
    fn tokens(&self, second: u64) -> u64 {
        let held = self.slots[place(second)].load(Ordering::Relaxed);
        if held >> 32 == second {
            held & u64::from(u32::MAX)
        } else {
            0
        }
    }
}

/// Counted from 1, so that an empty slot belongs to none.
fn second(since: Duration) -> u64 {
    u64::from(since.as_secs() as u32) + 1
}

fn place(second: u64) -> usize {
    (second % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn throughput_is_that_of_the_last_ten_whole_seconds() {
        let throughput = Throughput::default();
        for second in 0..30 {
            throughput.add(at(f64::from(second) + 0.2), 30);
            throughput.add(at(f64::from(second) + 0.7), 20);
        }
        assert_eq!(throughput.rates(at(30.1)).now, 50.0);
        assert_eq!(throughput.rates(at(35.0)).now, 25.0);
        assert_eq!(throughput.rates(at(40.0)).now, 0.0);
    }

    #[test]
    fn the_peak_is_the_best_ten_seconds_and_is_forgotten_after_five_minutes() {
        let throughput = Throughput::default();
        for second in 100..110 {
            throughput.add(at(f64::from(second)), if second < 105 { 40 } else { 20 });
        }
        let rates = throughput.rates(at(200.0));
        assert_eq!((rates.now, rates.peak), (0.0, 30.0));
        assert_eq!(rates.sustained, 1.5, "300 tokens in 200 s");
        assert_eq!(throughput.rates(at(300.0)).sustained, 1.0);
        // The first second of the best ten is out of sight: 260 of 300 tokens are left.
        let later = throughput.rates(at(401.0));
        assert_eq!((later.peak, later.sustained), (26.0, 260.0 / 300.0));
        assert_eq!(throughput.rates(at(411.0)), Rates::default());
    }

    #[test]
    fn a_second_does_not_inherit_from_the_one_that_had_its_slot() {
        let throughput = Throughput::default();
        throughput.add(at(5.0), 1000);
        throughput.add(at(5.0 + SLOTS as f64), 10);
        let rates = throughput.rates(at(6.0 + SLOTS as f64));
        assert_eq!((rates.now, rates.peak), (1.0, 1.0));
    }
}
