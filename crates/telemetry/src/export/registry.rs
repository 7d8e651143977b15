//! The series of all metrics of the table, and their values. Handles are cheap to keep and to
//! clone. Recording takes no lock, except for an exemplar.

#[cfg(test)]
mod exporter_oracle;

use super::cell::{Cells, NewCells};
use super::labels::LabelSet;
use super::names::{self, Family, Metric, MetricKind};
use metrics::{Key, Label};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_core::background::Pauses;

pub use super::cell::{Cell, Counter, Gauge, Histogram, Sum};
pub use super::histogram::Snapshot;

#[derive(Clone, Debug)]
pub(crate) enum AnyCell {
    Counter(Counter),
    Sum(Sum),
    Gauge(Gauge),
    Histogram(Histogram),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesLabels {
    labels: Vec<Label>,
    text: Box<str>,
}

impl SeriesLabels {
    fn of(key: &Key) -> SeriesLabels {
        let labels: Vec<Label> = key.labels().cloned().collect();
        let mut text = String::with_capacity(96);
        for label in &labels {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(label.key());
            text.push_str("=\"");
            if label.value().contains(['\\', '"', '\n']) {
                text.push_str(&escaped(label.value()));
            } else {
                text.push_str(label.value());
            }
            text.push('"');
        }
        let text = text.into();
        SeriesLabels { labels, text }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.labels.iter();
        labels.map(|label| (label.key(), label.value()))
    }

    /// The labels in the text formats, without braces.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[derive(Debug)]
pub(crate) struct FamilySeries {
    pub metric: &'static Metric,
    series: Vec<(SeriesLabels, AnyCell)>,
}

impl FamilySeries {
    /// The series in the order of their labels. The iterator yields to other threads in between,
    /// because writing thousands of series takes milliseconds.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&SeriesLabels, &AnyCell)> {
        let mut pauses = Pauses::default();
        self.series.iter().map(move |(labels, cell)| {
            pauses.between();
            (labels, cell)
        })
    }
}

/// All series. Callers that create series must bound their labels.
///
/// Cells and keys are from the crate `metrics`. Its exporter for Prometheus is not used: it has no
/// exemplars, and keeps every observation until the next scrape, so that it would grow without a
/// scraper.
pub struct Registry {
    cells: Cells,
    /// Number of times that a series was created or removed. It is incremented within the lock for
    /// a creation and after the lock for a removal, so that a reader of the number sees at least
    /// these changes.
    changes: Arc<AtomicU64>,
    /// The sorted series at this number of changes: scrapes are frequent, changes are rare.
    sorted: Mutex<(u64, Arc<[FamilySeries]>)>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// An additional histogram bound, so that the share of observations on either side of it is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    pub metric: &'static str,
    pub at: f64,
}

impl Registry {
    /// A registry without series. Histograms have the bounds of the table and `thresholds`.
    pub fn new(thresholds: &[Threshold]) -> Registry {
        let histograms = names::all().filter(|metric| metric.kind == MetricKind::Histogram);
        let bounds = histograms.map(|metric| {
            let own = thresholds.iter().filter(|more| more.metric == metric.name);
            let more: Vec<_> = own.map(|threshold| threshold.at).collect();
            (metric.name, names::buckets(metric, &more).into())
        });
        let changes = Arc::new(AtomicU64::new(0));
        let new_cells = NewCells {
            bounds: bounds.collect(),
            changes: Arc::clone(&changes),
        };
        Registry {
            cells: metrics_util::registry::Registry::new(new_cells),
            changes,
            sorted: Mutex::new((0, Arc::default())),
        }
    }

    /// The series of `family` with these labels, which is created if necessary.
    pub fn series<C: Cell, L: LabelSet>(&self, family: &Family<C, L>, labels: &L) -> C {
        C::of(&self.cells, &key(family, labels))
    }

