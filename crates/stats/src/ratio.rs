//! Ratios of sums over units, by the delta method: tokens per second of many calls in few sessions.

use crate::check;
use crate::error::{Error, Result};
use crate::estimate::Estimate;

/// What one unit (a session, a user, a block of time) adds to the two sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Its part of the upper sum, such as tokens.
    pub numerator: f64,
    /// Its part of the lower sum, such as seconds; 1 for a mean over units.
    pub denominator: f64,
}

/// The units of one arm, as six numbers: count, means, and sums of squares and products about the means. Units can be added one
/// at a time and arms merged, so that no unit has to be stored; a unit is added once, when it is complete.
///
/// ```
/// use tokengauge_stats::ratio::{Arm, Unit};
///
/// let arm: Arm = [(480.0, 10.0), (1_040.0, 20.0), (490.0, 10.0)]
///     .map(|(numerator, denominator)| Unit { numerator, denominator })
///     .into_iter()
///     .collect();
/// let tps = arm.ratio().unwrap();
/// assert!((tps.value - 50.25).abs() < 1e-9); // 2,010 tokens in 40 seconds
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arm {
    units: u64,
    numerator: f64,
    denominator: f64,
    numerator_squares: f64,
    denominator_squares: f64,
    products: f64,
}

impl FromIterator<Unit> for Arm {
    fn from_iter<I: IntoIterator<Item = Unit>>(units: I) -> Self {
        let mut arm = Self::default();
        units.into_iter().for_each(|unit| arm.push(unit));
        arm
    }
}

impl Arm {
    /// The number of units.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Adds one unit.
    pub fn push(&mut self, unit: Unit) {
        self.merge(&Self {
            units: 1,
            numerator: unit.numerator,
            denominator: unit.denominator,
            ..Self::default()
        });
    }

    /// Adds the units of another arm (Chan, Golub and LeVeque's update, which loses no digits to a large mean).
    ///
    /// ```
    /// use tokengauge_stats::ratio::{Arm, Unit};
    ///
    /// let unit = |numerator| Unit { numerator, denominator: 1.0 };
    /// let mut morning = Arm::from_iter([unit(1.0), unit(2.0)]);
    /// morning.merge(&Arm::from_iter([unit(6.0)]));
    /// assert_eq!((morning.units(), morning.ratio().unwrap().value), (3, 3.0));
    /// ```
    pub fn merge(&mut self, other: &Self) {
        if other.units == 0 {
            return;
        }
        let all = (self.units + other.units) as f64;
        let share = other.units as f64 / all;
        let both = self.units as f64 * share;
        let numerator = other.numerator - self.numerator;
        let denominator = other.denominator - self.denominator;
        self.numerator_squares += other.numerator_squares + numerator * numerator * both;
        self.denominator_squares += other.denominator_squares + denominator * denominator * both;
        self.products += other.products + numerator * denominator * both;
        self.numerator += numerator * share;
        self.denominator += denominator * share;
        self.units += other.units;
    }

    /// The means of the numerators and of the denominators.
    pub(crate) fn means(&self) -> (f64, f64) {
        (self.numerator, self.denominator)
    }

    /// The sum of the squares of numerator − ratio · denominator about its mean.
    pub(crate) fn residual_squares(&self, ratio: f64) -> f64 {
        let squares = self.numerator_squares - 2.0 * ratio * self.products
            + ratio * ratio * self.denominator_squares;
        match squares < 0.0 {
            // Rounding may leave a sum that is 0 a little below it.
            true => 0.0,
            false => squares,
        }
    }

    /// The ratio of the sums, Σ numerator / Σ denominator, with its variance by the delta method, clustered by unit:
    /// (s²ₙ − 2 R sₙd + R² s²d) / (d̄² · units).
    ///
    /// It assumes independent units, and so many that the mean of the denominators is far from 0 against its standard error.
    /// Calls within a unit may depend on each other.
    ///
    /// Source: Deng, Knoblich and Lu, "Applying the delta method in metric analytics", KDD 2018.
    ///
    /// # Errors
    ///
    /// With fewer than two units, when the denominators sum to 0, and when a value is not finite.
    pub fn ratio(&self) -> Result<Estimate> {
        check::at_least(2, self.units.min(2) as usize)?;
        if self.denominator == 0.0 {
            return Err(Error::ZeroLevel);
        }
        let ratio = self.numerator / self.denominator;
        let squares = check::answer(self.residual_squares(ratio))?;
        let (units, free) = (self.units as f64, self.units as f64 - 1.0);
        Estimate {
            value: ratio,
            variance: squares / free / self.denominator.powi(2) / units,
            units: self.units,
            degrees_of_freedom: free,
        }
        .checked()
    }
}

/// By how much the ratio of `changed` is above that of `baseline`, in the ratio's unit. The arms' units are independent.
///
/// # Errors
///
/// Those of [`Arm::ratio`].
///
/// ```
/// use tokengauge_stats::ratio::{Arm, Unit, difference};
///
/// let arm = |tps: f64| -> Arm {
///     let unit = |n| Unit { numerator: (tps + f64::from(n % 5)) * 10.0, denominator: 10.0 };
///     (0..100).map(unit).collect()
/// };
/// let (a, b) = (arm(40.0), arm(44.2));
/// assert!((difference(&a, &b).unwrap().value - 4.2).abs() < 1e-9);
/// ```
pub fn difference(baseline: &Arm, changed: &Arm) -> Result<Estimate> {
    let (a, b) = (baseline.ratio()?, changed.ratio()?);
    Estimate {
        value: b.value - a.value,
        variance: a.variance + b.variance,
        units: a.units + b.units,
        degrees_of_freedom: welch(&a, &b),
    }
    .checked()
}

/// By which share of the baseline the ratio of `changed` is above it: 0.08 is 8 % more. The variance is the delta method's
/// again; it assumes that the baseline's ratio is far from 0 against its standard error.
///
/// # Errors
///
/// Those of [`Arm::ratio`], and when the baseline's ratio is 0.
///
/// ```
/// use tokengauge_stats::ratio::{Arm, Unit, relative_difference};
///
/// let arm = |tps: f64| -> Arm {
///     let unit = |n| Unit { numerator: (tps + f64::from(n % 5)) * 10.0, denominator: 10.0 };
///     (0..100).map(unit).collect()
/// };
/// let change = relative_difference(&arm(40.0), &arm(44.2)).unwrap();
/// assert!((change.value - 0.1).abs() < 1e-9);
/// assert!(change.interval(0.95).unwrap().is_within(0.08, 0.12));
/// ```
pub fn relative_difference(baseline: &Arm, changed: &Arm) -> Result<Estimate> {
    let (a, b) = (baseline.ratio()?, changed.ratio()?);
    if a.value == 0.0 {
        return Err(Error::ZeroLevel);
    }
    let relation = b.value / a.value;
    Estimate {
        value: relation - 1.0,
        variance: (b.variance + relation * relation * a.variance) / (a.value * a.value),
        units: a.units + b.units,
        degrees_of_freedom: welch(&a, &b),
    }
    .checked()
}

/// The degrees of freedom of Welch and Satterthwaite.
fn welch(a: &Estimate, b: &Estimate) -> f64 {
    let share = |estimate: &Estimate| estimate.variance.powi(2) / estimate.degrees_of_freedom;
    match (a.variance + b.variance).powi(2) / (share(a) + share(b)) {
        welch if welch.is_finite() => welch,
        _ => a.degrees_of_freedom + b.degrees_of_freedom,
    }
}
