//! The number of series of the built-in configuration and of one model, from realistic agent traffic. docs/fleet.md has
//! these figures.

use crate::process::Process;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Allowed relative difference from the figures in docs/fleet.md.
const TOLERANCE: f64 = 0.03;
/// Allowed relative difference for the gzip size, which varies with the digits of the values.
const GZIP_TOLERANCE: f64 = 0.06;
/// Number of chunks of each stream, with one word each.
const CHUNKS: usize = 40;
const GAP: u64 = 15;

/// One call: the way it is answered, the model, the number of prompt tokens, and the agent.
#[derive(Clone, Copy)]
struct TestCall<'a> {
    kind: &'a str,
    model: &'a str,
    prompt: u64,
    agent: &'a str,
}

async fn request(tcp: &mut TcpStream) -> Option<(String, Value)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    let length = head.split("content-length: ").nth(1)?;
    let mut body = vec![0; length.split('\r').next()?.parse().ok()?];
    tcp.read_exact(&mut body).await.ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}

/// Answers as the request's `user` demands.
async fn answer(mut tcp: TcpStream) -> Option<()> {
    let (_, asked) = request(&mut tcp).await?;
    let (model, kind) = (asked["model"].as_str()?, asked["user"].as_str()?);
    let prompt = asked["seed"].as_u64()?;
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": CHUNKS, "prompt_tokens_details": {"cached_tokens": prompt / 2}});
    if let Ok(status) = kind.parse::<u16>() {
        let body = r#"{"error":{"type":"busy"}}"#;
        return whole(&mut tcp, status, body).await;
    }
    if kind == "whole" {
        let message = json!({"role": "assistant", "content": "A title"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"model": model, "choices": [choice], "usage": usage});
        return whole(&mut tcp, 200, &body.to_string()).await;
    }
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    tcp.write_all(head.as_bytes()).await.ok()?;
    if kind == "error" {
        event(&mut tcp, &json!({"error": {"type": "overloaded"}})).await?;
    } else {
        for chunk in 0..CHUNKS {
            sleep(Duration::from_millis(GAP)).await;
            let delta = match (kind, chunk) {
                ("think", ..CHUNKS) if chunk < CHUNKS / 2 => json!({"reasoning_content": " so"}),
                ("tools", ..CHUNKS) if chunk >= CHUNKS / 2 => {
                    let call = json!({"index": 0, "id": "t", "function": {"name": "f", "arguments": " word"}});
                    json!({"tool_calls": [call]})
                }
                _ => json!({"content": " word"}),
            };
            event(
                &mut tcp,
                &json!({"model": model, "choices": [{"index": 0, "delta": delta}]}),
            )
            .await?;
        }
        if kind == "reset" {
            return None;
        }
        let choice = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
        event(
            &mut tcp,
            &json!({"model": model, "choices": [choice], "usage": usage}),
        )
        .await?;
    }
    tcp.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        .await
        .ok()
}

async fn whole(tcp: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    tcp.write_all((head + body).as_bytes()).await.ok()
}

async fn event(tcp: &mut TcpStream, data: &Value) -> Option<()> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    tcp.write_all(chunk.as_bytes()).await.ok()
}

/// Makes one call and reads to its end, or until the agent cancels.
async fn call(proxy: SocketAddr, asked: TestCall<'_>) {
    let message = json!({"role": "user", "content": "Tell me of rivers."});
    let streamed = asked.kind != "whole";
    let body = json!({"model": asked.model, "user": asked.kind, "seed": asked.prompt, "stream": streamed, "messages": [message]});
    let (body, agent) = (body.to_string(), asked.agent);
    let mut tcp = TcpStream::connect(proxy).await.expect("connected");
    let length = body.len();
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nx-workload: {agent}\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    if asked.kind == "cancel" {
        tcp.read_exact(&mut [0; 400]).await.expect("a beginning");
        return;
    }
    // A call that is cut off has also ended.
    let _ = tokio::time::timeout(TIMEOUT, tcp.read_to_end(&mut answer)).await;
}