    pub fn forget<C, L: LabelSet>(&self, family: &Family<C, L>, labels: &L) {
        let key = key(family, labels);
        match family.kind {
            // A fractional counter is stored in a gauge's cell.
            MetricKind::Counter => self.cells.delete_counter(&key) | self.cells.delete_gauge(&key),
            MetricKind::Gauge => self.cells.delete_gauge(&key),
            MetricKind::Histogram => self.cells.delete_histogram(&key),
        };
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub fn has<C, L: LabelSet>(&self, family: &Family<C, L>, labels: &L) -> bool {
        let key = key(family, labels);
        self.cells.get_counter(&key).is_some()
            || self.cells.get_gauge(&key).is_some()
            || self.cells.get_histogram(&key).is_some()
    }

    /// The value of a gauge; `None` if the series does not exist.
    pub fn gauge<L: LabelSet>(&self, family: &Family<Gauge, L>, labels: &L) -> Option<f64> {
        let cell = self.cells.get_gauge(&key(family, labels))?;
        Some(f64::from_bits(cell.load(Ordering::Relaxed)))
    }

    pub fn retain(&self, wanted: impl Fn(Labels<'_>) -> bool) {
        self.cells.retain_counters(|key, _| wanted(Labels(key)));
        self.cells.retain_gauges(|key, _| wanted(Labels(key)));
        self.cells.retain_histograms(|key, _| wanted(Labels(key)));
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Every metric that has series, in the order of the table.
    pub(crate) fn families(&self) -> Arc<[FamilySeries]> {
        let mut sorted = self.sorted.lock();
        let changes = self.changes.load(Ordering::Acquire);
        if sorted.0 != changes {
            *sorted = (changes, self.sort());
        }
        Arc::clone(&sorted.1)
    }

    /// Sorts the series. It yields while it sorts, but not while it holds the locks that a new
    /// series needs.
    fn sort(&self) -> Arc<[FamilySeries]> {
        let mut all: HashMap<String, Vec<(SeriesLabels, AnyCell)>> = HashMap::new();
        let mut add = |key: &Key, cell| {
            let one = (SeriesLabels::of(key), cell);
            match all.get_mut(key.name()) {
                Some(family) => family.push(one),
                None => {
                    all.insert(key.name().to_owned(), vec![one]);
                }
            }
        };
        self.cells.visit_counters(|key, cell| {
            add(key, AnyCell::Counter(Counter::sharing(Arc::clone(cell))));
        });
        self.cells.visit_gauges(|key, cell| {
            let value = Arc::clone(cell);
            let counts = key.name().ends_with("_total");
            add(
                key,
                if counts {
                    AnyCell::Sum(Sum::sharing(value))
                } else {
                    AnyCell::Gauge(Gauge::sharing(value))
                },
            );
        });
        self.cells
            .visit_histograms(|key, cell| add(key, AnyCell::Histogram(cell.clone())));
        let mut pauses = Pauses::default();
        let family = |metric: &'static Metric| {
            let mut series = all.remove(metric.name)?;
            series.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            pauses.between();
            Some(FamilySeries { metric, series })
        };
        names::all().filter_map(family).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Labels<'a>(&'a Key);

impl<'a> Labels<'a> {
    pub fn of(&self, name: &str) -> Option<&'a str> {
        let mut labels = self.0.labels();
        labels.find(|label| label.key() == name).map(Label::value)
    }
}

fn key<L: LabelSet>(metric: &Metric, labels: &L) -> Key {
    let labels = L::NAMES.iter().zip(labels.values());
    // Shared text, because a scrape copies all keys.
    let labels = labels.map(|(name, value)| Label::new(*name, Arc::<str>::from(value)));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::labels::{Model, ModelConcurrency, Route};

    const MODEL: Model<'static> = Model {
        upstream: "u",
        route: "r",
        model: "m",
        workload: "w",
    };
    const ROUTE: Route<'static> = Route {
        upstream: "u",
        route: "r",
    };

    #[test]
    fn one_series_is_one_cell_and_fractions_add_up() {
        let registry = Registry::new(&[]);
        let place = MODEL;
        for _ in 0..8 {
            registry.series(&names::DECODE_SECONDS, &place).add(0.125);
            registry.series(&names::STALLS, &place).increment(2);
        }
        assert_eq!(registry.series(&names::DECODE_SECONDS, &place).value(), 1.0);
        assert_eq!(registry.series(&names::STALLS, &place).value(), 16);
        registry.series(&names::STREAMS_IN_FLIGHT, &ROUTE).set(3.0);
        registry.forget(&names::STREAMS_IN_FLIGHT, &ROUTE);
        let gauge = registry.series(&names::STREAMS_IN_FLIGHT, &ROUTE);
        assert_eq!(gauge.value(), 0.0);
    }

    #[test]
    fn a_scrape_has_the_series_of_its_time() {
        let registry = Registry::new(&[]);
        let texts = || -> Vec<String> {
            let families = registry.families();
            let series = families.iter().flat_map(FamilySeries::series);
            series.map(|(labels, _)| labels.text().to_owned()).collect()
        };
        assert!(texts().is_empty());
        let gauge = registry.series(&names::STREAMS_IN_FLIGHT, &ROUTE);
        let of_route = "upstream=\"u\",route=\"r\"";
        assert_eq!(texts(), [of_route]);
        gauge.set(2.0);
        registry.series(&names::STALLS, &MODEL).increment(1);
        assert_eq!(texts().len(), 2);
        registry.forget(&names::STALLS, &MODEL);
        assert_eq!(texts(), [of_route]);
        registry.retain(|labels| labels.of("route") != Some("r"));
        assert!(texts().is_empty());
        registry.series(&names::STREAMS_IN_FLIGHT, &ROUTE);
        assert_eq!(texts(), [of_route]);
    }

    #[test]
    fn a_threshold_is_a_bound_of_its_histogram_alone() {
        let threshold = Threshold {
            metric: names::OUTPUT_TOKENS_PER_SECOND.name,
            at: 33.0,
        };
        let registry = Registry::new(&[threshold, threshold]);
        let speed = registry.series(
            &names::OUTPUT_TOKENS_PER_SECOND,
            &ModelConcurrency {
                of: MODEL,
                concurrency: "1",
            },
        );
        let bounds = speed.snapshot().bounds;
        assert_eq!(bounds.iter().filter(|bound| **bound == 33.0).count(), 1);
        assert!(bounds.is_sorted_by(|one, next| one < next));
        let ratio = registry.series(&names::TOKEN_RATIO, &MODEL);
        assert_eq!(*ratio.snapshot().bounds, *names::TOKEN_RATIO.buckets);
    }

    #[test]
    fn label_values_are_escaped() {
        let values = Route {
            upstream: "a\"b\\c\nd",
            route: "r",
        };
        let key = key(&names::STREAMS_IN_FLIGHT, &values);
        let labels = SeriesLabels::of(&key);
        assert_eq!(labels.text(), r#"upstream="a\"b\\c\nd",route="r""#);
    }
}
