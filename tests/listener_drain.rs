//! Graceful shutdown of the listener.

use http::Request;
use http_body_util::BodyExt;
use std::time::{Duration, Instant};
use tokengauge_core::observer::End;
use tokengauge_proxy::DrainSummary;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{self, none};
use tokengauge_test_support::canned::CannedUpstream;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::Upstream;
use tokio::net::TcpStream;

/// A time so long that a test that waits for it fails.
const NEVER: Duration = Duration::from_secs(3600);

async fn streaming(proxy: &Proxy) -> RawConnection {
    let mut agent = proxy.agent().await;
    agent.get("/stream").await;
    agent.text_until("first").await;
    agent
}

#[tokio::test]
async fn a_running_stream_ends_in_its_own_time_and_then_serving_ends() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let mut agent = streaming(&proxy).await;
    proxy.shutdown.begin();
    assert!(proxy.shutdown.is_draining());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        (proxy.shutdown.connections(), proxy.shutdown.requests()),
        (1, 1)
    );
    upstream.finish();
    assert!(
        agent.text_to_end().await.ends_with("last\r\n0\r\n\r\n"),
        "whole, and closed by the proxy"
    );
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 0 });
}

#[tokio::test]
async fn no_new_connection_is_accepted_while_draining() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let mut agent = streaming(&proxy).await;
    proxy.shutdown.begin();
    let begun = Instant::now();
    while TcpStream::connect(proxy.address).await.is_ok() {
        assert!(begun.elapsed() < TIMEOUT, "still accepting");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    upstream.finish();
    agent.text_to_end().await;
    proxy.drained().await;
}

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let (mut used, mut fresh) = (proxy.agent().await, proxy.agent().await);
    used.get("/hello").await;
    used.text_until("hello").await;
    proxy.has_connections(2).await;
    proxy.shutdown.begin();
    assert_eq!(used.text_to_end().await, "");
    assert_eq!(fresh.text_to_end().await, "");
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 0 });
}

#[tokio::test]
async fn a_response_that_begins_while_draining_says_that_the_connection_closes() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let mut agent = proxy.agent().await;
    agent.get("/late").await;
    proxy.has_requests(1).await;
    proxy.shutdown.begin();
    tokio::time::sleep(Duration::from_millis(100)).await;
    upstream.finish();
    let response = agent.text_to_end().await.to_ascii_lowercase();
    assert!(
        response.contains("connection: close") && response.ends_with("hello"),
        "{response}"
    );
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 0 });
}

#[tokio::test]
async fn what_outlasts_the_drain_timeout_is_cut_off_and_counted() {
    let upstream = CannedUpstream::start().await;
    let drain_timeout = Duration::from_millis(400);
    let proxy = Setup::to(upstream.address)
        .drain_timeout(drain_timeout)
        .start()
        .await;
    let (mut one, mut two) = (streaming(&proxy).await, streaming(&proxy).await);
    let begun = Instant::now();
    proxy.shutdown.begin();
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 2 });
    assert!(begun.elapsed() >= drain_timeout);
    for agent in [&mut one, &mut two] {
        assert!(
            !agent.text_to_end().await.contains("0\r\n\r\n"),
            "a cut stream does not look whole"
        );
    }
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let mut agent = streaming(&proxy).await;
    proxy.shutdown.begin();
    proxy.shutdown.now();
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 1 });
    agent.text_to_end().await;
}

#[tokio::test]
async fn the_end_can_come_at_once_without_a_drain() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .drain_timeout(NEVER)
        .start()
        .await;
    let mut agent = streaming(&proxy).await;
    proxy.shutdown.now();
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 1 });
    agent.text_to_end().await;
}

#[tokio::test]
async fn a_tunnel_counts_as_open_and_is_cut_off_in_the_end() {
    let upstream = CannedUpstream::start().await;
    let drain_timeout = Duration::from_secs(3);
    let proxy = Setup::to(upstream.address)
        .drain_timeout(drain_timeout)
        .start()
        .await;
    let mut agent = proxy.agent().await;
    agent
        .write(
            "GET /tunnel HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    agent.text_until("\r\n\r\n").await;
    agent.write("ping").await;
    agent.text_until("ping").await;
    proxy.has_connections(1).await;
    proxy.shutdown.begin();
    tokio::time::sleep(drain_timeout / 4).await;
    agent.write("pong").await;
    agent.text_until("pong").await;
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 1 });
    agent.text_to_end().await;
}

/// One call in flight for each way of writing a body: chunks that bypass the server, a known length, HTTP/2, a tunnel,
/// and a call without a head yet.
#[tokio::test]
async fn calls_that_are_cut_off_are_the_proxys_fault_and_not_their_agents() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut backends = Vec::new();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhi";
    let tunnel =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";
    let mut agents = Vec::new();
    for response in [chunked, sized, tunnel, ""] {
        let mut agent = RawConnection::connect(proxy.address).await;
        let upgrade = if response == tunnel {
            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        } else {
            ""
        };
        agent
            .write(format!("GET / HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n"))
            .await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(response).await;
        if !response.is_empty() {
            agent.read_until(b"hi").await;
        }
        // Bytes after the first chunk bypass the server.
        if response == chunked {
            backend.write("2\r\nho\r\n").await;
            agent.read_until(b"ho").await;
        }
        backends.push(backend);
        agents.push(agent);
    }
    let mut http2 = agent::http2(proxy.address).await;
    let request = Request::get("http://h/").body(none()).expect("a request");
    let answering = http2.send_request(request);
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(chunked).await;
    let mut body = answering.await.expect("answered").into_body();
    body.frame().await.expect("a frame").expect("data");

    proxy.shutdown.now();
    let calls = proxy.recorder.ended_calls(5).await;
    let ends: Vec<_> = calls.iter().map(|call| call.ended()).collect();
    assert_eq!(ends, [const { Some(End::Drained) }; 5]);
}

#[tokio::test]
async fn an_agent_that_leaves_while_others_drain_has_left() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    proxy.shutdown.begin();
    drop(agent);
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::ClientCancelled));
}
