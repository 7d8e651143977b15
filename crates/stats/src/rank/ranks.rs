//! Ranks of the pooled values of two samples.

pub struct Ranks {
    first: usize,
    second: usize,
    /// The sum of the ranks of the first sample. Equal values share their mean rank.
    sum: f64,
    /// Σ t³ − t over the groups of t equal values in the pooled samples.
    ties: f64,
    /// Σ t³ − t over the groups of t equal values within each sample.
    ties_within: f64,
}

impl Ranks {
    pub fn of(first: &[f64], second: &[f64]) -> Self {
        let first_values = first.iter().map(|value| (*value, true));
        let second_values = second.iter().map(|value| (*value, false));
        let mut values: Vec<_> = first_values.chain(second_values).collect();
        values.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut ranks = Self {
            first: first.len(),
            second: second.len(),
            sum: 0.0,
            ties: 0.0,
            ties_within: 0.0,
        };
        let mut before = 0;
        // Compares values instead of bits, because 0 and −0 are equal.
        for equal in values.chunk_by(|left, right| left.0 == right.0) {
            let of_first = equal.iter().filter(|(_, is_first)| *is_first).count();
            ranks.sum += of_first as f64 * (before as f64 + (equal.len() + 1) as f64 / 2.0);
            ranks.ties += cubes(equal.len());
            ranks.ties_within += cubes(of_first) + cubes(equal.len() - of_first);
            before += equal.len();
        }
        ranks
    }

    pub fn u(&self) -> f64 {
        let first = self.first as f64;
        self.sum - first * (first + 1.0) / 2.0
    }

    pub fn has_ties(&self) -> bool {
        self.ties > 0.0
    }

    pub fn has_ties_within(&self) -> bool {
        self.ties_within > 0.0
    }

    /// Returns the standard deviation of U if both samples come from one distribution.
    pub fn deviation(&self) -> f64 {
        self.deviation_with(self.ties)
    }

    /// Returns the standard deviation of U if the samples are shifted so that no value of one equals a value of the
    /// other.
    pub fn deviation_within(&self) -> f64 {
        self.deviation_with(self.ties_within)
    }

    fn deviation_with(&self, ties: f64) -> f64 {
        let (first, second) = (self.first as f64, self.second as f64);
        let all = first + second;
        (first * second / 12.0 * (all + 1.0 - ties / (all * (all - 1.0))))
            .max(0.0)
            .sqrt()
    }
}

fn cubes(count: usize) -> f64 {
    let count = count as f64;
    count.powi(3) - count
}
