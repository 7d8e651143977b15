//! The share of units that have an event: an interval that holds at every look, also where the event is rare or never happens.

use crate::check;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use statrs::distribution::{Beta, ContinuousCDF};
use statrs::function::beta::ln_beta;

/// Halvings of the range that a bound is in: more than a number's digits.
const HALVINGS: u32 = 60;
/// The mixture of shares: weight, α and β of each Beta distribution. It is made for rare events, which it bounds with half of
/// the units that a single Beta(½, ½) needs, and is almost as good for common events.
const MIXTURE: [(f64, f64, f64); 3] = [(0.7, 0.5, 20.0), (0.15, 20.0, 0.5), (0.15, 0.5, 0.5)];

/// The interval of a share, of which `with` of `units` independent units are: it holds at every look at once with the
/// confidence. Unlike [`crate::sequence`], it needs no variation: of no event among 500 units it says how many there may be.
/// Both may be fractions: calls that depend on each other count as fewer.
///
/// It has every share under which the units' likelihood, against a mixture of all shares, is not below 1 − confidence: the
/// mixture's relation to the true share is a martingale, so that Ville's inequality bounds it.
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
/// let none = share::interval(0.0, 500.0, 0.95).unwrap();
/// assert!(none.lower == 0.0 && none.upper > 0.009 && none.upper < 0.011, "{none:?}");
/// ```
pub fn interval(with: f64, units: f64, confidence: f64) -> Result<Interval> {
    let left_out = checked(with, units, confidence)?;
    let without = units - with;
    let component = |(weight, a, b): (f64, f64, f64)| {
        f64::ln(weight) + ln_beta(a + with, b + without) - ln_beta(a, b)
    };
    let components = MIXTURE.map(component);
    let largest = components.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = components.iter().map(|ln| (ln - largest).exp()).sum();
    let mixture = largest + sum.ln();
    // 0 · ln 0 is 0.
    let times_ln = |count: f64, share: f64| if count > 0.0 { count * share.ln() } else { 0.0 };
    let likelihood = |share: f64| times_ln(with, share) + times_ln(without, 1.0 - share);
    let inside = |share: f64| mixture - likelihood(share) < -left_out.ln();
    let observed = with / units;
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
    let tail = checked(with as f64, units as f64, confidence)? / 2.0;
    let (with, without) = (with as f64, (units - with) as f64);
    let quantile = |a: f64, b: f64, probability: f64| {
        let beta = Beta::new(a, b).map_err(|_| StatsError::NotFinite)?;
        Ok(beta.inverse_cdf(probability))
    };
    Ok(Interval {
        lower: if with > 0.0 {
            quantile(with, without + 1.0, tail)?
        } else {
            0.0
        },
        upper: if without > 0.0 {
            quantile(with + 1.0, without, 1.0 - tail)?
        } else {
            1.0
        },
    })
}

/// The part of the intervals that miss the share, where the counts make sense.
fn checked(with: f64, units: f64, confidence: f64) -> Result<f64> {
    let left_out = check::left_out(confidence)?;
    check::finite(&[with, units])?;
    check::positive("units", units)?;
    if (0.0..=units).contains(&with) {
        Ok(left_out)
    } else {
        Err(StatsError::OutOfRange {
            name: "units with the event",
            wanted: "at most all units",
            value: with,
        })
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
        if is_inside(middle) {
            inside = middle;
        } else {
            outside = middle;
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
        // By Python's math.lgamma, the mixture of three times (1 - p)^-100 is 20.
        let none = interval(0.0, 100.0, 0.95).expect("an interval");
        assert!(
            (none.upper - 0.041_362_207_377_868_89).abs() < 1e-9,
            "{none:?}"
        );
        assert_eq!(none.lower, 0.0);
        let all = interval(100.0, 100.0, 0.95).expect("an interval");
        assert!(all.lower > 0.94 && all.lower < 1.0 - none.upper && all.upper == 1.0);
    }

    #[test]
    fn the_share_stays_inside_at_every_look() {
        let mut generator = seeded(7);
        let (runs, share) = (400, 0.02);
        let mut missed = 0;
        for _ in 0..runs {
            let mut with = 0.0;
            let left = (1..=2_000_u32).any(|units| {
                with += f64::from(u8::from(generator.random_bool(share)));
                let found = interval(with, f64::from(units), 0.9).expect("an interval");
                !(found.lower..=found.upper).contains(&share)
            });
            missed += u64::from(left);
        }
        assert!(missed <= runs / 10, "{missed} of {runs}");
        assert!(missed > 0, "an interval that is never wrong is too wide");
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(interval(0.0, 0.0, 0.95).is_err());
        assert!(interval(2.0, 1.0, 0.95).is_err());
        assert!(interval(1.0, 2.0, 1.0).is_err());
    }
}
