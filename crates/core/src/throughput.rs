//! System throughput: the tokens of all streams by the second in which they arrived, by route,
//! upstream, model and workload. The only source of throughput for `/metrics`, the page, `top`, the
//! time series of the API, the ledger and the capacity curve.
//!
//! A response that is not streamed arrives at one instant but was generated before. Its tokens are
//! spread evenly from the last byte of the request to the last byte of the response, and are
//! counted separately. Streams that an upstream buffered are treated alike.

mod generation;
mod model_labels;
mod rates;
mod ring;
mod steps;
mod tick;
mod wall_seconds;

pub use generation::{FinishedGeneration, GenerationThroughput};
pub use model_labels::{ModelLabels, UNKNOWN};
pub use rates::{RateFilter, Rates, SpreadRates};
pub use steps::{Generated, Steps};
pub use tick::{BusySecond, ThroughputDelta, ThroughputTick};

use crate::hash::FastMap;
use crate::time::duration_since_1970;
use parking_lot::{Mutex, RwLock};
use ring::{READ, Ring};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use wall_seconds::WallSeconds;

/// Maximum number of parts into which a response is spread. A part of a longer response spans
/// several seconds.
const MAX_PARTS: u64 = 3_600;

/// The labels of a series of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RateKey {
    /// Name of the route.
    pub route: Arc<str>,
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// The model that responds, otherwise the requested model. `unknown` without a model, `other`
    /// beyond the limit of names.
    pub model: Arc<str>,
    /// Name of the workload.
    pub workload: Option<Arc<str>>,
}

/// The tokens of one route, upstream, model and workload.
#[derive(Debug)]
pub struct RateSeries {
    /// The labels of the series.
    pub key: RateKey,
    upstream: Arc<Upstream>,
    streamed: Ring,
    spread: OnceLock<Ring>,
    /// Whether tokens were added since deltas were last collected.
    dirty: AtomicBool,
    /// The second and its streamed and spread tokens that were already collected, by slot.
    reported: Mutex<Vec<(u64, u64, u64)>>,
}

/// The busy time of the generations of one upstream.
#[derive(Debug, Default)]
pub struct Upstream {
    busy_millis: Ring,
    decoded: Ring,
    decode_millis: Ring,
    /// The next second to collect. 0 before the first.
    next: AtomicU64,
}

/// The tokens of all streams by the second in which they arrived. Seconds follow the monotonic
/// clock, so that setting the wall clock moves no token. Only a [`ThroughputTick`] contains seconds
/// of the wall clock.
#[derive(Debug)]
pub struct Throughput {
    origin: OnceLock<(Instant, Duration)>,
    wall_seconds: Mutex<WallSeconds>,
    series: RwLock<FastMap<RateKey, Arc<RateSeries>>>,
    upstreams: RwLock<FastMap<Arc<str>, Arc<Upstream>>>,
    models: ModelLabels,
    /// Tokens that arrived after their slot was reused.
    late: Mutex<Vec<ThroughputDelta>>,
}

impl Throughput {
    /// Empty throughput in which at most `max_models` models have a label.
    pub fn new(max_models: usize) -> Throughput {
        Throughput {
            origin: OnceLock::new(),
            wall_seconds: Mutex::default(),
            series: RwLock::default(),
            upstreams: RwLock::default(),
            models: ModelLabels::new(max_models),
            late: Mutex::default(),
        }
    }

    /// Sets the wall-clock time of an instant. Only the first call has an effect.
    pub fn set_clocks(&self, at: Instant, wall: SystemTime) {
        self.origin.get_or_init(|| (at, duration_since_1970(wall)));
    }

    /// Whole seconds since 1970 at an instant, by the monotonic clock. 0 until the clocks are set.
    /// Changes of the wall clock since then are not included.
    pub fn second(&self, at: Instant) -> u64 {
        self.since_1970(at).as_secs()
    }

    /// The time of [`Throughput::second`] in whole nanoseconds. A fraction in floating point could
    /// be rounded into the next second.
    fn since_1970(&self, at: Instant) -> Duration {
        let Some((origin, since)) = self.origin.get() else {
            return Duration::ZERO;
        };
        match at.checked_duration_since(*origin) {
            Some(after) => *since + after,
            None => since.saturating_sub(origin.saturating_duration_since(at)),
        }
    }

