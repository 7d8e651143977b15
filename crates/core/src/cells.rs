//! Metric values that one thread changes and another reads. Handles are cheap to clone, and
//! changing a value takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that never decreases.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// A counter that uses an existing cell.
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

    /// The current count.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A total with a fraction, such as seconds or dollars.
#[derive(Clone, Debug, Default)]
pub struct Sum(Float);

impl Sum {
    /// A sum that uses an existing cell, which contains the bits of an `f64`.
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

    /// The current sum.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

/// A number that can rise and fall.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Float);

impl Gauge {
    /// A gauge that uses an existing cell, which contains the bits of an `f64`.
    pub fn sharing(cell: Arc<AtomicU64>) -> Gauge {
        Gauge(Float(cell))
    }

    /// Sets the gauge to `value`.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// The current value.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

/// A floating-point number that several threads change.
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

    /// Sets the number to `value`.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The current value.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}
