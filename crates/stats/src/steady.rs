//! Whether a run is steady: where its warm-up ends, and how much it still drifts.

mod slope;

use crate::check;
use crate::error::Result;
use crate::moments;

pub use slope::{MIN_POINTS, Slope, effective, slope};

/// The number of observations in a batch of MSER-5.
pub const BATCH: usize = 5;
/// The minimum number of observations for [`mser5`]: ten batches.
pub const MIN_OBSERVATIONS: usize = 10 * BATCH;
/// The minimum number of remaining batches. With fewer, the last ones would often win by chance agreement (Hoad,
/// Robinson and Davies).
const LEFT_OVER: usize = 5;

/// The end of the warm-up of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Beginning {
    /// The warm-up ends after this many observations, which minimizes the standard error of the rest.
    Ends {
        /// The number of observations to discard.
        after: usize,
    },
    /// The warm-up would take more than half of the run, so the run did not settle.
    NotInFirstHalf,
}

/// Returns by MSER-5 how many observations to discard at the beginning of a series, such as seconds of a run. The
/// number is in whole batches of [`BATCH`] and minimizes Σ (batch mean − mean)² / batches² of the remaining batches. An
/// incomplete batch at the end is ignored.
///
/// The method assumes a disturbance at the beginning and a run that is much longer. It does not detect a slow slope
/// (see [`slope`]). At least five batches remain. By chance, one in twenty steady runs of 300 seconds is reported as
/// not settled in the first half, and more of shorter runs.
///
/// Sources: White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for simulation", WSC 2000;
/// for the remaining batches: Hoad, Robinson and Davies, "Automating warm-up length estimation", WSC 2008.
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_OBSERVATIONS`] observations and for an observation that is not finite.
///
/// ```
/// use tokengauge_stats::steady::{Beginning, mser5};
///
/// let tps = |second: i32| f64::from((second * 7).min(140) + second * 37 % 11);
/// let run: Vec<f64> = (0..120).map(tps).collect();
/// assert_eq!(mser5(&run), Ok(Beginning::Ends { after: 20 }));
/// ```
pub fn mser5(series: &[f64]) -> Result<Beginning> {
    check::series(series, MIN_OBSERVATIONS)?;
    let batches: Vec<f64> = series.chunks_exact(BATCH).map(moments::mean).collect();
    check::finite(&batches)?;
    let error = |left_out: usize| {
        let rest = &batches[left_out..];
        moments::sum_of_squares(rest) / (rest.len() as f64).powi(2)
    };
    let errors: Vec<f64> = (0..=batches.len() - LEFT_OVER).map(error).collect();
    check::finite(&errors)?;
    let least = (0..errors.len())
        .min_by(|left, right| errors[*left].total_cmp(&errors[*right]))
        .unwrap_or_default();
    Ok(if 2 * least > batches.len() {
        Beginning::NotInFirstHalf
    } else {
        Beginning::Ends {
            after: least * BATCH,
        }
    })
}
