//! Ratios of two arms whose units are grouped into strata. A stratum is known before a unit gets its arm, such as the
//! length of its first prompt. It explains part of the differences between units, and stratification removes that part
//! from the variance.

use crate::check;
use crate::error::{Result, StatsError};
use crate::estimate::Estimate;
use crate::ratio::{Arm, both_arms};

/// The units of one stratum in the two arms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stratum {
    /// The units of the baseline.
    pub baseline: Arm,
    /// The units of the arm that is compared with the baseline.
    pub changed: Arm,
}

/// Two arms by strata, weighted by the proportions of the strata in both arms together (post-stratification). The ratio
/// of an arm is Σ wₛ n̄ₛ / Σ wₛ d̄ₛ, where wₛ is the share of stratum s among the units of both arms, and n̄ₛ and d̄ₛ
/// are the means of its units in the arm. With random assignment it estimates the same quantity as the plain ratio of
/// sums. With a single stratum both are equal.
///
/// The variance is the variance of the linearised residuals e = n − R d. Each arm adds Σ wₛ² s²ₛ(e) / mₛ / d̄² with mₛ
/// units in stratum s. The variation between strata adds what the arms do not have in common, Σ wₛ (ēₛ¹/d̄¹ − ēₛ⁰/d̄⁰)²
/// / m. It assumes independent units, strata that the arm cannot affect, and about ten units of each arm in each
/// stratum.
///
/// Source: Miratrix, Sekhon and Yu, "Adjusting treatment effect estimates by post-stratification in randomized experiments",
/// JRSS B 75, 2013, with the delta method of [`crate::ratio`] for the ratio and the variance of a sample from a population.
///
/// ```
/// use tokengauge_stats::ratio::{Arm, Unit, difference};
/// use tokengauge_stats::stratified::{Strata, Stratum};
///
/// // Long prompts take four times as long; the arm adds 5 to either, and has more of the long ones by chance.
/// let arm = |level: f64, units: u32| -> Arm {
///     let unit = |n| Unit { numerator: level + f64::from(n % 3), denominator: 1.0 };
///     (0..units).map(unit).collect()
/// };
/// let short = Stratum { baseline: arm(10.0, 60), changed: arm(15.0, 30) };
/// let long = Stratum { baseline: arm(40.0, 30), changed: arm(45.0, 60) };
/// let strata = Strata::new(&[short, long]).unwrap();
/// let found = strata.difference().unwrap();
/// assert!((found.value - 5.0).abs() < 1e-9);
///
/// let (mut a, mut b) = (short.baseline, short.changed);
/// a.merge(&long.baseline);
/// b.merge(&long.changed);
/// let plain = difference(&a, &b).unwrap();
/// assert!(plain.value > 14.0 && found.variance < plain.variance / 10.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Strata {
    baseline: Side,
    changed: Side,
    /// The weights wₛ.
    weights: Vec<f64>,
    units: u64,
}

/// The ratio of one arm and the contributions of its strata to the variance.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    ratio: f64,
    units: u64,
    /// The part of the variance from differences between units of one stratum.
    within: f64,
    /// ēₛ / d̄: the residual of each stratum.
    residuals: Vec<f64>,
}

impl Strata {
    /// Combines the strata of two arms.
    ///
    /// # Errors
    ///
    /// Returns an error for a stratum with fewer than two units of an arm, if the denominators of an arm sum to 0, and
    /// for a value that is not finite.
    pub fn new(strata: &[Stratum]) -> Result<Strata> {
        let of = |stratum: &Stratum| stratum.baseline.units() + stratum.changed.units();
        let units: u64 = strata.iter().map(of).sum();
        check::at_least(4, units.min(4) as usize)?;
        let weights: Vec<f64> = strata
            .iter()
            .map(|stratum| of(stratum) as f64 / units as f64)
            .collect();
        let arms = |arm: fn(&Stratum) -> Arm| strata.iter().map(arm).collect::<Vec<_>>();
        Ok(Strata {
            baseline: Side::new(&arms(|stratum| stratum.baseline), &weights)?,
            changed: Side::new(&arms(|stratum| stratum.changed), &weights)?,
            weights,
            units,
        })
    }

