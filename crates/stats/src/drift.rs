//! Distances between two distributions.

mod distribution;

use crate::check;
use crate::error::{Result, StatsError};

pub use distribution::{Distribution, Point};

/// The number of bins of the population stability index.
pub const BINS: usize = 10;
/// The share that replaces the share of an empty bin, so that its logarithm exists. evidently also uses 0.0001.
pub const LEAST_SHARE: f64 = 0.000_1;

/// Returns the Wasserstein-1 distance of two distributions in interquartile ranges of the reference, so that one
/// threshold works for seconds, tokens and ratios: 0.1 is small, 0.5 is half of the usual spread of the reference.
///
/// The distance is an effect size, not a significance test. With few observations, random noise produces a distance.
///
/// # Errors
///
/// Returns [`StatsError::NoVariation`] if the interquartile range of the reference is 0. Use
/// [`Distribution::wasserstein`] then.
///
/// ```
/// use tokengauge_stats::drift::{Distribution, distance};
///
/// let reference: Vec<f64> = (0..100).map(f64::from).collect();
/// let later: Vec<f64> = reference.iter().map(|value| value + 25.0).collect();
/// let [reference, later] = [reference, later].map(|values| Distribution::of_sample(&values).unwrap());
/// assert!((distance(&reference, &later).unwrap() - 0.5).abs() < 1e-12); // 25 of 50
/// ```
pub fn distance(reference: &Distribution, current: &Distribution) -> Result<f64> {
    let range = reference.interquartile_range();
    if range <= 0.0 {
        return Err(StatsError::NoVariation);
    }
    check::answer(reference.wasserstein(current)? / range)
}

/// Returns the population stability index of two distributions over the deciles of the reference: Σ (c − r) ln(c / r)
/// over the shares of both in each bin. An empty bin counts as [`LEAST_SHARE`]. An index below 0.1 is usually
/// called stable, an index above 0.25 changed.
///
/// A bin contains the values above the previous decile, up to and including its own decile. Equal deciles share one
/// bin, so a reference with few distinct values has fewer than [`BINS`] bins.
///
/// Source: Siddiqi, "Credit risk scorecards", 2006; evidently.
///
/// # Errors
///
/// Returns [`StatsError::NoVariation`] if all deciles of the reference are equal.
///
/// ```
/// use tokengauge_stats::drift::{Distribution, stability_index};
///
/// let reference: Vec<f64> = (0..1_000).map(f64::from).collect();
/// let later: Vec<f64> = reference.iter().map(|value| value * 1.5).collect();
/// let [reference, later] = [reference, later].map(|values| Distribution::of_sample(&values).unwrap());
/// assert_eq!(stability_index(&reference, &reference), Ok(0.0));
/// assert!(stability_index(&reference, &later).unwrap() > 0.25);
/// ```
pub fn stability_index(reference: &Distribution, current: &Distribution) -> Result<f64> {
    let mut edges = (1..BINS)
        .map(|bin| reference.quantile(bin as f64 / BINS as f64))
        .collect::<Result<Vec<f64>>>()?;
    edges.dedup();
    if edges.len() < 2 {
        return Err(StatsError::NoVariation);
    }
    edges.push(f64::INFINITY);
    let (mut index, mut reference_before, mut current_before) = (0.0, 0.0, 0.0);
    for edge in edges {
        let (reference_up_to, current_up_to) = (reference.at_most(edge), current.at_most(edge));
        let was = (reference_up_to - reference_before).max(LEAST_SHARE);
        let is = (current_up_to - current_before).max(LEAST_SHARE);
        index += (is - was) * (is / was).ln();
        (reference_before, current_before) = (reference_up_to, current_up_to);
    }
    check::answer(index)
}
