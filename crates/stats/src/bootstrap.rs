//! The moving-block bootstrap: confidence intervals for any statistic of a dependent series.

mod block_length;

use crate::check;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use crate::moments;
use crate::random::Generator;
use rand::RngExt;

pub use block_length::block_length;

/// The minimum number of observations. [`block_length`] needs this many to examine enough lags.
pub const MIN_OBSERVATIONS: usize = 16;

/// Options of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The confidence of the interval, such as 0.95.
    pub confidence: f64,
    /// The number of resamples, at least 100. 2,000 are usual for a 95 % interval.
    pub resamples: usize,
    /// The block length in observations, at most the length of the series. `None` uses [`block_length`].
    pub block: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            confidence: 0.95,
            resamples: 2_000,
            block: None,
        }
    }
}

/// A statistic of a series with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// The statistic of the original series.
    pub estimate: f64,
    /// The percentile interval: quantiles of the statistics of the resamples, with linear interpolation.
    pub interval: Interval,
    /// The block length in observations.
    pub block: usize,
}

/// Returns the percentile interval of `statistic` by the moving-block bootstrap. A resample consists of blocks of
/// neighbouring observations, drawn with replacement from all positions and cut to the length of the series.
///
/// The series must be stationary (see [`crate::steady`]), in equal steps such as seconds, and many blocks long. Blocks
/// preserve the dependence within a block but not between blocks, so intervals of a strongly dependent series are
/// slightly too narrow.
///
/// Source: Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17 (1989).
///
/// # Errors
///
/// Returns an error for fewer than [`MIN_OBSERVATIONS`] observations, for an observation or a statistic that is not
/// finite, and for an option that is out of range.
///
/// ```
/// use tokengauge_stats::{bootstrap, seeded};
///
/// let tps: Vec<f64> = (0..120).map(|second| 50.0 + f64::from(second * 37 % 11)).collect();
/// let mean = |series: &[f64]| series.iter().sum::<f64>() / series.len() as f64;
/// let found = bootstrap::interval(&tps, mean, bootstrap::Options::default(), &mut seeded(1)).unwrap();
/// assert!(found.interval.contains(found.estimate));
/// ```
pub fn interval(
    series: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    options: Options,
    random: &mut Generator,
) -> Result<Bootstrap> {
    let left_out = check::left_out(options.confidence)?;
    check::series(series, MIN_OBSERVATIONS)?;
    check_resamples(options.resamples)?;
    let block = check_block(
        options.block.map_or_else(|| block_length(series), Ok)?,
        series,
    )?;
    let mut resample = Vec::with_capacity(series.len() + block);
    let mut statistics = (0..options.resamples)
        .map(|_| {
            draw(series, block, &mut resample, random);
            check::answer(statistic(&resample))
        })
        .collect::<Result<Vec<f64>>>()?;
    statistics.sort_by(f64::total_cmp);
    Ok(Bootstrap {
        estimate: check::answer(statistic(series))?,
        interval: Interval::new(
            moments::quantile_of_sorted(&statistics, left_out / 2.0),
            moments::quantile_of_sorted(&statistics, 1.0 - left_out / 2.0),
        )?,
        block,
    })
}

fn check_resamples(resamples: usize) -> Result<()> {
    if resamples >= 100 {
        Ok(())
    } else {
        Err(StatsError::OutOfRange {
            name: "resamples",
            wanted: "at least 100",
            value: resamples as f64,
        })
    }
}

fn check_block(block: usize, series: &[f64]) -> Result<usize> {
    if (1..=series.len()).contains(&block) {
        Ok(block)
    } else {
        Err(StatsError::OutOfRange {
            name: "block",
            wanted: "from 1 to the length of the series",
            value: block as f64,
        })
    }
}

fn draw(series: &[f64], block: usize, resample: &mut Vec<f64>, random: &mut Generator) {
    resample.clear();
    while resample.len() < series.len() {
        let start = random.random_range(0..=series.len() - block);
        resample.extend_from_slice(&series[start..start + block]);
    }
    resample.truncate(series.len());
}
