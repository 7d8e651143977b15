//! The distributions of the intervals and tests, as `statrs` has them.

use crate::error::{Error, Result};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The value that Student's t is not above with this probability.
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> Result<f64> {
    Ok(student(degrees_of_freedom)?.inverse_cdf(probability))
}

fn student(degrees_of_freedom: f64) -> Result<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_err(|_| Error::NotFinite)
}
