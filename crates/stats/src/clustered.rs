//! Quantiles and shares of calls that are grouped into units. Calls of one session depend on each other; sessions are
//! independent.

use crate::check;
use crate::distribution::student_quantile;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use crate::moments::quantile_of_sorted;
use crate::random::seeded;
use crate::ratio::Unit;
use rand::RngExt;
use statrs::function::beta::beta_reg;

/// The number of bisection steps, which exceeds the precision of a `f64`.
const HALVINGS: u32 = 60;

/// The minimum number of units for an interval. With fewer units, intervals of skewed figures miss the truth more often
/// than their confidence says.
pub const MIN_UNITS: usize = 15;
/// The minimum effective number of units (Kish). If one unit has nearly all calls, the sample says nothing about other
/// units.
const LEAST_EQUAL: f64 = 2.0;
/// Above this number of units, Student's t is as accurate as resampling.
const FEW_UNITS: usize = 300;
const RESAMPLES: usize = 999;
/// The share of the tail that the bootstrap-t gets on the side to which a ratio is skewed. Most small samples lack the
/// largest units, so the bootstrap-t misses more often on that side. With this share, simulated intervals miss as often
/// as their confidence says.
const SKEWED_TAIL: f64 = 0.4;

/// A value and the number of its unit, such as a call and its session.
pub type Observation = (f64, u32);

/// The contribution of each unit to the error of a figure: unit number and error, ascending by unit. Errors are scaled
/// by a common factor.
pub type Contributions = Vec<(u32, f64)>;

/// The bounds of a quantile. Each bound is one of the values, or `None` if there are too few values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lower bound.
    pub lower: Option<f64>,
    /// The upper bound.
    pub upper: Option<f64>,
}

/// Values in ascending order with their units.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Each value with the index of its unit in `units`.
    values: Vec<(f64, usize)>,
    /// The number of each unit, ascending, with its count of values.
    units: Vec<(u32, u64)>,
}

impl Sample {
    /// Sorts the observations.
    ///
    /// # Errors
    ///
    /// Returns an error without observations and for a value that is not finite.
    pub fn new(mut observations: Vec<Observation>) -> Result<Self> {
        check::at_least(1, observations.len())?;
        if observations.iter().any(|(value, _)| !value.is_finite()) {
            return Err(StatsError::NotFinite);
        }
        observations.sort_unstable_by_key(|(_, unit)| *unit);
        let mut units: Vec<(u32, u64)> = Vec::new();
        let mut values = Vec::with_capacity(observations.len());
        for (value, unit) in observations {
            match units.last_mut() {
                Some((last, count)) if *last == unit => *count += 1,
                _ => units.push((unit, 1)),
            }
            values.push((value, units.len() - 1));
        }
        values.sort_by(|left, right| left.0.total_cmp(&right.0));
        Ok(Self { values, units })
    }

