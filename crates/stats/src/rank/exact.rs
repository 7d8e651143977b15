//! The exact distribution of U without ties.

/// The number of orders of the values for each U.
pub struct Exact {
    /// The probability that U is at most the index.
    at_most: Vec<f64>,
}

impl Exact {
    /// Counts the orders for two sample sizes. One size must be at most 8 and the product at most a million, so that
    /// the counts fit.
    pub fn new(first: usize, second: usize) -> Self {
        let counts = counts(first.min(second), first.max(second));
        let all = counts.iter().sum::<u128>() as f64;
        let mut sum: u128 = 0;
        let at_most = counts.iter().map(|count| {
            sum += count;
            sum as f64 / all
        });
        Self {
            at_most: at_most.collect(),
        }
    }

    pub fn at_most(&self, u: usize) -> f64 {
        self.at_most.get(u).copied().unwrap_or(1.0)
    }
}

/// Returns the coefficients of the Gaussian binomial coefficient, ∏ (1 − q^(large + i)) / (1 − q^i) for i up to
/// `small`. Intermediate values may be negative or overflow, but arithmetic modulo 2^128 is exact if the results fit.
fn counts(small: usize, large: usize) -> Vec<u128> {
    let mut counts = vec![0_u128; small * large + 1];
    counts[0] = 1;
    for factor in 1..=small {
        for power in (large + factor..counts.len()).rev() {
            counts[power] = counts[power].wrapping_sub(counts[power - large - factor]);
        }
        for power in factor..counts.len() {
            counts[power] = counts[power].wrapping_add(counts[power - factor]);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_by_one(small: usize, large: usize) -> Vec<u128> {
        let mut counts = vec![0; small * large + 1];
        for positions in 0_u32..1 << (small + large) {
            if positions.count_ones() as usize == small {
                let positions =
                    (0..small + large).filter(|position| positions & (1 << position) != 0);
                let u: usize = positions
                    .enumerate()
                    .map(|(before, position)| position - before)
                    .sum();
                counts[u] += 1;
            }
        }
        counts
    }

    #[test]
    fn counts_are_those_of_all_orders() {
        for small in 1..=5 {
            for large in small..=9 {
                assert_eq!(
                    counts(small, large),
                    one_by_one(small, large),
                    "{small} {large}"
                );
            }
        }
    }

    #[test]
    fn counts_of_the_largest_samples_fit() {
        let counts = counts(8, 125_000);
        let all = counts
            .iter()
            .fold(0_u128, |sum, count| sum.checked_add(*count).expect("fits"));
        let orders = (1..=8_u128).fold(1_u128, |product, k| product * (125_000 + k) / k);
        assert_eq!(all, orders);
    }
}
