//! Converts series to OTLP messages.

use crate::export::exemplar::Exemplar;
use crate::export::names::{Metric, MetricKind, Unit};
use crate::export::registry::{AnyCell, Registry, Snapshot};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    self, AggregationTemporality, HistogramDataPoint, NumberDataPoint, exemplar, metric::Data,
    number_data_point::Value,
};
use std::collections::HashMap;
use std::time::SystemTime;

/// Metrics of the process for which the conventions define names.
const PROCESS: &[(&str, &str, &str)] = &[
    ("process_cpu_seconds_total", "process.cpu.time", "s"),
    (
        "process_resident_memory_bytes",
        "process.memory.usage",
        "By",
    ),
    (
        "process_open_fds",
        "process.open_file_descriptor.count",
        "{count}",
    ),
    ("process_threads", "process.thread.count", "{thread}"),
];

/// The OTLP name with dots, and the unit in UCUM. A receiver that converts names to Prometheus'
/// form gets the names of `/metrics`.
pub fn dotted(metric: &Metric) -> (String, &'static str) {
    let known = PROCESS.iter().find(|(name, ..)| *name == metric.name);
    if let Some((_, name, unit)) = known {
        return ((*name).to_owned(), unit);
    }
    let (unit, suffix) = match metric.unit {
        Unit::Count => ("", ""),
        Unit::Seconds => ("s", "_seconds"),
        Unit::Bytes => ("By", "_bytes"),
        Unit::Tokens => ("{token}", ""),
        Unit::TokensPerSecond => ("{token}/s", ""),
        Unit::Ratio => ("", ""),
        Unit::Dollars => ("{USD}", ""),
    };
    let base = metric.name.strip_suffix("_total").unwrap_or(metric.name);
    let base = base.strip_suffix(suffix).unwrap_or(base);
    (base.replacen('_', ".", 1), unit)
}

pub(super) struct Sent {
    at: SystemTime,
    counters: HashMap<String, f64>,
    histograms: HashMap<String, (Vec<u64>, f64)>,
}

impl Sent {
    pub(super) fn since(start: SystemTime) -> Sent {
        Sent {
            at: start,
            counters: HashMap::new(),
            histograms: HashMap::new(),
        }
    }
}

pub(super) struct Span<'a> {
    sent: &'a mut Sent,
    start: u64,
    now: u64,
    delta: bool,
    points: usize,
}

impl<'a> Span<'a> {
    /// The time from the last message, or from the start, until `now`.
    pub(super) fn new(sent: &'a mut Sent, now: SystemTime, delta: bool) -> Span<'a> {
        // If the wall clock was set back, the last message is later than `now`. Receivers refuse
        // points that begin after their end.
        let start = nanos(sent.at.min(now));
        if delta {
            sent.at = now;
        }
        Span {
            sent,
            start,
            now: nanos(now),
            delta,
            points: 0,
        }
    }

    pub(super) fn points(&self) -> usize {
        self.points
    }

    fn temporality(&self) -> i32 {
        let one = if self.delta {
            AggregationTemporality::Delta
        } else {
            AggregationTemporality::Cumulative
        };
        one as i32
    }

    fn number(&mut self, attributes: Vec<KeyValue>, value: Value) -> NumberDataPoint {
        self.points += 1;
        NumberDataPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    /// The value of a counter or, with delta temporality, its increase since the last message.
    fn new_count(&mut self, key: &str, value: f64) -> f64 {
        if !self.delta {
            return value;
        }
        let before = self.sent.counters.insert(key.to_owned(), value);
        value - before.unwrap_or(0.0)
    }

    pub(super) fn histogram(
        &mut self,
        key: &str,
        attributes: Vec<KeyValue>,
        snapshot: Snapshot,
    ) -> HistogramDataPoint {
        self.points += 1;
        let (mut buckets, mut sum) = (snapshot.buckets, snapshot.sum);
        let exemplars = snapshot.exemplars.iter().flatten().map(of_exemplar);
        // With delta temporality only exemplars since the last message are sent, like buckets.
        let exemplars = exemplars.filter(|one| !self.delta || one.time_unix_nano >= self.start);
        let exemplars = exemplars.collect();
        if self.delta {
            let all = (buckets.clone(), sum);
            if let Some((before, sum_before)) = self.sent.histograms.insert(key.to_owned(), all) {
                let pairs = buckets.iter_mut().zip(before);
                pairs.for_each(|(now, before)| *now = now.saturating_sub(before));
                sum -= sum_before;
            }
        }
        HistogramDataPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: buckets.iter().sum(),
            sum: Some(sum),
            bucket_counts: buckets,
            explicit_bounds: snapshot.bounds.to_vec(),
            exemplars,
            ..HistogramDataPoint::default()
        }
    }

    pub(super) fn histograms(&self, data_points: Vec<HistogramDataPoint>) -> Data {
        Data::Histogram(v1::Histogram {
            data_points,
            aggregation_temporality: self.temporality(),
        })
    }
}

pub(super) fn of_registry(registry: &Registry, span: &mut Span<'_>) -> Vec<v1::Metric> {
    let mut metrics = Vec::new();
    for family in registry.families().iter() {
        let mut numbers = Vec::new();
        let mut histograms = Vec::new();
        for (labels, cell) in family.series() {
            let key = format!("{}{{{}", family.metric.name, labels.text());
            let attributes = labels.pairs().map(|(name, value)| {
                attribute(name, any_value::Value::StringValue(value.to_owned()))
            });
            let attributes = attributes.collect();
            match cell {
                AnyCell::Counter(counter) => {
                    let value = span.new_count(&key, counter.value() as f64) as i64;
                    numbers.push(span.number(attributes, Value::AsInt(value)));
                }
                AnyCell::Sum(sum) => {
                    let value = span.new_count(&key, sum.value());
                    numbers.push(span.number(attributes, Value::AsDouble(value)));
                }
                AnyCell::Gauge(gauge) => {
                    numbers.push(span.number(attributes, Value::AsDouble(gauge.value())));
                }
                AnyCell::Histogram(histogram) => {
                    histograms.push(span.histogram(&key, attributes, histogram.snapshot()));
                }
            }
        }
        let data = match family.metric.kind {
            MetricKind::Counter => Data::Sum(v1::Sum {
                data_points: numbers,
                aggregation_temporality: span.temporality(),
                is_monotonic: true,
            }),
            MetricKind::Gauge => Data::Gauge(v1::Gauge {
                data_points: numbers,
            }),
            MetricKind::Histogram => span.histograms(histograms),
        };
        let (name, unit) = dotted(family.metric);
        metrics.push(of(name, family.metric.help, unit, data));
    }
    metrics
}

pub(super) fn of(name: String, help: &str, unit: &str, data: Data) -> v1::Metric {
    v1::Metric {
        name,
        description: help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..v1::Metric::default()
    }
}

pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tokengauge".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub(super) fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn of_exemplar(kept: &Exemplar) -> v1::Exemplar {
    v1::Exemplar {
        time_unix_nano: nanos(kept.at),
        trace_id: kept.trace.to_be_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(kept.value)),
        ..v1::Exemplar::default()
    }
}

