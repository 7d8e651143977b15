//! Shared checks of arguments and results.

use crate::error::{Result, StatsError};

/// Checks that all values are finite.
pub fn finite(values: &[f64]) -> Result<()> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(StatsError::NotFinite)
    }
}

/// Checks that a result is finite, because sums of very large values may overflow.
pub fn answer(value: f64) -> Result<f64> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(StatsError::NotFinite)
    }
}

/// Checks that there are at least `needed` values.
pub fn at_least(needed: usize, got: usize) -> Result<()> {
    if got >= needed {
        Ok(())
    } else {
        Err(StatsError::TooFew { needed, got })
    }
}

/// Checks that there are at least `needed` values and that all of them are finite.
pub fn series(values: &[f64], needed: usize) -> Result<()> {
    finite(values)?;
    at_least(needed, values.len())
}

/// Checks that a probability is above 0 and below 1.
pub fn open_share(name: &'static str, value: f64) -> Result<f64> {
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(StatsError::OutOfRange {
            name,
            wanted: "between 0 and 1",
            value,
        })
    }
}

/// Checks that a number is finite and above 0.
pub fn positive(name: &'static str, value: f64) -> Result<f64> {
    if value > 0.0 && value.is_finite() {
        Ok(value)
    } else {
        Err(StatsError::OutOfRange {
            name,
            wanted: "above 0",
            value,
        })
    }
}

/// Returns `1 - confidence`.
pub fn left_out(confidence: f64) -> Result<f64> {
    Ok(1.0 - open_share("confidence", confidence)?)
}
