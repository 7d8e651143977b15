//! The record has the model and session of a request even if no upstream read it or its body is encoded.

use crate::process::Process;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, whole};
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::port::nowhere;
use tokengauge_test_support::soon;
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATH: &str = "v1/chat/completions";
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

fn body(prompt: &str) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": prompt}]);
    let body = json!({"model": "asked-1", "messages": messages, "metadata": {"thread": "t-7"}});
    body.to_string().into_bytes()
}

/// A prompt that encoding does not shorten.
fn long() -> String {
    (0..40_000_u32)
        .map(|number| format!("{:x} ", number.wrapping_mul(2_654_435_761)))
        .collect()
}

async fn backend(bodies: Arc<Mutex<Vec<Vec<u8>>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let bodies = Arc::clone(&bodies);
            let response = service_fn(move |request: Request<Incoming>| {
                let bodies = Arc::clone(&bodies);
                async move {
                    let body = request.into_body().collect().await.expect("a body");
                    let body = body.to_bytes().to_vec();
                    bodies.lock().expect("no panic").push(body);
                    let response = Response::builder().header("content-type", "application/json");
                    let response = response.body(Full::new(ANSWER.as_bytes()));
                    Ok::<_, Infallible>(response.expect("an answer"))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), response));
        }
    });
    address
}

/// A server that resets each connection after it has read a little of the request.
async fn resets() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let _ = tcp.read(&mut [0; 1024]).await;
            // Closing with unread data sends a reset.
            drop(tcp);
        }
    });
    address
}

struct ProxyFixture {
    process: Process,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    _folder: TempDir,
}

impl ProxyFixture {
    async fn start(more: &str) -> ProxyFixture {
        let bodies = Arc::default();
        let (live, dead) = (backend(Arc::clone(&bodies)).await, nowhere());
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("proxy-config.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [attribution]\nsession_paths = [\"metadata.thread\"]\n\
             [measure]\nbody_bytes = \"1MiB\"\n\
             [[upstream]]\nname = \"live\"\nurl = \"http://{live}\"\n\
             [[upstream]]\nname = \"dead\"\nurl = \"http://{dead}\"\n\
             [[upstream]]\nname = \"both\"\nurls = [\"http://{dead}\", \"http://{live}\"]\n\
             [[route]]\npath = \"/live\"\nupstream = \"live\"\n\
             [[route]]\npath = \"/dead\"\nupstream = \"dead\"\n\
             [[route]]\npath = \"/both\"\nupstream = \"both\"\n{more}"
        );
        std::fs::write(&file, text).expect("written");
        ProxyFixture {
            process: Process::start(&file).await,
            bodies,
            _folder: folder,
        }
    }

