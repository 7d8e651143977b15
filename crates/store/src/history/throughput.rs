//! Throughput over time and by concurrency since the process started, for proxies without a ledger.

use super::changed_upstream::CapacityBucket;
use super::knee::capacity_since_change;
use crate::query::{CapacityRow, CapacitySums};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokengauge_core::throughput::{
    BusySecond, RateFilter, RateKey, ThroughputDelta, ThroughputTick,
};

/// Maximum number of seconds that are kept, summed over places: 55 hours for one place, three hours
/// for twenty places.
const MAX_CELLS: usize = 200_000;
/// Length in seconds of the buckets in which changes of an upstream are detected.
const BUCKET: u64 = 10;
/// Maximum number of buckets per upstream: one day without idle time.
const MAX_BUCKETS: usize = 8_640;

#[derive(Debug, Default)]
pub struct ThroughputHistory {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Throughput of each upstream over time.
    buckets: BTreeMap<Arc<str>, VecDeque<CapacityBucket>>,
    places: HashMap<RateKey, u32>,
    /// For each second: index of the place, its streamed and its spread tokens.
    seconds: BTreeMap<u64, Vec<(u32, i64, i64)>>,
    cells: usize,
}

impl ThroughputHistory {
    pub fn new() -> Arc<ThroughputHistory> {
        Arc::default()
    }

    pub fn take(&self, tick: ThroughputTick) {
        let mut seen = self.seen();
        for second in &tick.busy {
            seen.add_capacity(second);
        }
        for delta in tick.deltas {
            seen.add(delta);
        }
        while seen.cells > MAX_CELLS
            && let Some((_, gone)) = seen.seconds.pop_first()
        {
            seen.cells -= gone.len();
        }
    }

    pub fn rows(&self, wanted: Option<&str>) -> Vec<CapacityRow> {
        let mut seen = self.seen();
        let meant = seen
            .buckets
            .iter_mut()
            .filter(|(name, _)| wanted.is_none_or(|wanted| ***name == *wanted));
        meant
            .map(|(name, buckets)| capacity_since_change(name, buckets.make_contiguous()))
            .collect()
    }

    pub fn seconds(&self, filter: &RateFilter) -> Vec<(u64, f64, f64)> {
        let seen = self.seen();
        let meant: HashMap<u32, bool> = seen
            .places
            .iter()
            .map(|(place, number)| (*number, filter.matches(place)))
            .collect();
        let seconds = seen.seconds.iter().map(|(second, cells)| {
            let cells = cells.iter().filter(|(number, ..)| meant[number]);
            let sum = cells.fold((0, 0), |sum, cell| (sum.0 + cell.1, sum.1 + cell.2));
            (*second, sum.0 as f64, sum.1 as f64)
        });
        seconds.collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

impl Seen {
    /// Adds a second to its bucket. A late second may belong to an earlier bucket than the last.
    fn add_capacity(&mut self, second: &BusySecond) {
        let at = second.second - second.second % BUCKET;
        let buckets = self
            .buckets
            .entry(Arc::clone(&second.upstream))
            .or_default();
        let place = buckets.partition_point(|bucket| bucket.at < at);
        if buckets.get(place).is_none_or(|bucket| bucket.at != at) {
            let sums = BTreeMap::new();
            buckets.insert(place, CapacityBucket { at, sums });
        }
        if let Some(bucket) = buckets.get_mut(place) {
            let concurrency = CapacitySums::concurrency(second);
            bucket.sums.entry(concurrency).or_default().add(second);
        }
        if buckets.len() > MAX_BUCKETS {
            buckets.pop_front();
        }
    }

    fn add(&mut self, delta: ThroughputDelta) {
        let next = self.places.len() as u32;
        let number = *self.places.entry(delta.key).or_insert(next);
        let cells = self.seconds.entry(delta.second).or_default();
        match cells.iter_mut().find(|cell| cell.0 == number) {
            Some(cell) => {
                cell.1 += delta.streamed;
                cell.2 += delta.spread;
            }
            None => {
                cells.push((number, delta.streamed, delta.spread));
                self.cells += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::throughput::BusySecond;

    fn busy(second: u64, millis: u64, tokens: u64) -> BusySecond {
        BusySecond {
            upstream: "engine".into(),
            second,
            millis,
            tokens,
            decoded: tokens,
            decode_millis: millis,
        }
    }

    #[test]
    fn seconds_are_summed_up_by_the_streams_under_way_in_them() {
        let history = ThroughputHistory::new();
        history.take(ThroughputTick {
            busy: vec![busy(1, 500, 20), busy(2, 2010, 80), busy(3, 1980, 80)],
            ..ThroughputTick::default()
        });
        let rows = history.rows(Some("engine"));
        let is: Vec<_> = rows[0]
            .points
            .iter()
            .map(|point| (point.concurrency, point.seconds, point.system_tps))
            .collect();
        // Half a second with one stream.
        assert_eq!(is, [(1, 1, 40.0), (2, 2, 80.0)]);
        let each = rows[0].points.iter().filter_map(|point| point.request_tps);
        assert!(each.into_iter().all(|tps| (39.0..=41.0).contains(&tps)));
        assert!(rows[0].knee.is_none() && rows[0].reason.is_some());
        assert!(history.rows(Some("another")).is_empty());
    }

    #[test]
    fn tokens_of_a_second_add_up_by_place_and_the_oldest_go() {
        let history = ThroughputHistory::new();
        let delta = |second, model: &str, streamed| ThroughputDelta {
            key: RateKey {
                route: "r".into(),
                upstream: "u".into(),
                model: model.into(),
                workload: None,
            },
            second,
            streamed,
            spread: 1,
        };
        let of = |deltas| ThroughputTick {
            deltas,
            ..ThroughputTick::default()
        };
        history.take(of(vec![
            delta(5, "a", 10),
            delta(5, "b", 7),
            delta(6, "a", 1),
        ]));
        history.take(of(vec![delta(5, "a", 2)]));
        let a = RateFilter {
            model: Some("a".to_owned()),
            ..RateFilter::default()
        };
        assert_eq!(history.seconds(&a), [(5, 12.0, 2.0), (6, 1.0, 1.0)]);
        let all = history.seconds(&RateFilter::default());
        assert_eq!(all, [(5, 19.0, 3.0), (6, 1.0, 1.0)]);
        let many = (10..10 + MAX_CELLS as u64).map(|second| delta(second, "a", 1));
        history.take(of(many.collect()));
        let left = history.seconds(&RateFilter::default());
        assert_eq!((left.len(), left[0].0), (MAX_CELLS, 10));
    }
}
