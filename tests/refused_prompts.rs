//! A prompt that was not processed does not count as input, in its record or its cost.

use std::net::SocketAddr;
use std::time::Duration;
use tokengauge_core::call::{CallRecord, Outcome, Source, Usage};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::eventually;
use tokengauge_test_support::meter::{Bench, DONE, words};
use tokengauge_test_support::proxy::Setup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const BODY: &str = r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Tell me of rivers and of the sea"}]}"#;
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
const OVERLOADED: &str =
    "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";

async fn backend(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(BODY.as_bytes()) {
                request.push(tcp.read_u8().await.expect("the request"));
            }
            tcp.write_all(answer.as_bytes()).await.expect("answered");
        }
    });
    address
}

async fn asked(setup: Setup) -> CallRecord {
    let bench = Bench::default();
    let proxy = setup.start_unobserved(bench.meter.clone()).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let length = BODY.len();
    agent
        .write(format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
             TE: trailers\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{BODY}"
        ))
        .await;
    let read = tokio::time::timeout(TIMEOUT, agent.read_to_end()).await;
    assert!(!read.expect("in time").is_empty(), "answered");
    eventually("a record", || !bench.recent.newest(1).is_empty()).await;
    bench.newest()
}

async fn answered(head: &str, body: &str) -> CallRecord {
    let length = body.len();
    let answer = format!("{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    asked(Setup::to(backend(answer).await)).await
}

fn has_no_input(record: &CallRecord, outcome: Outcome) {
    assert_eq!(record.outcome, outcome, "{record:?}");
    let tokens = &record.tokens;
    assert_eq!(tokens.normalised.input, None, "{outcome:?}");
    assert_eq!(tokens.reported, Usage::default(), "{outcome:?}");
    assert_eq!(record.cost_usd, None, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_could_not_be_reached_in_time_was_sent_nothing() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
    // The backlog holds one connection, so later agents get no answer.
    let listener = socket.listen(1).expect("listening");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        waiting.push(connected.expect("connected"));
        assert!(waiting.len() < 64, "the queue of this system has no end");
    }
    let mut setup = Setup::to(address);
    setup.timeouts.connect = Duration::from_millis(300);
    let record = asked(setup).await;
    assert_eq!(
        record.error_type.as_deref(),
        Some("upstream_connect_timeout")
    );
    has_no_input(&record, Outcome::Timeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_answers_too_late_had_the_prompt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let mut setup = Setup::to(listener.local_addr().expect("an address"));
    setup.timeouts.head = Duration::from_millis(300);
    let record = asked(setup).await;
    assert_eq!(record.outcome, Outcome::Timeout);
    assert!(record.tokens.normalised.input > Some(5), "{record:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_a_200_before_anything_was_generated_is_a_refusal() {
    let stream = answered(STREAM, OVERLOADED).await;
    has_no_input(&stream, Outcome::ErrorEvent);
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let body = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
    has_no_input(&answered(json, body).await, Outcome::ErrorEvent);
    // An engine that began to answer has read the prompt.
    let begun = answered(STREAM, &(words(8) + OVERLOADED)).await;
    assert_eq!(begun.outcome, Outcome::ErrorEvent);
    assert!(begun.tokens.normalised.input > Some(5), "{begun:?}");
    let whole = answered(STREAM, &(words(8) + DONE)).await;
    assert_eq!(whole.tokens.source, Some(Source::Estimated));
    assert!(whole.tokens.normalised.input > Some(5), "{whole:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_over_grpc_is_one_too() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\nconnection: close\r\n";
    let trailers = format!(
        "{head}trailer: grpc-status\r\ntransfer-encoding: chunked\r\n\r\n0\r\ngrpc-status: 8\r\n\r\n"
    );
    let record = asked(Setup::to(backend(trailers).await)).await;
    assert_eq!(record.error_type.as_deref(), Some("resource_exhausted"));
    has_no_input(&record, Outcome::ErrorEvent);
    // A gRPC trailers-only answer has its trailers in the head.
    let alone = format!("{head}grpc-status: 8\r\ncontent-length: 0\r\n\r\n");
    let record = asked(Setup::to(backend(alone).await)).await;
    assert_eq!(record.error_type.as_deref(), Some("resource_exhausted"));
    has_no_input(&record, Outcome::ErrorEvent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_in_the_body_of_an_error_is_not_billed() {
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n";
    let body = r#"{"model":"gpt-4o","error":{"type":"overloaded"},"usage":{"prompt_tokens":900,"completion_tokens":7,"total_tokens":907,"cost":0.25}}"#;
    let record = answered(head, body).await;
    has_no_input(&record, Outcome::HttpError);
    assert_eq!(record.tokens.source, None);
}
