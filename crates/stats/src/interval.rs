//! Intervals of figures.

use crate::check;
use crate::error::Result;

/// Two finite bounds in the unit of the figure between them. `lower` is not above `upper`.
///
/// ```
/// use tokengauge_stats::Interval;
///
/// let change = Interval { lower: -0.02, upper: 0.03 };
/// assert!(change.contains(0.0) && change.is_within(-0.05, 0.05));
/// assert_eq!(change.width(), 0.05);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
}

impl Interval {
    /// Returns whether the value lies between the bounds or on one of them.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// Returns whether the whole interval lies between two limits. This shows that a figure is small; an interval that
    /// contains 0 does not.
    #[must_use]
    pub fn is_within(&self, lowest: f64, highest: f64) -> bool {
        lowest <= self.lower && self.upper <= highest
    }

    /// Returns the distance between the bounds.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.upper - self.lower
    }

    /// Returns the interval from `value - reach` to `value + reach`.
    pub(crate) fn around(value: f64, reach: f64) -> Result<Self> {
        Self::new(value - reach, value + reach)
    }

    pub(crate) fn new(lower: f64, upper: f64) -> Result<Self> {
        Ok(Self {
            lower: check::answer(lower)?,
            upper: check::answer(upper)?,
        })
    }
}
