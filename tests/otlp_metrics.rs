//! Metrics at an OTLP receiver: the metrics of `/metrics`, and the metrics that OpenTelemetry conventions define.

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric};
use std::collections::BTreeMap;
use std::time::Instant;
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::observer::End;
use tokengauge_telemetry::export::names;
use tokengauge_telemetry::export::otlp::dotted;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour, attributes, exporters};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The metrics sent for a few calls, and the text of `/metrics` right before.
async fn exported(extra: &[(&'static str, &str)]) -> (Vec<Metric>, String) {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let url = format!("http://{}", receiver.address);
    let mut variables = vec![(
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        format!("{url}/v1/metrics"),
    )];
    variables.extend(
        extra
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    let (otlp, lost) = exporters(&variables, Conventions::Current);
    let series = Prometheus::new(&[], &Measure::default());
    let mut subscribers = otlp.subscribers();
    subscribers.push(series.clone());
    let bench = Bench::tracing(Measure::default(), subscribers, None);
    otlp.begin_metrics(&series, &bench.meter);
    for (status, model) in [(200, "one"), (200, "a \"b\"\\c"), (503, "one")] {
        let call = bench.begin("/v1/chat/completions", &[("traceparent", PARENT)]);
        bench.send(
            &*call,
            format!(r#"{{"model":{model:?},"stream":true}}"#).as_bytes(),
        );
        bench.answer(&*call, status, "text/event-stream");
        if status == 200 {
            (0..10).for_each(|n| bench.chunk(&*call, 100 + 20 * n, words(10)));
            bench.chunk(&*call, 300, finish(Some(101)));
            bench.chunk(&*call, 300, DONE);
        }
        bench.end(&*call, 310, End::Complete);
    }
    assert!(bench.meter.flush(TIMEOUT));
    let now = Instant::now();
    let text = series.render(now, &bench.meter.stats(now), Format::Classic);
    let shutdown = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
    assert!(shutdown.await.expect("no panic"));
    assert!(lost.lock().unwrap().is_empty(), "{lost:?}");
    (receiver.metrics(), text)
}

/// Every sample with the key that the text format would have.
fn samples(metrics: &[Metric]) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for metric in names::all() {
        let (name, _) = dotted(metric);
        let Some(found) = metrics.iter().find(|one| one.name == name) else {
            continue;
        };
        let mut add = |suffix: &str, labels: BTreeMap<String, String>, value| {
            samples.insert(format!("{}{suffix}{labels:?}", metric.name), value);
        };
        match found.data.as_ref().expect("data") {
            Data::Sum(sum) => {
                assert!(sum.is_monotonic);
                for point in &sum.data_points {
                    add("", attributes(&point.attributes), number(point.value));
                }
            }
            Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    add("", attributes(&point.attributes), number(point.value));
                }
            }
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    let labels = attributes(&point.attributes);
                    add("_count", labels.clone(), point.count as f64);
                    add("_sum", labels.clone(), point.sum.expect("a sum"));
                    for (bound, count) in cumulative(point) {
                        let mut labels = labels.clone();
                        labels.insert("le".to_owned(), bound);
                        add("_bucket", labels, count as f64);
                    }
                }
            }
            other => panic!("no such kind: {other:?}"),
        }
    }
    samples
}

fn number(value: Option<Value>) -> f64 {
    match value.expect("a value") {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    }
}

