//! Collects throughput once a second for the ledger, the time series in memory and the capacity
//! curve.

use super::ring::{READ, Ring, slot_of};
use super::{RateKey, RateSeries, Throughput, Upstream};
use crate::observer::MAX_MEASURE_DELAY;
use crate::time::whole_seconds_since_1970;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// How long after a second its busy time is final. A stream that is silent for longer does not
/// count as in flight in the capacity curve.
const SETTLES_AFTER: Duration = Duration::from_secs(5).saturating_add(MAX_MEASURE_DELAY);

/// Tokens of a second that were not collected before. Negative if tokens were moved to the series
/// of another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThroughputDelta {
    /// The labels of the series.
    pub key: RateKey,
    /// Seconds since 1970, by the wall clock at that time.
    pub second: u64,
    /// Tokens of streams that arrived in this second.
    pub streamed: i64,
    /// Tokens of non-streamed responses that are spread over this second.
    pub spread: i64,
}

/// A second in which an upstream had generations in flight, about as many as in the neighbouring
/// seconds. Collected once, when the second is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusySecond {
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// Seconds since 1970, by the wall clock at that time.
    pub second: u64,
    /// Milliseconds that generations were in flight, from the request to the last token, added up
    /// over generations.
    pub millis: u64,
    /// Tokens of streamed and other responses.
    pub tokens: u64,
    /// Tokens after first chunks.
    pub decoded: u64,
    /// Milliseconds that the tokens in `decoded` took, added up over streams.
    pub decode_millis: u64,
}

/// Everything that was collected since the previous tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThroughputTick {
    /// Tokens by series and second.
    pub deltas: Vec<ThroughputDelta>,
    /// Busy seconds by upstream.
    pub busy: Vec<BusySecond>,
}

impl Throughput {
    /// Collects new data. `unanswered` returns the time since which an upstream has had requests in
    /// flight without any output. Later seconds of that upstream are not final.
    pub fn tick(
        &self,
        now: Instant,
        wall: SystemTime,
        unanswered: &HashMap<Arc<str>, Instant>,
    ) -> ThroughputTick {
        if self.origin.get().is_none() {
            return ThroughputTick::default();
        }
        let end = self.second(now);
        let series = self.all();
        let mut deltas = {
            let mut late = self.late.lock();
            std::mem::take(&mut *late)
        };
        for series in &series {
            series.collect_deltas(end, &mut deltas);
        }
        let upstreams = self.upstreams.read();
        let settled = now.checked_sub(SETTLES_AFTER).unwrap_or(now);
        let mut busy = Vec::new();
        for (name, upstream) in upstreams.iter() {
            let since = unanswered.get(name).copied();
            let until = since.map_or(settled, |since| since.min(settled));
            let until = self.second(until).max(end.saturating_sub(READ));
            let own: Vec<_> = series
                .iter()
                .filter(|series| series.key.upstream == *name)
                .collect();
            let tokens = |second| own.iter().map(|series| series.all(second)).sum();
            upstream.collect_busy(name, end, until, tokens, &mut busy);
        }
        let mut wall_seconds = self.wall_seconds.lock();
        wall_seconds.follow(end, whole_seconds_since_1970(wall));
        let seconds = deltas.iter_mut().map(|delta| &mut delta.second);
        let seconds = seconds.chain(busy.iter_mut().map(|busy| &mut busy.second));
        seconds.for_each(|second| *second = wall_seconds.of(*second));
        ThroughputTick { deltas, busy }
    }
}

impl RateSeries {
    fn all(&self, second: u64) -> u64 {
        self.streamed(second) + self.spread(second)
    }

    fn collect_deltas(&self, end: u64, deltas: &mut Vec<ThroughputDelta>) {
        if !self.dirty.swap(false, Ordering::Acquire) {
            return;
        }
        let reported = &mut *self.reported.lock();
        reported.resize(super::ring::SECONDS as usize, (0, 0, 0));
        for second in end.saturating_sub(READ)..end {
            let slot = &mut reported[slot_of(second)];
            if slot.0 != second {
                *slot = (second, 0, 0);
            }
            let (streamed, spread) = (self.streamed(second), self.spread(second));
            let new = (
                streamed as i64 - slot.1 as i64,
                spread as i64 - slot.2 as i64,
            );
            if new != (0, 0) {
                *slot = (second, streamed, spread);
                deltas.push(ThroughputDelta {
                    key: self.key.clone(),
                    second,
                    streamed: new.0,
                    spread: new.1,
                });
            }
        }
        if self.streamed(end) + self.spread(end) > 0 {
            self.dirty.store(true, Ordering::Relaxed);
        }
    }
}

impl Upstream {
    fn collect_busy(
        &self,
        name: &Arc<str>,
        end: u64,
        until: u64,
        tokens: impl Fn(u64) -> u64,
        busy_seconds: &mut Vec<BusySecond>,
    ) {
        let oldest = end.saturating_sub(READ);
        let next = self.next.load(Ordering::Relaxed).max(oldest);
        let of = |ring: &Ring, second| ring.of(second);
        // The last second is not final until it is known whether its streams continue.
        let until = until.saturating_sub(1);
        for second in next..until {
            let around =
                [second - 1, second, second + 1].map(|second| of(&self.busy_millis, second));
            let (millis, tokens) = (around[1], tokens(second));
            if (millis == 0 && tokens == 0) || !steady(around) {
                continue;
            }
            busy_seconds.push(BusySecond {
                upstream: Arc::clone(name),
                second,
                millis,
                tokens,
                decoded: of(&self.decoded, second),
                decode_millis: of(&self.decode_millis, second),
            });
        }
        self.next.store(until.max(next), Ordering::Relaxed);
    }
}

/// Whether the number of generations in flight was about the same in three consecutive seconds.
/// Takes the busy milliseconds of each second. Without this, the average says nothing about
/// concurrency.
fn steady([before, at, after]: [u64; 3]) -> bool {
    let change = (at / 10).max(1_000);
    at.abs_diff(before) < change && at.abs_diff(after) < change
}