    fn address(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    /// Sends a request and returns the status.
    async fn post(&self, route: &str, headers: &str, body: &[u8]) -> u16 {
        let mut tcp = TcpStream::connect(self.address()).await.expect("connected");
        let head = format!(
            "POST /{route}/{PATH} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
             Connection: close\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        tcp.write_all(head.as_bytes()).await.expect("sent");
        tcp.write_all(body).await.expect("sent");
        let mut response = Vec::new();
        let read = soon("an answer", tcp.read_to_end(&mut response)).await;
        read.expect("whole");
        // Records are ordered by millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let status = String::from_utf8_lossy(&response[9..12]).into_owned();
        status.parse().expect("a status")
    }

    async fn records(&self, count: usize) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let response = fetch(self.process.admin, "/api/v1/calls").await.body;
            let response: Value = serde_json::from_str(&response).expect("JSON");
            let mut calls = response["calls"].as_array().cloned().unwrap_or_default();
            if calls.len() >= count {
                calls.reverse();
                return calls;
            }
            assert!(Instant::now() < end, "{} of {count}", calls.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn named(record: &Value) -> [&Value; 4] {
    ["outcome", "model_requested", "session", "status"].map(|name| &record[name])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_reach_its_upstream_is_known_by_its_request() {
    let slo = "[[slo]]\nname = \"model\"\navailability = true\nselect.model = \"asked-*\"\n\
               [[workload]]\nname = \"of-model\"\nmodel = \"asked-*\"\n";
    let fixture = ProxyFixture::start(slo).await;
    let bodies = [body("hi"), body(&long()), encode("gzip", &body("hi"))];
    for (body, headers) in bodies.iter().zip(["", "", "Content-Encoding: gzip\r\n"]) {
        assert_eq!(fixture.post("dead", headers, body).await, 502);
    }
    let request = hyper::Request::post(format!("http://h/dead/{PATH}"));
    let request = request.body(whole(body("hi"))).expect("a request");
    let mut agent = http2(fixture.address()).await;
    let answer = soon("an answer", agent.send_request(request)).await;
    assert_eq!(answer.expect("an answer").status(), 502);
    for record in fixture.records(4).await {
        let expected = [
            json!("unreachable"),
            json!("asked-1"),
            json!("t-7"),
            json!(502),
        ];
        assert_eq!(named(&record), expected.each_ref());
        assert_eq!(record["workload"], "of-model");
        assert_eq!(record["tokens"]["normalised"]["input"], Value::Null);
        assert_eq!(record["bytes"]["request"], 0, "nothing went anywhere");
    }
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = fetch(fixture.process.admin, "/api/v1/slos").await.body;
        let response: Value = serde_json::from_str(&response).expect("JSON");
        let slo = &response["slos"][0];
        if slo["bad"].as_f64() == Some(4.0) || slo["budget"]["bad"].as_f64() == Some(4.0) {
            break;
        }
        assert!(
            Instant::now() < end,
            "the objective of the model sees 4 bad calls: {response}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_upstream_is_lost_during_the_upload_has_the_facts_of_its_request() {
    let more = format!(
        "[[upstream]]\nname = \"resets\"\nurl = \"http://{}\"\n\
         [[route]]\npath = \"/resets\"\nupstream = \"resets\"\n",
        resets().await
    );
    let fixture = ProxyFixture::start(&more).await;
    // Longer than all socket buffers, so that the upstream never gets a part of it, and within the limit for reading
    // bodies.
    let long = body(&"word ".repeat(150_000));
    for _ in 0..4 {
        assert_eq!(fixture.post("resets", "", &long).await, 502);
    }
    for record in fixture.records(4).await {
        let [outcome, model, session, _] = named(&record);
        assert_eq!(model, "asked-1", "{record}");
        assert_eq!(session, "t-7");
        assert!(
            ["upstream_reset", "unreachable"].contains(&outcome.as_str().unwrap_or_default()),
            "{record}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_and_one_that_went_elsewhere_are_known_by_their_requests() {
    let fixture = ProxyFixture::start(
        "[[quota]]\nname = \"q\"\nselect = { route = \"live\" }\nrequests_per_minute = 1\n",
    )
    .await;
    for status in [200, 429] {
        assert_eq!(fixture.post("live", "", &body("hi")).await, status);
    }
    assert_eq!(fixture.post("both", "", &body("hi")).await, 200);
    assert_eq!(fixture.post("nowhere", "", &body("hi")).await, 404);
    let records = fixture.records(4).await;
    let outcomes = ["complete", "rejected", "complete", "rejected"];
    for (record, outcome) in records.iter().zip(outcomes) {
        let [of, model, session, _] = named(record);
        assert_eq!(
            (of, model, session),
            (&json!(outcome), &json!("asked-1"), &json!("t-7"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_body_is_read_and_forwarded_unchanged() {
    let fixture = ProxyFixture::start("").await;
    let mut sent = Vec::new();
    for coding in CODINGS {
        for prompt in ["hi", &long()] {
            let encoded = encode(coding, &body(prompt));
            let header = format!("Content-Encoding: {coding}\r\n");
            assert_eq!(fixture.post("live", &header, &encoded).await, 200);
            sent.push(encoded);
        }
    }
    for record in fixture.records(sent.len()).await {
        let expected = [
            json!("complete"),
            json!("asked-1"),
            json!("t-7"),
            json!(200),
        ];
        assert_eq!(named(&record), expected.each_ref());
    }
    assert_eq!(*fixture.bodies.lock().expect("no panic"), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_decodes_to_too_much_or_to_nothing_is_passed_on_and_counted_as_not_read() {
    let fixture = ProxyFixture::start("").await;
    let bomb = encode("gzip", &vec![b' '; 64 << 20]);
    for body in [&bomb[..], b"no gzip"] {
        let header = "Content-Encoding: gzip\r\n";
        assert_eq!(fixture.post("live", header, body).await, 200);
    }
    for record in fixture.records(2).await {
        assert_eq!(record["outcome"], "complete");
        assert_eq!(
            (&record["model_requested"], &record["model"]),
            (&Value::Null, &json!("served"))
        );
    }
    let metrics = fixture.process.metrics().await;
    let skipped = metrics
        .iter()
        .find(|(name, _)| name.contains("skipped_bodies"));
    assert_eq!(skipped.map(|(_, count)| *count), Some(2.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_agent_that_does_not_send_its_body_gets_its_answer_at_once() {
    let fixture = ProxyFixture::start("").await;
    let mut tcp = TcpStream::connect(fixture.address())
        .await
        .expect("connected");
    let head = format!(
        "POST /dead/{PATH} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{{\"model\":\""
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut status = [0; 12];
    soon("an answer", tcp.read_exact(&mut status))
        .await
        .expect("a head");
    assert_eq!(&status[9..], b"502");
    let records = fixture.records(1).await;
    let [outcome, model, ..] = named(&records[0]);
    assert_eq!((outcome, model), (&json!("unreachable"), &Value::Null));
    let duration = records[0]["seconds"]["duration"]
        .as_f64()
        .expect("a duration");
    assert!(duration < 1.5, "it ended when it was answered: {duration}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_answered_by_the_proxy_holds_no_slot_during_the_rest_of_its_upload() {
    let fixture =
        ProxyFixture::start("[[quota]]\nname = \"one\"\nper = \"all\"\nconcurrent = 1\n").await;
    let body = body(&long());
    let head = format!(
        "POST /dead/{PATH} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    // The first agent sends only a part of its request, and is answered nevertheless.
    let mut slow = TcpStream::connect(fixture.address())
        .await
        .expect("connected");
    slow.write_all(head.as_bytes()).await.expect("sent");
    slow.write_all(&body[..1000]).await.expect("sent");
    let mut response = [0; 12];
    let read = soon("an answer", slow.read_exact(&mut response)).await;
    read.expect("a head");
    assert_eq!(&response, b"HTTP/1.1 502");
    assert_eq!(fixture.post("dead", "", &body).await, 502, "no 429");
}
