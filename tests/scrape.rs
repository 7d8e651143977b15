//! Scrapes of metrics: negotiated format, exemplars of real calls, gauges that return to 0, and bounds on size and
//! time.

use crate::admin_api::{Server, value};
use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_config::Measure;
use tokengauge_core::observer::End;
use tokengauge_meter::{FinishedCall, Meter, Subscriber};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::{exchange_bytes, request_with};
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::proxy::Setup;
use tokengauge_test_support::upstream::Upstream;
use tokio::net::TcpStream;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A chat of 48 words over 1 s whose agent is part of a trace.
fn traced_chat(bench: &Bench) {
    chat_of(bench, &format!("00-{TRACE}-00f067aa0ba902b7-01"));
}

fn chat_of(bench: &Bench, parent: &str) {
    let call = bench.begin("/v1/chat/completions", &[("traceparent", parent)]);
    bench.send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
    bench.answer(&*call, 200, "text/event-stream");
    for chunk in 0..=5 {
        bench.chunk(&*call, 250 + chunk * 200, words(8));
    }
    bench.chunk(&*call, 1500, finish(Some(50)) + DONE);
    call.ended(bench.at(1600), End::Complete);
    assert!(bench.meter.flush(TIMEOUT));
}

#[tokio::test]
async fn open_metrics_is_served_on_request_with_the_traces_of_real_calls() {
    let server = Server::start().await;
    traced_chat(&server.bench);
    // A trace that was not sampled cannot be looked up.
    let unrecorded = TRACE.replace("4bf9", "5bf9");
    chat_of(
        &server.bench,
        &format!("00-{unrecorded}-00f067aa0ba902b7-00"),
    );
    let accept = [(
        "accept",
        "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
    )];
    let response = request_with(server.address, "GET", "/metrics", &accept).await;
    assert!(
        response
            .head
            .contains(&format!("content-type: {OPEN_METRICS}"))
    );
    assert!(response.body.ends_with("\n# EOF\n"));
    assert_eq!(without_exemplar(&response.body), Vec::<&str>::new());
    let with_trace: Vec<_> = response
        .body
        .lines()
        .filter(|line| line.contains(" # {"))
        .collect();
    let expected = [
        (
            "tokengauge_time_to_first_token_seconds_bucket",
            "le=\"0.25\"",
            " 0.25 ",
        ),
        (
            "tokengauge_time_to_first_token_upstream_seconds_bucket",
            "le=\"0.25\"",
            " 0.245 ",
        ),
        (
            "tokengauge_time_to_first_answer_seconds_bucket",
            "le=\"0.25\"",
            " 0.25 ",
        ),
        (
            "tokengauge_output_tokens_per_second_bucket",
            "le=\"40.0\"",
            " 40 ",
        ),
        (
            "tokengauge_request_duration_seconds_bucket",
            "le=\"2.0\"",
            " 1.6 ",
        ),
        (
            "tokengauge_time_per_output_token_seconds_bucket",
            "le=\"0.025\"",
            " 0.025 ",
        ),
    ];
    assert!(with_trace.len() > expected.len(), "{with_trace:#?}");
    for (name, bound, observed) in expected {
        let line = with_trace.iter().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no exemplar of {name}"));
        assert!(line.contains(bound), "{line}");
        let exemplar = format!("}} 2 # {{trace_id=\"{TRACE}\"}}{observed}1700000001.600");
        assert!(line.ends_with(&exemplar), "{line}");
    }
    let classic = server_text(&server).await;
    assert!(!classic.contains(TRACE) && !classic.contains("# EOF"));
}

fn without_exemplar(text: &str) -> Vec<&str> {
    let mut before = ("", 0);
    let mut without = Vec::new();
    for line in text.lines().filter(|line| line.contains("le=\"")) {
        let (series, rest) = line.split_once("le=").expect("a bound");
        let count = rest.split_once("} ").expect("a count").1;
        let count = count.split(' ').next().expect("a count");
        let count: u64 = count.parse().expect("a number");
        let smaller = if before.0 == series { before.1 } else { 0 };
        if count > smaller && !line.contains(" # {") {
            without.push(line);
        }
        before = (series, count);
    }
    without
}

