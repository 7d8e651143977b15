//! Since when more calls are bad.

use crate::call::Call;
use crate::evidence::{Tally, beyond_chance, log_likelihood_ratio};

/// Where the calls, in the order in which they ended, are split best into a time with fewer bad calls and one with more: the
/// place of the first bad call of the latter. `None` where no split is beyond chance, or there are fewer than `least` calls on
/// a side.
pub(crate) fn onset(calls: &[Call], least: usize) -> Option<usize> {
    let all = Tally::of(calls, |call| call.bad);
    let mut before = Tally::default();
    let mut best: Option<(f64, usize)> = None;
    for (place, call) in calls.iter().enumerate() {
        let after = all.without(before);
        if call.bad && before.all >= least && after.all >= least && after.rate() > before.rate() {
            let ratio = log_likelihood_ratio(before, after);
            if best.is_none_or(|best| ratio > best.0) {
                best = Some((ratio, place));
            }
        }
        before.add(call.bad);
    }
    let (ratio, place) = best?;
    beyond_chance(ratio, calls.len()).then_some(place)
}
