//! If an agent reads slowly, the measured stream speed is limited by the agent, not by the upstream.

use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::time::Duration;
use tokengauge_core::call::{CallRecord, TpsUnavailable};
use tokengauge_core::observer::End;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::whole;
use tokengauge_test_support::eventually;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

const BODY: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKS: u64 = 100;
const GAP: u64 = 10;
const PAUSE: Duration = Duration::from_millis(600);
const PAUSES: usize = 2;

/// A backend that streams chunks, each with `padding` extra bytes without text.
async fn backend(padding: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(play(tcp, padding));
        }
    });
    address
}

async fn play(mut tcp: TcpStream, padding: usize) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    tcp.read_exact(&mut vec![0; BODY.len()]).await.ok()?;
    tcp.write_all(HEAD.as_bytes()).await.ok()?;
    let comment = format!(":{}\n\n", " ".repeat(padding));
    let event = |event: String| {
        let event = event + &comment;
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    for _ in 0..CHUNKS {
        sleep(Duration::from_millis(GAP)).await;
        tcp.write_all(event(words(1)).as_bytes()).await.ok()?;
    }
    tcp.write_all(event(finish(None) + DONE).as_bytes())
        .await
        .ok()?;
    tcp.write_all(b"0\r\n\r\n").await.ok()
}

async fn http1(address: SocketAddr, pauses: usize) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("small");
    // Short segments, because otherwise socket buffers hold megabytes.
    socket2::SockRef::from(&socket)
        .set_tcp_mss(536)
        .expect("short segments");
    let mut tcp = socket.connect(address).await.expect("connected");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    for _ in 0..pauses {
        tcp.read_exact(&mut [0; 2000]).await.expect("more");
        sleep(PAUSE).await;
    }
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await.expect("whole");
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream is whole");
}

/// An HTTP/2 agent with a window of a few chunks.
async fn http2(address: SocketAddr, pauses: usize) {
    let tcp = TcpStream::connect(address).await.expect("connected");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(2_000);
    let connection = builder.handshake(TokioIo::new(tcp)).await;
    let (mut send, connection) = connection.expect("a connection");
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/v1/chat/completions"))
        .header("content-type", "application/json")
        .body(whole(BODY))
        .expect("a request");
    let response = send.send_request(request).await.expect("answered");
    let mut body = response.into_body();
    for _ in 0..pauses {
        body.frame().await.expect("a chunk").expect("read");
        sleep(PAUSE).await;
    }
    body.collect().await.expect("whole");
}

async fn record(padding: usize, agent: impl AsyncFnOnce(SocketAddr)) -> CallRecord {
    let bench = Bench::default();
    let setup = Setup::to(backend(padding).await);
    let proxy: Proxy = setup.start_unobserved(bench.meter.clone()).await;
    tokio::time::timeout(TIMEOUT, agent(proxy.address))
        .await
        .expect("in time");
    eventually("a record", || !bench.recent.newest(1).is_empty()).await;
    bench.newest()
}

fn is_agent_limited(record: &CallRecord) {
    let reason = record.tps.unavailable;
    assert_eq!(reason, Some(TpsUnavailable::AgentLimited), "{record:?}");
    assert_eq!(record.tps.output, None);
    let blocked = record.seconds.agent_blocked.expect("known");
    assert!((0.3..3.0).contains(&blocked), "{blocked}");
    assert_eq!(record.tokens.normalised.output, Some(CHUNKS));
}

fn is_the_upstreams(record: &CallRecord) {
    assert_eq!(record.tps.unavailable, None, "{record:?}");
    let blocked = record.seconds.agent_blocked.expect("known");
    assert!(blocked < 0.3, "{blocked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_http1_agent_leaves_no_upstream_speed() {
    is_agent_limited(&record(4_000, async |address| http1(address, PAUSES).await).await);
    is_the_upstreams(&record(0, async |address| http1(address, 0).await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_http2_agent_leaves_no_upstream_speed() {
    is_agent_limited(&record(0, async |address| http2(address, PAUSES).await).await);
    is_the_upstreams(&record(0, async |address| http2(address, 0).await).await);
}

/// A stream with a token every 20 ms, during which the agent does not read for `blocked`.
fn waited(blocked: Duration) -> CallRecord {
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..100 {
        let wait = if chunk == 50 { blocked } else { Duration::ZERO };
        let late = if chunk < 50 {
            0
        } else {
            blocked.as_millis() as u64
        };
        bench.chunk_behind(&*call, wait, 100 + chunk * 20 + late, words(1));
    }
    // The agent's last pause does not affect the speed.
    let end = finish(None) + DONE;
    bench.chunk_behind(&*call, Duration::from_secs(5), 10_000, end);
    bench.end(&*call, 10_000, End::Complete)
}

#[test]
fn a_tenth_of_the_decode_time_decides_and_a_wait_is_not_a_stall() {
    let short = waited(Duration::from_millis(200));
    assert_eq!(short.tps.unavailable, None);
    let long = waited(Duration::from_millis(2_000));
    assert_eq!(long.tps.unavailable, Some(TpsUnavailable::AgentLimited));
    assert_eq!(long.stalls, 0);
    let gap = long.seconds.longest_gap.expect("gaps");
    assert!((gap - 0.02).abs() < 1e-9, "{gap}");
    let blocked = long.seconds.agent_blocked.expect("known");
    assert!((blocked - 7.0).abs() < 1e-9, "{blocked}");
}
