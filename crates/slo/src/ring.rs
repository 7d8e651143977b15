//! Good and bad events by minute and by hour, as far back as the longest window.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
/// Windows up to this length are exact to the minute, longer windows to the hour.
const BY_MINUTE: u64 = 72 * HOUR;

/// Events in a time span. They have fractions if a window covers a part of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    pub good: f64,
    pub bad: f64,
}

impl Sum {
    pub fn all(&self) -> f64 {
        self.good + self.bad
    }
}

/// The events in two resolutions. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    minutes: Level,
    hours: Level,
}

/// The saved form of a ring: number since 1970, good events and bad events of each bucket that is
/// not empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedRing {
    minutes: Vec<(u64, u64, u64)>,
    hours: Vec<(u64, u64, u64)>,
}

impl SavedRing {
    /// Adds the buckets of `newer` that begin at `since`, in seconds since 1970, or later.
    pub fn extend(&mut self, newer: SavedRing, since: u64) {
        let add = |all: &mut Vec<_>, newer: Vec<(u64, u64, u64)>, step| {
            all.extend(
                newer
                    .into_iter()
                    .filter(|(number, ..)| number * step >= since),
            );
        };
        add(&mut self.minutes, newer.minutes, MINUTE);
        add(&mut self.hours, newer.hours, HOUR);
    }
}

impl Ring {
    pub fn new(window: Duration, now: u64) -> Ring {
        Ring {
            minutes: Level::new(MINUTE, BY_MINUTE, now),
            hours: Level::new(HOUR, window.as_secs(), now),
        }
    }

    /// Adds events at `now`. Late events are counted in the newest bucket.
    pub fn add(&mut self, now: u64, good: u64, bad: u64) {
        self.minutes.add(now, good, bad);
        self.hours.add(now, good, bad);
    }

    /// The events of the last `window` until `now`.
    pub fn sum(&self, now: f64, window: Duration) -> Sum {
        self.level(window).sum(now, window.as_secs_f64())
    }

    /// The length of buckets in seconds, and the buckets of the last `window` until `now` with
    /// their start in seconds since 1970, oldest first.
    pub fn buckets(&self, now: f64, window: Duration) -> (u64, Vec<(u64, Sum)>) {
        let level = self.level(window);
        let mut buckets: Vec<_> = level.within(now, window.as_secs_f64()).collect();
        buckets.reverse();
        (level.step, buckets)
    }

    fn level(&self, window: Duration) -> &Level {
        if window.as_secs() <= BY_MINUTE {
            &self.minutes
        } else {
            &self.hours
        }
    }

    /// Moves all buckets by the seconds by which the clock was set, so that they keep their age.
    pub fn redate(&mut self, seconds: i64) {
        self.minutes.redate(seconds);
        self.hours.redate(seconds);
    }

    pub fn kept(&self) -> SavedRing {
        SavedRing {
            minutes: self.minutes.kept(),
            hours: self.hours.kept(),
        }
    }

