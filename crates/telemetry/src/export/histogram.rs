//! A histogram with classic and native buckets and the latest exemplar of each classic bucket.

use super::exemplar::Exemplar;
use super::native;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_core::cells::Float;

#[derive(Clone, Debug)]
pub struct Histogram(Arc<Observations>);

#[derive(Debug)]
struct Observations {
    bounds: Arc<[f64]>,
    /// One bucket more than bounds: the last bucket has no bound.
    buckets: Box<[AtomicU64]>,
    native: native::Buckets,
    sum: Float,
    /// The latest exemplar of each bucket; empty before the first exemplar.
    exemplars: Mutex<Box<[Option<Exemplar>]>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Upper bounds; the last bucket has none.
    pub bounds: Arc<[f64]>,
    /// Number of observations in each bucket, not cumulative.
    pub buckets: Vec<u64>,
    pub sum: f64,
    /// The latest exemplar of each bucket; empty if there never was one.
    pub exemplars: Box<[Option<Exemplar>]>,
}

impl Snapshot {
    /// Merges all buckets into one, without exemplars.
    pub(crate) fn merge_buckets(&mut self) {
        self.buckets = vec![self.buckets.iter().sum()];
        self.bounds = [].into();
        self.exemplars = [].into();
    }
}

impl metrics::HistogramFn for Histogram {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }
}

impl Histogram {
    pub fn new(bounds: Arc<[f64]>) -> Histogram {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Observations {
            bounds,
            buckets,
            native: native::Buckets::default(),
            sum: Float::default(),
            exemplars: Mutex::default(),
        }))
    }

    pub fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    pub fn record_many(&self, value: f64, count: u64) {
        let bucket = self.bucket(value);
        self.0.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.0.native.record(value, count);
        self.0.sum.add(value * count as f64);
    }

    pub fn record_with(&self, value: f64, exemplar: Option<Exemplar>) {
        self.record_many_with(value, 1, exemplar);
    }

    pub fn record_many_with(&self, value: f64, count: u64, exemplar: Option<Exemplar>) {
        self.record_many(value, count);
        let Some(exemplar) = exemplar else {
            return;
        };
        let held = &self.0.exemplars;
        let mut held = held.lock();
        if held.is_empty() {
            *held = vec![None; self.0.buckets.len()].into();
        }
        held[self.bucket(value)] = Some(exemplar);
    }

    pub fn snapshot(&self) -> Snapshot {
        let held = &self.0.exemplars;
        let buckets = self.0.buckets.iter();
        Snapshot {
            bounds: Arc::clone(&self.0.bounds),
            buckets: buckets.map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.0.sum.value(),
            exemplars: held.lock().clone(),
        }
    }

    pub(crate) fn native(&self) -> native::Counts {
        self.0.native.counts()
    }

    fn bucket(&self, value: f64) -> usize {
        self.0.bounds.partition_point(|bound| *bound < value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_bucket_holds_what_is_not_above_its_bound_and_its_last_exemplar() {
        let histogram = Histogram::new([1.0, 2.0].into());
        let exemplar = |trace, value| Exemplar {
            trace,
            value,
            at: SystemTime::UNIX_EPOCH,
        };
        assert!(histogram.snapshot().exemplars.is_empty());
        histogram.record_with(1.0, Some(exemplar(1, 1.0)));
        histogram.record_with(2.5, Some(exemplar(2, 2.5)));
        histogram.record_with(9.0, Some(exemplar(3, 9.0)));
        histogram.record_with(8.0, None);
        histogram.record_many(1.5, 3);
        let now = histogram.snapshot();
        assert_eq!((now.buckets, now.sum), (vec![1, 3, 3], 25.0));
        let kept = [Some(exemplar(1, 1.0)), None, Some(exemplar(3, 9.0))];
        assert_eq!(*now.exemplars, kept);
    }
}