fn cumulative(point: &HistogramDataPoint) -> Vec<(String, u64)> {
    let bounds = point.explicit_bounds.iter().map(f64::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    let mut all = 0;
    let counts = point.bucket_counts.iter().map(|count| {
        all += count;
        all
    });
    bounds.zip(counts.collect::<Vec<_>>()).collect()
}

/// The samples of the text format, by the same keys.
fn shown(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let mut named = BTreeMap::new();
            let mut rest = labels.trim_end_matches('}');
            while let Some((label, after)) = rest.split_once('=') {
                let mut stream = serde_json::Deserializer::from_str(after).into_iter::<String>();
                let value = stream.next().expect("a value").expect("a string");
                named.insert(label.to_owned(), value);
                rest = after[stream.byte_offset()..].trim_start_matches(',');
            }
            let value = value.parse().expect("a number");
            (format!("{name}{named:?}"), value)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_exporters_show_the_same_of_every_series() {
    for transport in ["http/protobuf", "grpc"] {
        let (metrics, text) = exported(&[("OTEL_EXPORTER_OTLP_PROTOCOL", transport)]).await;
        let (mut sent, mut shown) = (samples(&metrics), shown(&text));
        // Metrics of the process itself change between the two exports.
        for all in [&mut sent, &mut shown] {
            all.retain(|name, _| !name.starts_with("process_"));
        }
        assert!(shown.len() > 100, "{}", shown.len());
        let names: Vec<_> = shown.keys().collect();
        assert_eq!(sent.keys().collect::<Vec<_>>(), names);
        for (name, value) in &shown {
            assert!(
                (sent[name] - value).abs() < 1e-9,
                "{name}: {} and {value}",
                sent[name]
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_conventions_histograms_have_their_bounds_and_attributes() {
    let (metrics, _) = exported(&[]).await;
    let points = |name: &str| -> Vec<HistogramDataPoint> {
        let metric = metrics.iter().find(|metric| metric.name == name);
        match metric.and_then(|metric| metric.data.clone()) {
            Some(Data::Histogram(histogram)) => histogram.data_points,
            other => panic!("{name}: {other:?}"),
        }
    };
    let usage = points("gen_ai.client.token.usage");
    let of_output = usage.iter().find(|point| {
        let labels = attributes(&point.attributes);
        labels["gen_ai.token.type"] == "output" && labels["gen_ai.request.model"] == "one"
    });
    let of_output = of_output.expect("output tokens");
    assert_eq!((of_output.count, of_output.sum), (1, Some(101.0)));
    assert_eq!(
        (
            of_output.explicit_bounds.len(),
            of_output.explicit_bounds[13]
        ),
        (14, 67_108_864.0)
    );
    let labels = attributes(&of_output.attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.response.model", "m-1"),
        ("server.address", "127.0.0.1"),
        ("server.port", "9"),
    ] {
        assert_eq!(labels[name], value, "{name}");
    }
    let duration = points("gen_ai.client.operation.duration");
    let failed = duration.iter().filter(|point| {
        let labels = attributes(&point.attributes);
        labels.get("error.type").map(String::as_str) == Some("503")
    });
    assert_eq!(failed.map(|point| point.count).sum::<u64>(), 1);
    assert_eq!(duration.iter().map(|point| point.count).sum::<u64>(), 3);
    let first = points("gen_ai.client.operation.time_to_first_chunk");
    assert!(
        (first[0].sum.expect("a sum") - 0.1).abs() < 1e-9,
        "{first:?}"
    );
    let gaps = points("gen_ai.client.operation.time_per_output_chunk");
    assert_eq!(
        gaps.iter().map(|point| point.count).sum::<u64>(),
        18,
        "nine a call"
    );
    let server = points("gen_ai.server.time_to_first_token");
    assert!((server[0].sum.expect("a sum") - 0.095).abs() < 1e-9);
    assert_eq!(server[0].explicit_bounds.first(), Some(&0.001));
    let tokens = points("gen_ai.server.time_per_output_token");
    assert!(
        (tokens[0].sum.expect("a sum") - 0.002).abs() < 1e-9,
        "{tokens:?}"
    );
    let served = points("gen_ai.server.request.duration");
    assert!(served.iter().all(|point| point.count > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_trace_is_the_exemplar_of_its_bucket() {
    let (metrics, _) = exported(&[("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none")]).await;
    let ttft = metrics
        .iter()
        .find(|one| one.name == "tokengauge.time_to_first_token");
    let Some(Data::Histogram(histogram)) = ttft.and_then(|one| one.data.clone()) else {
        panic!("no histogram");
    };
    let exemplars = histogram
        .data_points
        .iter()
        .flat_map(|point| &point.exemplars);
    let traces: Vec<_> = exemplars
        .map(|exemplar| exemplar.trace_id.clone())
        .collect();
    assert!(!traces.is_empty());
    assert!(traces.iter().all(|trace| trace[0] == 0x4b));
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_metrics_are_bounded() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let endpoint = format!("http://{}", receiver.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_TRACES_EXPORTER", "none".to_owned()),
    ];
    let (otlp, _) = exporters(&variables, Conventions::Current);
    let series = Prometheus::new(&[], &Measure::default());
    let bench = Bench::tracing(Measure::default(), otlp.subscribers(), None);
    otlp.begin_metrics(&series, &bench.meter);
    for n in 0..50 {
        let call = bench.begin("/v1/chat/completions", &[]);
        bench.send(
            &*call,
            format!(r#"{{"model":"made-up-{n}","stream":true}}"#).as_bytes(),
        );
        bench.answer(&*call, 200, "text/event-stream");
        bench.end(&*call, 310, End::ClientCancelled);
    }
    assert!(bench.meter.flush(TIMEOUT));
    let shutdown = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
    assert!(shutdown.await.expect("no panic"));
    let metrics = receiver.metrics();
    let duration = metrics
        .iter()
        .find(|one| one.name == "gen_ai.client.operation.duration");
    let Some(Data::Histogram(histogram)) = duration.and_then(|one| one.data.clone()) else {
        panic!("no histogram");
    };
    assert_eq!(histogram.data_points.len(), 4, "three, and all others");
    let other = histogram
        .data_points
        .iter()
        .find(|point| attributes(&point.attributes)["gen_ai.request.model"] == "other");
    assert_eq!(other.map(|point| point.count), Some(47));
}
