//! The series of every metric of the table, and what they hold. Handles are cheap to
//! keep and to clone; recording takes no lock, but for an exemplar.

use super::exemplar::Exemplar;
use super::names::{self, Kind, Metric};
use metrics::{Key, Label};
use metrics_util::registry::Storage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_core::cells::Float;

pub use tokengauge_core::cells::{Counter, Gauge, Sum};

/// Observations by size.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Observations>);

#[derive(Debug)]
struct Observations {
    bounds: Arc<[f64]>,
    /// One more than bounds: the last has none.
    buckets: Box<[AtomicU64]>,
    sum: Float,
    /// The last one of each bucket; nothing before the first.
    exemplars: Mutex<Box<[Option<Exemplar>]>>,
}

/// A histogram as it is at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Upper bounds; the last bucket has none.
    pub bounds: Arc<[f64]>,
    /// Observations of each bucket, smaller ones not included.
    pub buckets: Vec<u64>,
    /// Of all observations.
    pub sum: f64,
    /// The last one of each bucket; empty where there never was one.
    pub exemplars: Box<[Option<Exemplar>]>,
}

impl metrics::HistogramFn for Histogram {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }
}

impl Histogram {
    /// An empty one with these upper bounds.
    pub fn new(bounds: Arc<[f64]>) -> Histogram {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Observations {
            bounds,
            buckets,
            sum: Float::default(),
            exemplars: Mutex::default(),
        }))
    }

    /// One observation.
    pub fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    /// So many of one size.
    pub fn record_many(&self, value: f64, count: u64) {
        let bucket = self.bucket(value);
        self.0.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.0.sum.add(value * count as f64);
    }

    /// One observation that can be looked up.
    pub fn record_with(&self, value: f64, exemplar: Option<Exemplar>) {
        self.record_many_with(value, 1, exemplar);
    }

    /// So many of one size that can be looked up.
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

    /// What it holds now.
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

    fn bucket(&self, value: f64) -> usize {
        self.0.bounds.partition_point(|bound| *bound < value)
    }
}

/// What a series holds.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Counter(Counter),
    Sum(Sum),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// One metric and its series, by their labels as the text formats write them.
#[derive(Debug)]
pub(crate) struct Family {
    pub metric: &'static Metric,
    pub series: BTreeMap<String, Cell>,
}

/// Makes the cells of new series.
#[derive(Debug)]
struct Cells {
    bounds: HashMap<&'static str, Arc<[f64]>>,
}

impl Storage<Key> for Cells {
    type Counter = Arc<AtomicU64>;
    type Gauge = Arc<AtomicU64>;
    type Histogram = Histogram;

    fn counter(&self, _: &Key) -> Self::Counter {
        Arc::default()
    }

    fn gauge(&self, _: &Key) -> Self::Gauge {
        Arc::default()
    }

    fn histogram(&self, key: &Key) -> Histogram {
        let bounds = self.bounds.get(key.name());
        Histogram::new(bounds.map_or_else(|| [].into(), Arc::clone))
    }
}

/// All series. Who makes one answers for its labels being bounded.
///
/// The cells and their keys are those of `metrics`. Its exporter for Prometheus does not
/// hold them: it has no exemplars, keeps every observation until the next scrape, and a
/// process without a scraper would grow.
pub struct Registry {
    cells: metrics_util::registry::Registry<Key, Cells>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A bound that a histogram gets beside those of the table, so that its share on either
/// side is exact there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The histogram.
    pub metric: &'static str,
    /// The bound, in the metric's unit.
    pub at: f64,
}

impl Registry {
    /// No series yet; histograms have the bounds of the table and `thresholds`.
    pub fn new(thresholds: &[Threshold]) -> Registry {
        let histograms = names::ALL
            .iter()
            .filter(|metric| metric.kind == Kind::Histogram);
        let bounds = histograms.map(|metric| {
            let own = thresholds.iter().filter(|more| more.metric == metric.name);
            let more: Vec<_> = own.map(|threshold| threshold.at).collect();
            (metric.name, names::buckets(metric, &more).into())
        });
        let bounds = bounds.collect();
        Registry {
            cells: metrics_util::registry::Registry::new(Cells { bounds }),
        }
    }

    /// The counter of `metric` whose labels are `values`, in the order of the table.
    pub fn counter(&self, metric: &'static Metric, values: &[&str]) -> Counter {
        let key = key(metric, Kind::Counter, values);
        Counter::sharing(self.cells.get_or_create_counter(&key, Arc::clone))
    }

    /// The same for a counter of fractions, which `metrics` has no cell for but a gauge's.
    pub fn sum(&self, metric: &'static Metric, values: &[&str]) -> Sum {
        let key = key(metric, Kind::Counter, values);
        Sum::sharing(self.cells.get_or_create_gauge(&key, Arc::clone))
    }

    /// The same for a gauge.
    pub fn gauge(&self, metric: &'static Metric, values: &[&str]) -> Gauge {
        let key = key(metric, Kind::Gauge, values);
        Gauge::sharing(self.cells.get_or_create_gauge(&key, Arc::clone))
    }