    /// Returns the number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// Returns the quantile at `share` by the nearest-rank method.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.values.len() as f64).ceil() as usize;
        self.values[rank.clamp(1, self.values.len()) - 1].0
    }

    /// Returns the interval of a quantile: the order statistics between which the quantile lies, at a confidence such
    /// as 0.95.
    ///
    /// For independent values (one per unit) these are the order statistics of the binomial distribution, whatever the
    /// distribution of the values is. Values of one unit depend on each other, so the number of values is replaced by
    /// an effective number: p (1 − p) divided by the clustered variance of the share of values at or below the
    /// quantile. The effective number is at most the number of values, and Student's t lowers it for the effective
    /// number of units. The variance is a jackknife estimate.
    ///
    /// The interval assumes independent units and a single look. At least [`MIN_UNITS`] units are needed.
    ///
    /// Source: Woodruff, "Confidence intervals for medians and other position measures", JASA 47 (1952); Korn and Graubard,
    /// "Confidence intervals for proportions with small expected number of positive counts", Survey Methodology 24 (1998): R's
    /// `svyquantile(interval.type = "beta")`.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than [`MIN_UNITS`] units, and for a share or a confidence that is not between 0 and
    /// 1.
    ///
    /// ```
    /// use tokengauge_stats::clustered::Sample;
    ///
    /// // A hundred calls of as many sessions: the 40th and the 61st bound the median.
    /// let sample = Sample::new((1..=100).map(|call| (f64::from(call), call)).collect()).unwrap();
    /// let median = sample.quantile_interval(0.5, 0.95).unwrap();
    /// assert_eq!((median.lower, median.upper), (Some(40.0), Some(61.0)));
    /// assert_eq!(sample.quantile_interval(0.99, 0.95).unwrap().upper, None); // too few calls
    /// ```
    pub fn quantile_interval(&self, share: f64, confidence: f64) -> Result<Bounds> {
        check::open_share("share", share)?;
        let below = self.below(self.quantile(share));
        let effective = effective(below.iter().copied(), confidence)?;
        let tail = check::left_out(confidence)? / 2.0;
        let scale = self.values.len() as f64 / effective;
        // The value of rank l is above the quantile with the probability that fewer than l values are at or below the
        // quantile.
        let few = |rank: f64| at_most(rank - 1.0, effective, share);
        let lower = first(1.0, effective + 1.0, |rank| few(rank) > tail)
            .filter(|_| few(1.0) <= tail)
            .map(|rank| ((rank - 1.0) * scale + 1e-9).floor() as usize);
        let many = |rank: f64| 1.0 - at_most(rank - 1.0, effective, share);
        let upper = first(0.0, effective, |rank| many(rank) <= tail)
            .map(|rank| (rank * scale - 1e-9).ceil() as usize);
        let at = |place: usize| self.values.get(place).map(|(value, _)| *value);
        Ok(Bounds {
            lower: lower.and_then(at),
            upper: upper.and_then(|rank| at(rank.max(1) - 1)),
        })
    }

    /// Returns the contribution of each unit to the error of a quantile.
    #[must_use]
    pub fn contributions(&self, share: f64) -> Contributions {
        let below = self.below(self.quantile(share));
        let all: f64 = below.iter().map(|(below, _)| below).sum();
        let share = all / self.values.len() as f64;
        let numbers = self.units.iter().map(|(number, _)| *number);
        let units = numbers.zip(below);
        units
            .map(|(number, (below, values))| (number, below - share * values))
            .collect()
    }

    /// Returns for each unit the number of values at or below `limit` and the number of all values.
    fn below(&self, limit: f64) -> Vec<(f64, f64)> {
        let mut below: Vec<_> = self
            .units
            .iter()
            .map(|(_, count)| (0.0, *count as f64))
            .collect();
        let within = self.values.iter().take_while(|(value, _)| *value <= limit);
        within.for_each(|(_, unit)| below[*unit].0 += 1.0);
        below
    }
}

/// Returns the interval of the share of calls with a property, such as an error. Each unit is a pair: its calls with
/// the property and all of its calls.
///
/// This is the interval of Clopper and Pearson for an effective number of independent calls, with the assumptions and
/// sources of [`Sample::quantile_interval`]. It is valid for a single look; [`crate::share`] is valid at every look.
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_UNITS`] units, and for a confidence that is not between 0 and 1.
///
/// ```
/// use tokengauge_stats::clustered::share_interval;
///
/// let none = share_interval((0..300).map(|_| (0.0, 1.0)), 0.95).unwrap();
/// assert!(none.lower == 0.0 && (0.012..0.0125).contains(&none.upper)); // about 3.7 in 300
/// ```
pub fn share_interval(
    units: impl Iterator<Item = (f64, f64)> + Clone,
    confidence: f64,
) -> Result<Interval> {
    let tail = check::left_out(confidence)? / 2.0;
    let effective = effective(units.clone(), confidence)?;
    let (with, all) = units.fold((0.0, 0.0), |sum, unit| (sum.0 + unit.0, sum.1 + unit.1));
    let with = (with / all * effective).clamp(0.0, effective);
    let lower = first(0.0, 1.0, |share| {
        1.0 - at_most(with - 1.0, effective, share) >= tail
    });
    let upper = first(0.0, 1.0, |share| at_most(with, effective, share) <= tail);
    Interval::new(
        lower.filter(|_| with > 0.0).unwrap_or(0.0),
        upper.filter(|_| with < effective).unwrap_or(1.0),
    )
}

