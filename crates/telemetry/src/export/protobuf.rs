//! Writes the registry in Prometheus' protobuf format, the only format with native histograms.
//!
//! Source: `io/prometheus/client/metrics.proto` of <https://github.com/prometheus/client_model>.

use super::exemplar::Exemplar;
use super::names::MetricKind;
use super::native::Counts;
use super::registry::{AnyCell, FamilySeries, Registry, SeriesLabels, Snapshot};
use prost::Message;
use std::time::SystemTime;
use tokengauge_core::log_buckets;

pub const CONTENT_TYPE: &str = "application/vnd.google.protobuf; \
    proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Largest gap of empty buckets within a span: two zeros are shorter than another span.
const LARGEST_GAP: i32 = 2;

/// All series of `registry`; each family is preceded by its length. With `classic`, histograms have
/// classic buckets in addition to native buckets.
pub fn render(registry: &Registry, classic: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 * 1024);
    for family in registry.families().iter() {
        bytes.extend(message(family, classic).encode_length_delimited_to_vec());
    }
    bytes
}

fn message(family: &FamilySeries, classic: bool) -> MetricFamily {
    let metric = family.metric;
    let kind = match metric.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    let series = family.series();
    MetricFamily {
        name: metric.name.to_owned(),
        help: metric.help.to_owned(),
        r#type: kind.into(),
        metric: series
            .map(|(labels, cell)| series_of(labels, cell, classic))
            .collect(),
        unit: metric.unit_in_name().unwrap_or_default().to_owned(),
    }
}

fn series_of(labels: &SeriesLabels, cell: &AnyCell, classic: bool) -> Metric {
    let label = labels.pairs().map(|(name, value)| pair(name, value));
    let mut metric = Metric {
        label: label.collect(),
        ..Metric::default()
    };
    let number = |value| Some(Number { value });
    match cell {
        AnyCell::Counter(counter) => metric.counter = number(counter.value() as f64),
        AnyCell::Sum(sum) => metric.counter = number(sum.value()),
        AnyCell::Gauge(gauge) => metric.gauge = number(gauge.value()),
        AnyCell::Histogram(cell) => {
            metric.histogram = Some(histogram(&cell.snapshot(), &cell.native(), classic));
        }
    }
    metric
}

fn histogram(now: &Snapshot, native: &Counts, classic: bool) -> Histogram {
    let (positive_span, positive_delta) = spans(&native.buckets);
    let exemplars = now.exemplars.iter().flatten();
    Histogram {
        sample_count: native.total(),
        sample_sum: now.sum,
        bucket: if classic { buckets(now) } else { Vec::new() },
        schema: log_buckets::SCHEMA,
        zero_threshold: log_buckets::zero_threshold(),
        zero_count: native.zero,
        positive_span,
        positive_delta,
        exemplars: exemplars.map(exemplar).collect(),
    }
}

fn buckets(now: &Snapshot) -> Vec<Bucket> {
    let mut count = 0;
    let numbered = now.buckets.iter().enumerate();
    let buckets = numbered.map(|(number, bucket)| {
        count += bucket;
        let exemplar_of = now.exemplars.get(number).and_then(Option::as_ref);
        Bucket {
            cumulative_count: count,
            upper_bound: now.bounds.get(number).copied().unwrap_or(f64::INFINITY),
            exemplar: exemplar_of.map(exemplar),
        }
    });
    buckets.collect()
}

/// Runs of buckets, and the difference of each bucket's count from the previous bucket.
fn spans(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (number, count) in buckets {
        let gap = number - next;
        match spans.last_mut() {
            Some(span) if gap <= LARGEST_GAP => {
                for _ in 0..gap {
                    deltas.push(-before);
                    before = 0;
                }
                span.length += gap.unsigned_abs() + 1;
            }
            _ => spans.push(BucketSpan {
                offset: gap,
                length: 1,
            }),
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (number + 1, count);
    }
    (spans, deltas)
}

fn exemplar(held: &Exemplar) -> ExemplarMessage {
    let since = held.at.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    ExemplarMessage {
        label: vec![pair("trace_id", &format!("{:032x}", held.trace))],
        value: held.value,
        timestamp: Some(Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos().cast_signed(),
        }),
    }
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    r#type: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// A `Gauge` or a `Counter`, which have equal encodings.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(message, repeated, tag = "16")]
    exemplars: Vec<ExemplarMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<ExemplarMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::labels::Model;
    use crate::export::names;

    #[test]
    fn buckets_are_runs_of_differences() {
        assert_eq!(spans(&[]), (vec![], vec![]));
        let span = |offset, length| BucketSpan { offset, length };
        let (runs, deltas) = spans(&[(-32, 4), (-31, 1), (-28, 2), (5, 7)]);
        assert_eq!(runs, [span(-32, 5), span(32, 1)]);
        assert_eq!(deltas, [4, -3, -1, 0, 2, 5]);
    }

    #[test]
    fn a_family_comes_behind_its_length_with_both_kinds_of_buckets() {
        let registry = Registry::new(&[]);
        let labels = Model {
            upstream: "u",
            route: "a\"b\\c\nd",
            model: "m",
            workload: "w",
        };
        let ratio = registry.series(&names::TOKEN_RATIO, &labels);
        ratio.record(1.0);
        ratio.record_many(1.1, 2);
        registry.series(&names::STALLS, &labels).increment(3);
        for classic in [true, false] {
            let bytes = render(&registry, classic);
            let mut rest = bytes.as_slice();
            let mut families = Vec::new();
            while !rest.is_empty() {
                let family = MetricFamily::decode_length_delimited(&mut rest);
                families.push(family.expect("a family"));
            }
            let [stalls, ratio] = &families[..] else {
                panic!("{families:?}")
            };
            assert_eq!(stalls.name, "tokengauge_stalls_total");
            assert_eq!(stalls.metric[0].counter, Some(Number { value: 3.0 }));
            assert_eq!(stalls.metric[0].label[1], pair("route", "a\"b\\c\nd"));
            let found = ratio.metric[0].histogram.as_ref().expect("a histogram");
            assert_eq!((found.sample_count, found.schema), (3, 5));
            assert_eq!(
                found.positive_delta.len(),
                found
                    .positive_span
                    .iter()
                    .map(|span| span.length as usize)
                    .sum::<usize>()
            );
            let bounds = names::TOKEN_RATIO.buckets.len() + 1;
            assert_eq!(found.bucket.len(), if classic { bounds } else { 0 });
        }
    }
}
