//! Latencies between tokens, as histograms.

use crate::log_buckets;

/// Upper bounds in seconds of the buckets in which inter-token latencies are exported. No class
/// extends across a bound.
pub const INTER_TOKEN_BOUNDS: [f64; 24] = [
    0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08,
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
];

/// A histogram of latencies between tokens, weighted by tokens: a chunk with `k` tokens after a gap
/// counts as `k` latencies of `gap / k`. A class is the part of a [bucket](log_buckets) between two
/// exported bounds. There are at most 1,500 classes, and each has an exact sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterToken {
    /// The non-empty classes in ascending order. A stream has a few dozen.
    classes: Vec<Class>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Class {
    /// The bucket, and the index of the exported bound.
    number: (i16, u16),
    count: u32,
    sum: f64,
}

/// A latency with its class. Finding the class is more expensive than counting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassifiedLatency {
    latency: f64,
    number: (i16, u16),
}

impl ClassifiedLatency {
    /// Finds the class of a latency in seconds.
    pub fn new(latency: f64) -> ClassifiedLatency {
        let bound = INTER_TOKEN_BOUNDS.partition_point(|bound| *bound < latency);
        let bucket = log_buckets::number(latency).map_or(i16::MIN, |number| number as i16);
        let number = (bucket, bound as u16);
        ClassifiedLatency { latency, number }
    }

    /// The class of another latency in seconds. Searches only if the latency differs.
    #[must_use]
    pub fn with(self, latency: f64) -> ClassifiedLatency {
        if latency == self.latency {
            self
        } else {
            ClassifiedLatency::new(latency)
        }
    }
}

impl InterToken {
    /// Adds `tokens` tokens with this latency in seconds.
    pub fn record(&mut self, latency: f64, tokens: u64) {
        self.record_classified(ClassifiedLatency::new(latency), tokens);
    }

    /// Adds `tokens` tokens with a latency whose class is already known.
    pub fn record_classified(&mut self, classified: ClassifiedLatency, tokens: u64) {
        let ClassifiedLatency { latency, number } = classified;
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let found = self
            .classes
            .binary_search_by_key(&number, |class| class.number);
        let at = found.unwrap_or_else(|at| {
            let (count, sum) = (0, 0.0);
            self.classes.insert(at, Class { number, count, sum });
            at
        });
        if let Some(class) = self.classes.get_mut(at) {
            class.count = class.count.saturating_add(tokens);
            class.sum += latency * f64::from(tokens);
        }
    }

    /// The average latency in seconds and the number of tokens of each non-empty class.
    pub fn classes(&self) -> impl Iterator<Item = (f64, u32)> + '_ {
        let classes = self.classes.iter().filter(|class| class.count > 0);
        classes.map(|class| (class.sum / f64::from(class.count), class.count))
    }

    /// The number of tokens in all classes.
    pub fn tokens(&self) -> u64 {
        let classes = self.classes.iter();
        classes.map(|class| u64::from(class.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_in_its_own_class_whatever_was_classified_before() {
        let before = ClassifiedLatency::new(0.02);
        for latency in [0.0, 0.01, 0.02, 0.020_000_1, 9.0, f64::NAN] {
            let (mut direct, mut classified) = (InterToken::default(), InterToken::default());
            direct.record(latency, 3);
            classified.record_classified(before.with(latency), 3);
            let classes = |of: &InterToken| format!("{:?}", of.classes);
            assert_eq!(classes(&direct), classes(&classified));
        }
    }
}
