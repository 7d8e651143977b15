//! Whether a run is steady: where its beginning ends, and how much it still moves.

mod slope;

use crate::check;
use crate::error::Result;
use crate::moments;

pub use slope::{MIN_POINTS, Slope, effective, slope};

/// Observations in a batch of MSER-5.
pub const BATCH: usize = 5;
/// The least number of observations for [`mser5`]: ten batches.
pub const MIN_OBSERVATIONS: usize = 10 * BATCH;
/// Batches that are left over at least: with fewer, a chance agreement of the last ones would often win (Hoad, Robinson and
/// Davies).
const LEFT_OVER: usize = 5;

/// Where the beginning of a run ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Beginning {
    /// The run without that many first observations is closest to its mean, by its standard error.
    Ends {
        /// The number of observations to leave out.
        after: usize,
    },
    /// That would be more than half of the run: it had not settled.
    NotInFirstHalf,
}

/// MSER-5: how many observations at the beginning of a series (seconds of a run, say) to leave out, in whole batches of
/// [`BATCH`], so that Σ (batch mean − mean)² / batches² of the rest is least. Observations at the end that fill no batch are not
/// looked at.
///
/// It assumes that what is disturbed is the beginning, and that the run is much longer than that; it does not see a slow slope
/// (see [`slope`]). At least five batches are left over. One in twenty steady runs of 300 seconds is by chance said not to have
/// settled in its first half, more of shorter ones.
///
/// Sources: White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for simulation", WSC 2000; the
/// batches left over: Hoad, Robinson and Davies, "Automating warm-up length estimation", WSC 2008.
///
/// # Errors
///
/// With fewer than [`MIN_OBSERVATIONS`] observations, and when one is not finite.
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
