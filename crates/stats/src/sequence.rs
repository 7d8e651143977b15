//! Confidence sequences: intervals that are valid at every look, so that it is safe to look every minute.

use crate::check;
use crate::error::{Result, StatsError};
use crate::estimate::Estimate;
use crate::interval::Interval;

/// The design of a sequence, which must be fixed before the first look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The confidence over all looks together, such as 0.95.
    pub confidence: f64,
    /// The number of units, as in [`Estimate::units`], at which the intervals are tightest. They are valid at all other
    /// numbers.
    pub tightest_at: u64,
    /// The number of units of the first look. Before it there is no result, because the variance is not known well
    /// enough. 100 units are enough for roughly symmetric values. If only a few units differ from the others, such as a
    /// share of 1 %, wait for about 50 of them.
    pub first_look: u64,
}

/// An asymptotic confidence sequence with Robbins' normal mixture. Its only state is the estimate: see
/// [`crate::ratio::Arm`].
///
/// With t units, the estimate's variance v, σ² = t · v and α = 1 − confidence, the interval is
/// estimate ± σ √(2 (t ρ² + 1) / (t² ρ²) · ln(√(t ρ² + 1) / α)).
///
/// The interval assumes independent units with finite variance, and a first look with enough units to know the
/// variance: the guarantee is asymptotic. The probability that the truth is ever outside the interval is then at most
/// α, for any number of looks and any stopping rule. For the mean of per-unit values, use [`crate::ratio::Arm::ratio`]
/// with denominators of 1. For two arms, use [`crate::ratio::difference`] or [`crate::stratified::Strata::log_ratio`],
/// where t is twice the harmonic mean of the arms' units.
///
/// Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic
/// confidence sequences", arXiv 2103.06476, theorem 2.2, as GrowthBook uses it.
///
/// ```
/// use tokengauge_stats::ratio::{Arm, Unit, difference};
/// use tokengauge_stats::sequence::{Options, Sequence};
///
/// let options = Options { confidence: 0.95, tightest_at: 1_000, first_look: 100 };
/// let sequence = Sequence::new(options).unwrap();
/// let (mut a, mut b) = (Arm::default(), Arm::default());
/// for session in 0..500 {
///     let tokens = 480.0 + f64::from(session * 37 % 101);
///     a.push(Unit { numerator: tokens, denominator: 10.0 });
///     b.push(Unit { numerator: tokens + 40.0, denominator: 10.0 });
/// }
/// let difference = difference(&a, &b).unwrap();
/// assert!(sequence.interval(&difference).unwrap().contains(4.0));
/// assert!(sequence.p_value(&difference, 0.0).unwrap() < 0.001);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequence {
    left_out: f64,
    rho_squared: f64,
    first_look: u64,
}

impl Sequence {
    /// Creates a sequence with the ρ that makes the interval at `tightest_at` units as narrow as possible: ρ² = (u − 1)
    /// / t, where u = −W₋₁(−α² / e) solves u = 1 − 2 ln α + ln u.
    ///
    /// # Errors
    ///
    /// Returns an error if the confidence is not between 0 and 1, or a number of units is 0.
    pub fn new(options: Options) -> Result<Self> {
        let left_out = check::left_out(options.confidence)?;
        let units = check::positive("tightest_at", options.tightest_at as f64)?;
        let mut solution = 1.0 - 2.0 * left_out.ln();
        // Each step reduces the error by the factor 1 / u. Confidences near 0 have u near 1 and need many steps.
        for _ in 0..200 {
            solution = 1.0 - 2.0 * left_out.ln() + solution.ln();
        }
        Self::with_rho(options, ((solution - 1.0) / units).sqrt())
    }

    /// Creates a sequence with a given ρ instead of the best one for `tightest_at`.
    ///
    /// # Errors
    ///
    /// Returns an error if the confidence is not between 0 and 1, or ρ is not above 0.
    ///
    /// ```
    /// use tokengauge_stats::sequence::{Options, Sequence};
    ///
    /// let options = Options { confidence: 0.95, tightest_at: 1_000, first_look: 100 };
    /// let best = Sequence::new(options).unwrap();
    /// assert_eq!(Sequence::with_rho(options, best.rho()).unwrap().rho(), best.rho());
    /// assert!(Sequence::with_rho(options, 0.0).is_err());
    /// ```
    pub fn with_rho(options: Options, rho: f64) -> Result<Self> {
        Ok(Self {
            left_out: check::left_out(options.confidence)?,
            rho_squared: check::positive("rho", rho)?.powi(2),
            first_look: options.first_look.max(2),
        })
    }

