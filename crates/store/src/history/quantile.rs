/// The `share` quantile of `sorted` (ascending) by nearest rank, so that it is one of the values.
/// `None` if `sorted` is empty.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

pub(super) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let mut values: Vec<f64> = finite.collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_value_of_nearest_rank() {
        let hundred = sorted((1..=100).rev().map(f64::from));
        for (share, value) in [
            (0.0, 1.0),
            (0.01, 1.0),
            (0.1, 10.0),
            (0.5, 50.0),
            (0.99, 99.0),
        ] {
            assert_eq!(quantile(&hundred, share), Some(value), "{share}");
        }
        assert_eq!(quantile(&[7.0], 0.01), Some(7.0));
        assert_eq!(quantile(&[7.0], 1.0), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(sorted([f64::NAN, 2.0, f64::INFINITY, 1.0]), [1.0, 2.0]);
    }
}
