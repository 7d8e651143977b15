//! Change points: positions where the level of a series jumps.

mod divergence;
mod prune;
mod split;

use crate::check;
use crate::error::{Result, StatsError};

/// Options that define a change point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The minimum number of points on each side, up to the next change point or the end of the series; at least 1.
    pub min_points: usize,
    /// The minimum relative change: 0.1 is 10 %.
    pub min_change: f64,
    /// The level that a change is relative to, such as the seasonal median that was subtracted from the series. With
    /// `None`, the change is relative to the mean before or the mean after, whichever gives the larger share, as in
    /// apache-otava. Set a level for a series around 0, because a share of its mean is meaningless.
    pub level: Option<f64>,
    /// The largest p value of the t test between the two sides, such as 0.001. This is a nominal level: each point was
    /// chosen as the best split, so the false positive rate is higher than this value.
    pub max_p: f64,
    /// The length in points of the windows that are searched, from 2 to [`MAX_WINDOW`]. Windows overlap by half.
    pub window: usize,
}

/// The longest window. Time and memory grow with the square of the window.
pub const MAX_WINDOW: usize = 1_000;

impl Default for Options {
    fn default() -> Self {
        Self {
            min_points: 10,
            min_change: 0.1,
            level: None,
            max_p: 0.001,
            window: 50,
        }
    }
}

/// The points on one side of a change point, up to the next change point or the end of the series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The mean of the side, in the unit of the series.
    pub mean: f64,
    /// The number of points of the side.
    pub points: usize,
}

/// A change point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The index of the first point after the change.
    pub index: usize,
    /// The points before the change.
    pub before: Side,
    /// The points after the change.
    pub after: Side,
    /// The size of the change as a share of the level, see [`Options::level`]; never negative.
    pub change: f64,
    /// The p value of Student's t test with equal variances between the sides.
    pub p: f64,
}

/// Finds the change points of a series in equal steps, by E-Divisive means in the form of apache-otava (Hunter).
///
/// Overlapping windows are split where the energy distance between both sides is largest, as long as the t test between
/// the sides has a p value of at most 10 · `max_p`. Then the weakest change points are removed, one at a time, until
/// all remaining ones have `min_points` on both sides, a p value below `max_p` and a change above `min_change`.
/// Significance comes from the t test instead of permutations, so the result is deterministic. With the defaults but no
/// minimum change, one in twenty days of independent 5-minute points around one level has a change point. With a
/// minimum change of 10 % and a standard deviation of 6 % of the level, none of 300 such days had one.
///
/// The points must be about independent given the level of their segment: use hourly medians less the seasonal median,
/// not seconds. The level must change in steps: a slope is found as several steps. The differences from apache-otava
/// 0.8 are: a side has a minimum number of points; the t test uses variances with divisor n − 1, where otava passes
/// deviations with divisor n; and after a point is removed both its neighbours are tested again, where otava skips the
/// previous one.
///
/// Sources: Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 109
/// (2014), arXiv 1306.4933; Fleming et al., "Hunter: using change point detection to hunt for performance regressions", ICPE
/// 2023.
///
/// # Errors
///
/// Returns an error for fewer than twice `min_points` points, for a point that is not finite, and for an option that is
/// out of range.
///
/// ```
/// use tokengauge_stats::change::{Options, find};
///
/// let ttft = |hour: i32| if hour < 30 { 0.5 } else { 0.65 } + f64::from(hour * 37 % 11) / 200.0;
/// let hours: Vec<f64> = (0..60).map(ttft).collect();
/// let found = find(&hours, &Options::default()).unwrap();
/// assert_eq!(found.len(), 1);
/// assert_eq!(found[0].index, 30);
/// assert!((found[0].change - 0.28).abs() < 0.02);
/// ```
pub fn find(series: &[f64], options: &Options) -> Result<Vec<ChangePoint>> {
    options.check()?;
    check::series(series, options.min_points.saturating_mul(2))?;
    let weak = split::windows(series, options)?;
    prune::weakest(series, weak, options)
}

impl Options {
    fn check(&self) -> Result<()> {
        check::open_share("max_p", self.max_p)?;
        check::finite(&[self.min_change, self.level.unwrap_or_default()])?;
        if self.level == Some(0.0) {
            return Err(StatsError::ZeroLevel);
        }
        let range = |name, wanted, value: usize| StatsError::OutOfRange {
            name,
            wanted,
            value: value as f64,
        };
        if self.min_points == 0 {
            return Err(range("min_points", "at least 1", 0));
        }
        if (2..=MAX_WINDOW).contains(&self.window) {
            Ok(())
        } else {
            Err(range("window", "from 2 to 1000", self.window))
        }
    }
}
