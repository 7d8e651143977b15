//! Connection limits of an upstream, and requests that wait for a connection.

use http::Request;
use http_body_util::BodyExt;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::agent::{self, none, refusal};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::{eventually, soon};
use tokio::time::timeout;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Long enough to see that something does not happen.
const A_WHILE: Duration = Duration::from_millis(200);

async fn proxy(upstream: &Upstream, max_connections: usize, max_pending: usize) -> Proxy {
    let mut setup = Setup::to(upstream.address);
    setup.max_connections = Some(max_connections);
    setup.max_pending = max_pending;
    setup.start().await
}

async fn asks(proxy: &Proxy) -> RawConnection {
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    agent
}

fn upstream_has(proxy: &Proxy) -> (usize, usize, u64) {
    let upstreams = proxy.forwarder.upstreams();
    assert_eq!(upstreams.len(), 1);
    let one = &upstreams[0];
    (one.open, one.pending, one.refused)
}

async fn pends(proxy: &Proxy, count: usize) {
    let what = format!("{count} wait");
    eventually(&what, || upstream_has(proxy).1 == count).await;
}

#[tokio::test]
async fn requests_beyond_the_connections_wait_in_turn_and_beyond_that_are_refused() {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream, 1, 2).await;
    let mut first = asks(&proxy).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let mut second = asks(&proxy).await;
    pends(&proxy, 1).await;
    let mut third = asks(&proxy).await;
    pends(&proxy, 2).await;
    let mut fourth = asks(&proxy).await;
    let (head, message) = refusal(&mut fourth).await;
    assert!(
        head.starts_with("HTTP/1.1 503 Service Unavailable\r\n")
            && head.contains("x-tokengauge-error: overloaded\r\n")
            && head.contains("retry-after: 1\r\n"),
        "{head}"
    );
    assert!(
        message.contains("upstream backend") && message.contains("max_connections"),
        "{message}"
    );
    assert_eq!(upstream_has(&proxy), (1, 2, 1));
    // The connection serves the waiting requests in the order of their arrival.
    for agent in [&mut first, &mut second, &mut third] {
        backend.write(OK).await;
        agent.read_until(b"\r\n\r\nok").await;
        if upstream_has(&proxy).1 > 0 || proxy.shutdown.requests() > 0 {
            soon("the next request", backend.read_head()).await;
        }
    }
    assert!(
        timeout(A_WHILE, upstream.listener.accept()).await.is_err(),
        "one connection served all"
    );
    let ends = proxy.recorder.ended_calls(4).await;
    let ends: Vec<_> = ends.iter().filter_map(|call| call.ended()).collect();
    let refused = End::Failed(FailureKind::Overloaded);
    assert_eq!(ends[..3], [End::Complete, End::Complete, End::Complete]);
    assert_eq!(ends[3], refused);
    assert_eq!(upstream_has(&proxy), (1, 0, 1));
}

#[tokio::test]
async fn a_request_waits_for_a_connection_no_longer_than_for_an_upstream_to_accept_one() {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.max_connections = Some(1);
    setup.timeouts.connect = A_WHILE;
    let proxy = setup.start().await;
    let mut first = asks(&proxy).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let began = Instant::now();
    let mut second = asks(&proxy).await;
    let (head, message) = refusal(&mut second).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(message.contains("200ms"), "{message}");
    assert!(began.elapsed() >= A_WHILE);
    assert_eq!(upstream_has(&proxy), (1, 0, 1));
    // A wait is not a failure of the endpoint, which is not skipped.
    backend.write(OK).await;
    first.read_until(b"ok").await;
    let mut third = asks(&proxy).await;
    backend.read_head().await;
    backend.write(OK).await;
    third.read_until(b"ok").await;
}

#[tokio::test]
async fn one_that_leaves_while_it_waits_takes_nothing_with_it() {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream, 1, 1).await;
    let mut first = asks(&proxy).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let second = asks(&proxy).await;
    pends(&proxy, 1).await;
    drop(second);
    pends(&proxy, 0).await;
    let mut third = asks(&proxy).await;
    pends(&proxy, 1).await;
    // A lost connection makes room, like a returned one.
    backend.reset();
    let (head, _) = refusal(&mut first).await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    third.read_until(b"ok").await;
    assert_eq!(upstream_has(&proxy), (1, 0, 0));
}

#[tokio::test]
async fn an_idle_connection_to_one_endpoint_is_closed_for_a_request_to_another() {
    let (one, other) = (Upstream::bind().await, Upstream::bind().await);
    let mut setup = Setup::to(one.address);
    setup.endpoints.push(other.address);
    setup.max_connections = Some(1);
    let proxy = setup.start().await;
    for upstream in [&one, &other] {
        let mut agent = asks(&proxy).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(OK).await;
        agent.read_until(b"ok").await;
        assert_eq!(upstream_has(&proxy).0, 1);
    }
}

#[tokio::test]
async fn streams_of_http2_agents_do_not_open_more_connections_than_may_be() {
    const STREAMS: usize = 40;
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream, 8, 4).await;
    let send = agent::http2(proxy.address).await;
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let mut send = send.clone();
        answers.spawn(async move {
            let request = Request::get("http://h/").body(none()).expect("a request");
            let response = send.send_request(request).await.expect("answered");
            let (head, body) = response.into_parts();
            drop(body.collect().await);
            head.status.as_u16()
        });
    }
    let mut backends = Vec::new();
    for _ in 0..8 {
        backends.push(upstream.accept().await);
    }
    let mut refused = 0;
    while refused < STREAMS - 12 {
        let status = soon("an answer", answers.join_next()).await;
        assert_eq!(status.expect("more").expect("no panic"), 503);
        refused += 1;
    }
    assert!(
        timeout(A_WHILE, upstream.listener.accept()).await.is_err(),
        "a ninth connection"
    );
    assert_eq!(upstream_has(&proxy), (8, 4, 28));
    // Waiting requests get the connections of finished ones.
    for mut backend in backends {
        tokio::spawn(async move {
            loop {
                backend.read_head().await;
                backend.write(OK).await;
            }
        });
    }
    while let Some(status) = soon("an answer", answers.join_next()).await {
        assert_eq!(status.expect("no panic"), 200);
    }
    assert_eq!(upstream_has(&proxy), (8, 0, 28));
}
