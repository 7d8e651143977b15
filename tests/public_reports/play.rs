//! Plays responses through the real binary: an upstream that sends given chunks with pauses, an agent, and a comparison
//! of everything that operators can read.

use crate::admin_events::Listener;
use crate::process::Process;
use base64::Engine;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, whole};
use tokengauge_test_support::http_client::fetch_json;
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour, attributes};
use tokengauge_test_support::wire::event_stream;
use tokengauge_test_support::wire::frames::{Frame, socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const LEDGER: &str = "ledger.sqlite";
const PAUSE: Duration = Duration::from_millis(10);
/// An empty chunk stands for this time without data.
pub const SILENCE: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 32;
/// Allowed relative difference of speeds and costs.
const TOLERANCE: f64 = 1e-6;

/// All calls, including those that generate nothing.
const CALLS: &str = "/api/v1/calls?limit=1000&operation_class=generation,embedding,retrieve,other";

/// Expects any value but `null`.
pub const KNOWN: &str = "<known>";

pub const SSE: &str = "text/event-stream";
pub const JSON: &str = "application/json";
pub const NDJSON: &str = "application/x-ndjson";
pub const AWS: &str = "application/vnd.amazon.eventstream";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The body ends as HTTP requires.
    Whole,
    /// The connection is lost.
    Cut,
}

/// One call: the request, the response, and the expected members of its record.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    path: &'static str,
    request: Value,
    content_type: &'static str,
    headers: &'static str,
    chunks: Vec<Vec<u8>>,
    ending: Ending,
    record: Value,
    /// Whether the agent has received the chunks before the silence.
    delivered: Arc<watch::Sender<bool>>,
}

impl Case {
    pub fn new(
        name: &str,
        path: &'static str,
        content_type: &'static str,
        chunks: impl IntoIterator<Item = impl Into<Vec<u8>>>,
        record: Value,
    ) -> Case {
        let streamed = content_type != JSON && !content_type.starts_with("text/html");
        Case {
            name: name.to_owned(),
            path,
            request: json!({"model": "m", "stream": streamed, "prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}),
            content_type,
            headers: "",
            chunks: chunks.into_iter().map(Into::into).collect(),
            ending: Ending::Whole,
            record,
            delivered: Arc::default(),
        }
    }

    /// Changes members of the request.
    pub fn asking(mut self, more: &Value) -> Case {
        for (name, value) in more.as_object().expect("an object") {
            self.request[name] = value.clone();
        }
        self
    }

    pub fn asked(mut self, request: &Value) -> Case {
        self.request = request.clone();
        self
    }

    /// Header lines of the response, each with its line end.
    pub fn headers(mut self, headers: &'static str) -> Case {
        self.headers = headers;
        self
    }

    pub fn cut(mut self) -> Case {
        self.ending = Ending::Cut;
        self
    }

    fn received(&self, response: &[u8]) {
        let before = self.chunks.iter().take_while(|chunk| !chunk.is_empty());
        let last = before.last();
        let delivered = last.is_none_or(|last| memchr::memmem::find(response, last).is_some());
        self.delivered.send_replace(delivered);
    }

    fn head(&self) -> String {
        let framing = match self.content_type {
            JSON => {
                let length: usize = self.chunks.iter().map(Vec::len).sum();
                format!("content-length: {length}")
            }
            _ => "transfer-encoding: chunked".to_owned(),
        };
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}{framing}\r\n\r\n",
            self.content_type, self.headers
        )
    }
}

pub fn sse(data: impl std::fmt::Display) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

pub fn named(name: &str, data: impl std::fmt::Display) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

pub fn line(data: impl std::fmt::Display) -> Vec<u8> {
    format!("{data}\n").into_bytes()
}

/// A frame of an Amazon event stream.
pub fn aws(kind: &str, data: impl std::fmt::Display) -> Vec<u8> {
    event_stream::event(kind, &data.to_string())
}

/// A frame of an Amazon event stream that contains a model's JSON.
pub fn aws_chunk(data: impl std::fmt::Display) -> Vec<u8> {
    let bytes = base64::engine::general_purpose::STANDARD.encode(data.to_string());
    aws("chunk", json!({"bytes": bytes}))
}

