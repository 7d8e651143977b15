//! OTLP receivers that are unreachable, busy or silent for a while, and the counts of lost items.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::observer::End;
use tokengauge_telemetry::export::otlp::Otlp;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::otlp::{LostItems, Receiver, ReceiverBehaviour, exporters};
use tokengauge_test_support::port::HeldPort;

const CALLS: usize = 20;

fn variables(address: SocketAddr, protocol: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ("OTEL_LOGS_EXPORTER", "otlp".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned()),
    ]
}

struct ExporterFixture {
    otlp: Otlp,
    lost: LostItems,
    bench: Bench,
    series: Arc<Prometheus>,
}

impl ExporterFixture {
    fn new(variables: &[(&str, String)]) -> ExporterFixture {
        let (otlp, lost) = exporters(variables, Conventions::Current);
        let bench = Bench::tracing(Measure::default(), otlp.subscribers(), otlp.tracer());
        let series = Prometheus::new(&[], &Measure::default());
        otlp.begin_metrics(&series, &bench.meter);
        ExporterFixture {
            otlp,
            lost,
            bench,
            series,
        }
    }

    fn calls(&self, count: usize) {
        for _ in 0..count {
            let call = self.bench.begin("/v1/chat/completions", &[]);
            self.bench
                .send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
            self.bench.answer(&*call, 200, "text/event-stream");
            self.bench.chunk(&*call, 100, words(10));
            self.bench.chunk(&*call, 300, finish(Some(10)) + DONE);
            call.ended(self.bench.at(310), End::Complete);
        }
        assert!(self.bench.meter.flush(TIMEOUT));
    }

    fn lost(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.lost.lock().unwrap().clone()
    }

    fn lost_items(&self) -> u64 {
        self.lost().iter().map(|(_, _, items)| items).sum()
    }

    /// Sends queued items, and returns the final losses.
    async fn end(self, limit: Duration) -> Vec<(&'static str, &'static str, u64)> {
        assert!(self.bench.meter.flush(TIMEOUT));
        let otlp = self.otlp;
        let ended = tokio::task::spawn_blocking(move || otlp.shutdown(limit));
        ended.await.expect("no panic");
        drop(self.series);
        std::mem::take(&mut self.lost.lock().unwrap())
    }
}

async fn arrived(receiver: &Receiver, spans: usize, logs: usize) {
    let until = Instant::now() + Duration::from_secs(30);
    let there = || {
        let metrics = !receiver.metrics().is_empty();
        (receiver.spans().len(), receiver.logs().len(), metrics)
    };
    while there() != (spans, logs, true) {
        assert!(Instant::now() < until, "{:?}", there());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_away_for_some_seconds_loses_nothing() {
    for protocol in ["http/protobuf", "grpc"] {
        let held = HeldPort::take();
        let mut variables = variables(held.address, protocol);
        variables.push(("OTEL_EXPORTER_OTLP_TIMEOUT", "10000".to_owned()));
        let fixture = ExporterFixture::new(&variables);
        fixture.calls(CALLS);
        // A full batch is sent at once: the first attempts fail.
        fixture.calls(250);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(fixture.lost().is_empty(), "{:?}", fixture.lost());
        let receiver = Receiver::start_at(held.address).await;
        arrived(&receiver, 2 * (CALLS + 250), CALLS + 250).await;
        assert!(fixture.end(TIMEOUT).await.is_empty(), "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_receiver_is_asked_again_when_it_said_and_not_before() {
    let busy = ReceiverBehaviour {
        status: Some(503),
        retry_after: Some(1),
        times: Some(2),
        ..ReceiverBehaviour::default()
    };
    let receiver = Receiver::start(busy).await;
    let mut variables = variables(receiver.address, "http/protobuf");
    variables.push(("OTEL_METRICS_EXPORTER", "none".to_owned()));
    variables.push(("OTEL_TRACES_EXPORTER", "none".to_owned()));
    let fixture = ExporterFixture::new(&variables);
    fixture.calls(512);
    let until = Instant::now() + Duration::from_secs(30);
    while receiver.logs().len() < 512 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let at: Vec<_> = receiver.received().iter().map(|one| one.at).collect();
    for pair in at[..3].windows(2) {
        let waited = pair[1] - pair[0];
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
    }
    assert!(fixture.end(TIMEOUT).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_says_no_is_asked_once() {
    for (protocol, behaviour) in [
        ("http/protobuf", refusing(400, 0)),
        ("http/protobuf", refusing(500, 0)),
        ("grpc", refusing(200, 16)),
        // The receiver gives no hint when to retry.
        ("grpc", refusing(200, 8)),
    ] {
        let receiver = Receiver::start(behaviour).await;
        let mut variables = variables(receiver.address, protocol);
        variables.push(("OTEL_METRICS_EXPORTER", "none".to_owned()));
        variables.push(("OTEL_LOGS_EXPORTER", "none".to_owned()));
        variables.retain(|(name, value)| *name != "OTEL_LOGS_EXPORTER" || value != "otlp");
        let fixture = ExporterFixture::new(&variables);
        fixture.calls(256);
        let until = Instant::now() + TIMEOUT;
        while fixture.lost_items() < 512 {
            assert!(Instant::now() < until, "{protocol} {behaviour:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(fixture.lost_items(), 512);
        // One export, or several if the machine is slow. Each fails after one request.
        let exports = fixture.lost().len();
        assert_eq!(
            receiver.received().len(),
            exports,
            "{protocol} {behaviour:?}"
        );
        fixture.end(TIMEOUT).await;
    }
}

fn refusing(status: u16, grpc_status: u8) -> ReceiverBehaviour {
    ReceiverBehaviour {
        status: Some(status),
        grpc_status,
        ..ReceiverBehaviour::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_span_that_a_silent_receiver_did_not_confirm_is_counted() {
    for protocol in ["http/protobuf", "grpc"] {
        let silent = ReceiverBehaviour {
            slow: Duration::from_secs(60),
            ..ReceiverBehaviour::default()
        };
        let receiver = Receiver::start(silent).await;
        let fixture = ExporterFixture::new(&variables(receiver.address, protocol));
        fixture.calls(1046);
        let started = Instant::now();
        let lost = fixture.end(Duration::from_secs(1)).await;
        assert!(started.elapsed() < Duration::from_secs(8), "it is bounded");
        let of = |exporter| {
            let its = lost.iter().filter(|(of, _, _)| *of == exporter);
            its.map(|(_, _, items)| items).sum::<u64>()
        };
        assert_eq!(of("otlp_traces"), 2092, "{protocol}: {lost:?}");
        assert_eq!(of("otlp_logs"), 1046, "{protocol}: {lost:?}");
        assert!(of("otlp_metrics") > 0, "{protocol}: {lost:?}");
    }
}
