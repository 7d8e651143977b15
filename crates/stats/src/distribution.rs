//! Distributions for intervals and tests, from `statrs`.

use crate::error::{Result, StatsError};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Returns the quantile of the standard normal distribution.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// Returns the two-sided tail probability of the standard normal distribution beyond ±`z`.
pub fn normal_two_sided(z: f64) -> f64 {
    (2.0 * Normal::standard().sf(z.abs())).min(1.0)
}

/// Returns the quantile of Student's t distribution.
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> Result<f64> {
    Ok(student(degrees_of_freedom)?.inverse_cdf(probability))
}

/// Returns the two-sided tail probability of Student's t distribution beyond ±`t`.
pub fn student_two_sided(t: f64, degrees_of_freedom: f64) -> Result<f64> {
    Ok((2.0 * student(degrees_of_freedom)?.sf(t.abs())).min(1.0))
}

fn student(degrees_of_freedom: f64) -> Result<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_err(|_| StatsError::NotFinite)
}