async fn read_request(tcp: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let value = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    };
    let mut body = vec![0; value("content-length")?.parse().ok()?];
    tcp.read_exact(&mut body).await.ok()?;
    value("x-case").map(str::to_owned)
}

async fn answer(mut tcp: TcpStream, cases: Arc<HashMap<String, Case>>) -> Option<()> {
    loop {
        let name = read_request(&mut tcp).await?;
        let case = &cases[&name];
        tcp.write_all(case.head().as_bytes()).await.ok()?;
        let chunked = case.content_type != JSON;
        for chunk in &case.chunks {
            if chunk.is_empty() {
                // Wait for delivery, because a proxy that reads late would measure less.
                let mut delivered = case.delivered.subscribe();
                delivered.wait_for(|delivered| *delivered).await.ok()?;
                sleep(SILENCE).await;
                continue;
            }
            sleep(PAUSE).await;
            let mut bytes = chunk.clone();
            if chunked {
                bytes = format!("{:x}\r\n", chunk.len()).into_bytes();
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            tcp.write_all(&bytes).await.ok()?;
        }
        sleep(PAUSE).await;
        if case.ending == Ending::Cut {
            return None;
        }
        if chunked {
            tcp.write_all(b"0\r\n\r\n").await.ok()?;
        }
    }
}

/// Sends the request over HTTP/1.1 and asserts that all bytes are delivered. The caller compares the records.
async fn ask_http1(proxy: SocketAddr, case: &Case) {
    let body = case.request.to_string();
    let mut tcp = TcpStream::connect(proxy).await.expect("connected");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: h\r\nx-case: {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        case.path,
        case.name,
        body.len()
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut response = Vec::new();
    let mut more = true;
    while more {
        case.received(&response);
        let read = timeout(TIMEOUT, tcp.read_buf(&mut response)).await;
        more = read.expect("an end").is_ok_and(|length| length > 0);
    }
    for chunk in &case.chunks {
        let delivered = memchr::memmem::find(&response, chunk).is_some();
        assert!(delivered, "{}: a chunk was not delivered", case.name);
    }
}

async fn ask_http2(proxy: SocketAddr, case: &Case) {
    case.received(&[]);
    let mut agent = http2(proxy).await;
    let request = http::Request::post(format!("http://{proxy}{}", case.path))
        .header("x-case", &case.name)
        .header("content-type", JSON)
        .body(whole(case.request.to_string()));
    let response = agent.send_request(request.expect("a request")).await;
    let mut body = response.expect("an answer").into_body();
    let mut answer = Vec::new();
    loop {
        case.received(&answer);
        match timeout(TIMEOUT, body.frame()).await.expect("an end") {
            Some(Ok(frame)) => answer.extend(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return,
            None => break,
        }
    }
    assert_eq!(answer, case.chunks.concat(), "{}", case.name);
}

pub struct Played {
    pub process: Process,
    /// Receives the spans.
    receiver: Receiver,
    pub(super) events: Arc<Mutex<Vec<Value>>>,
    folder: TempDir,
    pub(super) records: Vec<Value>,
}

/// The started processes, before there are records.
pub struct Started {
    pub process: Process,
    receiver: Receiver,
    events: Arc<Mutex<Vec<Value>>>,
    folder: TempDir,
}

const PRICE: &str = "[[price]]\nmodel = \"*\"\nupstream = \"u\"\ninput = 1.0\noutput = 10.0\n";

impl Played {
    pub async fn start(upstream: SocketAddr, (keys, price): (&str, &str)) -> Started {
        let folder = TempDir::new().expect("a folder");
        let receiver = Receiver::start(ReceiverBehaviour::default()).await;
        let file: PathBuf = folder.path().join("proxy-config.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [ledger]\npath = {:?}\n[attribution]\nagent_headers = [\"x-case\"]\n\
             [[upstream]]\nname = \"u\"\nurl = \"http://{upstream}\"\n{keys}\
             [[route]]\nupstream = \"u\"\npath = \"/\"\n\
             {price}[[slo]]\nname = \"available\"\navailability = true\nobjective = 0.99\n",
            folder.path().join(LEDGER)
        );
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["run", "--config"]).arg(&file);
        command.env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://{}", receiver.address),
        );
        command.env("OTEL_BSP_SCHEDULE_DELAY", "100");
        let process = Process::start_by(command).await;
        let mut listener = Listener::start(process.admin).await;
        // The client gets every call after its first event.
        listener.next().await.expect("an event");
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let heard = Arc::clone(&events);
        tokio::spawn(async move {
            while let Some((kind, data)) = listener.next().await {
                if kind == "call" {
                    heard.lock().expect("whole").push(data);
                }
            }
        });
        Started {
            process,
            events,
            receiver,
            folder,
        }
    }

    pub async fn read(started: Started, calls: usize) -> Played {
        let end = Instant::now() + TIMEOUT;
        let Started {
            process,
            receiver,
            events,
            folder,
        } = started;
        loop {
            let page = fetch_json(process.admin, CALLS, &[]).await;
            let records = page["calls"].as_array().expect("calls");
            if records.len() == calls {
                let records = records.clone();
                return Played {
                    process,
                    receiver,
                    events,
                    folder,
                    records,
                };
            }
            let found = records.len();
            assert!(Instant::now() < end, "{found} records of {calls} calls");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn availability(&self) -> Value {
        fetch_json(self.process.admin, "/api/v1/slos", &[]).await
    }

    pub fn of(&self, agent: &str) -> Vec<&Value> {
        let of = |record: &&Value| record["agent"] == agent;
        self.records.iter().filter(of).collect()
    }

    /// Compares the records with everything else that operators can read: metrics, the API of the live page, the report
    /// by model, the ledger, the spans of each call, and `tokengauge top`.
    pub async fn surfaces_agree(&self) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let mut differences = self.differences().await;
            self.compare_ledger(&mut differences).await;
            self.compare_spans(&mut differences);
            self.compare_report(&mut differences).await;
            self.compare_api(&mut differences).await;
            if differences.is_empty() {
                self.compare_top(&mut differences).await;
            }
            if differences.is_empty() {
                break;
            }
            assert!(Instant::now() < end, "{differences:#?}");
            sleep(Duration::from_millis(250)).await;
        }
    }

    async fn printed(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let output = command.args(arguments).output().await.expect("it ran");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    async fn compare_ledger(&self, found: &mut Vec<String>) {
        let ledger = self.folder.path().join(LEDGER);
        let ledger = ledger.to_str().expect("text");
        let arguments = [
            "export", "--format", "jsonl", "--since", "1h", "--ledger", ledger,
        ];
        let exported = self.printed(&arguments).await;
        let exported: HashMap<String, Value> = exported
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).expect("a record");
                (id(&record), record)
            })
            .collect();
        for record in &self.records {
            match exported.get(&id(record)) {
                Some(stored) if stored == record => {}
                stored => found.push(format!("ledger: {stored:?}, not {record}")),
            }
        }
    }

    /// The spans of a call must have its outcome and its tokens.
    fn compare_spans(&self, found: &mut Vec<String>) {
        let spans = self.receiver.spans();
        for record in &self.records {
            let of_call: Vec<_> = spans
                .iter()
                .map(|span| attributes(&span.attributes))
                .filter(|span| span.get("tokengauge.call.id") == Some(&id(record)))
                .collect();
            if of_call.is_empty() {
                found.push(format!("no span of {}", record["agent"]));
            }
            for span in of_call {
                let mut compare = |name: &str, expected: Option<String>| {
                    if span.get(name) != expected.as_ref() {
                        let call = &record["agent"];
                        let is = span.get(name);
                        found.push(format!("{name} of {call}: {is:?}, not {expected:?}"));
                    }
                };
                let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str);
                compare("tokengauge.outcome", text("/outcome").map(str::to_owned));
                compare(
                    "tokengauge.error_type",
                    text("/error_type").map(str::to_owned),
                );
                if span.contains_key("gen_ai.operation.name") {
                    let number = |pointer: &str| record.pointer(pointer).and_then(Value::as_u64);
                    let tokens = |kind: &str| {
                        number(&format!("/tokens/reported/{kind}"))
                            .or(number(&format!("/tokens/normalised/{kind}")))
                            .map(|tokens| tokens.to_string())
                    };
                    compare("gen_ai.usage.output_tokens", tokens("output"));
                    compare("gen_ai.usage.input_tokens", tokens("input"));
                    compare("gen_ai.response.model", text("/model").map(str::to_owned));
                    let asked = text("/model_requested");
                    compare("gen_ai.request.model", asked.map(str::to_owned));
                }
            }
        }
    }

    /// The report must have the calls, failures, tokens and dollars of each model.
    async fn compare_report(&self, found: &mut Vec<String>) {
        let ledger = self.folder.path().join(LEDGER);
        let ledger = ledger.to_str().expect("text");
        let report = self
            .printed(&["report", "--format", "json", "--ledger", ledger])
            .await;
        let report: Value = serde_json::from_str(&report).expect("a report");
        compare_groups("report", &report["groups"], &self.by_model(), found);
    }

    pub(super) fn with_models(&self) -> impl Iterator<Item = &Value> {
        let class = |record: &&Value| record["operation_class"].as_str().unwrap_or("").to_owned();
        let counts =
            move |record: &&Value| ["generation", "embedding"].contains(&class(record).as_str());
        self.records.iter().filter(counts)
    }

    /// Calls, failures, output tokens and dollars of each model.
    /// A call without a model is under the empty name.
    pub(super) fn by_model(&self) -> BTreeMap<String, [f64; 4]> {
        self.by(|record| match model_of(record) {
            unknown if unknown == UNKNOWN => String::new(),
            model => model,
        })
    }

    pub(super) fn by(&self, name: impl Fn(&Value) -> String) -> BTreeMap<String, [f64; 4]> {
        let mut named: BTreeMap<String, [f64; 4]> = BTreeMap::new();
        for record in self.with_models() {
            let of = |pointer: &str| record.pointer(pointer).and_then(Value::as_f64);
            let output = of("/tokens/reported/output").or(of("/tokens/normalised/output"));
            let fine = ["complete", "client_cancelled"]
                .iter()
                .any(|o| record["outcome"] == *o);
            let sums = named.entry(name(record)).or_default();
            let more = [
                1.0,
                f64::from(u8::from(!fine)),
                output.unwrap_or(0.0),
                of("/cost_usd").unwrap_or(0.0),
            ];
            sums.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        }
        named
    }

    async fn differences(&self) -> Vec<String> {
        let metrics = self.process.metrics().await;
        let sum = |name: &str, labels: &[String]| -> f64 {
            let of = metrics.iter().filter(|(series, _)| {
                series.starts_with(&format!("{name}{{"))
                    && labels.iter().all(|label| series.contains(label.as_str()))
            });
            of.map(|(_, value)| value).sum()
        };
        let mut of_models: BTreeMap<String, Sums> = BTreeMap::new();
        for record in &self.records {
            of_models.entry(model_of(record)).or_default().add(record);
        }
        let mut found = Vec::new();
        let mut compare = |what: String, is: f64, should: f64| {
            if (is - should).abs() > TOLERANCE * should.abs().max(1.0) {
                found.push(format!("{what}: {is}, the records have {should}"));
            }
        };
        // Tokens that were counted during the stream and are not in a record of this model.
        let retracted = |labels: &[String]| {
            let source = "source=\"retracted\"".to_owned();
            sum("tokengauge_tokens_total", &[labels, &[source]].concat())
        };
        for (model, sums) in &of_models {
            let label = format!("model=\"{model}\"");
            for (outcome, should) in &sums.outcomes {
                let labels = [label.clone(), format!("outcome=\"{outcome}\"")];
                let is = sum("tokengauge_requests_total", &labels);
                compare(format!("requests of {model}, {outcome}"), is, *should);
            }
            for (direction, source, should) in [
                ("output", "counted", sums.counted),
                ("output", "reported", sums.reported),
                ("input", "reported", sums.input),
            ] {
                let labels = [
                    label.clone(),
                    format!("direction=\"{direction}\""),
                    format!("source=\"{source}\""),
                ];
                let mut is = sum("tokengauge_tokens_total", &labels);
                if source == "counted" {
                    is -= retracted(std::slice::from_ref(&label));
                }
                compare(format!("{direction} {source} of {model}"), is, should);
            }
            let is = sum("tokengauge_cost_usd_total", std::slice::from_ref(&label));
            compare(format!("cost of {model}"), is, sums.cost);
            if model == "unknown" {
                // No filter finds calls without a model.
                continue;
            }
            let path = format!("/api/v1/timeseries?step=1m&model={model}");
            let series = fetch_json(self.process.admin, &path, &[]).await;
            let points = series["points"].as_array().expect("points");
            let of = |name: &str| -> f64 { points.iter().filter_map(|p| p[name].as_f64()).sum() };
            compare(
                format!("calls in the time series of {model}"),
                of("calls"),
                sums.calls,
            );
            // A rate per minute has six digits.
            let is = (of("tokens_per_second") * 60.0).round();
            compare(
                format!("tokens in the time series of {model}"),
                is,
                sums.counted,
            );
        }
        let should: f64 = of_models.values().map(|sums| sums.counted).sum();
        let is = sum(
            "tokengauge_tokens_total",
            &[
                "source=\"counted\"".to_owned(),
                "direction=\"output\"".to_owned(),
            ],
        );
        let is = is - retracted(&[]);
        compare("output counted of all models".to_owned(), is, should);
        found
    }
}

