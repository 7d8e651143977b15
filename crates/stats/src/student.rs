//! Student's t interval of a mean.

use crate::check;
use crate::distribution::student_quantile;
use crate::error::Result;
use crate::interval::Interval;
use crate::moments;

/// The mean of trials with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean, in the unit of the trials.
    pub mean: f64,
    /// The standard error of the mean: the standard deviation of the trials (divisor n − 1) over √n.
    pub standard_error: f64,
    /// The interval of the mean.
    pub interval: Interval,
    /// The number of trials.
    pub trials: usize,
}

/// Returns Student's t interval of the mean of independent trials, one figure each, at a confidence such as 0.95: mean
/// ± t(n − 1) · s/√n.
///
/// The interval assumes that the number of trials was fixed beforehand and that their figures are roughly normal, as
/// means over many calls are. It is not valid if trials are added until the interval is narrow enough; use
/// [`crate::sequence`] for that.
///
/// Source: Student, "The probable error of a mean", Biometrika 6 (1908).
///
/// # Errors
///
/// Returns an error for fewer than two trials and for a figure that is not finite. Equal figures give an interval of
/// width 0.
///
/// ```
/// use tokengauge_stats::student;
///
/// let tps = student::mean(&[48.1, 49.0, 47.7, 48.6, 48.1], 0.95).unwrap();
/// assert_eq!(tps.trials, 5);
/// assert!(tps.interval.contains(48.3) && !tps.interval.contains(50.0));
/// ```
pub fn mean(trials: &[f64], confidence: f64) -> Result<Mean> {
    let left_out = check::left_out(confidence)?;
    check::series(trials, 2)?;
    let count = trials.len() as f64;
    let mean = check::answer(moments::mean(trials))?;
    let standard_error = (moments::sum_of_squares(trials) / (count - 1.0) / count).sqrt();
    let reach = student_quantile(1.0 - left_out / 2.0, count - 1.0)? * standard_error;
    Ok(Mean {
        mean,
        standard_error: check::answer(standard_error)?,
        interval: Interval::around(mean, reach)?,
        trials: trials.len(),
    })
}
