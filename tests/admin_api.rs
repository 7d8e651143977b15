//! The admin address over a real socket: a scrape and the API must show what a call did.

use arc_swap::ArcSwap;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_admin::{
    self as admin, Access, CallSource, EventBus, ProcessServices, Readiness, Services,
};
use tokengauge_config::{Config, Measure};
use tokengauge_core::observer::End;
use tokengauge_meter::{RecentCalls, Subscriber};
use tokengauge_slo::Slos;
use tokengauge_store::history::ThroughputHistory;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{TestResponse, fetch, request};
use tokengauge_test_support::meter::{Bench, DONE, finish, thoughts, words};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const CONFIG: &str = r#"
[[experiment]]
name = "decoder"
[[upstream]]
name = "upstream"
url = "http://127.0.0.1:9"
[[upstream]]
name = "quiet"
url = "http://127.0.0.1:10"
[[route]]
name = "route"
path = "/a"
upstream = "upstream"
[[route]]
name = "unused"
path = "/b"
upstream = "quiet"
[[slo]]
name = "decoder"
ttft.at_most = "100ms"
select.agent = "SLOW*"
[[gate]]
name = "decoder"
candidate.upstream = "upstream"
baseline.upstream = "quiet"
"#;

pub struct Server {
    pub bench: Bench,
    pub address: SocketAddr,
    pub readiness: Arc<Readiness>,
    pub event_bus: Arc<EventBus>,
    pub throughput: Arc<ThroughputHistory>,
    pub stop: oneshot::Sender<()>,
    pub served: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with_access(Access::default()).await
    }

    pub async fn with_access(door: Access) -> Server {
        let measure = Measure::default();
        let config = Config::parse(CONFIG, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
        let prometheus = Prometheus::new(&config.routes, &measure);
        let recent = RecentCalls::new(50);
        let (event_bus, throughput) = (EventBus::new(), ThroughputHistory::new());
        let subscribers: Vec<Arc<dyn Subscriber>> = vec![
            Arc::clone(&prometheus) as _,
            Arc::clone(&recent) as _,
            Arc::clone(&event_bus) as _,
        ];
        let bench = Bench::new(measure, subscribers);
        let readiness = Arc::new(Readiness::default());
        let measure = Measure::default();
        let slos = Slos::new(&config.slos, &measure, Instant::now(), SystemTime::now());
        let process = ProcessServices::new(Arc::clone(&bench.meter), slos);
        let verdicts = admin::Verdicts {
            gates: ArcSwap::from_pointee(admin::Gates {
                gates: config.gates.clone(),
                digest: config.digest.clone(),
            }),
            ..admin::Verdicts::default()
        };
        let state = Services {
            live: Arc::new(process),
            call_source: CallSource::Memory(recent, Arc::clone(&throughput), Arc::default()),
            prometheus,
            about: Arc::default(),
            experiments: Arc::new(ArcSwap::from_pointee(config.experiments.clone())),
            verdicts: Arc::new(verdicts),
            readiness: Arc::clone(&readiness),
            marks: Arc::default(),
            scores: Arc::default(),
            event_bus: Arc::clone(&event_bus),
            clock: Instant::now,
            wall: SystemTime::now,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(admin::serve(listener, state, door, shutdown));
        Server {
            bench,
            address,
            readiness,
            event_bus,
            throughput,
            stop,
            served,
        }
    }

    /// Counted output tokens of the model that the bench's calls use.
    async fn live_tokens(&self) -> f64 {
        let text = self.fetch("/metrics").await.body;
        let counted = [
            "model=\"m-1\"",
            "channel=\"answer\"",
            "direction=\"output\"",
            "\"counted\"",
        ];
        value(&text, "tokengauge_tokens_total", &counted).expect("live tokens")
    }

    pub async fn fetch(&self, path: &str) -> TestResponse {
        fetch(self.address, path).await
    }

    pub async fn json(&self, path: &str) -> Value {
        let response = self.fetch(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        serde_json::from_str(&response.body).expect("JSON")
    }

    /// A chat of 4 reasoning words and 40 answer words over 1 s, reported as 50 tokens.
    pub fn chat(&self) {
        let call = self.bench.chat();
        self.bench.chunk(&*call, 250, thoughts(4));
        for chunk in 1..=5 {
            self.bench.chunk(&*call, 250 + chunk * 200, words(8));
        }
        self.bench.chunk(&*call, 1500, finish(Some(50)) + DONE);
        call.ended(self.bench.at(1600), End::Complete);
        assert!(self.bench.meter.flush(TIMEOUT));
    }
}

pub fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is = |line: &&str| {
        let rest = line.strip_prefix(name);
        let rest = rest.filter(|rest| rest.starts_with(['{', ' ']));
        rest.is_some_and(|rest| labels.iter().all(|label| rest.contains(label)))
    };
    let found: Vec<_> = text.lines().filter(is).collect();
    assert!(found.len() <= 1, "{name} {labels:?}: {found:#?}");
    found.first()?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn a_scrape_shows_what_a_call_did() {
    let server = Server::start().await;
    server.chat();
    let response = server.fetch("/metrics").await;
    assert!(
        response
            .head
            .contains("content-type: text/plain; version=0.0.4")
    );
    let own = [
        "route=\"route\"",
        "upstream=\"upstream\"",
        "model=\"m-1\"",
        "workload=\"none\"",
    ];
    let of = |name: &str, more: &[&str]| {
        let labels: Vec<_> = own.iter().chain(more).copied().collect();
        value(&response.body, name, &labels)
    };
    let request = [
        "outcome=\"complete\"",
        "streamed=\"true\"",
        "status=\"2xx\"",
    ];
    assert_eq!(of("tokengauge_requests_total", &request), Some(1.0));
    let tokens = |direction: &str, channel: &str, source: &str| {
        let labels = [direction, channel, source].map(|text| format!("\"{text}\""));
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        of("tokengauge_tokens_total", &labels)
    };
    assert_eq!(tokens("output", "answer", "counted"), Some(40.0));
    assert_eq!(tokens("output", "reasoning", "counted"), Some(4.0));
    assert_eq!(tokens("output", "tool_call", "counted"), Some(0.0));
    assert_eq!(tokens("output", "any", "reported"), Some(50.0));
    assert_eq!(tokens("input", "any", "reported"), Some(7.0));
    let ttft = "tokengauge_time_to_first_token_seconds";
    let context = "context=\"under_1k\"";
    assert_eq!(of(&format!("{ttft}_count"), &[context]), Some(1.0));
    assert_eq!(of(&format!("{ttft}_sum"), &[context]), Some(0.25));
    assert_eq!(
        of(&format!("{ttft}_bucket"), &[context, "le=\"0.25\""]),
        Some(1.0)
    );
    assert_eq!(
        of(&format!("{ttft}_bucket"), &[context, "le=\"0.1\""]),
        Some(0.0)
    );
    let speed = "tokengauge_output_tokens_per_second";
    assert_eq!(
        of(&format!("{speed}_sum"), &["concurrency=\"1\""]),
        Some(40.0)
    );
    assert_eq!(of(&format!("{speed}_bucket"), &["le=\"40\""]), Some(1.0));
    assert_eq!(of("tokengauge_decode_tokens_total", &[]), Some(40.0));
    assert_eq!(of("tokengauge_decode_seconds_total", &[]), Some(1.0));
    assert_eq!(
        of("tokengauge_inter_token_latency_seconds_count", &[]),
        Some(40.0)
    );
    assert_eq!(
        of("tokengauge_time_per_output_token_seconds_sum", &[]),
        Some(0.025)
    );
    assert_eq!(
        of("tokengauge_token_ratio_bucket", &["le=\"1.25\""]),
        Some(1.0)
    );
    assert_eq!(
        of("tokengauge_token_ratio_bucket", &["le=\"1.1\""]),
        Some(0.0)
    );
    assert_eq!(
        of(
            "tokengauge_request_duration_seconds_sum",
            &["outcome=\"complete\""]
        ),
        Some(1.6)
    );
    let first_answer = "tokengauge_time_to_first_answer_seconds_sum";
    assert_eq!(of(first_answer, &[]), Some(0.45));
    assert_eq!(of("tokengauge_stalls_total", &[]), Some(0.0));
}

#[tokio::test]
async fn every_configured_route_has_its_own_series_before_its_first_call_and_none_of_a_model() {
    let server = Server::start().await;
    let text = server.fetch("/metrics").await.body;
    for (route, upstream) in [("route", "upstream"), ("unused", "quiet")] {
        let place = [
            format!("route=\"{route}\""),
            format!("upstream=\"{upstream}\""),
        ];
        let place: Vec<_> = place.iter().map(String::as_str).collect();
        for metric in ["streams_in_flight", "streams_stalled", "rate_limited_total"] {
            let metric = format!("tokengauge_{metric}");
            assert_eq!(value(&text, &metric, &place), Some(0.0), "{metric}");
        }
    }
    assert!(!text.contains("model=\""), "{text}");
    for name in [
        "tokengauge_meter_lagged_frames_total",
        "tokengauge_meter_queue_bytes",
        "tokengauge_series_collapsed_total",
    ] {
        assert_eq!(value(&text, name, &[]), Some(0.0), "{name}");
    }
    assert_eq!(value(&text, "tokengauge_build_info", &[]), Some(1.0));
    #[cfg(target_os = "linux")]
    for name in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
    ] {
        assert!(
            value(&text, name, &[]).is_some_and(|value| value >= 0.0),
            "{name}"
        );
    }
}

#[tokio::test]
async fn every_family_has_its_help_and_type_once_and_nothing_is_a_summary() {
    let server = Server::start().await;
    server.chat();
    let text = server.fetch("/metrics").await.body;
    let types: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    for line in &types {
        let (name, kind) = line.split_once(' ').expect("a name and a kind");
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
        assert_eq!(
            types
                .iter()
                .filter(|other| other.starts_with(&format!("{name} ")))
                .count(),
            1
        );
        let help = text
            .lines()
            .filter(|line| line.starts_with(&format!("# HELP {name} ")))
            .count();
        assert_eq!(help, 1, "{name}");
        assert!(
            tokengauge_telemetry::export::names::all().any(|metric| metric.name == name),
            "{name}"
        );
    }
    assert!(types.len() > 25, "{types:#?}");
}

#[tokio::test]
async fn streams_in_flight_show_live_tokens_and_go_away() {
    let server = Server::start().await;
    // After the first call, the model's name is known not to be an alias.
    server.chat();
    let before = server.live_tokens().await;
    let call = server.bench.chat();
    for chunk in 0..5 {
        server.bench.chunk(&*call, 100 + chunk * 10, words(8));
    }
    let streams = server.json("/api/v1/streams").await;
    let stream = &streams["streams"][0];
    assert_eq!(stream["tokens"]["output"], 40);
    assert_eq!(
        (&stream["route"], &stream["model"]),
        (&"route".into(), &"m-1".into())
    );
    assert_eq!(stream["last_gap"], 0.01);
    let text = server.fetch("/metrics").await.body;
    let gauge = ["route=\"route\""];
    assert_eq!(
        value(&text, "tokengauge_streams_in_flight", &gauge),
        Some(1.0)
    );
    let live = server.live_tokens().await - before;
    assert!((38.0..=40.0).contains(&live), "{live}");
    drop(call);
    // The background thread may hold the call for an instant, and lowers the gauge last.
    let end = Instant::now() + TIMEOUT;
    let in_flight = async || {
        let text = server.fetch("/metrics").await.body;
        value(&text, "tokengauge_streams_in_flight", &gauge)
    };
    while in_flight().await != Some(0.0) && Instant::now() < end {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(in_flight().await, Some(0.0));
    let streams = server.json("/api/v1/streams").await;
    assert_eq!(streams["streams"], serde_json::json!([]));
    let of_an_agent = server.fetch("/api/v1/streams?agent=nobody").await.body;
    assert!(of_an_agent.contains("\"now\":0.0"), "{of_an_agent}");
}

#[tokio::test]
async fn finished_calls_come_newest_first_and_limited() {
    let server = Server::start().await;
    for _ in 0..60 {
        server.chat();
    }
    let all = server.json("/api/v1/calls").await;
    let calls = all["calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 50, "the ring is bounded");
    assert_eq!(calls[0]["tps"]["output"], 40.0);
    let two = server.json("/api/v1/calls?limit=2").await;
    assert_eq!(two["calls"].as_array().expect("calls")[..], calls[..2]);
    for bad in ["limit=0", "limit=many", "limit=-1", "offset=1"] {
        let response = server.fetch(&format!("/api/v1/calls?{bad}")).await;
        assert_eq!(response.status, 400, "{bad}");
        let error: Value = serde_json::from_str(&response.body).expect("JSON");
        assert!(
            error["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("limit"))
        );
    }
}

#[tokio::test]
async fn readiness_follows_listening_and_draining_and_liveness_does_not() {
    let server = Server::start().await;
    assert_eq!(server.fetch("/readyz").await.status, 503);
    server.readiness.listening();
    assert_eq!(server.fetch("/readyz").await.status, 200);
    server.readiness.draining();
    assert_eq!(server.fetch("/readyz").await.status, 503);
    server.readiness.listening();
    assert_eq!(
        server.fetch("/readyz").await.status,
        503,
        "there is no way back"
    );
    assert_eq!(server.fetch("/livez").await.status, 200);
}

#[tokio::test]
async fn other_paths_and_methods_get_json_errors_and_the_index_lists_paths() {
    let server = Server::start().await;
    for (method, path, status) in [("GET", "/nothing", 404), ("POST", "/metrics", 405)] {
        let response = request(server.address, method, path).await;
        assert_eq!(response.status, status);
        assert!(response.head.contains("content-type: application/json"));
        let error: Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!(error["error"]["status"], status);
    }
    let index = server.fetch("/").await;
    assert_eq!(index.status, 200);
    for header in [
        "x-content-type-options: nosniff",
        "frame-ancestors 'none'",
        "script-src 'self';",
        "cache-control: no-cache",
        "etag: \"",
    ] {
        assert!(index.head.contains(header), "{header}: {}", index.head);
    }
    for path in [
        "/metrics",
        "/api/v1/streams",
        "/api/v1/calls",
        "/livez",
        "/readyz",
    ] {
        let relative = path.trim_start_matches('/');
        assert!(
            index.body.contains(&format!("href=\"{relative}\"")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn serving_ends_at_shutdown() {
    let server = Server::start().await;
    server.stop.send(()).expect("it runs");
    let ended = tokio::time::timeout(TIMEOUT, server.served).await;
    ended.expect("in time").expect("no panic");
}
