//! A figure with its variance.

use crate::check;
use crate::distribution::student_quantile;
use crate::error::Result;
use crate::interval::Interval;

/// A figure that was estimated from independent units, with its variance. [`crate::ratio`] produces estimates and
/// [`crate::sequence`] consumes them.
///
/// ```
/// use tokengauge_stats::Estimate;
///
/// let tps = Estimate { value: 48.0, variance: 0.25, units: 400, degrees_of_freedom: 399.0 };
/// let interval = tps.interval(0.95).unwrap();
/// assert!((interval.upper - 48.983).abs() < 0.001);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure, in its own unit.
    pub value: f64,
    /// The variance of the figure (not of one unit), in the squared unit of the figure.
    pub variance: f64,
    /// The number of units. For a comparison of two arms, twice the harmonic mean of the arms' numbers: the total if
    /// both arms are equally large.
    pub units: u64,
    /// The degrees of freedom of Student's t. For a comparison of two arms, Welch's degrees of freedom.
    pub degrees_of_freedom: f64,
}

impl Estimate {
    /// Returns Student's t interval at a confidence such as 0.95. It is valid for a single look at a number of units
    /// that was fixed beforehand.
    ///
    /// # Errors
    ///
    /// Returns an error if the confidence is not between 0 and 1, or if the estimate is not finite.
    pub fn interval(&self, confidence: f64) -> Result<Interval> {
        let left_out = check::left_out(confidence)?;
        let quantile = student_quantile(1.0 - left_out / 2.0, self.degrees_of_freedom)?;
        Interval::around(self.value, quantile * self.variance.sqrt())
    }

    /// Returns this estimate if all of its numbers are finite.
    pub(crate) fn checked(self) -> Result<Self> {
        check::finite(&[self.value, self.variance, self.degrees_of_freedom])?;
        Ok(self)
    }
}