    /// Adds the saved events that are not too old at `now`.
    pub fn restore(&mut self, now: u64, kept: &SavedRing) {
        self.minutes.restore(now, &kept.minutes);
        self.hours.restore(now, &kept.hours);
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Level {
    step: u64,
    newest: u64,
    /// Good and bad events, oldest bucket first.
    buckets: VecDeque<[u64; 2]>,
    length: usize,
}

impl Level {
    fn new(step: u64, window: u64, now: u64) -> Level {
        // One more, because the newest bucket is incomplete and a window covers a part of the
        // oldest.
        let length = window.div_ceil(step) as usize + 1;
        Level {
            step,
            newest: now / step,
            buckets: VecDeque::from([[0; 2]]),
            length,
        }
    }

    fn add(&mut self, now: u64, good: u64, bad: u64) {
        self.advance(now / self.step);
        if let Some(newest) = self.buckets.back_mut() {
            newest[0] = newest[0].saturating_add(good);
            newest[1] = newest[1].saturating_add(bad);
        }
    }

    fn advance(&mut self, to: u64) {
        let fresh = to.saturating_sub(self.newest);
        if fresh == 0 {
            return;
        }
        let fresh_kept = (fresh as usize).min(self.length);
        self.buckets.extend(std::iter::repeat_n([0; 2], fresh_kept));
        let surplus = self.buckets.len().saturating_sub(self.length);
        self.buckets.drain(..surplus);
        self.newest = to;
    }

    fn sum(&self, now: f64, window: f64) -> Sum {
        let add = |sum: Sum, (_, more): (u64, Sum)| Sum {
            good: sum.good + more.good,
            bad: sum.bad + more.bad,
        };
        self.within(now, window).fold(Sum::default(), add)
    }

    /// The buckets that the last `window` seconds until `now` cover, newest first, with their start
    /// in seconds since 1970. The oldest bucket is reduced to its covered part.
    fn within(&self, now: f64, window: f64) -> impl Iterator<Item = (u64, Sum)> {
        let from = (now - window) / self.step as f64;
        let buckets = self.buckets.iter().rev().enumerate();
        buckets
            .map(move |(age, [good, bad])| {
                let number = self.newest.saturating_sub(age as u64);
                let share = (self.newest as f64 - age as f64 + 1.0 - from).clamp(0.0, 1.0);
                let sum = Sum {
                    good: *good as f64 * share,
                    bad: *bad as f64 * share,
                };
                (number * self.step, share, sum)
            })
            .take_while(|(_, share, _)| *share > 0.0)
            .map(|(begins, _, sum)| (begins, sum))
    }

    fn redate(&mut self, seconds: i64) {
        let steps = (seconds as f64 / self.step as f64).round() as i64;
        self.newest = self.newest.saturating_add_signed(steps);
    }

    fn kept(&self) -> Vec<(u64, u64, u64)> {
        let oldest = (self.newest + 1).saturating_sub(self.buckets.len() as u64);
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, bucket)| **bucket != [0, 0])
            .map(|(at, [good, bad])| (oldest + at as u64, *good, *bad))
            .collect()
    }

