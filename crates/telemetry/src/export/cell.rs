use super::metric::MetricKind;
use metrics::Key;
use metrics_util::registry::Storage;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use super::histogram::Histogram;
pub use tokengauge_core::cells::{Counter, Gauge, Sum};

pub type Cells = metrics_util::registry::Registry<Key, NewCells>;

pub trait Cell: Sized {
    const KIND: MetricKind;

    /// The cell for `key`, which is created if necessary.
    #[doc(hidden)]
    fn of(cells: &Cells, key: &Key) -> Self;
}

impl Cell for Counter {
    const KIND: MetricKind = MetricKind::Counter;

    fn of(cells: &Cells, key: &Key) -> Counter {
        Counter::sharing(cells.get_or_create_counter(key, Arc::clone))
    }
}

/// A counter with a fractional value. `metrics` stores fractions only in gauges.
impl Cell for Sum {
    const KIND: MetricKind = MetricKind::Counter;

    fn of(cells: &Cells, key: &Key) -> Sum {
        Sum::sharing(cells.get_or_create_gauge(key, Arc::clone))
    }
}

impl Cell for Gauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn of(cells: &Cells, key: &Key) -> Gauge {
        Gauge::sharing(cells.get_or_create_gauge(key, Arc::clone))
    }
}

impl Cell for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn of(cells: &Cells, key: &Key) -> Histogram {
        cells.get_or_create_histogram(key, Histogram::clone)
    }
}

#[derive(Debug)]
pub struct NewCells {
    pub(super) bounds: HashMap<&'static str, Arc<[f64]>>,
    pub(super) changes: Arc<AtomicU64>,
}

impl Storage<Key> for NewCells {
    type Counter = Arc<AtomicU64>;
    type Gauge = Arc<AtomicU64>;
    type Histogram = Histogram;

    fn counter(&self, _: &Key) -> Self::Counter {
        self.changes.fetch_add(1, Ordering::Release);
        Arc::default()
    }

    fn gauge(&self, _: &Key) -> Self::Gauge {
        self.changes.fetch_add(1, Ordering::Release);
        Arc::default()
    }

    fn histogram(&self, key: &Key) -> Histogram {
        self.changes.fetch_add(1, Ordering::Release);
        let bounds = self.bounds.get(key.name());
        Histogram::new(bounds.map_or_else(|| [].into(), Arc::clone))
    }
}