    /// The series for the tokens of a generation. A new model name becomes a label only if the
    /// upstream `accepted` the call.
    pub fn series(
        &self,
        route: &Arc<str>,
        upstream: &Arc<str>,
        workload: Option<&Arc<str>>,
        model: Option<&str>,
        accepted: bool,
    ) -> Arc<RateSeries> {
        let key = RateKey {
            route: Arc::clone(route),
            upstream: Arc::clone(upstream),
            model: self.models.label(model, accepted),
            workload: workload.cloned(),
        };
        let known = self.series.read();
        if let Some(series) = known.get(&key) {
            return Arc::clone(series);
        }
        drop(known);
        let upstream = {
            let mut all = self.upstreams.write();
            Arc::clone(all.entry(Arc::clone(upstream)).or_default())
        };
        let mut series = self.series.write();
        let series = series.entry(key.clone()).or_insert_with(|| {
            Arc::new(RateSeries {
                key,
                upstream,
                streamed: Ring::default(),
                spread: OnceLock::new(),
                dirty: AtomicBool::new(false),
                reported: Mutex::default(),
            })
        });
        Arc::clone(series)
    }

    /// Drops the series whose route and upstream are no longer configured.
    pub fn forget(&self, configured: impl Fn(&str, &str) -> bool) {
        let mut series = self.series.write();
        series.retain(|key, _| configured(&key.route, &key.upstream));
        let left: Vec<_> = series.keys().map(|key| key.upstream.clone()).collect();
        let mut all = self.upstreams.write();
        all.retain(|name, _| left.contains(name));
    }

    fn all(&self) -> Vec<Arc<RateSeries>> {
        let series = self.series.read();
        series.values().cloned().collect()
    }

    /// Adds streamed tokens to a second. `tokens` may be negative.
    fn add_streamed(&self, series: &RateSeries, second: u64, tokens: i64) {
        if !series.streamed.add(second, tokens) {
            self.late(series, second, tokens, 0);
        }
        series.dirty.store(true, Ordering::Release);
    }

    fn spread(&self, series: &RateSeries, sent: Instant, ended: Instant, tokens: u64) {
        let (from, to) = (self.second(sent), self.second(ended));
        let step = (to.saturating_sub(from) / MAX_PARTS) + 1;
        let oldest = to.saturating_sub(READ - 10);
        let whole = ended.saturating_duration_since(sent).as_secs_f64();
        let ring = series.spread.get_or_init(Ring::default);
        let mut assigned = 0;
        for second in (from..=to).step_by(step as usize) {
            let left = self.until(second + step, ended);
            let share = if whole > 0.0 { 1.0 - left / whole } else { 1.0 };
            let until_here = (tokens as f64 * share.clamp(0.0, 1.0)).round() as u64;
            let part = until_here.saturating_sub(assigned) as i64;
            assigned = assigned.max(until_here);
            if second < oldest || !ring.add(second, part) {
                self.late(series, second, 0, part);
            }
        }
        series.dirty.store(true, Ordering::Release);
    }

    fn until(&self, second: u64, at: Instant) -> f64 {
        let begin = Duration::from_secs(second);
        self.since_1970(at).saturating_sub(begin).as_secs_f64()
    }

    fn late(&self, series: &RateSeries, second: u64, streamed: i64, spread: i64) {
        let mut late = self.late.lock();
        if late.len() < 4 * MAX_PARTS as usize {
            late.push(ThroughputDelta {
                key: series.key.clone(),
                second,
                streamed,
                spread,
            });
        }
    }

    /// Counts a generation on `upstream` as in flight from `since` to `until`.
    fn busy(&self, upstream: &Upstream, since: Instant, until: Instant) {
        let kept = until.checked_sub(Duration::from_secs(READ));
        let mut from = kept.map_or(since, |kept| since.max(kept));
        while from < until {
            let now = self.since_1970(from);
            let rest = Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into());
            let to = (from + rest).min(until);
            let micros = to.saturating_duration_since(from).as_micros() as i64;
            upstream
                .busy_millis
                .add(now.as_secs(), (micros + 500) / 1000);
            from = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_generation_lies_in_the_seconds_that_it_took() {
        let throughput = Throughput::new(10);
        let start = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_900_000_637);
        throughput.set_clocks(start, wall);
        let upstream = Upstream::default();
        let mut from = start;
        for _ in 0..17 {
            let until = from + Duration::from_micros(1_220_417);
            throughput.busy(&upstream, from, until);
            from = until;
        }
        let millis: Vec<_> = (0..22)
            .map(|second| upstream.busy_millis.of(1_763_900_000 + second))
            .collect();
        assert_eq!(millis[0], 363);
        assert!(
            millis[1..21]
                .iter()
                .all(|millis| (998..=1002).contains(millis)),
            "{millis:?}"
        );
    }
}
