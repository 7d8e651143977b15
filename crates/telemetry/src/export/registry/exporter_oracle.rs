//! Compares our exposition of cells with `metrics-exporter-prometheus`.

use super::*;
use crate::export::text::{Format, render};
use metrics::{Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::collections::BTreeMap;

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Writes every metric of the table with these label values in both ways, ours first.
fn rendered(label_values: &[&str]) -> [String; 2] {
    let ours = Registry::new(&[]);
    let mut builder = PrometheusBuilder::new();
    for metric in names::all().filter(|metric| metric.kind == MetricKind::Histogram) {
        let name = Matcher::Full(metric.name.to_owned());
        let buckets = names::buckets(metric, &[]);
        builder = builder
            .set_buckets_for_metric(name, &buckets)
            .expect("buckets");
    }
    let theirs = builder.build_recorder();
    let numbers = [0.0, 0.25, 1.0, 3.0, 17.5, 1e9, 1.5e300, 1e-7];
    let mut numbers = numbers.into_iter().cycle();
    for (place, metric) in names::all().enumerate() {
        for value in label_values {
            let labels = metric.labels.iter();
            let labels = labels.map(|name| Label::new(*name, (*value).to_owned()));
            let key = Key::from_parts(metric.name, labels.collect::<Vec<_>>());
            let number = numbers.next().unwrap_or_default();
            match metric.kind {
                MetricKind::Counter if place % 2 == 0 => {
                    Counter::of(&ours.cells, &key).increment(number as u64);
                    let counter = theirs.register_counter(&key, &METADATA);
                    counter.increment(number as u64);
                }
                MetricKind::Counter => {
                    Sum::of(&ours.cells, &key).add(number);
                    theirs.register_gauge(&key, &METADATA).increment(number);
                }
                MetricKind::Gauge => {
                    Gauge::of(&ours.cells, &key).set(number);
                    theirs.register_gauge(&key, &METADATA).set(number);
                }
                MetricKind::Histogram => {
                    let histogram = Histogram::of(&ours.cells, &key);
                    let same = theirs.register_histogram(&key, &METADATA);
                    let bounds = metric.buckets.iter().copied();
                    for observed in bounds.chain([number.min(1e12), 0.003]) {
                        histogram.record(observed);
                        same.record(observed);
                    }
                }
            }
        }
    }
    let ours = render(&ours, Format::Classic, true);
    [ours, theirs.handle().render()]
}

fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').expect("the end of the labels");
            let value = value.parse().expect("a number");
            ((name.to_owned(), read_labels(labels)), value)
        })
        .collect()
}

fn read_labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut characters = rest.chars();
        loop {
            match characters.next().expect("the end of a value") {
                '"' => break,
                '\\' => match characters.next().expect("an escaped character") {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        labels.insert(name.to_owned(), value);
        text = characters.as_str().trim_start_matches(',');
    }
    labels
}

#[test]
fn the_exporter_of_metrics_writes_the_same_samples() {
    let values = [
        "u",
        "two words",
        "ü/~:{},=",
        "a \"quoted\" one",
        "two\nlines",
    ];
    let [ours, theirs] = rendered(&values);
    let (ours, theirs) = (samples(&ours), samples(&theirs));
    assert!(ours.len() > values.len() * names::all().count());
    let differ = |(series, value): &(&(String, BTreeMap<String, String>), &f64)| {
        let same = |other: &f64| (*value - other).abs() <= value.abs() * 1e-12;
        !theirs.get(series).is_some_and(same)
    };
    let missing: Vec<_> = ours.iter().filter(differ).take(5).collect();
    assert!(
        missing.is_empty(),
        "metrics-exporter-prometheus lacks these samples or has other values: {missing:?}"
    );
    let more: Vec<_> = theirs
        .keys()
        .filter(|key| !ours.contains_key(key))
        .collect();
    assert!(
        more.is_empty(),
        "our registry lacks these series: {:?}",
        &more[..more.len().min(5)]
    );
}

/// The exporter's bug that makes our own exposition necessary. If this test fails, the bug is fixed
/// and the exporter may be used.
#[test]
fn the_exporter_of_metrics_writes_one_and_two_backslashes_alike() {
    let values = [r"a\b", r"a\\b"];
    let [ours, theirs] = rendered(&values);
    let of = |text: &str, value: &str| {
        let samples = samples(text);
        let of_value = |labels: &BTreeMap<String, String>| labels.values().any(|had| had == value);
        samples
            .keys()
            .filter(|(_, labels)| of_value(labels))
            .count()
    };
    assert!(values.iter().all(|value| of(&ours, value) > 0), "{ours}");
    assert!(
        values.iter().any(|value| of(&theirs, value) == 0),
        "two series are two: the exporter can be used"
    );
}