fn nanos(at: SystemTime) -> u64 {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::labels::Model;
    use crate::export::names;

    #[test]
    fn names_are_dotted_and_units_apart() {
        let of = |metric: &Metric| dotted(metric);
        let ttft = of(&names::TIME_TO_FIRST_TOKEN);
        assert_eq!(ttft, ("tokengauge.time_to_first_token".to_owned(), "s"));
        let speed = of(&names::OUTPUT_TOKENS_PER_SECOND);
        assert_eq!(
            speed,
            (
                "tokengauge.output_tokens_per_second".to_owned(),
                "{token}/s"
            )
        );
        assert_eq!(of(&names::TOKENS).0, "tokengauge.tokens");
        assert_eq!(of(&names::PROCESS_CPU_SECONDS).0, "process.cpu.time");
        let mut all: Vec<_> = names::all().map(|metric| dotted(metric).0).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), names::all().count(), "each name is there once");
    }

    #[test]
    fn delta_has_what_came_since_the_last_message() {
        let registry = Registry::new(&[]);
        let place = Model {
            upstream: "u",
            route: "r",
            model: "m",
            workload: "w",
        };
        let mut sent = Sent::since(SystemTime::UNIX_EPOCH);
        let mut counts = |delta| {
            let mut span = Span::new(&mut sent, SystemTime::UNIX_EPOCH, delta);
            let metrics = of_registry(&registry, &mut span);
            let mut numbers = Vec::new();
            for metric in metrics {
                match metric.data {
                    Some(Data::Sum(sum)) => {
                        numbers.extend(sum.data_points.iter().map(|point| match point.value {
                            Some(Value::AsInt(value)) => value,
                            _ => -1,
                        }));
                    }
                    Some(Data::Histogram(all)) => {
                        numbers.extend(all.data_points.iter().map(|point| point.count as i64));
                    }
                    _ => {}
                }
            }
            numbers
        };
        registry.series(&names::STALLS, &place).increment(3);
        registry.series(&names::TOKEN_RATIO, &place).record(1.0);
        assert_eq!(counts(true), [3, 1]);
        registry.series(&names::STALLS, &place).increment(2);
        assert_eq!(counts(true), [2, 0]);
        assert_eq!(counts(false), [5, 1]);
    }

    #[test]
    fn no_point_begins_after_its_end_when_the_wall_clock_is_set_back() {
        let registry = Registry::new(&[]);
        let place = Model {
            upstream: "u",
            route: "r",
            model: "m",
            workload: "w",
        };
        registry.series(&names::STALLS, &place).increment(3);
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        for delta in [true, false] {
            let mut sent = Sent::since(at(10_000));
            let mut times = |now| {
                let mut span = Span::new(&mut sent, at(now), delta);
                let metrics = of_registry(&registry, &mut span);
                let Some(Data::Sum(sum)) = metrics[0].data.clone() else {
                    panic!("a counter: {metrics:?}");
                };
                let point = &sum.data_points[0];
                let second = 1_000_000_000;
                [
                    point.start_time_unix_nano / second,
                    point.time_unix_nano / second,
                ]
            };
            assert_eq!(times(10_060), [10_000, 10_060]);
            let [start, end] = times(6_520);
            assert_eq!((start, end), (6_520, 6_520), "an hour back");
            let next = if delta { 6_520 } else { 6_580 };
            assert_eq!(times(6_580), [next, 6_580]);
        }
    }
}
