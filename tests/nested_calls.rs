//! A gateway between two upstreams of one proxy, or between two proxies: which record is the outer one, and that a
//! session counts a call once.

use crate::process::Process;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::port::nowhere;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}"#;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn serve<F: Future<Output = Bytes> + Send + 'static>(
    answer: impl Fn(HeaderMap) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let headers = request.headers().clone();
                    request.into_body().collect().await.expect("a body");
                    let body = answer(headers).await;
                    let response = Response::builder().header("content-type", "application/json");
                    Ok::<_, Infallible>(response.body(Full::new(body)).expect("an answer"))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    });
    address
}

/// How a gateway forwards trace headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gateway {
    /// The gateway sends its own span, and the state unchanged.
    OwnSpan,
    /// The gateway sends the parent unchanged, and nothing else.
    ParentAlone,
    /// No trace, but headers that begin with `x-`, as LiteLLM does if it is configured so.
    OwnHeaders,
    Nothing,
}

impl Gateway {
    fn headers(self, came: &HeaderMap) -> String {
        let of = |name: &str| came.get(name).and_then(|value| value.to_str().ok());
        let (parent, state) = (of("traceparent"), of("tracestate"));
        let parent = parent.expect("the first proxy tells its span");
        let state = state.expect("and its state");
        match self {
            Gateway::OwnSpan => format!(
                "traceparent: {}{:016x}-01\r\ntracestate: vendor=1,{state}\r\n",
                &parent[..36],
                0xabcdef
            ),
            Gateway::ParentAlone => format!("traceparent: {parent}\r\n"),
            Gateway::OwnHeaders => {
                let hop = of("x-tokengauge-hop").expect("and how far it has come");
                format!("x-tokengauge-hop: {hop}\r\n")
            }
            Gateway::Nothing => String::new(),
        }
    }

    async fn start(self, behind: Arc<OnceLock<SocketAddr>>) -> SocketAddr {
        serve(move |came| {
            let behind = Arc::clone(&behind);
            async move {
                let session = came["x-tokengauge-session"].to_str().expect("text");
                let headers = format!("x-tokengauge-session: {session}\r\n{}", self.headers(&came));
                let behind = *behind.get().expect("known by now");
                post(behind, "/inner", &headers).await
            }
        })
        .await
    }
}