pub(super) fn id(record: &Value) -> String {
    record["id"].as_str().expect("an id").to_owned()
}

/// Compares rows of groups with calls, failures, output tokens and dollars by name.
pub(super) fn compare_groups(
    what: &str,
    groups: &Value,
    expected: &BTreeMap<String, [f64; 4]>,
    found: &mut Vec<String>,
) {
    let groups = groups.as_array().expect("groups");
    // Sessions have an id.
    let name = |group: &Value| {
        let id = group["id"].as_str();
        id.or(group["name"].as_str()).unwrap_or_default().to_owned()
    };
    for group in groups
        .iter()
        .filter(|group| !expected.contains_key(&name(group)))
    {
        found.push(format!("{what}: {group} is of no record"));
    }
    for (named, sums) in expected {
        let group = groups.iter().find(|group| name(group) == *named);
        let of = |pointer: &str| group.and_then(|group| group.pointer(pointer)?.as_f64());
        let is = ["/calls", "/errors", "/tokens/output", "/cost_usd"].map(|p| of(p).unwrap_or(0.0));
        let same = is
            .iter()
            .zip(sums)
            .all(|(is, sum)| (is - sum).abs() <= TOLERANCE * sum.max(1.0));
        if !same {
            found.push(format!(
                "{what} of {named}: {is:?}, the records have {sums:?}"
            ));
        }
    }
}