/// Returns the interval of a positive ratio of sums, such as tokens per second. It is computed for the logarithm of the
/// ratio, so no bound is negative.
///
/// The standard error is a jackknife estimate over units. The width comes from Student's t, with degrees of freedom of
/// the effective number of units. For up to 300 units it comes from the bootstrap-t if that is wider, because ratios of
/// few units are skewed. On the side to which the ratio is skewed, the tail of the bootstrap-t is 1 % instead of the
/// 2.5 % of a 95 % interval, because the bootstrap-t is too narrow there.
///
/// The interval assumes independent units and a single look. At least [`MIN_UNITS`] units are needed.
///
/// Sources: MacKinnon, Nielsen and Webb, "Cluster-robust inference: a guide to empirical practice", Journal of Econometrics 232
/// (2023), for the jackknife (CV3); Carter, Schnepel and Steigerwald, "Asymptotic behavior of a t test robust to cluster
/// heterogeneity", Review of Economics and Statistics 99 (2017), for effective clusters; Efron and Tibshirani, "An introduction
/// to the bootstrap" (1993), chapter 12.
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_UNITS`] units, if the ratio is 0 with all units or without one of them, and
/// for a confidence that is not between 0 and 1.
///
/// ```
/// use tokengauge_stats::clustered::ratio_interval;
/// use tokengauge_stats::ratio::Unit;
///
/// let sessions = (0..30).map(|n| Unit { numerator: 480.0 + f64::from(n), denominator: 10.0 });
/// assert!(ratio_interval(sessions.clone(), 0.95).unwrap().is_within(49.0, 50.0));
/// assert!(ratio_interval(sessions.take(5), 0.95).is_err());
/// ```
pub fn ratio_interval(
    units: impl Iterator<Item = Unit> + Clone,
    confidence: f64,
) -> Result<Interval> {
    let found = Jackknife::of(units.clone(), f64::ln)?;
    let tail = check::left_out(confidence)? / 2.0;
    let t = student_quantile(1.0 - tail, found.degrees_of_freedom)?;
    let mut units: Vec<Unit> = units.filter(|unit| unit.denominator > 0.0).collect();
    // Resamples name units by their place: the reach must not depend on the order in which the caller has them.
    units.sort_unstable_by(|one, other| {
        let by_numerator = one.numerator.total_cmp(&other.numerator);
        by_numerator.then_with(|| one.denominator.total_cmp(&other.denominator))
    });
    let [down, up] = if units.len() <= FEW_UNITS {
        resampled(&units, found.value, tail)
    } else {
        [0.0, 0.0]
    };
    let error = found.variance.sqrt();
    Interval::new(
        (found.value - down.max(t) * error).exp(),
        (found.value + up.max(t) * error).exp(),
    )
}

