//! Each timeout limits only the phase that it names.

use std::time::{Duration, Instant};
use tokengauge_config::Timeouts;
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::agent::refusal;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::Setup;
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::{SOON, soon};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

fn limits(connect: u64, head: u64, idle: u64) -> Timeouts {
    let limit = Duration::from_millis;
    Timeouts {
        connect: limit(connect),
        head: limit(head),
        idle: limit(idle),
        send: limit(5_000),
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_respond_in_time_is_given_up() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        timeouts: limits(5_000, 200, 5_000),
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let (head, message) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 504 Gateway Timeout\r\n")
            && head.contains("x-tokengauge-error: upstream_head_timeout\r\n"),
        "{head}"
    );
    assert!(message.contains("200ms"), "{message}");
    backend.closed().await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::HeadTimeout))
    );
}

#[tokio::test]
async fn a_stream_may_take_any_time_but_not_a_pause_beyond_the_limit() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        timeouts: limits(5_000, 5_000, 1_500),
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(CHUNKED).await;
    agent.read_head().await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(3_500) {
        backend.write("1\r\na\r\n").await;
        agent.read_until(b"a\r\n").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let silent = Instant::now();
    assert_eq!(agent.read_to_end().await, b"");
    assert!(silent.elapsed() < SOON / 2, "{:?}", silent.elapsed());
    backend.closed().await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::IdleTimeout))
    );
}

#[tokio::test]
async fn an_agent_that_stops_its_upload_is_given_up() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        timeouts: limits(5_000, 5_000, 200),
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        .await;
    let (head, _) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"),
        "{head}"
    );
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::IdleTimeout))
    );
}

#[tokio::test]
async fn a_long_upload_is_not_the_upstreams_slowness() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        timeouts: limits(5_000, 300, 5_000),
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        agent.write("a").await;
    }
    assert_eq!(backend.read_exact(10).await, b"aaaaaaaaaa");
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Complete)
    );
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_idle_timeout() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        idle_for: Duration::from_millis(100),
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    soon("the idle connection closes", backend.closed()).await;
}
