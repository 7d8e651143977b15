//! Since when more calls are bad.

use crate::evidence::{Tally, beyond, beyond_chance, log_likelihood_ratio};

/// The chance at which a split is taken for possible.
const POSSIBLE: f64 = 0.05;

/// Where the calls before and those during a time with more bad calls are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onset {
    /// Nothing speaks for a split.
    None,
    /// There may be one: too few calls to tell.
    Possible,
    /// At the call of this place.
    At(usize),
}

/// Where calls, in the order in which they ended and each bad or not, are split best into a time with fewer bad calls and one with more: the
/// place of the first bad call of the latter, with `least` calls on either side.
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

/// Splits next to each other are nearly the same comparison. Of all splits of so many calls about so many are as good as
/// independent (James, James and Siegmund 1987, Tests for a change-point).
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