async fn together(proxy: SocketAddr, asked: TestCall<'_>, number: usize) -> usize {
    futures_util::future::join_all((0..number).map(|_| call(proxy, asked))).await;
    number
}

/// A typical day of an agent: its prompts grow, it asks for a title, is refused once, and cancels once.
async fn usual(proxy: SocketAddr, model: &str, agent: &str) -> usize {
    let asked = |kind, prompt| TestCall {
        kind,
        model,
        prompt,
        agent,
    };
    let mut calls = 0;
    for (kind, prompt, number) in [
        ("stream", 500, 1),
        ("tools", 3_000, 1),
        ("think", 12_000, 3),
        ("whole", 300, 1),
        ("429", 0, 1),
        ("cancel", 3_000, 1),
    ] {
        calls += together(proxy, asked(kind, prompt), number).await;
    }
    calls
}

/// Every class of prompt size and concurrency, and every outcome that a backend can cause.
async fn everything(proxy: SocketAddr, model: &str) -> usize {
    let asked = |kind, prompt| TestCall {
        kind,
        model,
        prompt,
        agent: "",
    };
    let mut calls = 0;
    for prompt in [500, 3_000, 12_000, 60_000, 200_000] {
        calls += together(proxy, asked("tools", prompt), 1).await;
    }
    for number in [3, 7, 14, 28, 56, 110, 150] {
        calls += together(proxy, asked("think", 500), number).await;
    }
    for kind in ["whole", "429", "500", "cancel", "error", "reset"] {
        calls += together(proxy, asked(kind, 500), 1).await;
    }
    calls
}

struct SeriesFixture {
    process: Process,
    _folder: TempDir,
    calls: usize,
}

/// Sizes of an export: series, series with only native histograms, kilobytes, kilobytes as gzip.
type Sizes = [f64; 4];

/// Number of series that a scraper of native histograms keeps: one per histogram.
fn native_series<'a>(samples: impl Iterator<Item = &'a str>) -> usize {
    let bare = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let classic = name.ends_with("_bucket") || name.ends_with("_sum");
        !(classic && tokengauge_telemetry::export::names::all().all(|metric| metric.name != name))
    };
    samples.filter(bare).count()
}

/// The built-in configuration on free ports, with `backend` instead of OpenAI, two workloads, and `more`.
fn built_in(backend: SocketAddr, more: &str) -> String {
    let workload = |name: &str| {
        format!("[[workload]]\nname = \"{name}\"\nheaders = {{ x-workload = \"{name}\" }}\n")
    };
    let replaced = [
        ("127.0.0.1:8080", "127.0.0.1:0".to_owned()),
        ("127.0.0.1:9464", "127.0.0.1:0".to_owned()),
        ("https://api.openai.com", format!("http://{backend}")),
    ];
    let mut text = include_str!("../proxy-config.toml").to_owned();
    for (written, wanted) in replaced {
        text = text.replace(&format!("\"{written}\""), &format!("\"{wanted}\""));
    }
    text + &workload("chat") + &workload("batch") + more
}

impl SeriesFixture {
    async fn new(more: &str) -> SeriesFixture {
        let folder = TempDir::new().expect("a folder");
        SeriesFixture::within(folder, more, "").await
    }

    async fn with_ledger(more: &str) -> SeriesFixture {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        SeriesFixture::within(folder, more, &format!("path = {path:?}\n")).await
    }