/// Returns how many standard errors the bounds lie below and above the logarithm, from quantiles of the studentized
/// error over resamples. The result is deterministic.
fn resampled(units: &[Unit], value: f64, tail: f64) -> [f64; 2] {
    let mut random = seeded(1);
    let mut drawn = units.to_vec();
    let mut draw = || {
        for unit in &mut drawn {
            *unit = units[random.random_range(0..units.len())];
        }
        let above: f64 = drawn.iter().map(|unit| unit.numerator).sum();
        let below: f64 = drawn.iter().map(|unit| unit.denominator).sum();
        let part = |unit: &Unit| unit.numerator / above - unit.denominator / below;
        let squares: f64 = drawn.iter().map(|unit| part(unit).powi(2)).sum();
        let count = units.len() as f64;
        ((above / below).ln() - value) / (squares * count / (count - 1.0)).sqrt()
    };
    let errors = (0..RESAMPLES).map(|_| draw());
    let mut errors: Vec<f64> = errors.filter(|error| error.is_finite()).collect();
    errors.sort_by(f64::total_cmp);
    if errors.is_empty() {
        return [0.0, 0.0]; // all units are alike
    }
    let down = |tail: f64| quantile_of_sorted(&errors, 1.0 - tail);
    let up = |tail: f64| -quantile_of_sorted(&errors, tail);
    if up(tail) > down(tail) {
        [down(tail), up(tail * SKEWED_TAIL)]
    } else {
        [down(tail * SKEWED_TAIL), up(tail)]
    }
}

/// Returns the effective number of independent calls, from the share of calls with the property.
fn effective(units: impl Iterator<Item = (f64, f64)> + Clone, confidence: f64) -> Result<f64> {
    let parts = units.map(|(numerator, denominator)| Unit {
        numerator,
        denominator,
    });
    let found = Jackknife::of(parts, |share| share)?;
    let calls = found.denominators;
    if calls <= found.units {
        return Ok(calls); // every call is a unit
    }
    let alone = found.value * (1.0 - found.value);
    // The divisor n makes the effective number of calls equal to the number of calls if every call is a unit.
    let variance = found.variance * (found.units - 1.0) / found.units;
    let worth = if variance > 0.0 && alone > 0.0 {
        (alone / variance).min(calls)
    } else {
        calls
    };
    let tail = 1.0 - check::left_out(confidence)? / 2.0;
    let of_calls = student_quantile(tail, (calls - 1.0).max(1.0))?;
    let of_units = student_quantile(tail, found.degrees_of_freedom)?;
    check::answer((worth * (of_calls / of_units).powi(2)).min(calls))
}

/// A transformed ratio of sums and its jackknife variance over units.
struct Jackknife {
    value: f64,
    variance: f64,
    units: f64,
    degrees_of_freedom: f64,
    denominators: f64,
}

impl Jackknife {
    /// Unlike the delta method, the jackknife does not understate the error caused by large units, which pull the ratio
    /// towards themselves. The degrees of freedom are the effective number of units (Kish) less one, or fewer by
    /// Satterthwaite's formula if a few units contribute most of the variance.
    fn of(units: impl Iterator<Item = Unit> + Clone, scale: impl Fn(f64) -> f64) -> Result<Self> {
        let units = units.filter(|unit| unit.denominator > 0.0);
        let (mut count, mut above, mut below, mut sizes) = (0, 0.0, 0.0, 0.0);
        for unit in units.clone() {
            count += 1;
            above += unit.numerator;
            below += unit.denominator;
            sizes += unit.denominator * unit.denominator;
        }
        check::at_least(MIN_UNITS, count)?;
        let value = check::answer(scale(above / below))?;
        let (mut squares, mut fourth_powers) = (0.0, 0.0);
        for unit in units {
            let without = (above - unit.numerator) / (below - unit.denominator);
            let square = (scale(without) - value).powi(2);
            squares += square;
            fourth_powers += square * square;
        }
        let mut equal = below * below / sizes;
        if fourth_powers > 0.0 {
            equal = equal.min(3.0 * squares * squares / fourth_powers);
        }
        let units = count as f64;
        Ok(Self {
            value,
            variance: check::answer(squares * (units - 1.0) / units)?,
            units,
            degrees_of_freedom: equal.max(LEAST_EQUAL) - 1.0,
            denominators: below,
        })
    }
}