    /// The same for a histogram.
    pub fn histogram(&self, metric: &'static Metric, values: &[&str]) -> Histogram {
        let key = key(metric, Kind::Histogram, values);
        self.cells.get_or_create_histogram(&key, Histogram::clone)
    }

    /// Takes a series away: what it reported is not known any more.
    pub fn forget(&self, metric: &'static Metric, values: &[&str]) {
        let key = key(metric, metric.kind, values);
        match metric.kind {
            // One of fractions has a gauge's cell.
            Kind::Counter => self.cells.delete_counter(&key) | self.cells.delete_gauge(&key),
            Kind::Gauge => self.cells.delete_gauge(&key),
            Kind::Histogram => self.cells.delete_histogram(&key),
        };
    }

    /// Whether there is such a series.
    pub fn has(&self, metric: &'static Metric, values: &[&str]) -> bool {
        let key = key(metric, metric.kind, values);
        self.cells.get_counter(&key).is_some()
            || self.cells.get_gauge(&key).is_some()
            || self.cells.get_histogram(&key).is_some()
    }

    /// Takes away every series that `wanted` does not want, by what its labels are.
    pub fn retain(&self, wanted: impl Fn(Labels<'_>) -> bool) {
        self.cells.retain_counters(|key, _| wanted(Labels(key)));
        self.cells.retain_gauges(|key, _| wanted(Labels(key)));
        self.cells.retain_histograms(|key, _| wanted(Labels(key)));
    }

    /// Every metric that has series, in the order of the table.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut series: HashMap<String, BTreeMap<String, Cell>> = HashMap::new();
        let mut add = |key: &Key, cell| {
            let family = series.entry(key.name().to_owned()).or_default();
            family.insert(labels(key), cell);
        };
        self.cells.visit_counters(|key, cell| {
            add(key, Cell::Counter(Counter::sharing(Arc::clone(cell))));
        });
        self.cells.visit_gauges(|key, cell| {
            let value = Arc::clone(cell);
            let counts = key.name().ends_with("_total");
            add(
                key,
                if counts {
                    Cell::Sum(Sum::sharing(value))
                } else {
                    Cell::Gauge(Gauge::sharing(value))
                },
            );
        });
        self.cells
            .visit_histograms(|key, cell| add(key, Cell::Histogram(cell.clone())));
        let family = |metric: &'static Metric| {
            let series = series.remove(metric.name)?;
            Some(Family { metric, series })
        };
        names::ALL.iter().filter_map(family).collect()
    }
}

/// The labels of one series.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a>(&'a Key);

impl<'a> Labels<'a> {
    /// The value of the label `name`.
    pub fn of(&self, name: &str) -> Option<&'a str> {
        let mut labels = self.0.labels();
        labels.find(|label| label.key() == name).map(Label::value)
    }
}

fn key(metric: &'static Metric, kind: Kind, values: &[&str]) -> Key {
    debug_assert_eq!(metric.kind, kind, "{}", metric.name);
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    let labels = metric.labels.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

/// The labels as both text formats write them, without braces.
fn labels(key: &Key) -> String {
    let mut text = String::with_capacity(96);
    for label in key.labels() {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{}=\"", label.key());
        for character in label.value().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn one_series_is_one_cell_and_fractions_add_up() {
        let registry = Registry::new(&[]);
        let place = ["u", "r", "m", "w"];
        for _ in 0..8 {
            registry.sum(&names::DECODE_SECONDS, &place).add(0.125);
            registry.counter(&names::STALLS, &place).increment(2);
        }
        assert_eq!(registry.sum(&names::DECODE_SECONDS, &place).value(), 1.0);
        assert_eq!(registry.counter(&names::STALLS, &place).value(), 16);
        registry
            .gauge(&names::STREAMS_IN_FLIGHT, &["u", "r"])
            .set(3.0);
        registry.forget(&names::STREAMS_IN_FLIGHT, &["u", "r"]);
        let gauge = registry.gauge(&names::STREAMS_IN_FLIGHT, &["u", "r"]);
        assert_eq!(gauge.value(), 0.0);
    }

    #[test]
    fn a_threshold_is_a_bound_of_its_histogram_alone() {
        let threshold = Threshold {
            metric: names::OUTPUT_TOKENS_PER_SECOND.name,
            at: 33.0,
        };
        let registry = Registry::new(&[threshold, threshold]);
        let speed =
            registry.histogram(&names::OUTPUT_TOKENS_PER_SECOND, &["u", "r", "m", "w", "1"]);
        let bounds = speed.snapshot().bounds;
        assert_eq!(bounds.iter().filter(|bound| **bound == 33.0).count(), 1);
        assert!(bounds.is_sorted_by(|one, next| one < next));
        let ratio = registry.histogram(&names::TOKEN_RATIO, &["u", "r", "m", "w"]);
        assert_eq!(*ratio.snapshot().bounds, *names::TOKEN_RATIO.buckets);
    }

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

    #[test]
    fn label_values_are_escaped() {
        let values = ["a\"b\\c\nd", "r"];
        let text = labels(&key(&names::STREAMS_IN_FLIGHT, Kind::Gauge, &values));
        assert_eq!(text, r#"upstream="a\"b\\c\nd",route="r""#);
    }
}
