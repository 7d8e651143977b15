//! When the share of bad calls rose.

use crate::evidence::{Tally, beyond, beyond_chance, log_likelihood_ratio};

const POSSIBLE: f64 = 0.05;

/// The place that splits calls into a good and a bad time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onset {
    None,
    /// There are too few calls to decide.
    Possible,
    /// The split is before the call with this index.
    At(usize),
}

/// Finds the split that best separates a time with fewer bad calls from a later time with more. `bad` has one entry per
/// call, in the order in which calls ended. The result is the index of the first bad call of the later time. Each side has
/// at least `least` calls.
pub(crate) fn onset(bad: &[bool], least: usize) -> Onset {
    let all = Tally::of(bad, |bad| *bad);
    let mut before = Tally::default();
    let mut best: Option<(f64, usize)> = None;
    for (place, bad) in bad.iter().copied().enumerate() {
        let after = all.without(before);
        if bad && before.all >= least && after.all >= least && after.rate() > before.rate() {
            let ratio = log_likelihood_ratio(before, after);
            if best.is_none_or(|best| ratio > best.0) {
                best = Some((ratio, place));
            }
        }
        before.add(bad);
    }
    let Some((ratio, place)) = best else {
        return Onset::None;
    };
    let comparisons = independent_splits(bad.len(), least);
    match ratio {
        ratio if beyond_chance(ratio, comparisons) => Onset::At(place),
        ratio if beyond(POSSIBLE, ratio, comparisons) => Onset::Possible,
        _ => Onset::None,
    }
}

/// The number of effectively independent splits, since adjacent splits are nearly the same comparison. See James, James and
/// Siegmund (1987), Tests for a change-point.
fn independent_splits(calls: usize, least: usize) -> usize {
    let length = calls as f64 / least.max(1) as f64;
    (2.0 * length.max(1.0).ln()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    fn found(seed: u64, rate: impl Fn(usize) -> f64) -> Onset {
        let mut random = StdRng::seed_from_u64(seed);
        let bad = (0..2_000).map(|place| random.random_bool(rate(place)));
        onset(&bad.collect::<Vec<_>>(), 20)
    }

    #[test]
    fn a_split_is_rarely_seen_where_there_is_none_and_soon_where_there_is_one() {
        for rate in [0.005, 0.02, 0.1, 0.4] {
            let all: Vec<Onset> = (0..1_000).map(|seed| found(seed, |_| rate)).collect();
            let certain = all.iter().filter(|one| matches!(one, Onset::At(_))).count();
            let possible = all.iter().filter(|one| **one == Onset::Possible).count();
            assert!(certain <= 4, "{rate}: {certain}");
            assert!(possible <= 80, "{rate}: {possible}");
        }
        let changed = |place| if place < 1_950 { 0.05 } else { 0.5 };
        let all = (0..100).map(|seed| found(seed, changed));
        let near = all.filter(|one| matches!(one, Onset::At(1_930..=1_970)));
        assert!(near.count() >= 95);
    }
}
