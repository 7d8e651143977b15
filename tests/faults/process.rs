//! Faults around the proxy: file descriptors, disks, telemetry receivers, clocks, and panics in its own code.

use super::backend::Backend;
use super::fixture::{ProxyFixture, Setup, ask, ordinary, request};
use crate::process::{Listener, SteppedBackend};
use http::Request;
use http_body_util::BodyExt;
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::call::{Channel, TpsUnavailable};
use tokengauge_core::observer::End;
use tokengauge_meter::{FinishedCall, Meter, RecentCalls, Stream, Subscriber, TokenObserver};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, none};
use tokengauge_test_support::http_client::{fetch, request as call};
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour, exporters};
use tokengauge_test_support::proxy::Setup as InProcess;
use tokengauge_test_support::skip::skipped;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// Runs the proxy after a line of shell, with one traffic thread, because each thread needs descriptors.
fn behind(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.env("TOKIO_WORKER_THREADS", "1");
    let script = format!("{line} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_tokengauge")]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_open_streams_continue_and_new_ones_wait() {
    const STEPS: usize = 10;
    let steps = SteppedBackend::start().await;
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://{}", steps.address);
        setup.command = behind("ulimit -n 64");
    });
    let fixture = fixture.await;
    let mut streams = Vec::new();
    for number in 0..3 {
        streams.push(Listener::open(fixture.proxy(), "", format!("s{number}")).await);
    }
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(
            TcpStream::connect(fixture.proxy())
                .await
                .expect("in the queue"),
        );
    }
    fixture.process.line("files may be open").await;
    // The connections wait, and enough descriptors are left for the admin address.
    for _ in 0..5 {
        assert_eq!(fetch(fixture.process.admin, "/livez").await.status, 200);
    }
    assert!(fixture.open_files() < 64, "{}", fixture.open_files());
    for step in 1..=STEPS {
        steps.next();
        for stream in &mut streams {
            stream.step(step).await;
        }
    }
    drop(idle);
    let hello = tokio::time::timeout(TIMEOUT, call(fixture.proxy(), "GET", "/hello"));
    assert_eq!(hello.await.expect("served again").body, "hello");
    steps.end();
    for stream in streams {
        let (id, text) = stream.whole().await;
        assert_eq!(text, SteppedBackend::whole(&id, STEPS));
    }
    fixture.returns_to_idle("few files").await;
}

/// Opens streams of a few HTTP/2 agents to a slow upstream, more than there are descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn one_upstream_cannot_take_the_descriptors_of_the_others_and_of_operators() {
    const FILES: usize = 400;
    const AGENTS: usize = 5;
    const STREAMS: usize = 100;
    let (slow, other) = (SteppedBackend::start().await, SteppedBackend::start().await);
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://{}", slow.address);
        setup.upstream = format!(
            "max_pending = 50\n[[upstream]]\nname = \"other\"\nurl = \"http://{}\"\nidle_for = \"100ms\"\n\
             [[route]]\npath = \"/other\"\nupstream = \"other\"\n",
            other.address
        );
        setup.command = behind(&format!("ulimit -n {FILES}"));
    });
    let fixture = fixture.await;
    let mut agents = Vec::new();
    let mut answers = tokio::task::JoinSet::new();
    for agent in 0..AGENTS {
        let send = http2(fixture.proxy()).await;
        for stream in 0..STREAMS {
            let mut send = send.clone();
            let uri = format!("http://h/stream/{agent}-{stream}");
            answers.spawn(async move {
                let request = Request::get(uri).body(none()).expect("a request");
                send.send_request(request).await.expect("answered")
            });
        }
        agents.push(send);
    }
    const REFUSED: &str = "tokengauge_upstream_refused_requests_total{upstream=\"engine\"}";
    reaches_alone(&fixture, REFUSED, 300.0).await;
    assert!(fixture.open_files() < FILES, "{}", fixture.open_files());
    let figures = fixture.process.metrics().await;
    let open = figures["tokengauge_upstream_connections{upstream=\"engine\"}"];
    let pending = figures["tokengauge_upstream_pending_requests{upstream=\"engine\"}"];
    // Connections have 300 descriptors. Half are for upstreams, and a quarter of that half is reserved for the other
    // upstream.
    assert_eq!((open, pending), (113.0, 50.0));
    for _ in 0..20 {
        assert_eq!(
            call(fixture.proxy(), "GET", "/other/hello").await.body,
            "hello"
        );
        assert_eq!(fetch(fixture.process.admin, "/livez").await.status, 200);
    }
    slow.end();
    let mut statuses = [0, 0];
    while let Some(answer) = answers.join_next().await {
        let response = answer.expect("no panic");
        let refused = response.status() == 503;
        assert!(refused || response.status() == 200, "{response:?}");
        if refused {
            let named = response.headers().get("x-tokengauge-error");
            assert_eq!(named.expect("named"), "overloaded");
            assert!(response.headers().contains_key("retry-after"));
        }
        response.into_body().collect().await.expect("whole");
        statuses[usize::from(refused)] += 1;
    }
    assert_eq!(statuses, [163, 337]);
    drop(agents);
    fixture
        .returns_to_idle("more streams than descriptors")
        .await;
}

