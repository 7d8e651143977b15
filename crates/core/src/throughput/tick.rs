//! What is handed on once a second: to the ledger, to the time series kept in memory, to the
//! capacity curve.

use super::ring::{READ, Ring, slot_of};
use super::{RateKey, RateSeries, Throughput, Upstream};
use crate::observer::MAX_MEASURE_DELAY;
use crate::time::whole_seconds_since_1970;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// How long after a second its generations are taken to be known: a stream that was silent for
/// so long is not under way for the capacity curve.
const SETTLES_AFTER: Duration = Duration::from_secs(5).saturating_add(MAX_MEASURE_DELAY);
/// How far the wall clock may go from ours before that is mended, in seconds.
const SET_BY: i64 = 2;

/// Tokens of a second, beyond those handed on before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThroughputDelta {
    /// The labels under which they count.
    pub key: RateKey,
    /// Seconds since 1970.
    pub second: u64,
    /// Tokens that came in it.
    pub streamed: u64,
    /// Tokens of whole answers that were generated in it.
    pub spread: u64,
}

/// A second of an upstream with generations under way, as many as in the seconds around it:
/// handed on once, when all of it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusySecond {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Seconds since 1970.
    pub second: u64,
    /// The time of all its generations in it, from the request to the last token.
    pub millis: u64,
    /// Tokens, those of whole answers included.
    pub tokens: u64,
    /// Tokens after first frames.
    pub decoded: u64,
    /// The milliseconds they took, all streams together.
    pub decode_millis: u64,
}

/// What came since the last tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThroughputTick {
    /// Tokens by second.
    pub arrived: Vec<ThroughputDelta>,
    /// Seconds of upstreams.
    pub busy: Vec<BusySecond>,
}

impl Throughput {
    /// Hands on what is new. `unanswered` says since when an upstream has had generations of
    /// which nothing came yet: what those seconds were is not known before it does.
    pub fn tick(
        &self,
        now: Instant,
        wall: SystemTime,
        unanswered: &HashMap<Arc<str>, Instant>,
    ) -> ThroughputTick {
        if self.origin.get().is_none() {
            return ThroughputTick::default();
        }
        self.set(now, wall);
        let end = self.second(now);
        let series = self.all();
        let mut arrived = {
            let mut late = self.late.lock();
            std::mem::take(&mut *late)
        };
        for series in &series {
            series.hand_on(end, &mut arrived);
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
            upstream.tell(name, end, until, tokens, &mut busy);
        }
        ThroughputTick { arrived, busy }
    }

    /// Goes by the wall clock where that was set.
    fn set(&self, now: Instant, wall: SystemTime) {
        let wall = whole_seconds_since_1970(wall);
        let off = wall.wrapping_sub(self.second(now)).cast_signed();
        if off.abs() > SET_BY {
            self.set_by.fetch_add(off, Ordering::Relaxed);
        }
    }
}

impl RateSeries {
    fn all(&self, second: u64) -> u64 {
        self.streamed(second) + self.spread(second)
    }

    /// What came in whole seconds since the last time.
    fn hand_on(&self, end: u64, arrived: &mut Vec<ThroughputDelta>) {
        if !self.fresh.swap(false, Ordering::Acquire) {
            return;
        }
        let handed_on = &mut *self.handed_on.lock();
        handed_on.resize(super::ring::SECONDS as usize, (0, 0, 0));
        for second in end.saturating_sub(READ)..end {
            let slot = &mut handed_on[slot_of(second)];
            if slot.0 != second {
                *slot = (second, 0, 0);
            }
            let (streamed, spread) = (self.streamed(second), self.spread(second));
            let new = (
                streamed.saturating_sub(slot.1),
                spread.saturating_sub(slot.2),
            );
            if new != (0, 0) {
                *slot = (second, streamed, spread);
                arrived.push(ThroughputDelta {
                    key: self.key.clone(),
                    second,
                    streamed: new.0,
                    spread: new.1,
                });
            }
        }
        if self.streamed(end) + self.spread(end) > 0 {
            self.fresh.store(true, Ordering::Relaxed);
        }
    }
}

impl Upstream {
    /// Its seconds before `until` that were not handed on yet.
    fn tell(
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
        // Of the last one it is not known yet whether its streams went on.
        let until = until.saturating_sub(1);
        for second in next..until {
            let around = [second - 1, second, second + 1];
            let around = around.map(|second| of(&self.busy_millis, second));
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

/// Whether about as many generations were under way in a second as before and after it, given
/// the milliseconds of all of them: the mean of others says nothing of the number in them.
fn steady([before, at, after]: [u64; 3]) -> bool {
    let change = (at / 10).max(1_000);
    at.abs_diff(before) < change && at.abs_diff(after) < change
}
