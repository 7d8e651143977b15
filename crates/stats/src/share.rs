//! Intervals of the share of units that have an event. They are valid at every look, also for events that are rare or
//! never happen.

use crate::check;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use statrs::distribution::{Beta, ContinuousCDF};
use statrs::function::beta::ln_beta;

/// The number of bisection steps, which exceeds the precision of a `f64`.
const HALVINGS: u32 = 60;
/// The prior mixture of shares: weight, α and β of each Beta distribution. It is designed for rare events, for which it
/// needs half of the units that a single Beta(½, ½) needs. It is almost as good for common events.
const MIXTURE: [(f64, f64, f64); 3] = [(0.7, 0.5, 20.0), (0.15, 20.0, 0.5), (0.15, 0.5, 0.5)];

/// Returns the interval of a share from `with` events in `units` independent units, valid at every look. Unlike
/// [`crate::sequence`] it needs no variation: it also bounds the share after no event in 500 units. Both numbers may be
/// fractions, because dependent calls count as fewer.
///
/// The interval contains every share whose likelihood ratio against the mixture is at least 1 − confidence. Under the
/// true share, the inverse ratio is a martingale, so Ville's inequality bounds it.
///
/// Source: Robbins, "Statistical methods related to the law of the iterated logarithm" (1970); the beta-binomial mixture of
/// Howard et al., arXiv 1810.08240.
///
/// # Errors
///
/// Returns an error without units, for more events than units, and for a confidence that is not between 0 and 1.
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
    let times_ln = |count: f64, share: f64| if count > 0.0 { count * share.ln() } else { 0.0 };
    let likelihood = |share: f64| times_ln(with, share) + times_ln(without, 1.0 - share);
    let inside = |share: f64| mixture - likelihood(share) < -left_out.ln();
    let observed = with / units;
    Ok(Interval {
        lower: edge(observed, 0.0, &inside),
        upper: edge(observed, 1.0, &inside),
    })
}

/// Returns the interval of a share for a single look at a number of units that was fixed beforehand, such as the runs
/// of a simulation.
///
/// Source: Clopper and Pearson, Biometrika 26 (1934).
///
/// # Errors
///
/// Returns the errors of [`interval`].
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

/// Checks the counts and returns `1 - confidence`.
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

/// Returns the edge between a share inside the interval and one outside, by bisection.
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
    // The outer share, so that rounding never narrows the interval.
    outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use rand::RngExt;

    #[test]
    fn it_is_the_solution_of_its_equation() {
        // Python's math.lgamma shows that the mixture is 20 times (1 - p)^-100.
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
