//! The slope of a run.

use crate::check;
use crate::distribution::student_quantile;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use crate::moments::{self, product};

/// The minimum number of points for a slope.
pub const MIN_POINTS: usize = 10;

/// The slope of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The mean of the series, in its unit. Changes are relative to this mean.
    pub level: f64,
    /// The least-squares slope, in the unit of the series per observation.
    pub per_step: f64,
    /// The change along the least-squares line from the first observation to the last, as a share of the level: 0.05 is
    /// 5 % up.
    pub change: f64,
    /// The interval of `change`.
    pub interval: Interval,
}

impl Slope {
    /// Returns whether the change is shown to be small: its whole interval lies between −limit and +limit.
    #[must_use]
    pub fn is_within(&self, limit: f64) -> bool {
        self.interval.is_within(-limit, limit)
    }
}

/// Fits a least-squares line to a series in equal steps and returns the interval of its relative change.
///
/// Dependent neighbours reduce the effective number of points. If the correlation r of neighbouring residuals is above
/// 0, n points count as [`effective`] = n (1 − r) / (1 + r) independent points for the standard error and Student's t.
/// The interval assumes a straight line plus noise that is roughly an autoregression of order 1. With r = 0.7 and 300
/// points, 95 % intervals contain the truth in 94 % of runs. r does not reveal slow movements under much independent
/// noise; averages over several seconds show them better than single seconds.
///
/// Source: Santer et al., "Statistical significance of trends and trend differences in layer-average atmospheric
/// temperature time series", Journal of Geophysical Research 105 (2000), the method "AdjSE + AdjDF".
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_POINTS`] points, for an effective number of points below 3, for a point that
/// is not finite, and for a level of 0.
///
/// ```
/// use tokengauge_stats::steady::slope;
///
/// let tps = |second: i32| 100.0 + 0.1 * f64::from(second) + f64::from(second * 37 % 11);
/// let run: Vec<f64> = (0..300).map(tps).collect();
/// let found = slope(&run, 0.95).unwrap();
/// assert!((found.per_step - 0.1).abs() < 0.01);
/// assert!(found.interval.contains(29.9 / 120.0) && !found.is_within(0.05));
/// ```
pub fn slope(series: &[f64], confidence: f64) -> Result<Slope> {
    let left_out = check::left_out(confidence)?;
    check::series(series, MIN_POINTS)?;
    let level = check::answer(moments::mean(series))?;
    if level == 0.0 {
        return Err(StatsError::ZeroLevel);
    }
    let line = Line::through(series, level);
    let worth = effective(series.len(), line.neighbours(level));
    check::at_least(3, worth as usize)?;
    let error = (product(&line.residuals, &line.residuals) / (worth - 2.0) / line.spread).sqrt();
    let quantile = student_quantile(1.0 - left_out / 2.0, worth - 2.0)?;
    let relative = (series.len() - 1) as f64 / level;
    let change = check::answer(line.slope * relative)?;
    Ok(Slope {
        level,
        per_step: line.slope,
        change,
        interval: Interval::around(change, quantile * error * relative.abs())?,
    })
}

/// Returns the effective number of independent points of a dependent series, from the correlation of neighbours. A
/// correlation of 0 or below keeps all points.
///
/// ```
/// use tokengauge_stats::steady::effective;
///
/// assert_eq!((effective(300, 0.5), effective(300, -0.2)), (100.0, 300.0));
/// ```
#[must_use]
pub fn effective(points: usize, correlation: f64) -> f64 {
    let correlation = correlation.clamp(0.0, 1.0);
    points as f64 * (1.0 - correlation) / (1.0 + correlation)
}

/// A least-squares line.
struct Line {
    slope: f64,
    residuals: Vec<f64>,
    /// The sum of the squared distances of the steps from their mean.
    spread: f64,
}

impl Line {
    fn through(series: &[f64], level: f64) -> Self {
        let middle = (series.len() - 1) as f64 / 2.0;
        let steps: Vec<f64> = (0..series.len()).map(|step| step as f64 - middle).collect();
        let spread = product(&steps, &steps);
        let slope = product(&steps, series) / spread;
        let residuals = series
            .iter()
            .zip(&steps)
            .map(|(value, step)| value - level - slope * step);
        Self {
            slope,
            residuals: residuals.collect(),
            spread,
        }
    }

    /// Returns the correlation of neighbouring residuals, or 0 if the residuals are only the rounding errors of a
    /// straight line.
    fn neighbours(&self, level: f64) -> f64 {
        let rounding = self.residuals.len() as f64 * f64::EPSILON * level;
        let squares = product(&self.residuals, &self.residuals);
        if squares <= rounding * rounding {
            return 0.0;
        }
        product(&self.residuals, &self.residuals[1..]) / squares
    }
}
