//! Upper bounds of percentiles and the number of calls that they need, by the rule of MLPerf LoadGen.

use crate::check;
use crate::error::{Result, StatsError};
use crate::moments;
use statrs::function::beta::beta_reg;

/// An upper bound of a percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The upper bound of the percentile at the confidence. It is one of the values, in their unit.
    pub bound: f64,
    /// The number of values above the bound, if no values are equal.
    pub above: usize,
}

/// Returns an upper bound of a percentile of times. With `percentile` 0.99 and `confidence` 0.99, the true p99 of the
/// calls' distribution is at or below the bound with a probability of at least 0.99. More calls bring the bound closer
/// to the p99.
///
/// With n calls the bound is the t-th largest value, for the largest t that [`calls_needed_with`] allows: the "early
/// stopping percentile estimate" of MLPerf LoadGen. It assumes independent calls of one distribution, which need not be
/// known. For the low tail of a speed, pass times per token or negated values.
///
/// Source: MLPerf Inference rules, appendix "Early stopping criterion"; `loadgen/results.cc`, `loadgen/early_stopping.cc` with
/// its tolerance of 0.
///
/// # Errors
///
/// Returns [`StatsError::TooFew`] for fewer than [`calls_needed`] calls. Returns an error for a value that is not
/// finite, and for a percentile or a confidence that is not between 0 and 1.
///
/// ```
/// use tokengauge_stats::{StatsError, tail};
///
/// let times: Vec<f64> = (1..=1_000).map(f64::from).collect();
/// assert_eq!(tail::bound(&times[..661], 0.99, 0.99), Err(StatsError::TooFew { needed: 662, got: 661 }));
/// let p99 = tail::bound(&times, 0.99, 0.99).unwrap();
/// assert_eq!((p99.bound, p99.above), (999.0, 1));
/// ```
pub fn bound(times: &[f64], percentile: f64, confidence: f64) -> Result<Tail> {
    check::finite(times)?;
    check::at_least(calls_needed(percentile, confidence)?, times.len())?;
    let calls = times.len();
    let left_out = check::left_out(confidence)?;
    // 1 is allowed; find the last allowed value by bisection.
    let (mut allowed, mut refused) = (1, calls);
    while refused - allowed > 1 {
        let middle = allowed.midpoint(refused);
        if at_most_over(middle, calls, percentile) <= left_out {
            allowed = middle;
        } else {
            refused = middle;
        }
    }
    Ok(Tail {
        bound: moments::sorted(times)[calls - allowed],
        above: allowed - 1,
    })
}

/// Returns the minimum number of calls that bounds a percentile at a confidence: 64 for p90, 662 for p99 and 6,636 for
/// p99.9, at 99 %.
///
/// # Errors
///
/// Returns an error if the percentile or the confidence is not between 0 and 1, or if more than 10⁹ calls are needed.
///
/// ```
/// use tokengauge_stats::tail::calls_needed;
///
/// assert_eq!(calls_needed(0.99, 0.99), Ok(662));
/// assert_eq!(calls_needed(0.90, 0.99), Ok(64));
/// ```
pub fn calls_needed(percentile: f64, confidence: f64) -> Result<usize> {
    calls_needed_with(1, percentile, confidence)
}

/// Returns the minimum number n of calls, `over` of them over a limit, that shows at a confidence that the percentile
/// is not above the limit: the smallest n with P(Binomial(n, 1 − percentile) ≤ over) ≤ 1 − confidence.
///
/// # Errors
///
/// Returns the errors of [`calls_needed`].
///
/// ```
/// use tokengauge_stats::tail::calls_needed_with;
///
/// assert_eq!(calls_needed_with(2, 0.90, 0.99), Ok(81));
/// ```
pub fn calls_needed_with(over: usize, percentile: f64, confidence: f64) -> Result<usize> {
    const MOST: usize = 1_000_000_000;
    check::open_share("percentile", percentile)?;
    let left_out = check::left_out(confidence)?;
    let shows = |calls: usize| at_most_over(over, calls, percentile) <= left_out;
    let (mut too_few, mut enough) = (over, over.saturating_mul(2).max(16));
    while !shows(enough) {
        if enough >= MOST {
            return Err(StatsError::OutOfRange {
                name: "percentile",
                wanted: "low enough that 10^9 calls are sufficient",
                value: percentile,
            });
        }
        too_few = enough;
        enough *= 2;
    }
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        if shows(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Ok(enough)
}

/// Returns the probability that at most `over` of `calls` are over the percentile: the binomial distribution, as the
/// regularized incomplete beta function.
fn at_most_over(over: usize, calls: usize, percentile: f64) -> f64 {
    if calls > over {
        beta_reg((calls - over) as f64, over as f64 + 1.0, percentile)
    } else {
        1.0
    }
}
