//! The exact distribution of U, without ties.

/// How many orders of the values have each U.
pub struct Exact {
    /// The probability that U is at most the index; by symmetry one half of them would do.
    at_most: Vec<f64>,
}

impl Exact {
    /// Of two sample sizes, one of them at most 8 and their product at most a million: the counts then fit.
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

    /// The probability of a U of at most `u`.
    pub fn at_most(&self, u: usize) -> f64 {
        self.at_most.get(u).copied().unwrap_or(1.0)
    }
}

/// The coefficients of the Gaussian binomial coefficient, ∏ (1 − q^(large + i)) / (1 − q^i) for i up to `small`. What is between
/// may be negative or too large; arithmetic modulo 2^128 is exact all the same where the results fit.
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

    /// Every choice of positions for the smaller sample, counted one by one.
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