async fn reaches_alone(fixture: &ProxyFixture, metric: &str, least: f64) {
    let end = Instant::now() + TIMEOUT;
    while fixture.metric(metric).await < least {
        assert!(Instant::now() < end, "{}", fixture.metric(metric).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_outlast_the_time_to_drain_are_all_recorded_as_drained() {
    const STREAMS: usize = 60;
    let steps = SteppedBackend::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls.jsonl");
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://{}", steps.address);
        setup.settings = "drain_timeout = \"300ms\"\n".to_owned();
        let file = log.to_str().expect("text").to_owned();
        setup.arguments = vec!["--call-log".to_owned(), file];
    });
    let fixture = fixture.await;
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        streams.push(Listener::open(fixture.proxy(), "", format!("s{number}")).await);
    }
    let mut send = http2(fixture.proxy()).await;
    let mut bodies = Vec::new();
    for number in 0..STREAMS {
        let uri = format!("http://h/stream/h{number}");
        let request = Request::get(uri).body(none()).expect("a request");
        bodies.push(send.send_request(request).await.expect("answered"));
    }
    steps.next();
    for stream in &mut streams {
        stream.step(1).await;
    }
    fixture.process.signal(Signal::TERM);
    assert!(fixture.process.ended().await.success());
    let log = std::fs::read_to_string(log).expect("written");
    let outcomes = log.lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record");
        record["outcome"].as_str().expect("an outcome").to_owned()
    });
    let outcomes: Vec<_> = outcomes.collect();
    assert_eq!(outcomes.len(), 2 * STREAMS);
    assert!(
        outcomes.iter().all(|outcome| outcome == "drained"),
        "{outcomes:?}"
    );
}

/// Makes calls that must not be affected, and checks every byte.
async fn calls(fixture: &ProxyFixture, count: usize) {
    for _ in 0..count {
        fixture.next_call_works().await;
    }
}

