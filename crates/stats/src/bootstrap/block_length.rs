//! The choice of the block length of a bootstrap.

use super::MIN_OBSERVATIONS;
use crate::check;
use crate::error::Result;
use crate::moments::{self, product};

/// Returns the block length, in observations and rounded up, that minimizes the error of the bootstrap's variance of a
/// mean. This is Politis and White's rule for the circular bootstrap, whose optimum also holds for moving blocks. The
/// length grows with the dependence in the series and with the cube root of its length. It is at most a third of the
/// series and at most 3 √n. A series that does not vary gets blocks of 1.
///
/// Sources: Politis and White, "Automatic block-length selection for the dependent bootstrap", Econometric Reviews 23 (2004);
/// the correction by Patton, Politis and White, Econometric Reviews 28 (2009).
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_OBSERVATIONS`] observations and for an observation that is not finite.
///
/// ```
/// use tokengauge_stats::bootstrap::block_length;
///
/// let steps: Vec<f64> = (0..200).map(|second| f64::from(second / 25 * 31 % 7)).collect();
/// let noise: Vec<f64> = (0..200).map(|second| f64::from(second * second * 37 % 101)).collect();
/// assert_eq!((block_length(&steps), block_length(&noise)), (Ok(22), Ok(3)));
/// ```
pub fn block_length(series: &[f64]) -> Result<usize> {
    check::series(series, MIN_OBSERVATIONS)?;
    let count = series.len() as f64;
    let mean = moments::mean(series);
    let centred: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let band = Lags::look_at(&centred).bandwidth(&centred);
    let covariance = |lag: usize| product(&centred[lag..], &centred) / count;
    let (mut weighted, mut long_run) = (0.0, covariance(0));
    for lag in 1..=band {
        // A trapezoid: 1 up to the middle of the band, then falling to 0.
        let window = (2.0 * (1.0 - lag as f64 / band as f64)).min(1.0);
        weighted += 2.0 * window * lag as f64 * covariance(lag);
        long_run += 2.0 * window * covariance(lag);
    }
    let most = (3.0 * count.sqrt()).min(count / 3.0).ceil();
    let best = (1.5 * (weighted / long_run).powi(2) * count).cbrt();
    // A series that does not vary gives 0 / 0.
    Ok(if best.is_nan() {
        1.0
    } else {
        best.min(most).ceil().max(1.0)
    } as usize)
}

/// The search range for autocorrelation.
struct Lags {
    /// The number of consecutive lags that must be uncorrelated.
    run: usize,
    /// The last lag to examine.
    most: usize,
    /// Correlations below 2 √(log₁₀ n / n) count as 0.
    threshold: f64,
}

impl Lags {
    fn look_at(centred: &[f64]) -> Self {
        let count = centred.len() as f64;
        let run = (count.log10() as usize).max(5);
        Self {
            run,
            most: count.sqrt().ceil() as usize + run,
            threshold: 2.0 * (count.log10() / count).sqrt(),
        }
    }

    /// Returns twice the lag after which a run of uncorrelated lags begins.
    fn bandwidth(&self, centred: &[f64]) -> usize {
        let mut run = 0;
        // Like the Python package arch, the search ends before the last lag.
        for lag in 0..self.most {
            run = if correlation(centred, lag) < self.threshold {
                run + 1
            } else {
                0
            };
            if run == self.run {
                return (2 * (lag + 1 - self.run).max(1)).min(self.most);
            }
        }
        self.most
    }
}

/// Returns the absolute autocorrelation at `lag`.
fn correlation(centred: &[f64], lag: usize) -> f64 {
    let later = &centred[lag + 1..];
    let earlier = &centred[..centred.len() - lag - 1];
    let scale = (product(later, later) * product(earlier, earlier)).sqrt();
    product(&centred[lag..], centred).abs() / scale
}
