//! Counts in the buckets of a native Prometheus histogram, whose relative error is bounded at all
//! scales.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_core::log_buckets::{OCTAVES, PER_OCTAVE, number};

const PAGES: usize = (OCTAVES.end - OCTAVES.start) as usize;

type Page = [AtomicU64; PER_OCTAVE as usize];

/// Counts by bucket. An octave allocates 256 bytes at its first observation. There are at most 44
/// octaves.
#[derive(Debug, Default)]
pub struct Buckets {
    zero: AtomicU64,
    octaves: OnceLock<Box<[OnceLock<Box<Page>>]>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    pub zero: u64,
    /// Number and count of the other buckets that are not empty, ascending.
    pub buckets: Vec<(i32, u64)>,
}

impl Counts {
    pub fn total(&self) -> u64 {
        let buckets = self.buckets.iter();
        self.zero + buckets.map(|(_, count)| count).sum::<u64>()
    }
}

impl Buckets {
    /// Records `count` equal observations. Values above the largest bucket are counted in it.
    pub fn record(&self, value: f64, count: u64) {
        let Some((octave, bucket)) = place(value) else {
            self.zero.fetch_add(count, Ordering::Relaxed);
            return;
        };
        let octaves = self
            .octaves
            .get_or_init(|| (0..PAGES).map(|_| OnceLock::new()).collect());
        let page = octaves[octave].get_or_init(Box::default);
        page[bucket].fetch_add(count, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        let mut buckets = Vec::new();
        let octaves = self.octaves.get().into_iter().flatten();
        for (octave, page) in octaves.enumerate() {
            let Some(page) = page.get() else { continue };
            let first = (OCTAVES.start + octave as i32) * PER_OCTAVE + 1;
            let counts = page.iter().map(|count| count.load(Ordering::Relaxed));
            let numbered = (first..).zip(counts);
            buckets.extend(numbered.filter(|(_, count)| *count > 0));
        }
        Counts {
            zero: self.zero.load(Ordering::Relaxed),
            buckets,
        }
    }
}

fn place(value: f64) -> Option<(usize, usize)> {
    let at = usize::try_from(number(value)? - OCTAVES.start * PER_OCTAVE - 1).ok()?;
    Some((at / PER_OCTAVE as usize, at % PER_OCTAVE as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_per_bucket() {
        let buckets = Buckets::default();
        assert_eq!(buckets.counts(), Counts::default());
        for value in [0.5, 0.5, 1.0, 0.0] {
            buckets.record(value, 2);
        }
        let counts = buckets.counts();
        assert_eq!((counts.zero, counts.total()), (2, 8));
        assert_eq!(counts.buckets, [(-32, 4), (0, 2)]);
    }

    #[test]
    fn classes_of_latencies_are_in_the_buckets_of_the_latencies() {
        let mut classes = tokengauge_core::inter_token::InterToken::default();
        let (each, by_class) = (Buckets::default(), Buckets::default());
        for step in 0..5_000_u32 {
            let latency =
                0.000_5 * 1.002_f64.powf(f64::from(step.wrapping_mul(2_654_435_761) % 4_800));
            classes.record(latency, 1);
            each.record(latency, 1);
        }
        for (mean, tokens) in classes.classes() {
            by_class.record(mean, u64::from(tokens));
        }
        assert_eq!(by_class.counts(), each.counts());
    }
}