async fn reaches(fixture: &ProxyFixture, metric: &str, least: f64) {
    let end = Instant::now() + TIMEOUT;
    while fixture.metric(metric).await < least {
        assert!(
            Instant::now() < end,
            "{metric} is {}",
            fixture.metric(metric).await
        );
        calls(fixture, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_records_and_nothing_else() {
    let allowed = std::process::Command::new("unshare")
        .args(["-m", "true"])
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        assert!(
            std::env::var("CI").is_err(),
            "CI can give a process its own disk"
        );
        return skipped("mount namespaces are not allowed here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().to_owned();
    let fixture = ProxyFixture::with(|setup: &mut Setup| {
        let mount = format!("mount -t tmpfs -o size=2m tmpfs {}", state.display());
        let mut command = Command::new("unshare");
        let script = format!("{mount} && exec \"$0\" \"$@\"");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tokengauge")]);
        setup.command = command;
        setup.settings = format!("state_dir = {state:?}\n");
    });
    let fixture = fixture.await;
    reaches(&fixture, "tokengauge_ledger_records_total", 5.0).await;
    // The disk is mounted only in the process's own mount namespace.
    let inside = format!("/proc/{}/root{}", fixture.process.id(), state.display());
    let filler = PathBuf::from(inside).join("filler");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&filler)
        .expect("opens");
    while file.write_all(&[0; 512]).is_ok() {}
    reaches(&fixture, "tokengauge_ledger_lost_records_total", 5.0).await;
    let lost = fixture.process.metrics().await;
    let full = lost
        .iter()
        .find(|(name, _)| name.contains("lost_records") && name.contains("disk_full"));
    assert!(full.is_some_and(|(_, count)| *count > 0.0), "{full:?}");
    std::fs::remove_file(&filler).expect("removed");
    drop(file);
    let kept = fixture.metric("tokengauge_ledger_records_total").await;
    reaches(&fixture, "tokengauge_ledger_records_total", kept + 5.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_log_without_room_costs_lines_and_nothing_else() {
    let fixture = ProxyFixture::with(|setup: &mut Setup| {
        setup.arguments = vec!["--call-log".to_owned(), "/dev/full".to_owned()];
    });
    let fixture = fixture.await;
    reaches(&fixture, "tokengauge_export_failures_total", 5.0).await;
    fixture.returns_to_idle("a full call log").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_telemetry_receiver_affects_only_counters() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let endpoint = format!("http://{}", receiver.local_addr().expect("an address"));
    let hanging = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((tcp, _)) = receiver.accept().await {
            open.push(tcp);
        }
    });
    let fixture = ProxyFixture::with(|setup: &mut Setup| {
        setup
            .command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "200");
    });
    let fixture = fixture.await;
    reaches(&fixture, "tokengauge_export_failures_total", 10.0).await;
    let before = fixture.open_files();
    reaches(&fixture, "tokengauge_export_failures_total", 50.0).await;
    let after = fixture.open_files();
    assert!(after <= before + 4, "{before} files became {after}");
    let asked = Instant::now();
    fixture.process.signal(Signal::TERM);
    assert!(fixture.process.ended().await.success());
    assert!(
        asked.elapsed() < Duration::from_secs(15),
        "{:?}",
        asked.elapsed()
    );
    hanging.abort();
}

/// Panics when it is given tokens, or at the end of a call.
struct PanickingSubscriber {
    live: bool,
}

struct PanickingTokenObserver;

impl Subscriber for PanickingSubscriber {
    fn watch(&self, _: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        self.live
            .then(|| Box::new(PanickingTokenObserver) as Box<dyn TokenObserver>)
    }

    fn finished(&self, _: &Arc<FinishedCall>) {
        assert!(self.live, "as the test wants it");
    }
}

impl TokenObserver for PanickingTokenObserver {
    fn tokens(&mut self, _: Instant, _: Channel, _: u64) {
        panic!("as the test wants it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_measuring_costs_a_measurement_and_nothing_else() {
    for live in [true, false] {
        let backend = Backend::start().await;
        backend.set_script(&ordinary());
        let recent = RecentCalls::new(100);
        let subscribers: Vec<Arc<dyn Subscriber>> = vec![
            Arc::new(PanickingSubscriber { live }),
            Arc::clone(&recent) as _,
        ];
        let meter = Meter::new(Measure::default(), subscribers);
        let mut setup = InProcess::to(backend.address);
        setup.idle_for = Duration::from_millis(20);
        let proxy = setup.start_unobserved(Arc::clone(&meter) as _).await;
        let alive = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        let (mut before, direct) = (0, ask(backend.address, &request("direct")).await);
        for number in 0..5 {
            assert_eq!(ask(proxy.address, &request("through")).await, direct);
            let flushed = Arc::clone(&meter);
            let flush = tokio::task::spawn_blocking(move || flushed.flush(TIMEOUT));
            assert!(flush.await.expect("no panic"), "{live}");
            tokio::time::sleep(Duration::from_millis(200)).await;
            before = if number == 0 { alive() } else { before };
        }
        assert_eq!(alive(), before, "tasks");
        let figures = meter.stats(Instant::now());
        assert_eq!((figures.held_bytes, figures.in_flight[0].2), (0, 0));
        let records = recent.newest(10);
        assert_eq!(records.len(), 5, "{live}");
        let unparsed = Some(TpsUnavailable::Unparsed);
        let hit =
            |finished_call: &&Arc<FinishedCall>| finished_call.record.tps.unavailable == unparsed;
        assert_eq!(records.iter().filter(hit).count(), if live { 5 } else { 0 });
        assert!(!live || figures.panics > 0);
    }
}

/// Durations use a monotonic clock. The wall clock is read once per call.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_leaves_durations_and_spans_as_they_were() {
    const DAY: Duration = Duration::from_secs(86_400);
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let endpoint = format!("http://{}", receiver.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("OTEL_LOGS_EXPORTER", "none".to_owned()),
    ];
    let (otlp, _) = exporters(&variables, Conventions::Current);
    let bench = Bench::tracing(Measure::default(), otlp.subscribers(), otlp.tracer());
    let now = SystemTime::now();
    for wall in [now, now - DAY, now + DAY, SystemTime::UNIX_EPOCH, now] {
        let call = bench.begin_with("/v1/chat/completions", &[], |mut start| {
            start.started_at = wall;
            start
        });
        bench.send(&*call, b"{\"stream\":true}");
        bench.answer(&*call, 200, "text/event-stream");
        (0..10).for_each(|chunk| bench.chunk(&*call, 100 + chunk * 100, words(10)));
        bench.chunk(&*call, 1100, finish(Some(100)) + DONE);
        let record = bench.end(&*call, 1200, End::Complete);
        assert_eq!(record.seconds.duration, Some(1.2), "{wall:?}");
        assert_eq!(record.tps.output, Some(100.0), "{wall:?}");
    }
    let flushed = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
    assert!(flushed.await.expect("no panic"));
    let spans = receiver.spans();
    assert_eq!(spans.len(), 10);
    for span in spans {
        let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
        let length = end
            .checked_sub(start)
            .expect("it does not end before it begins");
        assert!(length <= 1_200_000_001, "{length} ns");
    }
}