async fn server_text(server: &Server) -> String {
    let response = request_with(server.address, "GET", "/metrics", &[]).await;
    assert!(
        response
            .head
            .contains("content-type: text/plain; version=0.0.4; charset=utf-8")
    );
    response.body
}

#[tokio::test]
async fn open_metrics_has_its_metadata_once_before_its_samples_and_nothing_else() {
    let server = Server::start().await;
    traced_chat(&server.bench);
    let accept = [("accept", "application/openmetrics-text")];
    let text = request_with(server.address, "GET", "/metrics", &accept)
        .await
        .body;
    let mut family = (String::new(), String::new());
    let mut seen = Vec::new();
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert!(!seen.contains(&name.to_owned()), "{name} twice");
            assert!(!name.ends_with("_total"), "{name}");
            seen.push(name.to_owned());
            family = (name.to_owned(), kind.to_owned());
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a name and a unit");
            assert_eq!(name, family.0);
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.starts_with(&format!("{} ", family.0)), "{line}");
        } else {
            let name = line.split(['{', ' ']).next().expect("a name");
            let suffix = name.strip_prefix(family.0.as_str()).expect("in its family");
            let allowed: &[&str] = match family.1.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                _ => &["_bucket", "_sum", "_count"],
            };
            assert!(allowed.contains(&suffix), "{line}");
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
}

fn bench() -> (Bench, Arc<Prometheus>) {
    let prometheus = Prometheus::new(&[], &Measure::default());
    let bench = Bench::new(Measure::default(), vec![Arc::clone(&prometheus) as _]);
    (bench, prometheus)
}

fn text(prometheus: &Prometheus, meter: &Meter, now: Instant) -> String {
    prometheus.render(now, &meter.stats(now), Format::Classic)
}

#[test]
fn gauges_come_back_to_0_after_ten_thousand_aborted_streams() {
    const STREAMS: u64 = 10_000;
    let (bench, prometheus) = bench();
    let open: Vec<_> = (0..STREAMS)
        .map(|_| {
            let call = bench.chat();
            bench.chunk(&*call, 100, words(3));
            call
        })
        .collect();
    let place = ["route=\"route\"", "upstream=\"upstream\""];
    let gauge = |name: &str, millis| {
        let text = text(&prometheus, &bench.meter, bench.at(millis));
        value(&text, name, &place)
    };
    let (in_flight, stalled) = ("tokengauge_streams_in_flight", "tokengauge_streams_stalled");
    assert_eq!(gauge(in_flight, 200), Some(STREAMS as f64));
    assert_eq!(gauge(stalled, 200), Some(0.0));
    assert_eq!(gauge(stalled, 60_000), Some(STREAMS as f64));
    for (number, call) in open.into_iter().enumerate() {
        match number % 3 {
            0 => drop(call),
            1 => call.ended(bench.at(60_000), End::ClientCancelled),
            _ => call.ended(bench.at(60_000), End::UpstreamReset),
        }
        if number % 1000 == 0 {
            assert!(bench.meter.flush(TIMEOUT));
        }
    }
    assert!(bench.meter.flush(TIMEOUT));
    assert_eq!(gauge(in_flight, 60_000), Some(0.0));
    assert_eq!(gauge(stalled, 60_000), Some(0.0));
    assert!(bench.meter.streams(bench.at(60_000), 1).is_empty());
    let text = text(&prometheus, &bench.meter, bench.at(60_000));
    let ended = |outcome: &str| {
        let labels = ["streamed=\"true\"", "model=\"m-1\"", outcome];
        value(&text, "tokengauge_requests_total", &labels).expect("a series")
    };
    let all = ended("outcome=\"client_cancelled\"") + ended("outcome=\"upstream_reset\"");
    assert_eq!(all, STREAMS as f64);
}

