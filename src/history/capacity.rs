//! What each upstream gave at which number of calls at once, since the process started:
//! for proxies that keep no ledger.

use super::knee::capacity_of;
use crate::ledger::{CapacityPoint, CapacityRow, InFlight, Tallies};
use crate::meter::{Figures, Finding, Stream, Subscriber, Watch};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Looked at once a second. As many sums as upstreams are configured and classes of
/// concurrency there are.
#[derive(Debug, Default)]
pub struct Capacity {
    tallies: Tallies,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    before: InFlight,
    sums: BTreeMap<(Arc<str>, u32), Sum>,
}

/// The seconds at one concurrency.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    seconds: u64,
    tokens: u64,
    decode_tokens: u64,
    decode_us: u64,
}

impl Capacity {
    /// Nothing seen so far.
    pub fn new() -> Arc<Capacity> {
        Arc::default()
    }

    /// A second has passed, and this is how it is now.
    pub fn look(&self, figures: &Figures) {
        let now = InFlight::of_figures(figures);
        let mut seen = self.seen();
        // Sums since the start: which second it is says nothing.
        for sample in self.tallies.look(0, &seen.before, &now) {
            let sum = seen
                .sums
                .entry((sample.upstream, sample.concurrency))
                .or_default();
            sum.seconds += 1;
            sum.tokens += sample.tokens;
            sum.decode_tokens += sample.decode_tokens;
            sum.decode_us += sample.decode_us;
        }
        seen.before = now;
    }

    /// What each upstream gave, or only the one that is `wanted`.
    pub fn rows(&self, wanted: Option<&str>) -> Vec<CapacityRow> {
        let mut upstreams: BTreeMap<Arc<str>, Vec<CapacityPoint>> = BTreeMap::new();
        for ((upstream, concurrency), sum) in &self.seen().sums {
            let points = upstreams.entry(Arc::clone(upstream)).or_default();
            let decode = sum.decode_us as f64 / 1e6;
            points.push(CapacityPoint {
                concurrency: *concurrency,
                system_tps: sum.tokens as f64 / sum.seconds.max(1) as f64,
                request_tps: (sum.decode_us > 0).then(|| sum.decode_tokens as f64 / decode),
                seconds: sum.seconds,
            });
        }
        let meant = upstreams
            .into_iter()
            .filter(|(name, _)| wanted.is_none_or(|wanted| **name == *wanted));
        meant
            .map(|(name, points)| capacity_of(&name, points))
            .collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Capacity {
    fn watch(&self, stream: &Stream<'_>) -> Option<Box<dyn Watch>> {
        Some(self.tallies.watch(stream))
    }

    fn finished(&self, _: &Arc<Finding>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Channel;
    use std::time::{Duration, Instant};

    #[test]
    fn seconds_are_summed_up_by_the_calls_under_way_in_them() {
        let capacity = Capacity::new();
        let upstream: Arc<str> = "engine".into();
        let route: Arc<str> = "r".into();
        let stream = Stream {
            route: &route,
            upstream: &upstream,
            workload: None,
            model: None,
            accepted: true,
        };
        let under_way = |streams| Figures {
            in_flight: vec![(Arc::clone(&route), Arc::clone(&upstream), streams)],
            ..Figures::default()
        };
        let mut watch = capacity.watch(&stream).expect("watched");
        let start = Instant::now();
        capacity.look(&under_way(2));
        for second in 1..=6 {
            watch.tokens(start + Duration::from_secs(second), Channel::Answer, 40);
            capacity.look(&under_way(2));
        }
        capacity.look(&under_way(0));
        capacity.look(&under_way(0));
        let rows = capacity.rows(Some("engine"));
        let is: Vec<_> = rows[0]
            .points
            .iter()
            .map(|point| {
                (
                    point.concurrency,
                    point.seconds,
                    point.system_tps,
                    point.request_tps,
                )
            })
            .collect();
        // The second in which they began and the one in which they ended had one on average.
        assert_eq!(is, [(1, 2, 0.0, None), (2, 6, 40.0, Some(40.0))]);
        assert!(rows[0].knee.is_none() && rows[0].reason.is_some());
        assert!(capacity.rows(Some("another")).is_empty());
    }
}
