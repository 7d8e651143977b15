//! State for each route and upstream: the streams in flight, and whether the upstream has just come
//! up. The configuration limits the number of routes and upstreams.

use crate::settings::Measure;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tokengauge_core::hash::FastMap;

#[derive(Debug)]
pub(crate) struct RouteStats {
    pub(crate) route: Arc<str>,
    pub(crate) upstream: Arc<str>,
    in_flight: AtomicU32,
    state: Arc<UpstreamState>,
}

#[derive(Debug, Default)]
struct UpstreamState {
    in_flight: AtomicU32,
    up: Mutex<Up>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Up {
    since: Option<Instant>,
    calls: u32,
}

impl RouteStats {
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Records that a call reached the upstream at `at`. Returns whether the call is part of the
    /// warm-up.
    ///
    /// The warm-up consists of the first `warm_up_calls` calls after the upstream came up, and of
    /// all calls within `warm_up_for` after the first. An upstream comes up with the first call of
    /// the process, and again after each time it was unreachable.
    pub(crate) fn reached(&self, at: Instant, measure: &Measure) -> bool {
        let mut up = self.state.up.lock();
        let since = *up.since.get_or_insert(at);
        up.calls = up.calls.saturating_add(1);
        up.calls <= measure.warm_up_calls
            || at.saturating_duration_since(since) < measure.warm_up_for
    }

    pub(crate) fn unreachable(&self) {
        *self.state.up.lock() = Up::default();
    }

    fn warming(&self, at: Instant, measure: &Measure) -> bool {
        let up = *self.state.up.lock();
        let since = up.since.unwrap_or(at);
        up.calls < measure.warm_up_calls
            || at.saturating_duration_since(since) < measure.warm_up_for
    }
}

#[derive(Debug)]
pub(crate) struct InFlight {
    stats: Arc<RouteStats>,
    /// Streams in flight on the upstream when this one began, including this one.
    pub(crate) concurrency: u32,
}

impl InFlight {
    pub(crate) fn stats(&self) -> &RouteStats {
        &self.stats
    }

    pub(crate) fn begin(stats: &Arc<RouteStats>) -> InFlight {
        stats.in_flight.fetch_add(1, Ordering::Relaxed);
        let before = stats.state.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight {
            stats: Arc::clone(stats),
            concurrency: before + 1,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.stats.state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

type Key = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(crate) struct AllRouteStats {
    all_stats: RwLock<FastMap<Key, Arc<RouteStats>>>,
}

impl AllRouteStats {
    pub(crate) fn of(&self, route: &Arc<str>, upstream: &Arc<str>) -> Arc<RouteStats> {
        let key = (Arc::clone(route), Arc::clone(upstream));
        let known = self.all_stats.read();
        if let Some(stats) = known.get(&key) {
            return Arc::clone(stats);
        }
        drop(known);
        self.add(key)
    }

    fn add(&self, key: Key) -> Arc<RouteStats> {
        let mut all_stats = self.all_stats.write();
        let sibling = all_stats.values().find(|stats| stats.upstream == key.1);
        let state = sibling
            .map(|stats| Arc::clone(&stats.state))
            .unwrap_or_default();
        let (route, upstream) = key.clone();
        let stats = all_stats.entry(key).or_insert_with(|| {
            Arc::new(RouteStats {
                route,
                upstream,
                in_flight: AtomicU32::new(0),
                state,
            })
        });
        Arc::clone(stats)
    }

    pub(crate) fn restarted(&self, upstream: &str) {
        let all_stats = self.all();
        let stats = all_stats.iter().find(|stats| &*stats.upstream == upstream);
        if let Some(stats) = stats {
            stats.unreachable();
        }
    }

    pub(crate) fn warming(&self, at: Instant, measure: &Measure) -> Vec<(Arc<str>, bool)> {
        let mut upstreams: Vec<(Arc<str>, bool)> = Vec::new();
        for stats in self.all() {
            if !upstreams.iter().any(|(known, _)| *known == stats.upstream) {
                let warming = stats.warming(at, measure);
                upstreams.push((Arc::clone(&stats.upstream), warming));
            }
        }
        upstreams
    }

    /// Drops the state of routes and upstreams that are not `configured` and have no stream in
    /// flight.
    pub(crate) fn retain(&self, configured: impl Fn(&str, &str) -> bool) {
        let mut all_stats = self.all_stats.write();
        all_stats.retain(|(route, upstream), stats| {
            configured(route, upstream) || stats.in_flight() > 0
        });
    }

    pub(crate) fn all(&self) -> Vec<Arc<RouteStats>> {
        let all_stats = self.all_stats.read();
        all_stats.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn measure(calls: u32, seconds: u64) -> Measure {
        Measure {
            warm_up_calls: calls,
            warm_up_for: Duration::from_secs(seconds),
            ..Measure::default()
        }
    }

    #[test]
    fn an_upstream_warms_up_at_first_and_after_it_was_unreachable() {
        let stats = AllRouteStats::default().of(&"r".into(), &"u".into());
        let start = Instant::now();
        let measure = measure(2, 30);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(stats.reached(at(0), &measure));
        assert!(
            stats.reached(at(40), &measure),
            "the second call, though late"
        );
        assert!(!stats.reached(at(40), &measure));
        stats.unreachable();
        for seconds in [100, 110, 129] {
            assert!(stats.reached(at(seconds), &measure), "{seconds} s");
        }
        assert!(!stats.reached(at(130), &measure));
    }

    #[test]
    fn whether_an_upstream_warms_up_can_be_asked_without_calling_it() {
        let all_stats = AllRouteStats::default();
        let (stats, _) = (
            all_stats.of(&"a".into(), &"u".into()),
            all_stats.of(&"b".into(), &"u".into()),
        );
        let start = Instant::now();
        let measure = measure(2, 30);
        let at = |seconds| start + Duration::from_secs(seconds);
        let warming = |seconds| {
            let all = all_stats.warming(at(seconds), &measure);
            assert_eq!(all.len(), 1, "once for both routes");
            all[0].1
        };
        assert!(warming(0), "nobody called it yet");
        stats.reached(at(0), &measure);
        assert!(warming(40), "one of two calls");
        stats.reached(at(40), &measure);
        assert!(!warming(41));
        all_stats.restarted("other");
        assert!(!warming(41));
        all_stats.restarted("u");
        assert!(warming(41) && stats.reached(at(42), &measure));
    }

    #[test]
    fn routes_share_their_upstream_and_flights_end_with_their_guard() {
        let all_stats = AllRouteStats::default();
        let (one, other) = (
            all_stats.of(&"a".into(), &"u".into()),
            all_stats.of(&"b".into(), &"u".into()),
        );
        let first = InFlight::begin(&one);
        let second = InFlight::begin(&other);
        assert_eq!((first.concurrency, second.concurrency), (1, 2));
        assert_eq!((one.in_flight(), other.in_flight()), (1, 1));
        drop((first, second));
        assert_eq!((one.in_flight(), other.in_flight()), (0, 0));
        assert_eq!(InFlight::begin(&one).concurrency, 1);
        assert_eq!(all_stats.all().len(), 2);
    }
}
