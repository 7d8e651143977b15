//! Finds the knee of a capacity curve: the concurrency above which throughput does not grow.

use super::changed_upstream::{CapacityBucket, changed_at};
use crate::query::{CapacityPoint, CapacityRow, CapacitySums, Knee};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// Concurrencies with fewer seconds are ignored.
const MIN_SECONDS: u64 = 5;
/// Above the knee, an additional stream adds less than this share of one stream's throughput at the
/// lowest concurrency.
const PAYS: f64 = 0.1;
/// The highest concurrency must exceed the knee by this factor and by at least two streams, because
/// one flat step may be chance.
const BEYOND: f64 = 1.25;

/// The capacity of `upstream`, with its knee or the reason why there is none. `points` are sorted
/// by ascending concurrency.
pub fn capacity_of(upstream: &str, points: Vec<CapacityPoint>) -> CapacityRow {
    let knee = knee(&points);
    CapacityRow {
        name: upstream.to_owned(),
        points,
        knee: knee.as_ref().ok().copied(),
        reason: knee.err().map(|reason| reason.to_string()),
        changed_at: None,
    }
}

/// The capacity of `upstream` in the time of these buckets, or since the upstream last became
/// faster or slower for a reason other than its load.
pub(crate) fn capacity_since_change(upstream: &str, buckets: &[CapacityBucket]) -> CapacityRow {
    let changed = changed_at(buckets);
    let mut all: BTreeMap<u32, CapacitySums> = BTreeMap::new();
    let since = changed.unwrap_or(0);
    for bucket in buckets.iter().filter(|bucket| bucket.at >= since) {
        for (concurrency, sums) in &bucket.sums {
            all.entry(*concurrency).or_default().merge(sums);
        }
    }
    let points = all
        .iter()
        .map(|(concurrency, sums)| sums.point(*concurrency));
    CapacityRow {
        changed_at: changed.map(|at| (UNIX_EPOCH + Duration::from_secs(at)).into()),
        ..capacity_of(upstream, points.collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownKnee {
    #[error("too few levels of concurrency lasted long enough")]
    TooFewPoints,
    #[error("no tokens arrived at the lowest concurrency")]
    NoTokens,
    #[error("throughput still grew near the highest observed concurrency, {highest}")]
    StillGrowing { highest: u32 },
}

/// The lowest concurrency above which throughput does not grow, or why it is unknown.
pub fn knee(points: &[CapacityPoint]) -> Result<Knee, UnknownKnee> {
    let enough = |point: &&CapacityPoint| point.concurrency > 0 && point.seconds >= MIN_SECONDS;
    let seen: Vec<_> = points.iter().filter(enough).collect();
    let [first, .., last] = &seen[..] else {
        return Err(UnknownKnee::TooFewPoints);
    };
    let share = first.system_tps / f64::from(first.concurrency);
    if share <= 0.0 {
        return Err(UnknownKnee::NoTokens);
    }
    let pays = |from: &CapacityPoint, to: &CapacityPoint| {
        let added = f64::from(to.concurrency - from.concurrency);
        (to.system_tps - from.system_tps) / added >= PAYS * share
    };
    let flat = |at: &usize| !seen[at + 1..].iter().any(|later| pays(seen[*at], later));
    let tried = |at: &usize| {
        let (knee, most) = (seen[*at].concurrency, last.concurrency);
        f64::from(most) >= f64::from(knee) * BEYOND && most >= knee + 2
    };
    let knee = (0..seen.len() - 1).find(flat).filter(tried).map(|at| Knee {
        concurrency: seen[at].concurrency,
        system_tps: seen[at].system_tps,
    });
    knee.ok_or(UnknownKnee::StillGrowing {
        highest: last.concurrency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(all: &[(u32, f64, u64)]) -> Vec<CapacityPoint> {
        let point = |(concurrency, system_tps, seconds): &(u32, f64, u64)| CapacityPoint {
            concurrency: *concurrency,
            system_tps: *system_tps,
            request_tps: None,
            seconds: *seconds,
        };
        all.iter().map(point).collect()
    }

    #[test]
    fn the_knee_is_where_added_streams_bring_under_a_tenth_of_a_stream() {
        let curve = points(&[
            (1, 50.0, 60),
            (4, 200.0, 60),
            (8, 390.0, 60),
            (16, 420.0, 60),
            (32, 430.0, 60),
        ]);
        let row = capacity_of("u", curve);
        let knee = row.knee.expect("a knee");
        // From 8 to 16 streams, each adds 30 / 8 = 3.75, compared with 50 for the first.
        assert_eq!((knee.concurrency, knee.system_tps), (8, 390.0));
        assert_eq!(row.reason, None);
    }

    #[test]
    fn a_dip_is_no_knee_where_it_pays_again_later() {
        let curve = points(&[(1, 50.0, 60), (2, 49.0, 6), (8, 380.0, 60), (12, 380.0, 60)]);
        assert_eq!(knee(&curve).expect("a knee").concurrency, 8);
    }

    #[test]
    fn a_little_more_that_brings_little_may_be_chance() {
        let curve = points(&[(1, 50.0, 60), (8, 380.0, 60), (9, 380.0, 60)]);
        let reason = knee(&curve).expect_err("hardly tried");
        assert!(reason.to_string().contains("still grew near"), "{reason}");
        let curve = points(&[(1, 50.0, 60), (8, 380.0, 60), (10, 380.0, 60)]);
        assert_eq!(knee(&curve).expect("a knee").concurrency, 8);
    }

    #[test]
    fn without_a_knee_there_is_a_reason() {
        let growing = points(&[(1, 50.0, 60), (2, 99.0, 60), (9, 400.0, 2)]);
        let reason = knee(&growing).expect_err("it grows");
        assert!(
            reason.to_string().ends_with("concurrency, 2"),
            "a short look does not count: {reason}"
        );
        for few in [&[][..], &[(4, 200.0, 60)], &[(1, 1.0, 1), (2, 2.0, 1)]] {
            let reason = knee(&points(few)).expect_err("too few").to_string();
            assert!(reason.starts_with("too few"), "{reason}");
        }
        let idle = points(&[(1, 0.0, 60), (2, 0.0, 60)]);
        let reason = knee(&idle).expect_err("idle").to_string();
        assert!(reason.starts_with("no tokens"), "{reason}");
    }
}