    fn restore(&mut self, now: u64, kept: &[(u64, u64, u64)]) {
        let newest = now / self.step;
        let mut kept = kept.to_vec();
        kept.sort_unstable();
        for (bucket, good, bad) in kept {
            if bucket + self.length as u64 > newest && bucket <= newest {
                self.newest = self.newest.min(bucket);
                self.add(bucket * self.step, good, bad);
            }
        }
        self.advance(newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget;

    const DAY: Duration = Duration::from_secs(86_400);

    fn window(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    proptest::proptest! {
        /// Prometheus stores a counter at each scrape, the rules store its increase every five
        /// minutes, and the budget uses the sum of these increases over the window.
        #[test]
        fn the_budget_is_that_of_the_rules_on_the_same_events(
            events in proptest::collection::vec((0u64..2 * 1440, 0u64..30, 0u64..4), 0..400),
            objective in proptest::sample::select(vec![0.5, 0.9, 0.99, 1.0]),
            hours in 1u64..=24,
        ) {
            let start = 1_700_000_000 / 86_400 * 86_400;
            let (end, from) = (2 * 1440, 2 * 1440 - hours * 60);
            let mut events = events;
            events.sort_unstable();
            let mut ring = Ring::new(3 * DAY, start);
            for (minute, good, bad) in &events {
                ring.add(start + minute * 60 + 30, *good, *bad);
            }
            let own = ring.sum((start + end * 60) as f64, window(hours * 60));
            let counters = |minute: u64| {
                let until = events.iter().take_while(|event| event.0 < minute);
                until.fold([0, 0], |sum, (_, good, bad)| [sum[0] + good, sum[1] + bad])
            };
            let increases = (from / 5..end / 5).map(|five| {
                let (before, after) = (counters(five * 5), counters(five * 5 + 5));
                [after[0] - before[0], after[1] - before[1]]
            });
            let ruled = increases.fold(Sum::default(), |sum, [good, bad]| Sum {
                good: sum.good + good as f64,
                bad: sum.bad + bad as f64,
            });
            proptest::prop_assert_eq!(own, ruled);
            let left = budget::remaining(own, objective);
            let by_rule = match (ruled.all() > 0.0, objective < 1.0) {
                (_, false) => f64::from(u8::from(ruled.bad == 0.0)),
                (false, true) => 1.0,
                (true, true) => 1.0 - ruled.bad / ruled.all() / (1.0 - objective),
            };
            proptest::prop_assert!((left - by_rule).abs() < 1e-9, "{left} {by_rule}");
        }
    }

    #[test]
    fn a_window_has_what_happened_in_it_and_its_oldest_bucket_in_part() {
        let start = 1_700_000_000 / 3600 * 3600;
        let mut ring = Ring::new(30 * DAY, start);
        for minute in 0..120 {
            ring.add(start + minute * 60, 9, 1);
        }
        let end = (start + 120 * 60) as f64;
        assert_eq!(
            ring.sum(end, window(5)),
            Sum {
                good: 45.0,
                bad: 5.0
            }
        );
        assert_eq!(ring.sum(end, window(60)).bad, 60.0);
        assert_eq!(ring.sum(end, 30 * DAY).all(), 1200.0);
        assert_eq!(ring.sum(end + 30.0, window(5)).bad, 4.5);
        assert_eq!(ring.sum(end + 600.0, window(5)).all(), 0.0);
        assert_eq!(ring.sum(end + 600.0, window(30)).bad, 20.0);
    }

    #[test]
    fn what_is_older_than_the_window_is_gone_and_the_memory_bounded() {
        let mut ring = Ring::new(7 * DAY, 0);
        for hour in 0..24 * 30 {
            ring.add(hour * 3600, 1, 0);
        }
        let end = 24.0 * 30.0 * 3600.0;
        assert_eq!(ring.sum(end, 7 * DAY).good, 24.0 * 7.0);
        assert_eq!(ring.hours.buckets.len(), 24 * 7 + 1);
        assert_eq!(ring.minutes.buckets.len(), 72 * 60 + 1);
        ring.add(u64::MAX / 2, 1, 0);
        assert_eq!(ring.hours.buckets.len(), 24 * 7 + 1);
    }

    #[test]
    fn a_saved_ring_is_restored_without_what_has_expired() {
        let mut ring = Ring::new(7 * DAY, 0);
        for hour in 0..24 * 10 {
            ring.add(hour * 3600, 3, 2);
        }
        let now = 24 * 10 * 3600;
        let mut later = Ring::new(7 * DAY, now);
        later.restore(now, &ring.kept());
        assert_eq!(
            later.sum(now as f64, 7 * DAY),
            ring.sum(now as f64, 7 * DAY)
        );
        assert_eq!(
            later.sum(now as f64, window(90)),
            ring.sum(now as f64, window(90))
        );
        let now = now + 3 * 86_400;
        let mut later = Ring::new(7 * DAY, now);
        later.restore(now, &ring.kept());
        assert_eq!(later.sum(now as f64, 7 * DAY).bad, 2.0 * 24.0 * 4.0);
        let mut after_years = Ring::new(7 * DAY, now * 100);
        after_years.restore(now * 100, &ring.kept());
        assert_eq!(after_years.sum(now as f64 * 100.0, 7 * DAY).all(), 0.0);
    }

    #[test]
    fn events_keep_their_age_when_the_clock_is_set() {
        for jump in [-90 * 60, 90 * 60, 86_400 * 365] {
            let mut ring = Ring::new(7 * DAY, 86_400 * 100);
            ring.add(86_400 * 100, 5, 5);
            ring.redate(jump);
            let now = (86_400 * 100_i64 + jump) as u64;
            ring.add(now, 1, 0);
            assert_eq!(ring.sum(now as f64 + 30.0, window(5)).all(), 11.0, "{jump}");
        }
    }
}
