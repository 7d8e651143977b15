//! Checks of arguments and of answers, which all modules share.

use crate::error::{Result, StatsError};

/// All values are finite.
pub fn finite(values: &[f64]) -> Result<()> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(StatsError::NotFinite)
    }
}

/// An answer is finite: sums of very large values may overflow.
pub fn answer(value: f64) -> Result<f64> {
    if value.is_finite() {
        Ok(value)
    } else {
        Err(StatsError::NotFinite)
    }
}

/// There are at least `needed` of them.
pub fn at_least(needed: usize, got: usize) -> Result<()> {
    if got >= needed {
        Ok(())
    } else {
        Err(StatsError::TooFew { needed, got })
    }
}

/// There are at least `needed` values, all of them finite.
pub fn series(values: &[f64], needed: usize) -> Result<()> {
    finite(values)?;
    at_least(needed, values.len())
}

/// A probability that is neither 0 nor 1.
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

/// A finite number above zero.
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

/// The share that an interval of this confidence leaves out: `1 - confidence`.
pub fn left_out(confidence: f64) -> Result<f64> {
    Ok(1.0 - open_share("confidence", confidence)?)
}
