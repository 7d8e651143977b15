//! Finds when an upstream became faster or slower for a reason other than its load. A capacity curve
//! across such a change would mix two speeds and show a knee where there is none.

use crate::query::CapacitySums;
use std::collections::BTreeMap;
use tokengauge_stats::change::{Options, find};

/// Options for change points: at least half a minute of buckets on each side, and a fifth faster or
/// slower.
const OPTIONS: Options = Options {
    min_points: 3,
    min_change: 0.2,
    level: None,
    max_p: 0.001,
    window: 50,
};
/// Two upstreams differ if their speeds at one concurrency differ by this share.
const DIFFERS: f64 = 0.2;
/// Minimum duration of the difference, in milliseconds.
const MIN_MILLIS: u64 = 3_000;
/// Concurrencies with less time than this, in milliseconds, are ignored.
const SEEN: u64 = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct CapacityBucket {
    /// Start of the bucket in seconds since 1970.
    pub(crate) at: u64,
    pub(crate) sums: BTreeMap<u32, CapacitySums>,
}

impl CapacityBucket {
    /// Tokens per second of one stream; `None` if no stream was decoding.
    fn speed(&self) -> Option<f64> {
        let (decoded, millis) = self.sums.values().fold((0, 0), |(decoded, millis), sums| {
            (decoded + sums.decoded, millis + sums.decode_millis)
        });
        (millis > 0).then(|| decoded as f64 * 1000.0 / millis as f64)
    }
}

/// When the relation between concurrency and speed last changed, in seconds since 1970. `buckets`
/// are in the order of time and have one length.
///
/// A jump in the speed of a stream may come from more concurrent streams, which is what a capacity
/// curve shows. It is a change of the upstream if one concurrency has different speeds before and
/// after it, or if slightly more streams give much less total throughput.
pub(crate) fn changed_at(buckets: &[CapacityBucket]) -> Option<u64> {
    let timed: Vec<&CapacityBucket> = buckets
        .iter()
        .filter(|bucket| bucket.speed().is_some())
        .collect();
    let speeds: Vec<f64> = timed.iter().filter_map(|bucket| bucket.speed()).collect();
    // A series that is too short has no change point.
    let changes = find(&speeds, &OPTIONS).unwrap_or_default();
    let mut end = timed.len();
    for (place, change) in changes.iter().enumerate().rev() {
        let start = place
            .checked_sub(1)
            .map_or(0, |before| changes[before].index);
        let before = merged(&timed[start..change.index]);
        let after = merged(&timed[change.index..end]);
        if differ(&before, &after) {
            return Some(timed[change.index].at);
        }
        end = change.index;
    }
    None
}

fn merged(buckets: &[&CapacityBucket]) -> BTreeMap<u32, CapacitySums> {
    let mut all: BTreeMap<u32, CapacitySums> = BTreeMap::new();
    for (concurrency, sums) in buckets.iter().flat_map(|bucket| &bucket.sums) {
        all.entry(*concurrency).or_default().merge(sums);
    }
    all.retain(|_, sums| sums.busy_millis >= SEEN && sums.decode_millis > 0);
    all
}

/// Whether two times cannot be on one capacity curve.
fn differ(before: &BTreeMap<u32, CapacitySums>, after: &BTreeMap<u32, CapacitySums>) -> bool {
    let (mut contrary, mut alike) = (0, 0);
    for (concurrency, later) in after {
        let speed = later.point(*concurrency);
        let millis = later.busy_millis;
        if let Some(earlier) = before.get(concurrency) {
            let ratio = speed.request_tps.unwrap_or(0.0)
                / earlier.point(*concurrency).request_tps.unwrap_or(f64::NAN);
            if (1.0 - DIFFERS..=1.0 / (1.0 - DIFFERS)).contains(&ratio) {
                alike += millis.min(earlier.busy_millis);
            } else {
                contrary += millis.min(earlier.busy_millis);
            }
        } else if before
            .iter()
            .any(|(other, earlier)| contradict((*concurrency, later), (*other, earlier)))
        {
            contrary += millis;
        }
    }
    contrary >= MIN_MILLIS && contrary > alike
}

/// Whether the higher of two neighbouring concurrencies gives much less total throughput.
fn contradict(one: (u32, &CapacitySums), other: (u32, &CapacitySums)) -> bool {
    let (low, high) = if one.0 < other.0 {
        (one, other)
    } else {
        (other, one)
    };
    let neighbours = u64::from(high.0) * 2 <= u64::from(low.0) * 3 || high.0 - low.0 == 1;
    neighbours && high.1.point(high.0).system_tps < (1.0 - DIFFERS) * low.1.point(low.0).system_tps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(seen: &[(u32, f64)]) -> Vec<CapacityBucket> {
        let bucket = |(place, (concurrency, speed)): (usize, &(u32, f64))| {
            // A small variation, as in every backend.
            let speed = speed * (1.0 + 0.02 * ((place * 7 % 5) as f64 - 2.0));
            let tokens = (speed * 10.0 * f64::from(*concurrency)) as u64;
            let sums = CapacitySums {
                busy_millis: 10_000,
                tokens,
                decoded: tokens,
                decode_millis: 10_000 * u64::from(*concurrency),
            };
            CapacityBucket {
                at: 1_000 + 10 * place as u64,
                sums: BTreeMap::from([(*concurrency, sums)]),
            }
        };
        seen.iter().enumerate().map(bucket).collect()
    }

    #[test]
    fn the_same_streams_at_half_the_speed_are_another_upstream() {
        let before = [(4, 50.0); 12];
        let after = [
            (4, 25.0),
            (4, 25.0),
            (6, 25.0),
            (8, 25.0),
            (8, 25.0),
            (8, 25.0),
        ];
        let seen = buckets(&[&before[..], &after].concat());
        assert_eq!(changed_at(&seen), Some(1_120));
    }

    #[test]
    fn a_few_more_streams_that_give_far_less_are_another_upstream() {
        let seen = buckets(&[[(4, 50.0); 12], [(5, 25.0); 12]].concat());
        assert_eq!(changed_at(&seen), Some(1_120));
        let recovers = buckets(&[[(8, 25.0); 12], [(7, 50.0); 12]].concat());
        assert_eq!(changed_at(&recovers), Some(1_120));
    }

    #[test]
    fn a_full_upstream_is_the_same_upstream() {
        let day: Vec<_> = [
            [(4, 50.0); 9],
            [(8, 25.0); 9],
            [(16, 12.5); 9],
            [(4, 50.0); 9],
        ]
        .concat();
        assert_eq!(changed_at(&buckets(&day)), None);
        assert_eq!(changed_at(&buckets(&[(4, 50.0); 3])), None);
        assert_eq!(changed_at(&[]), None);
    }
}
