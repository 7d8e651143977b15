//! Distribution functions of samples and histograms.

use crate::check;
use crate::error::{Result, StatsError};

/// A value with a weight: an observation, or the midpoint of a histogram bucket and its count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The value.
    pub value: f64,
    /// The number of observations or another weight, at least 0.
    pub weight: f64,
}

/// A sample or a histogram, as points in ascending order with weights that sum to 1.
///
/// ```
/// use tokengauge_stats::drift::{Distribution, Point};
///
/// let sample = Distribution::of_sample(&[3.0, 1.0, 2.0, 2.0]).unwrap();
/// let buckets = [(1.0, 10.0), (2.0, 20.0), (3.0, 10.0)].map(|(value, weight)| Point { value, weight });
/// assert_eq!(sample.quantile(0.5), Ok(2.0));
/// assert_eq!(sample.wasserstein(&Distribution::of_histogram(&buckets).unwrap()), Ok(0.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Distinct values in ascending order, each with the share of the weight at or below the value.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    value: f64,
    at_most: f64,
}

impl Distribution {
    /// Builds the distribution of single observations.
    ///
    /// # Errors
    ///
    /// Returns an error without observations and for an observation that is not finite.
    pub fn of_sample(values: &[f64]) -> Result<Self> {
        let points: Vec<Point> = values
            .iter()
            .map(|&value| Point { value, weight: 1.0 })
            .collect();
        Self::of_histogram(&points)
    }

    /// Builds the distribution of weighted values in any order, such as the buckets of a sketch. Values with a weight
    /// of 0 are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if no value has weight, for a value or a weight that is not finite, and for a negative weight.
    pub fn of_histogram(points: &[Point]) -> Result<Self> {
        if let Some(point) = points.iter().find(|point| point.weight < 0.0) {
            return Err(StatsError::OutOfRange {
                name: "a weight",
                wanted: "at least 0",
                value: point.weight,
            });
        }
        let mut points: Vec<Point> = points
            .iter()
            .filter(|point| point.weight != 0.0)
            .copied()
            .collect();
        for point in &points {
            check::finite(&[point.value, point.weight])?;
        }
        check::at_least(1, points.len())?;
        points.sort_by(|left, right| left.value.total_cmp(&right.value));
        let all = check::answer(points.iter().map(|point| point.weight).sum())?;
        let mut sum = 0.0;
        let mut steps: Vec<Step> = Vec::with_capacity(points.len());
        for equal in points.chunk_by(|left, right| left.value == right.value) {
            sum += equal.iter().map(|point| point.weight).sum::<f64>();
            steps.push(Step {
                value: equal[0].value,
                at_most: sum / all,
            });
        }
        Ok(Self { steps })
    }

    /// Returns the smallest value that has at least this share of the weight at or below it, for shares above 0
    /// up to 1. This is the inverse of the distribution function, `numpy.quantile` with `method="inverted_cdf"`.
    ///
    /// # Errors
    ///
    /// Returns an error if the share is out of range.
    ///
    /// ```
    /// use tokengauge_stats::drift::Distribution;
    ///
    /// let ten = Distribution::of_sample(&(1..=10).map(f64::from).collect::<Vec<_>>()).unwrap();
    /// assert_eq!([0.25, 0.5, 0.75, 1.0].map(|share| ten.quantile(share)), [Ok(3.0), Ok(5.0), Ok(8.0), Ok(10.0)]);
    /// assert_eq!((ten.interquartile_range(), ten.at_most(4.5)), (5.0, 0.4));
    /// ```
    pub fn quantile(&self, share: f64) -> Result<f64> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(StatsError::OutOfRange {
                name: "share",
                wanted: "above 0, up to 1",
                value: share,
            });
        }
        // Sums of weights such as 0.1 have rounding errors.
        let reaches = |step: &Step| step.at_most >= share * (1.0 - 1e-12);
        let index = self.steps.partition_point(|step| !reaches(step));
        Ok(self.steps[index.min(self.steps.len() - 1)].value)
    }

    /// Returns the difference between the third and the first quartile.
    #[must_use]
    pub fn interquartile_range(&self) -> f64 {
        let quarters = (self.quantile(0.25), self.quantile(0.75));
        match quarters {
            (Ok(lower), Ok(upper)) => upper - lower,
            _ => 0.0,
        }
    }

    /// Returns the share of the weight at or below a value.
    #[must_use]
    pub fn at_most(&self, value: f64) -> f64 {
        let index = self.steps.partition_point(|step| step.value <= value);
        index
            .checked_sub(1)
            .map_or(0.0, |before| self.steps[before].at_most)
    }

    /// Returns the Wasserstein-1 distance in the unit of the values: the area between the two distribution functions,
    /// or how far observations must move on average to turn one distribution into the other. Equal to
    /// `scipy.stats.wasserstein_distance`.
    ///
    /// # Errors
    ///
    /// Returns an error if the distance overflows.
    ///
    /// ```
    /// use tokengauge_stats::drift::Distribution;
    ///
    /// let [reference, later] = [[1.0, 2.0, 3.0], [1.0, 2.0, 6.0]].map(|values| Distribution::of_sample(&values).unwrap());
    /// assert!((reference.wasserstein(&later).unwrap() - 1.0).abs() < 1e-12); // one of three, by 3
    /// ```
    pub fn wasserstein(&self, other: &Self) -> Result<f64> {
        let mut values: Vec<f64> = self
            .steps
            .iter()
            .chain(&other.steps)
            .map(|step| step.value)
            .collect();
        values.sort_by(f64::total_cmp);
        let area = values
            .windows(2)
            .filter(|pair| pair[0] < pair[1])
            .map(|pair| {
                (self.at_most(pair[0]) - other.at_most(pair[0])).abs() * (pair[1] - pair[0])
            });
        check::answer(area.sum())
    }
}