#[tokio::test]
async fn gauges_come_back_to_0_after_agents_left_the_proxy_in_the_middle() {
    const STREAMS: usize = 100;
    let (bench, prometheus) = bench();
    let upstream = Upstream::bind().await;
    let setup = Setup::to(upstream.address);
    let proxy = setup.start_unobserved(Arc::clone(&bench.meter) as _).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent
            .write("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
            .await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.read_exact(2).await;
        backend.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let event = words(3);
        backend
            .write(format!("{:x}\r\n{event}\r\n", event.len()))
            .await;
        agent.read_head().await;
        open.push((agent, backend));
    }
    let in_flight = || {
        let text = text(&prometheus, &bench.meter, Instant::now());
        value(&text, "tokengauge_streams_in_flight", &["route=\"route\""])
    };
    assert_eq!(in_flight(), Some(STREAMS as f64));
    // In half of these calls the agent leaves, in the other half the upstream.
    let mut halves = Vec::new();
    for (number, (agent, backend)) in open.into_iter().enumerate() {
        if number % 2 == 0 {
            halves.push(backend);
        } else {
            halves.push(agent);
        }
    }
    let end = Instant::now() + TIMEOUT;
    while in_flight() != Some(0.0) {
        assert!(
            Instant::now() < end,
            "{:?} are still in flight",
            in_flight()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_scraper_that_takes_gzip_gets_the_same_compressed() {
    let server = Server::start().await;
    traced_chat(&server.bench);
    let stream = TcpStream::connect(server.address).await.expect("connect");
    let takes = [("accept-encoding", "gzip")];
    let (_, head, body) = exchange_bytes(stream, "GET", "/metrics", &takes).await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    assert!(head.contains("vary: accept, accept-encoding"), "{head}");
    let mut text = String::new();
    GzDecoder::new(&body[..])
        .read_to_string(&mut text)
        .expect("gzip");
    let plain = request_with(server.address, "GET", "/metrics", &[])
        .await
        .body;
    let names = |text: &str| {
        let series = text.lines().filter_map(|line| line.rsplit_once(' '));
        series.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&text), names(&plain));
    assert!(
        body.len() * 5 < text.len(),
        "{} of {}",
        body.len(),
        text.len()
    );
}

#[test]
fn fifty_pairs_are_scraped_within_fifty_milliseconds_and_five_megabytes() {
    let (bench, prometheus) = bench();
    traced_chat(&bench);
    let template = FinishedCall::clone(&bench.finished_calls()[0]);
    for pair in 0..50 {
        for (concurrency, input) in [
            (1, 10),
            (4, 2_000),
            (8, 10_000),
            (16, 50_000),
            (32, 200_000),
            (64, 5),
            (128, 5),
            (200, 5),
        ] {
            let mut finished_call = template.clone();
            finished_call.record.upstream = format!("upstream-{}", pair % 5);
            finished_call.record.model = Some(format!("some-provider/some-model-{pair}"));
            finished_call.concurrency = concurrency;
            finished_call.record.tokens.reported.input = Some(input);
            prometheus.finished(&Arc::new(finished_call));
        }
    }
    for format in [Format::Classic, Format::OpenMetrics] {
        let times = (0..25).map(|_| {
            let began = Instant::now();
            let text = prometheus.render(began, &bench.meter.stats(began), format);
            (began.elapsed(), text.len(), text.lines().count())
        });
        // Take the fastest scrape, because slower ones depend on other load of the machine.
        let (time, bytes, lines) = times.min().expect("25 times");
        println!("{format:?}: {lines} lines, {bytes} bytes, {time:?}");
        assert!(bytes < 5_000_000, "{bytes} bytes");
        assert!(time < Duration::from_millis(50), "{time:?}");
    }
}