async fn post(address: SocketAddr, path: &str, headers: &str) -> Bytes {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    let request = format!(
        "POST {path}/v1/chat/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\
         Content-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    tcp.write_all(request.as_bytes()).await.expect("sent");
    let mut response = Vec::new();
    tcp.read_to_end(&mut response).await.expect("whole");
    let end = response.windows(4).position(|four| four == b"\r\n\r\n");
    Bytes::from(response.split_off(end.expect("a head") + 4))
}

/// Starts the binary with tracing to an exporter that sends nowhere.
async fn gauge(
    folder: &TempDir,
    name: &str,
    ledger: bool,
    routes: &[(&str, SocketAddr)],
) -> Process {
    let file = folder.path().join(format!("{name}.toml"));
    let mut text = "listen = \"127.0.0.1:0\"\n".to_owned();
    if ledger {
        text += &format!("state_dir = {:?}\n", folder.path().join(name));
    }
    text += "[admin]\nlisten = \"127.0.0.1:0\"\n";
    for (name, address) in routes {
        text += &format!("[[upstream]]\nname = \"{name}\"\nurl = \"http://{address}\"\n");
    }
    for (name, _) in routes {
        text += &format!("[[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n");
    }
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(&file);
    command.env(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        format!("http://{}/v1/traces", nowhere()),
    );
    Process::start_by(command).await
}

async fn ask(process: &Process, path: &str) -> Value {
    let response = fetch(process.admin, path).await.body;
    serde_json::from_str(&response).expect("JSON")
}

async fn records(process: &Process, count: usize) -> Vec<Value> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = ask(process, "/api/v1/calls").await;
        // A ledger that was just created may be busy.
        let mut calls = response["calls"].as_array().cloned().unwrap_or_default();
        if calls.len() >= count {
            calls.sort_by_key(|call| call["route"].as_str().expect("a route").to_owned());
            return calls;
        }
        assert!(Instant::now() < end, "{} of {count}", calls.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn agent() -> String {
    format!("x-tokengauge-session: s\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n")
}

/// Number of calls, output tokens and number of listed calls of the session.
async fn session(process: &Process) -> (Value, Value, usize) {
    let detail = ask(process, "/api/v1/sessions/s").await;
    let listed = ask(process, "/api/v1/sessions").await;
    let sessions = listed["sessions"].as_array().expect("sessions");
    let [row] = &sessions[..] else {
        panic!("one session: {listed}");
    };
    assert_eq!(row["calls"], detail["total_calls"]);
    assert_eq!(row["tokens"], detail["tokens"]);
    let calls = detail["calls"].as_array().expect("calls").len();
    (row["calls"].clone(), row["tokens"]["output"].clone(), calls)
}

async fn through_one(gateway: Gateway, ledger: bool) -> (Vec<Value>, (Value, Value, usize)) {
    let folder = TempDir::new().expect("a folder");
    let engine = serve(|_| async { Bytes::from_static(ANSWER.as_bytes()) }).await;
    let behind = Arc::<OnceLock<SocketAddr>>::default();
    let between = gateway.start(Arc::clone(&behind)).await;
    let routes = [("outer", between), ("inner", engine)];
    let process = gauge(&folder, "one", ledger, &routes).await;
    behind.set(process.addresses()[0]).expect("set once");
    for _ in 0..2 {
        assert_eq!(
            &post(process.addresses()[0], "/outer", &agent()).await[..],
            ANSWER.as_bytes()
        );
    }
    let records = records(&process, 4).await;
    (records, session(&process).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_counts_a_call_once_that_passes_one_proxy_twice() {
    for ledger in [false, true] {
        for gateway in [Gateway::OwnSpan, Gateway::ParentAlone, Gateway::OwnHeaders] {
            let what = format!("{gateway:?}, ledger {ledger}");
            let (records, session) = through_one(gateway, ledger).await;
            let hops: Vec<_> = records.iter().map(|record| &record["hop"]).collect();
            assert_eq!(hops, [1, 1, 0, 0], "{what}");
            let traces = records.iter().map(|record| &record["trace_id"]);
            assert!(traces.clone().all(|trace| *trace == TRACE), "{what}");
            assert_eq!(session, (json!(2), json!(14), 4), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_no_trace_joins_count_each() {
    let (records, session) = through_one(Gateway::Nothing, false).await;
    assert!(records.iter().all(|record| record["hop"] == 0));
    assert_eq!(session, (json!(4), json!(28), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outer_of_two_proxies_records_hop_0_and_each_counts_its_own_calls() {
    let folder = TempDir::new().expect("a folder");
    let engine = serve(|_| async { Bytes::from_static(ANSWER.as_bytes()) }).await;
    let inner = gauge(&folder, "second", true, &[("inner", engine)]).await;
    let behind = Arc::<OnceLock<SocketAddr>>::default();
    behind.set(inner.addresses()[0]).expect("set once");
    let between = Gateway::OwnHeaders.start(behind).await;
    let outer = gauge(&folder, "first", true, &[("outer", between)]).await;
    assert_eq!(
        &post(outer.addresses()[0], "/outer", &agent()).await[..],
        ANSWER.as_bytes()
    );
    for (process, hop) in [(&outer, 0), (&inner, 1)] {
        let records = records(process, 1).await;
        assert_eq!(
            (&records[0]["hop"], &records[0]["trace_id"]),
            (&json!(hop), &json!(TRACE))
        );
        assert_eq!(session(process).await, (json!(1), json!(7), 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invented_trace_state_removes_no_call_from_its_session() {
    let folder = TempDir::new().expect("a folder");
    let engine = serve(|_| async { Bytes::from_static(ANSWER.as_bytes()) }).await;
    let process = gauge(&folder, "one", false, &[("inner", engine)]).await;
    let state = "tracestate: tokengauge=0-00f067aa0ba902b7\r\n";
    post(process.addresses()[0], "/inner", &(agent() + state)).await;
    assert_eq!(records(&process, 1).await[0]["hop"], 1);
    assert_eq!(session(&process).await, (json!(1), json!(7), 1));
}
