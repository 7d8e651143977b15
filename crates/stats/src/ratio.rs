//! Ratios of sums over units by the delta method, such as the tokens per second of many calls in few sessions.

use crate::check;
use crate::error::{Result, StatsError};
use crate::estimate::Estimate;

/// The contribution of one unit (a session, a user, a block of time) to the two sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// The contribution to the numerator, such as tokens.
    pub numerator: f64,
    /// The contribution to the denominator, such as seconds; 1 for a mean over units.
    pub denominator: f64,
}

/// The units of one arm as six numbers: count, means, and sums of squares and products about the means. Units are added
/// one at a time and arms can be merged, so units need not be stored. Add a unit once, when it is complete.
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

    /// The sum of the denominators.
    #[must_use]
    pub fn denominators(&self) -> f64 {
        self.denominator * self.units as f64
    }

    /// Returns the sums of numerators and denominators as effective counts of independent events. Calls that belong to
    /// few units count as many as there are units, or fewer if some units have far more calls than others (Kish's
    /// effective size, (Σ n)² / Σ n²). This is exact if the calls of a unit are all alike, and conservative otherwise.
    #[must_use]
    pub fn effective_counts(&self) -> (f64, f64) {
        let units = self.units as f64;
        let squares = self.denominator_squares + self.denominator.powi(2) * units;
        if squares <= 0.0 {
            return (0.0, 0.0);
        }
        let effective = (self.denominator * units).powi(2) / squares;
        (self.numerator / self.denominator * effective, effective)
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

    /// Adds the units of another arm, by the update of Chan, Golub and LeVeque, which is accurate even for a large
    /// mean.
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

    /// Returns the means of the numerators and of the denominators.
    pub(crate) fn means(&self) -> (f64, f64) {
        (self.numerator, self.denominator)
    }

    /// Returns the sum of squares of numerator − ratio · denominator about its mean.
    pub(crate) fn residual_squares(&self, ratio: f64) -> f64 {
        let squares = self.numerator_squares - 2.0 * ratio * self.products
            + ratio * ratio * self.denominator_squares;
        // Rounding may make a sum of 0 slightly negative.
        if squares < 0.0 { 0.0 } else { squares }
    }

    /// Returns the ratio of the sums, Σ numerator / Σ denominator, with its variance by the delta method, clustered by
    /// unit: (s²ₙ − 2 R sₙd + R² s²d) / (d̄² · units).
    ///
    /// The estimate assumes independent units. There must be enough units that the mean of the denominators is many
    /// standard errors above 0. Calls within a unit may depend on each other.
    ///
    /// Source: Deng, Knoblich and Lu, "Applying the delta method in metric analytics", KDD 2018.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than two units, if the denominators sum to 0, and for a value that is not finite.
    pub fn ratio(&self) -> Result<Estimate> {
        check::at_least(2, self.units.min(2) as usize)?;
        if self.denominator == 0.0 {
            return Err(StatsError::ZeroLevel);
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

/// Returns the ratio of `changed` minus the ratio of `baseline`, in the unit of the ratio. The units of the two arms
/// must be independent.
///
/// # Errors
///
/// Returns the errors of [`Arm::ratio`].
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
        units: both_arms(a.units, b.units),
        degrees_of_freedom: welch(&a, &b),
    }
    .checked()
}

/// Returns the number of units of a comparison of two arms, for [`Estimate::units`]: twice their harmonic mean. A
/// hundred units against a million carry about as much information as two hundred against two hundred.
///
/// ```
/// use tokengauge_stats::ratio::both_arms;
///
/// assert_eq!((both_arms(100, 100), both_arms(100, 1_000_000)), (200, 399));
/// ```
#[must_use]
pub fn both_arms(baseline: u64, changed: u64) -> u64 {
    let product = 4 * u128::from(baseline) * u128::from(changed);
    let sum = u128::from(baseline) + u128::from(changed);
    u64::try_from(product / sum.max(1)).unwrap_or(u64::MAX)
}

/// Degrees of freedom by Welch and Satterthwaite.
fn welch(a: &Estimate, b: &Estimate) -> f64 {
    let share = |estimate: &Estimate| estimate.variance.powi(2) / estimate.degrees_of_freedom;
    match (a.variance + b.variance).powi(2) / (share(a) + share(b)) {
        welch if welch.is_finite() => welch,
        _ => a.degrees_of_freedom + b.degrees_of_freedom,
    }
}
