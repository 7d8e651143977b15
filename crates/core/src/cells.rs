//! Metric cells that one thread changes and another reads. Handles are cheap to clone; changing
//! one takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// A counter that shares this cell.
    pub fn sharing(cell: Arc<AtomicU64>) -> Counter {
        Counter(cell)
    }

    /// Adds `by`.
    pub fn increment(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Raises the count to `value`, for totals that are counted elsewhere.
    pub fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The count.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter of fractions: seconds, dollars.
#[derive(Clone, Debug, Default)]
pub struct Sum(Float);

impl Sum {
    /// One that shares this cell, which has the bits of an `f64`.
    pub fn sharing(cell: Arc<AtomicU64>) -> Sum {
        Sum(Float(cell))
    }

    /// Adds `value`.
    pub fn add(&self, value: f64) {
        self.0.add(value);
    }

    /// Sets the sum to `value`, for totals that are counted elsewhere.
    pub fn absolute(&self, value: f64) {
        self.0.set(value);
    }

    /// The sum.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

/// A number that rises and falls.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Float);

impl Gauge {
    /// One that shares this cell, which has the bits of an `f64`.
    pub fn sharing(cell: Arc<AtomicU64>) -> Gauge {
        Gauge(Float(cell))
    }

    /// It is `value` now.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// What it is now.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

/// A number with a fraction that several threads change.
#[derive(Clone, Debug, Default)]
pub struct Float(Arc<AtomicU64>);

impl Float {
    /// Adds `value`.
    pub fn add(&self, value: f64) {
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// It is `value` now.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// What it is now.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}