    async fn within(folder: TempDir, more: &str, ledger: &str) -> SeriesFixture {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let backend = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(answer(tcp));
            }
        });
        let file = folder.path().join("proxy-config.toml");
        let text =
            built_in(backend, more).replace("\n[ledger]\n", &format!("\n[ledger]\n{ledger}"));
        std::fs::write(&file, text).expect("written");
        let process = Process::start(&file).await;
        SeriesFixture {
            process,
            _folder: folder,
            calls: 0,
        }
    }

    fn proxy(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    async fn metrics(&self) -> String {
        fetch(self.process.admin, "/metrics").await.body
    }

    /// Number of series that a Prometheus with the relabelings of the example keeps, and the number with only native
    /// histograms.
    async fn kept_by_the_example(&self) -> [f64; 2] {
        let example = include_str!("../helm/tokengauge/examples/sidecars.yaml");
        let dropped = example
            .split("regex: tokengauge_(")
            .nth(1)
            .expect("a regex");
        let (names, rest) = dropped.split_once(')').expect("its end");
        assert!(rest.starts_with("_bucket\n"), "{rest}");
        let dropped: Vec<_> = names
            .split('|')
            .map(|name| format!("tokengauge_{name}_bucket{{"))
            .collect();
        let body = self.metrics().await;
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        let kept = samples.filter(|line| !dropped.iter().any(|name| line.starts_with(name)));
        [kept.clone().count() as f64, native_series(kept) as f64]
    }

    async fn sizes(&mut self, more: usize) -> Sizes {
        self.calls += more;
        let end = Instant::now() + TIMEOUT;
        loop {
            let body = self.metrics().await;
            let samples = body.lines().filter(|line| !line.starts_with('#'));
            let ended: f64 = samples
                .clone()
                .filter(|line| line.starts_with("tokengauge_requests_total{"))
                .map(|line| {
                    line.rsplit(' ')
                        .next()
                        .expect("a value")
                        .parse::<f64>()
                        .expect("a number")
                })
                .sum();
            if ended as usize == self.calls {
                let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
                gzip.write_all(body.as_bytes()).expect("written");
                let gzip = gzip.finish().expect("packed").len();
                return [
                    samples.clone().count() as f64,
                    native_series(samples) as f64,
                    body.len() as f64 / 1e3,
                    gzip as f64 / 1e3,
                ];
            }
            assert!(Instant::now() < end, "{ended} calls of {}", self.calls);
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The figures in the row of docs/fleet.md that begins with `name`.
fn written(name: &str) -> Vec<f64> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fleet.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let row = document
        .lines()
        .find(|line| line.starts_with(&format!("| {name} |")))
        .unwrap_or_else(|| panic!("no row {name:?}"));
    let number = |cell: &str| {
        let digits = cell.trim().split(' ').next()?.replace(',', "");
        digits.parse().ok()
    };
    row.split('|').skip(2).filter_map(number).collect()
}

/// Describes the row if a figure is off by more than the tolerance.
fn off(name: &str, found: &[f64]) -> Option<String> {
    let written = written(name);
    let near = |(column, (written, found)): (usize, (&f64, &f64))| {
        let tolerance = if column == 3 {
            GZIP_TOLERANCE
        } else {
            TOLERANCE
        };
        (written / found - 1.0).abs() <= tolerance
    };
    let same = written.len() == found.len() && written.iter().zip(found).enumerate().all(near);
    (!same).then(|| format!("{name}: docs/fleet.md has {written:?}, it is {found:?}"))
}

/// A machine that stalls for seconds merges chunks, and a call without a speed has fewer series.
const ATTEMPTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_the_series_of_a_usual_and_of_the_worst_mix() {
    let mut off = Vec::new();
    for _ in 0..ATTEMPTS {
        off = rows_off().await;
        if off.is_empty() {
            return;
        }
    }
    panic!("{off:#?}");
}

/// Size that `more` in the configuration adds before the first call.
async fn configured(more: &str, without: Sizes) -> [f64; 2] {
    let with = SeriesFixture::new(more).await.sizes(0).await;
    [with[0] - without[0], with[1] - without[1]]
}

async fn rows_off() -> Vec<String> {
    let mut fixture = SeriesFixture::new("").await;
    let none = fixture.sizes(0).await;
    let route = configured(
        "[[route]]\nname = \"more\"\npath = \"/more\"\nupstream = \"vllm\"\n",
        none,
    )
    .await;
    let upstream = "[[upstream]]\nname = \"more\"\nurl = \"http://127.0.0.1:9\"\n\
                    [[route]]\npath = \"/more\"\nupstream = \"more\"\n";
    let upstream = configured(upstream, none).await;
    let objective = "[[slo]]\nname = \"fast\"\noutput_tps.at_least = 20\nobjective = 0.99\n";
    let objective = configured(objective, none).await;
    let calls = usual(fixture.proxy(), "m1", "").await;
    let one = fixture.sizes(calls).await;
    let calls = usual(fixture.proxy(), "m2", "").await;
    let two = fixture.sizes(calls).await;
    let kept = fixture.kept_by_the_example().await;
    let calls = everything(fixture.proxy(), "m3").await;
    let three = fixture.sizes(calls).await;
    let calls = usual(fixture.proxy(), "m3", "chat").await;
    let four = fixture.sizes(calls).await;
    let more = |to: Sizes, from: Sizes| [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
    let every = |seconds: f64| two[0] * 1000.0 / seconds;
    let rows: [(&str, &[f64]); 13] = [
        ("before the first call", &none),
        ("one model, as an agent uses it", &one),
        ("two models, as an agent uses them", &two),
        ("two models, without what the example drops", &kept),
        ("a model more, as an agent uses it", &more(two, one)),
        ("a model more, worst case", &more(three, two)),
        ("a workload more of a model", &more(four, three)),
        ("a route more, before its first call", &route),
        ("an upstream more, with a route", &upstream),
        ("an objective more", &objective),
        ("active series", &[two[0] * 1000.0; 2]),
        ("active series, only native", &[two[1] * 1000.0; 2]),
        ("samples per second", &[every(15.0), every(60.0)]),
    ];
    rows.iter()
        .filter_map(|(name, found)| off(name, found))
        .collect()
}

#[tokio::test]
async fn a_route_has_the_series_of_no_model_before_its_first_call() {
    let fixture = SeriesFixture::new("").await;
    let body = fixture.metrics().await;
    let of_models: Vec<_> = body
        .lines()
        .filter(|line| line.contains("model=\""))
        .collect();
    assert!(of_models.is_empty(), "{of_models:#?}");
    // Metrics that an autoscaler needs, and a refusal before a model is known.
    for metric in [
        "tokengauge_streams_in_flight",
        "tokengauge_rate_limited_total",
    ] {
        let series = body
            .lines()
            .filter(|line| line.starts_with(&format!("{metric}{{")));
        assert_eq!(series.count(), 15, "{metric}: a series for each route");
    }
}

/// Counters whose labels come from traffic or failures, so `increase()` does not see their first count. The rule for
/// unparsed calls needs more than five of them in an hour, and the rule for repetitions three. The rule for exporters fires
/// while further calls fail.
const FROM_TRAFFIC: [&str; 4] = [
    "tokengauge_requests_total",
    "tokengauge_unparsed_calls_total",
    "tokengauge_repeating_calls_total",
    "tokengauge_export_failures_total",
];

#[tokio::test]
async fn counters_in_alerts_exist_before_the_first_call() {
    let more = "[[sink]]\nkind = \"clickhouse\"\nurl = \"http://127.0.0.1:9\"\n\
                [[slo]]\nname = \"up\"\navailability = true\nobjective = 0.9\n";
    let fixture = SeriesFixture::with_ledger(more).await;
    let body = fixture.metrics().await;
    let rules = include_str!("../helm/tokengauge/files/rules.yaml");
    let counters = rules.split("increase(").skip(1);
    let counters = counters.filter_map(|rest| rest.split(['[', '{', ')']).next());
    let counters: BTreeSet<_> = counters.chain(["tokengauge_slo_events_total"]).collect();
    assert!(counters.len() > 8, "{counters:?}");
    for counter in counters {
        let mut series = body.lines().filter(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(counter) && line.ends_with(" 0")
        });
        let there = series.next().is_some();
        assert_eq!(there, !FROM_TRAFFIC.contains(&counter), "{counter}");
    }
}
