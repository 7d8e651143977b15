//! The moving-block bootstrap: an interval of any statistic of a dependent series.

mod block_length;

use crate::check;
use crate::error::{Result, StatsError};
use crate::interval::Interval;
use crate::moments;
use crate::random::Generator;
use rand::RngExt;

pub use block_length::block_length;

/// The least number of observations: with fewer, the rule for the block's length has too few lags to look at.
pub const MIN_OBSERVATIONS: usize = 16;

/// How often to resample, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The interval's confidence, such as 0.95.
    pub confidence: f64,
    /// The number of resamples, at least 100. 2,000 are usual for 95 %.
    pub resamples: usize,
    /// The length of a block in observations, at most that of the series; `None` is [`block_length`].
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

/// A statistic of a series and how far it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// The statistic of the series itself.
    pub estimate: f64,
    /// The percentile interval: quantiles of the resamples' statistics, linear between neighbours.
    pub interval: Interval,
    /// The length of the blocks, in observations.
    pub block: usize,
}

/// The percentile interval of `statistic`, a function of a series, by the moving-block bootstrap: a resample is made of
/// blocks of neighbouring observations, drawn with replacement from all positions, and cut to the length of the series.
///
/// It assumes a stationary series (see [`crate::steady`]) in equal steps, such as seconds, that is many blocks long. Within
/// blocks the dependence is preserved; between blocks it is lost, so that intervals of a strongly dependent series are still
/// somewhat narrow.
///
/// Source: Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17 (1989).
///
/// # Errors
///
/// With fewer than [`MIN_OBSERVATIONS`] observations, when one of them or a statistic is not finite, and when an option is out
/// of range.
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

/// Fills `resample` with blocks from positions drawn at random.
fn draw(series: &[f64], block: usize, resample: &mut Vec<f64>, random: &mut Generator) {
    resample.clear();
    while resample.len() < series.len() {
        let start = random.random_range(0..=series.len() - block);
        resample.extend_from_slice(&series[start..start + block]);
    }
    resample.truncate(series.len());
}
