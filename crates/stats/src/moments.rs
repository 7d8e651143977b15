//! Means, sums of squares and quantiles, which several modules share.

/// The mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sum of the squared distances from the mean: two passes, so that a large level costs no digits.
pub fn sum_of_squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}
