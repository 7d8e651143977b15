//! The distributions of the intervals and tests, as `statrs` has them.

use crate::error::{Result, StatsError};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The value that a standard normal variable is not above with this probability.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// The probability that a standard normal variable is further from 0 than `z`, on either side.
pub fn normal_two_sided(z: f64) -> f64 {
    (2.0 * Normal::standard().sf(z.abs())).min(1.0)
}

/// The value that Student's t is not above with this probability.
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> Result<f64> {
    Ok(student(degrees_of_freedom)?.inverse_cdf(probability))
}

/// The probability that Student's t is further from 0 than `t`, on either side.
pub fn student_two_sided(t: f64, degrees_of_freedom: f64) -> Result<f64> {
    Ok((2.0 * student(degrees_of_freedom)?.sf(t.abs())).min(1.0))
}

fn student(degrees_of_freedom: f64) -> Result<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_err(|_| StatsError::NotFinite)
}
