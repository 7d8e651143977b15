//! Change points: where the level of a series jumps.

mod divergence;
mod prune;
mod split;

use crate::check;
use crate::error::{Result, StatsError};

/// What is a change point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Points that there are at least on each side before the next change point or the end, at least 1.
    pub min_points: usize,
    /// The least size of the change, as a share: 0.1 is 10 %.
    pub min_change: f64,
    /// The level that a change is a share of, such as the seasonal median that was subtracted from the series. `None`: of the
    /// mean before or of that after, whichever gives the larger share, as apache-otava has it. For series about 0 that share
    /// says nothing, and a level is needed.
    pub level: Option<f64>,
    /// The largest p value of the t test between the two sides, such as 0.001. It is the test's nominal level: the point was
    /// chosen as the best one, so that by chance alone more is found than this share.
    pub max_p: f64,
    /// The length of the windows that are searched, in points; they overlap by half. At least 2, at most [`MAX_WINDOW`].
    pub window: usize,
}

/// The longest window: time and memory grow with its square.
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

/// One side of a change point, up to the next one or the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Its mean, in the unit of the series.
    pub mean: f64,
    /// The number of its points.
    pub points: usize,
}

/// A change point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The index of the first point after the change.
    pub index: usize,
    /// The points before it.
    pub before: Side,
    /// The points from it on.
    pub after: Side,
    /// The size of the change as a share of the level, see [`Options::level`]; never below 0.
    pub change: f64,
    /// The p value of Student's t test with equal variances between the sides.
    pub p: f64,
}

/// The change points of a series in equal steps, by E-Divisive means in the form of apache-otava (Hunter).
///
/// Overlapping windows are split where the energy distance of both sides is largest, as long as the t test between the
/// sides has a p value of at most 10 · `max_p`; then the weakest change points are taken out, one at a time, until all have
/// `min_points` on both sides, a p value below `max_p` and a change above `min_change`, between the segments that are left.
/// Significance is that of the t test, not of permutations; nothing is drawn at random. With the defaults but no least
/// change, one day in twenty of 5-minute points that are independent around one level has a change point; with a standard
/// deviation of 6 % of the level, none of 300 such days had one of 10 %.
///
/// It assumes points that are about independent given their segment's level (medians of an hour less the seasonal median,
/// not seconds), and steps: a slope is found as several steps. It differs from apache-otava 0.8 in three ways: sides have a
/// least number of points, the t test has variances with divisor n − 1 where otava passes deviations with divisor n, and after a point was
/// taken out both its neighbours are judged again, where otava forgets the one before.
///
/// Sources: Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 109
/// (2014), arXiv 1306.4933; Fleming et al., "Hunter: using change point detection to hunt for performance regressions", ICPE
/// 2023.
///
/// # Errors
///
/// With fewer than twice `min_points` points, when one is not finite, and when an option is out of range.
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
