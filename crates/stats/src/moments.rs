//! Shared functions for means, sums of squares and quantiles.

/// Returns the mean, or NaN for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sum of the squared distances from the mean. Two passes avoid the cancellation that a large level would
/// cause.
pub fn sum_of_squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns the median of sorted values. There must be at least one value.
pub fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Returns a quantile of sorted values with linear interpolation, the default of numpy. There must be at least one
/// value.
pub fn quantile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let below = (position.floor() as usize).min(sorted.len() - 1);
    let above = (below + 1).min(sorted.len() - 1);
    let weight = position - below as f64;
    let (below, above) = (sorted[below], sorted[above]);
    // Clamping after rounding guarantees that a larger share never has a smaller quantile.
    (below + (above - below) * weight).clamp(below, above)
}

pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the dot product, up to the length of the shorter slice.
pub fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter()
        .zip(right)
        .map(|(left, right)| left * right)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_between_equal_values_is_that_value() {
        let sum = 1e200 + 1e200 + 1e200;
        for share in [0.0, 0.02, 0.1, 0.21, 0.45, 0.95, 1.0] {
            assert_eq!(quantile_of_sorted(&[sum, sum, sum], share), sum);
        }
    }

    #[test]
    fn a_larger_share_has_no_smaller_quantile() {
        let sorted = [0.1, 0.1 + 0.2, 0.3, 0.7, 0.7].map(|value: f64| value * 1e16);
        let sorted = super::sorted(&sorted);
        let quantiles: Vec<f64> = (0..=1_000)
            .map(|share| quantile_of_sorted(&sorted, f64::from(share) / 1_000.0))
            .collect();
        assert!(quantiles.is_sorted());
    }
}