    /// Returns the mixture parameter ρ.
    #[must_use]
    pub fn rho(&self) -> f64 {
        self.rho_squared.sqrt()
    }

    /// Returns the two-sided interval at this look.
    ///
    /// # Errors
    ///
    /// Returns an error before the first look, and if the variance is 0.
    pub fn interval(&self, estimate: &Estimate) -> Result<Interval> {
        let growth = self.growth(estimate)?;
        let reach = self.reach(estimate, (growth.sqrt() / self.left_out).ln());
        Interval::around(estimate.value, reach)
    }

    /// Returns the one-sided lower bound of the truth, to show "not worse by more than". Its logarithm is
    /// ln(1 + √(t ρ² + 1) / (2 α)).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::interval`].
    ///
    /// ```
    /// use tokengauge_stats::{StatsError, Estimate};
    /// use tokengauge_stats::sequence::{Options, Sequence};
    ///
    /// let options = Options { confidence: 0.95, tightest_at: 1_000, first_look: 100 };
    /// let sequence = Sequence::new(options).unwrap();
    /// // The candidate's speed relative to the baseline's: 1 % less so far.
    /// let mut change = Estimate { value: -0.01, variance: 1e-4, units: 800, degrees_of_freedom: 790.0 };
    /// let bound = sequence.lower_bound(&change).unwrap();
    /// assert!(bound > -0.05, "not worse by 5 %");
    /// assert!(bound > sequence.interval(&change).unwrap().lower, "one side is nearer than two");
    /// change.units = 40;
    /// assert_eq!(sequence.lower_bound(&change), Err(StatsError::TooFew { needed: 100, got: 40 }));
    /// ```
    pub fn lower_bound(&self, estimate: &Estimate) -> Result<f64> {
        check::answer(estimate.value - self.one_sided(estimate)?)
    }

    /// Returns the one-sided upper bound of the truth.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::interval`].
    pub fn upper_bound(&self, estimate: &Estimate) -> Result<f64> {
        check::answer(estimate.value + self.one_sided(estimate)?)
    }

    /// Returns the always-valid two-sided p value of the hypothesis that the truth is `null`: the smallest α whose
    /// interval does not contain `null`. If the hypothesis is true, the probability that p is ever at or below a level
    /// is at most that level.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::interval`].
    pub fn p_value(&self, estimate: &Estimate, null: f64) -> Result<f64> {
        check::finite(&[null])?;
        let growth = self.growth(estimate)?;
        let units = estimate.units as f64;
        let squared = (estimate.value - null).powi(2) / estimate.variance;
        let exponent = units * self.rho_squared * squared / (2.0 * growth);
        Ok((growth.sqrt() * (-exponent).exp()).min(1.0))
    }

    fn one_sided(&self, estimate: &Estimate) -> Result<f64> {
        let growth = self.growth(estimate)?;
        Ok(self.reach(estimate, (growth.sqrt() / (2.0 * self.left_out)).ln_1p()))
    }

    /// Returns t ρ² + 1, or an error before the first look.
    fn growth(&self, estimate: &Estimate) -> Result<f64> {
        check::finite(&[estimate.value, estimate.variance])?;
        let as_count = |units: u64| usize::try_from(units).unwrap_or(usize::MAX);
        check::at_least(as_count(self.first_look), as_count(estimate.units))?;
        if estimate.variance <= 0.0 {
            return Err(StatsError::NoVariation);
        }
        check::answer(estimate.units as f64 * self.rho_squared + 1.0)
    }

    fn reach(&self, estimate: &Estimate, logarithm: f64) -> f64 {
        let scaled = estimate.units as f64 * self.rho_squared;
        (estimate.variance * 2.0 * (scaled + 1.0) / scaled * logarithm).sqrt()
    }
}
