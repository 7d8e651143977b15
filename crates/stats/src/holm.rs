//! Holm's adjustment of several p values.

use crate::check;
use crate::error::{Result, StatsError};

/// Adjusts p values so that the probability of any false rejection is at most the level that the adjusted values are
/// compared with, whatever the dependence between the tests. The order of the values is preserved.
///
/// The adjusted value of the i-th smallest of m is the largest of (m − j + 1) · p(j) over j ≤ i, at most 1.
/// Always-valid p values remain always valid.
///
/// Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
///
/// # Errors
///
/// Returns an error for a p value that is not between 0 and 1. An empty list gives an empty list.
///
/// ```
/// use tokengauge_stats::holm;
///
/// assert_eq!(holm::adjust(&[0.25, 0.0625, 0.125]), Ok(vec![0.25, 0.1875, 0.25]));
/// ```
pub fn adjust(p_values: &[f64]) -> Result<Vec<f64>> {
    check::finite(p_values)?;
    if let Some(&value) = p_values.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(StatsError::OutOfRange {
            name: "a p value",
            wanted: "from 0 to 1",
            value,
        });
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|left, right| p_values[*left].total_cmp(&p_values[*right]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(p_values[index] * (p_values.len() - rank) as f64);
        adjusted[index] = largest.min(1.0);
    }
    Ok(adjusted)
}