/// Label in metrics for the model of a call without one.
const UNKNOWN: &str = "unknown";

fn model_of(record: &Value) -> String {
    let model = record["model"].as_str();
    let model = model.or(record["model_requested"].as_str());
    model.unwrap_or(UNKNOWN).to_owned()
}

#[derive(Default)]
struct Sums {
    outcomes: BTreeMap<String, f64>,
    calls: f64,
    counted: f64,
    reported: f64,
    input: f64,
    cost: f64,
}

impl Sums {
    fn add(&mut self, record: &Value) {
        let outcome = record["outcome"].as_str().expect("an outcome");
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1.0;
        let number = |pointer: &str| record.pointer(pointer).and_then(Value::as_f64);
        let of = |pointer: &str| number(pointer).unwrap_or(0.0);
        self.calls += 1.0;
        self.counted += of("/tokens/normalised/output");
        self.reported += of("/tokens/reported/output");
        self.input += of("/tokens/reported/input");
        self.cost += of("/cost_usd");
    }
}

/// Plays the cases, over HTTP/1.1 and over HTTP/2, and compares their records with what they
/// expect and with every other surface.
pub async fn play(cases: Vec<Case>) -> Played {
    play_at(cases, ("", PRICE)).await
}

pub async fn play_with_upstream(keys: &str, cases: Vec<Case>) -> Played {
    play_at(cases, (keys, PRICE)).await
}