    /// Returns the ratio of the baseline.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows.
    pub fn baseline(&self) -> Result<Estimate> {
        self.alone(&self.baseline)
    }

    /// Returns the ratio of the changed arm.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows.
    pub fn changed(&self) -> Result<Estimate> {
        self.alone(&self.changed)
    }

    /// Returns the ratio of `changed` minus the ratio of `baseline`, in the unit of the ratio.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows.
    pub fn difference(&self) -> Result<Estimate> {
        let (a, b) = (&self.baseline, &self.changed);
        self.estimate(b.ratio - a.ratio, [-1.0, 1.0])
    }

    /// Returns the natural logarithm of (ratio of `changed` / ratio of `baseline`). Its `exp_m1` is the relative
    /// difference. With heavy tails the logarithm is too high about as often as too low, but the relative difference is
    /// more often too low.
    ///
    /// # Errors
    ///
    /// Returns an error if a ratio is not above 0, and if a sum overflows.
    pub fn log_ratio(&self) -> Result<Estimate> {
        let (a, b) = (&self.baseline, &self.changed);
        if a.ratio <= 0.0 || b.ratio <= 0.0 {
            return Err(StatsError::ZeroLevel);
        }
        self.estimate((b.ratio / a.ratio).ln(), [-1.0 / a.ratio, 1.0 / b.ratio])
    }

    /// Returns the estimate of a function of the two ratios. `by` are its partial derivatives.
    fn estimate(&self, value: f64, by: [f64; 2]) -> Result<Estimate> {
        let (a, b) = (&self.baseline, &self.changed);
        let residuals = a.residuals.iter().zip(&b.residuals);
        let between = residuals.map(|(a, b)| (by[0] * a + by[1] * b).powi(2));
        let between: f64 = self.weights.iter().zip(between).map(|(w, e)| w * e).sum();
        let within = by[0].powi(2) * a.within + by[1].powi(2) * b.within;
        Estimate {
            value,
            variance: within + between / self.units as f64,
            units: both_arms(a.units, b.units),
            degrees_of_freedom: (self.units - 2 * self.weights.len() as u64) as f64,
        }
        .checked()
    }

    fn alone(&self, side: &Side) -> Result<Estimate> {
        let residuals = side.residuals.iter().map(|residual| residual.powi(2));
        let between: f64 = self.weights.iter().zip(residuals).map(|(w, e)| w * e).sum();
        Estimate {
            value: side.ratio,
            variance: side.within + between / self.units as f64,
            units: side.units,
            degrees_of_freedom: (side.units - self.weights.len() as u64) as f64,
        }
        .checked()
    }
}

impl Side {
    fn new(arms: &[Arm], weights: &[f64]) -> Result<Side> {
        for arm in arms {
            check::at_least(2, arm.units().min(2) as usize)?;
        }
        let weighted = |of: &dyn Fn(&Arm) -> f64| -> f64 {
            let values = arms.iter().map(of);
            weights.iter().zip(values).map(|(w, value)| w * value).sum()
        };
        let denominator = weighted(&|arm| arm.means().1);
        if denominator == 0.0 {
            return Err(StatsError::ZeroLevel);
        }
        let ratio = weighted(&|arm| arm.means().0) / denominator;
        let within = arms.iter().zip(weights).map(|(arm, weight)| {
            let units = arm.units() as f64;
            let squares = check::answer(arm.residual_squares(ratio))?;
            Ok(weight * weight * squares / (units - 1.0) / units)
        });
        let residuals = arms.iter().map(|arm| {
            let (numerator, denominator_of_it) = arm.means();
            (numerator - ratio * denominator_of_it) / denominator
        });
        Ok(Side {
            ratio: check::answer(ratio)?,
            units: arms.iter().map(Arm::units).sum(),
            within: within.sum::<Result<f64>>()? / denominator.powi(2),
            residuals: residuals.collect(),
        })
    }
}
