//! A confidence sequence: intervals that hold at every look at once, so that looking every minute is safe.

use crate::check;
use crate::error::{Result, StatsError};
use crate::estimate::Estimate;
use crate::interval::Interval;

/// What a sequence is made for. All of it is fixed before the first look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The confidence over all looks together, such as 0.95.
    pub confidence: f64,
    /// The number of units, as in [`Estimate::units`], at which the intervals are tightest; they also hold at all others.
    pub tightest_at: u64,
    /// The number of units before which there is no answer, since the variance is not known well enough. 100 do for values
    /// about symmetric; where few units differ from the rest, such as a share of 1 %, wait for some 50 of those.
    pub first_look: u64,
}

/// An asymptotic confidence sequence with Robbins' normal mixture. Its state is that of the estimate: see
/// [`crate::ratio::Arm`].
///
/// With t units, the estimate's variance v, σ² = t · v and α = 1 − confidence, the interval is
/// estimate ± σ √(2 (t ρ² + 1) / (t² ρ²) · ln(√(t ρ² + 1) / α)).
///
/// It assumes independent units with finite variance, and that the sequence starts with so many of them that the variance is
/// known: the guarantee is asymptotic. The probability that the truth is ever outside is then at most α, however often one
/// looks and whatever one stops by. For the mean of per-unit values take [`crate::ratio::Arm::ratio`] with denominators of 1;
/// for two arms [`crate::ratio::difference`] or [`crate::stratified::Strata::log_ratio`], where t is twice the harmonic mean of
/// their units.
///
/// Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence
/// sequences", arXiv 2103.06476, theorem 2.2, as GrowthBook uses it.
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
    /// A sequence with the ρ that makes the interval at `tightest_at` units as narrow as possible: ρ² = (u − 1) / t, where
    /// u = −W₋₁(−α² / e) solves u = 1 − 2 ln α + ln u.
    ///
    /// # Errors
    ///
    /// When an option is out of range: a confidence that is not between 0 and 1, no units.
    pub fn new(options: Options) -> Result<Self> {
        let left_out = check::left_out(options.confidence)?;
        let units = check::positive("tightest_at", options.tightest_at as f64)?;
        let mut solution = 1.0 - 2.0 * left_out.ln();
        // Each step comes closer by the factor 1 / u. Confidences near 0 have u near 1, and need the steps.
        for _ in 0..200 {
            solution = 1.0 - 2.0 * left_out.ln() + solution.ln();
        }
        Self::with_rho(options, ((solution - 1.0) / units).sqrt())
    }

    /// A sequence with a given ρ, instead of the one for `tightest_at`.
    ///
    /// # Errors
    ///
    /// When the confidence is not between 0 and 1, or ρ is not above 0.
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

    /// The mixture parameter ρ.
    #[must_use]
    pub fn rho(&self) -> f64 {
        self.rho_squared.sqrt()
    }

    /// The interval at this look, two-sided.
    ///
    /// # Errors
    ///
    /// Before the first look, and when the variance is 0: no interval follows from units that do not vary.
    pub fn interval(&self, estimate: &Estimate) -> Result<Interval> {
        let growth = self.growth(estimate)?;
        let reach = self.reach(estimate, (growth.sqrt() / self.left_out).ln());
        Interval::around(estimate.value, reach)
    }

    /// The bound that the truth is at or above, one-sided: for "not worse by more than". Its logarithm is
    /// ln(1 + √(t ρ² + 1) / (2 α)).
    ///
    /// # Errors
    ///
    /// Those of [`Self::interval`].
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

    /// The bound that the truth is at or below, one-sided.
    ///
    /// # Errors
    ///
    /// Those of [`Self::interval`].
    pub fn upper_bound(&self, estimate: &Estimate) -> Result<f64> {
        check::answer(estimate.value + self.one_sided(estimate)?)
    }

    /// The always-valid p value of the hypothesis that the truth is `null`, two-sided: the smallest α with an interval that leaves
    /// it out. The probability that it is ever at or below a level is at most that level, if the hypothesis is true.
    ///
    /// # Errors
    ///
    /// Those of [`Self::interval`].
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

    /// t ρ² + 1, when there is enough to look at.
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