pub async fn play_by_list_prices(cases: Vec<Case>) -> Played {
    play_at(cases, ("", "")).await
}

async fn play_at(cases: Vec<Case>, configured: (&str, &str)) -> Played {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let upstream = listener.local_addr().expect("an address");
    let by_name: HashMap<_, _> = cases.iter().map(|c| (c.name.clone(), c.clone())).collect();
    assert_eq!(by_name.len(), cases.len(), "every case has its own name");
    let by_name = Arc::new(by_name);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tcp.set_nodelay(true).expect("set");
            tokio::spawn(answer(tcp, Arc::clone(&by_name)));
        }
    });
    let started = Played::start(upstream, configured).await;
    let proxy = started.process.addresses()[0];
    let all = || futures_util::stream::iter(&cases);
    let http1 = |case| ask_http1(proxy, case);
    all().for_each_concurrent(AT_ONCE, http1).await;
    let http2 = |case| ask_http2(proxy, case);
    all().for_each_concurrent(AT_ONCE, http2).await;
    let played = Played::read(started, 2 * cases.len()).await;
    let mut wrong = Vec::new();
    for case in &cases {
        let records = played.of(&case.name);
        assert_eq!(records.len(), 2, "{}", case.name);
        for record in records {
            differences(&case.name, &case.record, record, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    played.surfaces_agree().await;
    played
}

pub fn differences(place: &str, expected: &Value, record: &Value, wrong: &mut Vec<String>) {
    let near = |one: f64, other: f64| (one - other).abs() <= TOLERANCE * other.abs();
    let same = match (expected, record) {
        (Value::Object(members), _) => {
            for (name, expected) in members {
                differences(&format!("{place}.{name}"), expected, &record[name], wrong);
            }
            true
        }
        (Value::String(known), record) if known == KNOWN => !record.is_null(),
        (Value::Number(one), Value::Number(other)) => {
            let [one, other] = [one, other].map(|number| number.as_f64().expect("a number"));
            near(one, other)
        }
        (expected, record) => expected == record,
    };
    if !same {
        wrong.push(format!("{place}: {record}, not {expected}"));
    }
}

/// Messages that an upstream sends over a WebSocket, and expected members of the only record.
pub struct Socket {
    name: &'static str,
    path: &'static str,
    asked: Value,
    messages: Vec<String>,
    record: Value,
}

impl Socket {
    pub fn new(
        name: &'static str,
        path: &'static str,
        asked: Value,
        messages: Vec<String>,
        record: Value,
    ) -> Socket {
        Socket {
            name,
            path,
            asked,
            messages,
            record,
        }
    }

    async fn answer(&self, mut tcp: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tcp.read_u8().await.expect("a head"));
        }
        tcp.write_all(SWITCHED).await.expect("written");
        tcp.read_exact(&mut [0; 8]).await.expect("a message");
        for message in &self.messages {
            sleep(PAUSE).await;
            let frame = socket(&[message.clone().into_bytes()], &Frame::default());
            tcp.write_all(&frame).await.expect("written");
        }
        // Read the agent's messages, so that closing does not reset the connection.
        let _ = timeout(PAUSE, tcp.read(&mut [0; 65536])).await;
    }

    async fn ask(&self, proxy: SocketAddr) {
        let mut tcp = TcpStream::connect(proxy).await.expect("connected");
        let head = format!(
            "GET {} HTTP/1.1\r\nhost: h\r\nx-case: {}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.path, self.name
        );
        tcp.write_all(head.as_bytes()).await.expect("sent");
        let mut switched = [0; SWITCHED.len()];
        tcp.read_exact(&mut switched).await.expect("a head");
        let masked = Frame {
            mask: Some([1, 2, 3, 4]),
            ..Frame::default()
        };
        let asked = socket(&[self.asked.to_string().into_bytes()], &masked);
        tcp.write_all(&asked).await.expect("sent");
        let mut response = Vec::new();
        let read = timeout(TIMEOUT, tcp.read_to_end(&mut response)).await;
        read.expect("an end").ok();
        for message in &self.messages {
            let delivered = memchr::memmem::find(&response, message.as_bytes()).is_some();
            assert!(delivered, "{}: {message} was not delivered", self.name);
        }
    }
}

const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Plays WebSockets one after the other, and compares as [`play`] does.
pub async fn play_sockets(cases: Vec<Socket>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let upstream = listener.local_addr().expect("an address");
    let started = Played::start(upstream, ("", PRICE)).await;
    let proxy = started.process.addresses()[0];
    for case in &cases {
        let response = async {
            let (tcp, _) = listener.accept().await.expect("a connection");
            case.answer(tcp).await;
        };
        futures_util::future::join(response, case.ask(proxy)).await;
    }
    let played = Played::read(started, cases.len()).await;
    let mut wrong = Vec::new();
    for case in &cases {
        match played.of(case.name)[..] {
            [record] => differences(case.name, &case.record, record, &mut wrong),
            ref records => wrong.push(format!("{}: {} records", case.name, records.len())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    played.surfaces_agree().await;
}
