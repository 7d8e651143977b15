//! A figure and its variance.

use crate::check;
use crate::distribution::student_quantile;
use crate::error::Result;
use crate::interval::Interval;

/// A figure that was estimated from independent units, and how far it is known. What [`crate::ratio`] makes and
/// [`crate::sequence`] takes.
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
    /// The variance of the figure itself, not that of one unit; in its unit, squared.
    pub variance: f64,
    /// The number of units. Where two arms are compared, twice the harmonic mean of theirs: all units where both have as many.
    pub units: u64,
    /// Those of Student's t; Welch's where two arms are compared.
    pub degrees_of_freedom: f64,
}

impl Estimate {
    /// Student's t interval at a confidence such as 0.95. It is for one look at a number of units that was fixed beforehand.
    ///
    /// # Errors
    ///
    /// When the confidence is not between 0 and 1, or the estimate is not finite.
    pub fn interval(&self, confidence: f64) -> Result<Interval> {
        let left_out = check::left_out(confidence)?;
        let quantile = student_quantile(1.0 - left_out / 2.0, self.degrees_of_freedom)?;
        Interval::around(self.value, quantile * self.variance.sqrt())
    }

    /// This estimate, when all of it is finite.
    pub(crate) fn checked(self) -> Result<Self> {
        check::finite(&[self.value, self.variance, self.degrees_of_freedom])?;
        Ok(self)
    }
}
