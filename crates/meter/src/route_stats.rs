//! What is kept per route and upstream: streams in flight, and whether the upstream
//! has just come up. As many as the configuration has routes and upstreams.

use crate::settings::Measure;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// One route towards one upstream.
#[derive(Debug)]
pub(crate) struct RouteStats {
    pub(crate) route: Arc<str>,
    pub(crate) upstream: Arc<str>,
    in_flight: AtomicU32,
    state: Arc<UpstreamState>,
}

/// One upstream, whatever the route.
#[derive(Debug, Default)]
struct UpstreamState {
    in_flight: AtomicU32,
    up: Mutex<Up>,
}

/// Since when an upstream answers, and how many calls it has got since.
#[derive(Clone, Copy, Debug, Default)]
struct Up {
    since: Option<Instant>,
    calls: u32,
}

impl RouteStats {
    /// Streams in flight on this route and upstream.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A call reached the upstream at `at`. Says whether it falls into the warm-up:
    /// it is among the first `warm_up_calls` since the upstream came up, or it comes
    /// within `warm_up_for` of the first of them. An upstream comes up with the first
    /// call of the process, and again after each time it was unreachable.
    pub(crate) fn reached(&self, at: Instant, measure: &Measure) -> bool {
        let mut up = self.state.up.lock();
        let since = *up.since.get_or_insert(at);
        up.calls = up.calls.saturating_add(1);
        up.calls <= measure.warm_up_calls
            || at.saturating_duration_since(since) < measure.warm_up_for
    }

    /// The upstream could not be reached, or has started anew.
    pub(crate) fn unreachable(&self) {
        *self.state.up.lock() = Up::default();
    }

    /// Whether a call that reached the upstream at `at` would fall into the warm-up.
    fn warming(&self, at: Instant, measure: &Measure) -> bool {
        let up = *self.state.up.lock();
        let since = up.since.unwrap_or(at);
        up.calls < measure.warm_up_calls
            || at.saturating_duration_since(since) < measure.warm_up_for
    }
}

/// A stream in flight; one less when dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    lane: Arc<RouteStats>,
    /// Streams in flight on the upstream when it began, itself included.
    pub(crate) concurrency: u32,
}

impl InFlight {
    pub(crate) fn lane(&self) -> &RouteStats {
        &self.lane
    }

    pub(crate) fn begin(lane: &Arc<RouteStats>) -> InFlight {
        lane.in_flight.fetch_add(1, Ordering::Relaxed);
        let before = lane.state.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight {
            lane: Arc::clone(lane),
            concurrency: before + 1,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.lane.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.lane.state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

type Key = (Arc<str>, Arc<str>);

/// All lanes, by route and upstream.
#[derive(Debug, Default)]
pub(crate) struct AllRouteStats {
    lanes: RwLock<HashMap<Key, Arc<RouteStats>>>,
}

impl AllRouteStats {
    /// The lane of `route` and `upstream`, made when it is asked for first.
    pub(crate) fn lane(&self, route: &Arc<str>, upstream: &Arc<str>) -> Arc<RouteStats> {
        let key = (Arc::clone(route), Arc::clone(upstream));
        let known = self.lanes.read();
        if let Some(lane) = known.get(&key) {
            return Arc::clone(lane);
        }
        drop(known);
        self.add(key)
    }

    fn add(&self, key: Key) -> Arc<RouteStats> {
        let mut lanes = self.lanes.write();
        let sibling = lanes.values().find(|lane| lane.upstream == key.1);
        let state = sibling
            .map(|lane| Arc::clone(&lane.state))
            .unwrap_or_default();
        let (route, upstream) = key.clone();
        let lane = lanes.entry(key).or_insert_with(|| {
            Arc::new(RouteStats {
                route,
                upstream,
                in_flight: AtomicU32::new(0),
                state,
            })
        });
        Arc::clone(lane)
    }

    /// The upstream has started anew: its next calls are its first.
    pub(crate) fn restarted(&self, upstream: &str) {
        let lanes = self.all();
        let lane = lanes.iter().find(|lane| &*lane.upstream == upstream);
        if let Some(lane) = lane {
            lane.unreachable();
        }
    }

    /// Every upstream that was called, and whether it warms up at `at`.
    pub(crate) fn warming(&self, at: Instant, measure: &Measure) -> Vec<(Arc<str>, bool)> {
        let mut upstreams: Vec<(Arc<str>, bool)> = Vec::new();
        for lane in self.all() {
            if !upstreams.iter().any(|(known, _)| *known == lane.upstream) {
                let warming = lane.warming(at, measure);
                upstreams.push((Arc::clone(&lane.upstream), warming));
            }
        }
        upstreams
    }

    /// Forgets lanes that `configured` does not know and no stream is on.
    pub(crate) fn retain(&self, configured: impl Fn(&str, &str) -> bool) {
        let mut lanes = self.lanes.write();
        lanes.retain(|(route, upstream), lane| configured(route, upstream) || lane.in_flight() > 0);
    }

    pub(crate) fn all(&self) -> Vec<Arc<RouteStats>> {
        let lanes = self.lanes.read();
        lanes.values().cloned().collect()
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
        let lane = AllRouteStats::default().lane(&"r".into(), &"u".into());
        let start = Instant::now();
        let measure = measure(2, 30);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(lane.reached(at(0), &measure));
        assert!(
            lane.reached(at(40), &measure),
            "the second call, though late"
        );
        assert!(!lane.reached(at(40), &measure));
        lane.unreachable();
        for seconds in [100, 110, 129] {
            assert!(lane.reached(at(seconds), &measure), "{seconds} s");
        }
        assert!(!lane.reached(at(130), &measure));
    }

    #[test]
    fn whether_an_upstream_warms_up_can_be_asked_without_calling_it() {
        let lanes = AllRouteStats::default();
        let (lane, _) = (
            lanes.lane(&"a".into(), &"u".into()),
            lanes.lane(&"b".into(), &"u".into()),
        );
        let start = Instant::now();
        let measure = measure(2, 30);
        let at = |seconds| start + Duration::from_secs(seconds);
        let warming = |seconds| {
            let all = lanes.warming(at(seconds), &measure);
            assert_eq!(all.len(), 1, "once for both routes");
            all[0].1
        };
        assert!(warming(0), "nobody called it yet");
        lane.reached(at(0), &measure);
        assert!(warming(40), "one of two calls");
        lane.reached(at(40), &measure);
        assert!(!warming(41));
        lanes.restarted("other");
        assert!(!warming(41));
        lanes.restarted("u");
        assert!(warming(41) && lane.reached(at(42), &measure));
    }

    #[test]
    fn routes_share_their_upstream_and_flights_end_with_their_guard() {
        let lanes = AllRouteStats::default();
        let (one, other) = (
            lanes.lane(&"a".into(), &"u".into()),
            lanes.lane(&"b".into(), &"u".into()),
        );
        let first = InFlight::begin(&one);
        let second = InFlight::begin(&other);
        assert_eq!((first.concurrency, second.concurrency), (1, 2));
        assert_eq!((one.in_flight(), other.in_flight()), (1, 1));
        drop((first, second));
        assert_eq!((one.in_flight(), other.in_flight()), (0, 0));
        assert_eq!(InFlight::begin(&one).concurrency, 1);
        assert_eq!(lanes.all().len(), 2);
    }
}