/// Returns the probability that at most `count` of `calls` have a property with probability `share`: the binomial
/// distribution, extended to fractional counts.
fn at_most(count: f64, calls: f64, share: f64) -> f64 {
    if count <= -1.0 {
        return 0.0;
    }
    if calls - count > 0.0 {
        beta_reg(calls - count, count + 1.0, 1.0 - share)
    } else {
        1.0
    }
}

/// Returns by bisection the first number between `from` and `to` for which `is` is true. `is` must be monotonic.
/// Returns `None` if it is never true.
fn first(mut from: f64, mut to: f64, is: impl Fn(f64) -> bool) -> Option<f64> {
    if !is(to) {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(from, to);
        if is(middle) {
            to = middle;
        } else {
            from = middle;
        }
    }
    Some(to)
}

/// Computes the correlation between the errors of two figures, from −1 to 1. It uses the contributions of the units that
/// both figures share. Figures without a common unit have a correlation of 0.
///
/// ```
/// use tokengauge_stats::clustered::correlation;
///
/// let (a, b) = (vec![(1, 2.0), (4, -2.0)], vec![(1, -1.0), (4, 1.0)]);
/// assert_eq!(correlation(&a, &b), -1.0);
/// assert_eq!(correlation(&a, &[(2, 1.0), (3, -1.0)]), 0.0);
/// ```
#[must_use]
pub fn correlation(first: &[(u32, f64)], second: &[(u32, f64)]) -> f64 {
    let squares = |units: &[(u32, f64)]| units.iter().map(|(_, value)| value * value).sum::<f64>();
    let mut others = second.iter().peekable();
    let mut products = 0.0;
    for (unit, value) in first {
        while others.next_if(|(other, _)| other < unit).is_some() {}
        if let Some((_, other)) = others.next_if(|(other, _)| other == unit) {
            products += value * other;
        }
    }
    let correlation = products / (squares(first) * squares(second)).sqrt();
    if correlation.is_finite() {
        correlation.clamp(-1.0, 1.0)
    } else {
        0.0
    }
}

/// A figure with the bounds of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The figure.
    pub value: f64,
    /// The interval of the figure.
    pub interval: Interval,
}

/// Returns the interval of `changed` minus `baseline`, at the confidence of their intervals, which need not be
/// symmetric. `correlation` is the correlation of the errors of both figures.
///
/// Source: Zou and Donner, "Construction of confidence limits about effect measures: a general approach", Statistics in Medicine
/// 27 (2008), with the correlation of Zou, "Toward using confidence intervals to compare correlations", Psychological Methods
/// 12 (2007).
///
/// # Errors
///
/// Returns an error for a value that is not finite.
///
/// ```
/// use tokengauge_stats::Interval;
/// use tokengauge_stats::clustered::{Bounded, difference};
///
/// let figure = |value: f64| Bounded { value, interval: Interval { lower: value - 3.0, upper: value + 3.0 } };
/// let found = difference(&figure(40.0), &figure(50.0), 0.0).unwrap();
/// assert!((found.lower - (10.0 - 18.0_f64.sqrt())).abs() < 1e-12);
/// ```
pub fn difference(baseline: &Bounded, changed: &Bounded, correlation: f64) -> Result<Interval> {
    let value = changed.value - baseline.value;
    let reach = |one: f64, other: f64| {
        let squares = one * one + other * other - 2.0 * correlation * one * other;
        squares.max(0.0).sqrt()
    };
    Interval::new(
        value
            - reach(
                changed.value - changed.interval.lower,
                baseline.interval.upper - baseline.value,
            ),
        value
            + reach(
                changed.interval.upper - changed.value,
                baseline.value - baseline.interval.lower,
            ),
    )
}

