//! Rank tests of two samples: whether one sample is shifted, and by how much.

mod exact;
mod ranks;

use crate::check;
use crate::distribution::{normal_quantile, normal_two_sided};
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use crate::moments;
use exact::Exact;
use ranks::Ranks;

/// The largest size of the smaller sample for which the exact distribution is used, as in scipy.
const EXACT_UP_TO: usize = 8;
/// The maximum number of pairs in memory: 8 MB.
pub const MAX_PAIRS: usize = 1_000_000;

/// The distribution that a p value was computed from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Distribution {
    /// The exact distribution, from counting all orders of the values.
    Exact,
    /// The normal approximation, with corrections for ties and continuity.
    Normal,
}

/// The result of a Mann–Whitney test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MannWhitney {
    /// U of the first sample: the number of pairs in which the first sample has the larger value. Equal pairs count
    /// half.
    pub u: f64,
    /// The two-sided p value.
    pub p: f64,
    /// The distribution that `p` was computed from.
    pub distribution: Distribution,
}

/// The two-sided Mann–Whitney U test (Wilcoxon's rank sum test) of whether two independent samples come from one
/// distribution. It uses only the order of the values.
///
/// The p value is exact if the smaller sample has at most 8 values and no two values are equal. Otherwise it is normal
/// with corrections for ties and continuity. Both rules are the defaults of `scipy.stats.mannwhitneyu`. If all values
/// are equal, p is 1, where scipy returns NaN. Above [`MAX_PAIRS`] pairs the normal approximation is always used.
///
/// Source: Mann and Whitney, Annals of Mathematical Statistics 18 (1947).
///
/// # Errors
///
/// Returns an error if a sample is empty or a value is not finite.
///
/// ```
/// use tokengauge_stats::rank::{Distribution, mann_whitney};
///
/// let test = mann_whitney(&[48.1, 47.7, 48.6], &[52.0, 51.1, 53.4]).unwrap();
/// assert_eq!((test.u, test.distribution), (0.0, Distribution::Exact));
/// assert!((test.p - 0.1).abs() < 1e-12); // 2 of the 20 orders of six values
/// ```
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Result<MannWhitney> {
    check::series(first, 1)?;
    check::series(second, 1)?;
    let ranks = Ranks::of(first, second);
    let pairs = first.len() * second.len();
    let u = ranks.u();
    let few = first.len().min(second.len()) <= EXACT_UP_TO && pairs <= MAX_PAIRS;
    let (p, distribution) = if few && !ranks.has_ties() {
        let below = u.min(pairs as f64 - u) as usize;
        let exact = Exact::new(first.len(), second.len());
        ((2.0 * exact.at_most(below)).min(1.0), Distribution::Exact)
    } else {
        let above = (u - pairs as f64 / 2.0).abs() - 0.5;
        (
            one_when_equal(above, ranks.deviation()),
            Distribution::Normal,
        )
    };
    Ok(MannWhitney { u, p, distribution })
}

/// The continuity correction can make the distance negative; p is 1 then.
fn one_when_equal(above: f64, deviation: f64) -> f64 {
    if above <= 0.0 || deviation <= 0.0 {
        return 1.0;
    }
    normal_two_sided(above / deviation)
}

/// The shift from the first sample to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The median of all differences, second minus first.
    pub estimate: f64,
    /// The shifts that the test does not reject. `None` if the samples are too small to reject any shift at this
    /// confidence, such as three against three at 95 %.
    pub interval: Option<Interval>,
}

/// Returns the Hodges–Lehmann estimate of the shift from the first sample to the second, in the unit of the samples,
/// with its interval. The interval contains every shift that [`mann_whitney`] would not reject between the shifted
/// first sample and the second.
///
/// The interval assumes independent values and distributions of equal shape. It is exact under the conditions of the
/// test and otherwise normal, with corrections for the ties within each sample.
///
/// Source: Hodges and Lehmann, Annals of Mathematical Statistics 34 (1963); the interval is Moses', in Hollander and
/// Wolfe, "Nonparametric statistical methods", 4.3.
///
/// # Errors
///
/// Returns an error if a sample is empty, a value is not finite, or there are more than [`MAX_PAIRS`] pairs.
///
/// ```
/// use tokengauge_stats::rank::shift;
///
/// let (old, new) = ([48.1, 47.7, 48.6, 48.3, 47.9], [52.1, 51.2, 52.6, 52.0, 51.9]);
/// let found = shift(&old, &new, 0.95).unwrap();
/// assert!((found.estimate - 3.9).abs() < 0.15);
/// assert!(found.interval.unwrap().lower > 3.0);
/// ```
pub fn shift(first: &[f64], second: &[f64], confidence: f64) -> Result<Shift> {
    let left_out = check::left_out(confidence)?;
    check::series(first, 1)?;
    check::series(second, 1)?;
    let differences = differences(first, second)?;
    let estimate = check::answer(moments::median_of_sorted(&differences))?;
    let interval = match outermost(first, second, left_out) {
        Some(rank) => Some(Interval::new(
            differences[rank],
            differences[differences.len() - 1 - rank],
        )?),
        None => None,
    };
    Ok(Shift { estimate, interval })
}

/// Returns all differences, second minus first, in ascending order.
fn differences(first: &[f64], second: &[f64]) -> Result<Vec<f64>> {
    let pairs = first.len().saturating_mul(second.len());
    if pairs > MAX_PAIRS {
        return Err(StatsError::TooMany {
            allowed: MAX_PAIRS,
            got: pairs,
        });
    }
    let mut differences: Vec<f64> = second
        .iter()
        .flat_map(|second| first.iter().map(move |first| second - first))
        .collect();
    differences.sort_by(f64::total_cmp);
    Ok(differences)
}

/// Returns how many of the smallest differences lie outside the interval: the number of differences below the first
/// shift that is not rejected. Returns `None` if no shift is rejected.
fn outermost(first: &[f64], second: &[f64], left_out: f64) -> Option<usize> {
    let pairs = first.len() * second.len();
    let ranks = Ranks::of(first, second);
    let few = first.len().min(second.len()) <= EXACT_UP_TO;
    let rejected = if few && !ranks.has_ties_within() {
        let exact = Exact::new(first.len(), second.len());
        // Makes sure that a p value of exactly 20 % is rejected at 80 %, although 1 - 0.8 is slightly less than 0.2.
        let left_out = left_out * (1.0 + 1e-9);
        (0..=pairs / 2)
            .take_while(|below| 2.0 * exact.at_most(*below) <= left_out)
            .count()
    } else {
        let reach = normal_quantile(1.0 - left_out / 2.0) * ranks.deviation_within() + 0.5;
        let last = pairs as f64 / 2.0 - reach;
        if last < 0.0 {
            0
        } else {
            last.floor() as usize + 1
        }
    };
    rejected
        .checked_sub(1)
        .map(|rank| rank.min(pairs.div_ceil(2) - 1))
}
