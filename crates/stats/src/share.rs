//! The share of units that have an event: an interval that holds at every look, also where the event is rare or never happens.

use crate::check;
use crate::error::{Error, Result};
use crate::interval::Interval;
use statrs::distribution::{Beta, ContinuousCDF};
use statrs::function::beta::ln_beta;

/// Halvings of the range that a bound is in: more than a number's digits.
const HALVINGS: u32 = 60;
/// Jeffreys' prior.
const PRIOR: f64 = 0.5;

/// The interval of a share, of which `with` of `units` independent units are: it holds at every look at once with the
/// confidence. Unlike [`crate::sequence`], it needs no variation: of no event among 500 units it says how many there may be.
///
/// It has every share under which the units' likelihood, against the mixture of all shares with weights Beta(½, ½), is not
/// below 1 − confidence: the mixture's relation to the true share is a martingale, so that Ville's inequality bounds it.
///
/// Source: Robbins, "Statistical methods related to the law of the iterated logarithm" (1970); the beta-binomial mixture of
/// Howard et al., arXiv 1810.08240.
///
/// # Errors
///
/// Without units, with more events than units, and when the confidence is not between 0 and 1.
///
/// ```
/// use tokengauge_stats::share;
///
/// let none = share::interval(0, 500, 0.95).unwrap();
/// assert!(none.lower == 0.0 && none.upper > 0.012 && none.upper < 0.015, "{none:?}");
/// ```
pub fn interval(with: u64, units: u64, confidence: f64) -> Result<Interval> {
    let left_out = checked(with, units, confidence)?;
    let (with, without) = (with as f64, (units - with) as f64);
    let mixture = ln_beta(PRIOR + with, PRIOR + without) - ln_beta(PRIOR, PRIOR);
    // 0 · ln 0 is 0.
    let times_ln = |count: f64, share: f64| if count > 0.0 { count * share.ln() } else { 0.0 };
    let likelihood = |share: f64| times_ln(with, share) + times_ln(without, 1.0 - share);
    let inside = |share: f64| mixture - likelihood(share) < -left_out.ln();
    let observed = with / units as f64;
    Ok(Interval {
        lower: edge(observed, 0.0, &inside),
        upper: edge(observed, 1.0, &inside),
    })
}

/// The interval of a share for one look at a number of units that was fixed beforehand, such as the runs of a simulation.
///
/// Source: Clopper and Pearson, Biometrika 26 (1934).
///
/// # Errors
///
/// Those of [`interval`].
///
/// ```
/// use tokengauge_stats::share;
///
/// // scipy.stats.binomtest(25, 500).proportion_ci(0.95, "exact")
/// let alarms = share::fixed_interval(25, 500, 0.95).unwrap();
/// assert!((alarms.lower - 0.0326).abs() < 1e-4 && (alarms.upper - 0.0729).abs() < 1e-4, "{alarms:?}");
/// ```
pub fn fixed_interval(with: u64, units: u64, confidence: f64) -> Result<Interval> {
    let tail = checked(with, units, confidence)? / 2.0;
    let (with, without) = (with as f64, (units - with) as f64);
    let quantile = |a: f64, b: f64, probability: f64| {
        let beta = Beta::new(a, b).map_err(|_| Error::NotFinite)?;
        Ok(beta.inverse_cdf(probability))
    };
    Ok(Interval {
        lower: match with > 0.0 {
            true => quantile(with, without + 1.0, tail)?,
            false => 0.0,
        },
        upper: match without > 0.0 {
            true => quantile(with + 1.0, without, 1.0 - tail)?,
            false => 1.0,
        },
    })
}

/// The part of the intervals that miss the share, where the counts make sense.
fn checked(with: u64, units: u64, confidence: f64) -> Result<f64> {
    let left_out = check::left_out(confidence)?;
    check::at_least(1, usize::try_from(units).unwrap_or(usize::MAX))?;
    match with <= units {
        true => Ok(left_out),
        false => Err(Error::OutOfRange {
            name: "units with the event",
            wanted: "at most all units",
            value: with as f64,
        }),
    }
}

/// The last share on the way from one that is inside to an end.
fn edge(inside: f64, end: f64, is_inside: &impl Fn(f64) -> bool) -> f64 {
    if is_inside(end) {
        return end;
    }
    let (mut inside, mut outside) = (inside, end);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(inside, outside);
        match is_inside(middle) {
            true => inside = middle,
            false => outside = middle,
        }
    }
    // The outer one, so that rounding leaves nothing out.
    outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use rand::RngExt;

    #[test]
    fn it_is_the_solution_of_its_equation() {
        // scipy: betaln(0.5, 100.5) - betaln(0.5, 0.5) - 100 * log1p(-p) = log(20)
        let none = interval(0, 100, 0.95).expect("an interval");
        assert!((none.upper - 0.056_974).abs() < 2e-4, "{none:?}");
        assert_eq!(none.lower, 0.0);
        let all = interval(100, 100, 0.95).expect("an interval");
        assert!((all.lower - (1.0 - none.upper)).abs() < 1e-12 && all.upper == 1.0);
    }

    #[test]
    fn the_share_stays_inside_at_every_look() {
        let mut generator = seeded(7);
        let (runs, share) = (400, 0.02);
        let mut missed = 0;
        for _ in 0..runs {
            let mut with = 0;
            let left = (1..=2_000_u64).any(|units| {
                with += u64::from(generator.random_bool(share));
                let found = interval(with, units, 0.9).expect("an interval");
                !(found.lower..=found.upper).contains(&share)
            });
            missed += u64::from(left);
        }
        assert!(missed <= runs / 10, "{missed} of {runs}");
        assert!(missed > 0, "an interval that is never wrong is too wide");
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(interval(0, 0, 0.95).is_err());
        assert!(interval(2, 1, 0.95).is_err());
        assert!(interval(1, 2, 1.0).is_err());
    }
}