/// Returns the relative difference from `baseline` to `changed` with its interval: [`difference`] of the logarithms.
///
/// # Errors
///
/// Returns an error for a value or a bound that is not above 0.
///
/// ```
/// use tokengauge_stats::Interval;
/// use tokengauge_stats::clustered::{Bounded, relative_difference};
///
/// let figure = |value: f64| Bounded { value, interval: Interval { lower: value / 1.1, upper: value * 1.1 } };
/// let found = relative_difference(&figure(40.0), &figure(80.0), 0.0).unwrap();
/// assert!(found.value == 1.0 && found.interval.is_within(0.7, 1.3));
/// ```
pub fn relative_difference(
    baseline: &Bounded,
    changed: &Bounded,
    correlation: f64,
) -> Result<Bounded> {
    let logarithms = |figure: &Bounded| {
        let values = [figure.value, figure.interval.lower, figure.interval.upper];
        for value in values {
            check::positive("a figure that is compared", value)?;
        }
        Ok(Bounded {
            value: figure.value.ln(),
            interval: Interval::new(figure.interval.lower.ln(), figure.interval.upper.ln())?,
        })
    };
    let found = difference(&logarithms(baseline)?, &logarithms(changed)?, correlation)?;
    Ok(Bounded {
        value: changed.value / baseline.value - 1.0,
        interval: Interval::new(found.lower.exp_m1(), found.upper.exp_m1())?,
    })
}

#[cfg(test)]
mod calibration;

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(sessions: u32, each: u32) -> Sample {
        let calls =
            (0..sessions).flat_map(|session| (0..each).map(move |_| (f64::from(session), session)));
        Sample::new(calls.collect()).expect("values")
    }

    #[test]
    fn the_interval_of_a_ratio_does_not_depend_on_the_order_of_units() {
        let units = (0..40).map(|n| Unit {
            numerator: f64::from(n * n % 17 + 1),
            denominator: 1.0,
        });
        let forwards = ratio_interval(units.clone(), 0.95).expect("an interval");
        let backwards = ratio_interval(units.rev(), 0.95).expect("an interval");
        let same = |one: f64, other: f64| (one - other).abs() < 1e-12;
        assert!(same(forwards.lower, backwards.lower) && same(forwards.upper, backwards.upper));
    }

    #[test]
    fn calls_that_repeat_their_session_say_no_more_than_one_of_them() {
        let (one, ten) = (alike(100, 1), alike(100, 10));
        assert_eq!(
            one.quantile_interval(0.5, 0.95),
            ten.quantile_interval(0.5, 0.95)
        );
        let mut apart = alike(100, 10);
        apart = Sample::new(
            apart
                .values
                .drain(..)
                .zip(0..)
                .map(|((value, _), number)| (value, number))
                .collect(),
        )
        .expect("values");
        let (narrow, wide) = (
            apart.quantile_interval(0.5, 0.95).expect("bounds"),
            ten.quantile_interval(0.5, 0.95).expect("bounds"),
        );
        assert!(narrow.lower > wide.lower && narrow.upper < wide.upper);
    }

    #[test]
    fn one_session_shows_nothing_of_others() {
        assert_eq!(
            alike(1, 50).quantile_interval(0.5, 0.95),
            Err(StatsError::TooFew {
                needed: MIN_UNITS,
                got: 1
            })
        );
        assert!(Sample::new(vec![(f64::NAN, 1)]).is_err() && Sample::new(Vec::new()).is_err());
    }

    #[test]
    fn the_difference_of_a_figure_and_itself_is_none() {
        let sample = alike(60, 3);
        let bounds = sample.quantile_interval(0.5, 0.95).expect("bounds");
        let figure = Bounded {
            value: sample.quantile(0.5),
            interval: Interval {
                lower: bounds.lower.expect("enough"),
                upper: bounds.upper.expect("enough"),
            },
        };
        let contributions = sample.contributions(0.5);
        let together = correlation(&contributions, &contributions);
        assert!((together - 1.0).abs() < 1e-12);
        let none = difference(&figure, &figure, together).expect("an interval");
        let apart = difference(&figure, &figure, 0.0).expect("an interval");
        assert!(none.width() < apart.width() / 2.0, "{none:?} {apart:?}");
    }
}
