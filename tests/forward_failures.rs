//! Failures of either side are passed on, reported clearly, and leave no connection or task.

use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_proxy::settings::DEFAULT_MAX_IDLE;
use tokengauge_test_support::agent::refusal;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::port::nowhere;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::skip::skipped;
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::{SOON, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn proxy() -> (Upstream, Proxy) {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    (upstream, proxy)
}

#[tokio::test]
async fn an_agent_that_leaves_mid_stream_takes_the_upstream_request_with_it() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(CHUNKED).await;
    backend.write("1\r\na\r\n").await;
    agent.read_until(b"a\r\n").await;
    let left = Instant::now();
    drop(agent);
    backend.closed().await;
    assert!(left.elapsed() < SOON / 2, "{:?}", left.elapsed());
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.ended(), call.response()),
        (Some(End::ClientCancelled), b"a".to_vec())
    );
}

#[tokio::test]
async fn an_agent_that_leaves_before_the_head_takes_the_upstream_request_with_it() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    drop(agent);
    backend.closed().await;
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.ended(), call.status()),
        (Some(End::ClientCancelled), None)
    );
}

/// Old clients send a line end after a body, and others send their next request.
#[tokio::test]
async fn a_disconnect_is_noticed_whatever_the_agent_sent_after_its_request() {
    for tail in ["\r\n", GET] {
        let (upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(format!("{GET}{tail}")).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        drop(agent);
        backend.closed().await;
        let call = &proxy.recorder.ended_calls(1).await[0];
        assert_eq!(call.ended(), Some(End::ClientCancelled), "{tail}");
    }
}

/// The upstream responds before it has the whole request, and the agent breaks off the request.
#[tokio::test]
async fn an_upload_that_breaks_off_during_the_response_is_the_agents_fault() {
    for (rest, end) in [
        (None, End::ClientCancelled),
        (Some("zz\r\n"), End::Failed(FailureKind::BadRequest)),
    ] {
        let (upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent
            .write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            .await;
        let mut backend = upstream.accept().await;
        backend.read_until(b"1\r\na\r\n").await;
        backend.write(format!("{CHUNKED}1\r\nb\r\n")).await;
        agent.read_until(b"1\r\nb\r\n").await;
        match rest {
            Some(rest) => agent.write(rest).await,
            None => drop(agent),
        }
        backend.closed().await;
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.ended(), Some(end), "{rest:?}");
    }
}

/// Otherwise an agent that writes its whole request before it reads would get a reset instead of the response.
#[tokio::test]
async fn a_response_that_overtakes_its_request_can_be_read() {
    const LENGTH: usize = 8 << 20;
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n");
    agent.write(head).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        .await;
    // The proxy has responded before the agent sends the remaining bytes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..LENGTH / 65_536 {
        agent.write(vec![b'a'; 65_536]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let head = agent.read_head().await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(head.to_lowercase().contains("connection: close"), "{head}");
    agent.read_until(b"no").await;
}

#[tokio::test]
async fn an_agent_that_leaves_mid_upload_breaks_the_upload() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(backend.read_exact(3).await, b"abc");
    drop(agent);
    backend.closed().await;
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.ended(), call.sent()),
        (Some(End::ClientCancelled), None)
    );
}

#[tokio::test]
async fn an_upload_with_broken_framing_is_the_agents_fault() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_until(b"1\r\na\r\n").await;
    agent.write("zz\r\n").await;
    let (head, _) = refusal(&mut agent).await;
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    backend.closed().await;
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Failed(FailureKind::BadRequest)));
}

#[tokio::test]
async fn an_upstream_that_dies_mid_stream_is_seen_to_die() {
    for (head, reset) in [
        (CHUNKED, false),
        (CHUNKED, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", false),
    ] {
        let (upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(GET).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(head).await;
        agent.read_head().await;
        let piece: &[u8] = if head == CHUNKED { b"1\r\na\r\n" } else { b"a" };
        backend.write(piece).await;
        assert_eq!(agent.read_exact(piece.len()).await, piece);
        if reset {
            backend.reset();
        } else {
            drop(backend);
        }
        assert_eq!(agent.read_to_end().await, b"", "no terminal chunk");
        let call = proxy.recorder.only_call().await;
        assert_eq!(
            (call.ended(), call.response()),
            (Some(End::UpstreamReset), b"a".to_vec())
        );
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    for n in 0..3 {
        backend.read_head().await;
        let end = if n == 1 {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        } else {
            OK
        };
        backend.write(end).await;
        agent.read_head().await;
        agent.read_until(b"ok").await;
        if n == 1 {
            agent.read_until(b"0\r\n\r\n").await;
        }
        if n < 2 {
            agent.write(GET).await;
        }
    }
    let reused: Vec<_> = proxy
        .recorder
        .ended_calls(3)
        .await
        .iter()
        .map(|call| call.reused())
        .collect();
    assert_eq!(reused, [[false], [true], [true]]);
}

const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";

async fn answer(backend: &mut RawConnection, agent: &mut RawConnection) {
    backend.read_head().await;
    assert_eq!(backend.read_exact(3).await, b"abc");
    backend.write(OK).await;
    agent.read_until(b"ok").await;
}

#[tokio::test]
async fn a_post_waits_for_proof_that_the_upstream_keeps_connections() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(POST).await;
    let mut first = upstream.accept().await;
    let answered = Instant::now();
    answer(&mut first, &mut agent).await;
    // A server that closes unannounced may be about to close.
    agent.write(POST).await;
    let mut second = tokio::select! {
        second = upstream.accept() => second,
        _ = first.read_head() => {
            let after = answered.elapsed();
            assert!(after >= Duration::from_millis(100), "used again after {after:?}");
            skipped("this machine was too busy: the second call came after the wait");
            return;
        }
    };
    answer(&mut second, &mut agent).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    agent.write(POST).await;
    answer(&mut first, &mut agent).await;
    // The proxy now knows that the upstream keeps connections.
    agent.write(POST).await;
    answer(&mut first, &mut agent).await;
    let calls = proxy.recorder.ended_calls(4).await;
    let reused: Vec<_> = calls.iter().map(|call| call.reused()).collect();
    assert_eq!(reused, [[false], [false], [true], [true]]);
}

async fn serve_posts(listener: TcpListener) {
    loop {
        let (mut backend, _) = listener.accept().await.expect("a connection");
        tokio::spawn(async move {
            let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
            while let Ok(length @ 1..) = backend.read(&mut buffer).await {
                bytes.extend_from_slice(&buffer[..length]);
                if bytes.ends_with(b"abc") {
                    bytes.clear();
                    let _ = backend.write_all(OK.as_bytes()).await;
                }
            }
        });
    }
}

/// Under load, more connections are returned than may be kept. One of them must stay until it is old enough to show how
/// the upstream treats idle connections.
#[tokio::test]
async fn posts_without_a_pause_use_connections_again() {
    const AGENTS: usize = 16;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let proxy = Setup::to(listener.local_addr().expect("bound"));
    assert!(AGENTS > proxy.max_idle);
    let proxy = proxy.start().await;
    let upstream = tokio::spawn(serve_posts(listener));
    let began = tokio::time::Instant::now();
    let is_reused = || {
        let calls = proxy.recorder.calls();
        calls.iter().any(|call| call.reused() == [true])
    };
    let agents = (0..AGENTS).map(|_| async {
        let mut agent = RawConnection::connect(proxy.address).await;
        while !is_reused() && began.elapsed() < SOON {
            agent.write(POST).await;
            agent.read_until(b"ok").await;
        }
    });
    futures_util::future::join_all(agents).await;
    assert!(is_reused(), "every call opened its own connection");
    upstream.abort();
}

/// A burst of short calls to a new upstream opens about two connections for each agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_posts_opens_few_connections() {
    const AGENTS: usize = 8;
    const CALLS: usize = 400;
    for max_idle in [AGENTS, DEFAULT_MAX_IDLE] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
        let mut proxy = Setup::to(listener.local_addr().expect("bound"));
        proxy.max_idle = max_idle;
        let proxy = proxy.start().await;
        let upstream = tokio::spawn(serve_posts(listener));
        let agents = (0..AGENTS).map(|_| async {
            let mut agent = RawConnection::connect(proxy.address).await;
            for _ in 0..CALLS {
                agent.write(POST).await;
                agent.read_until(b"ok").await;
            }
        });
        futures_util::future::join_all(agents).await;
        let calls = proxy.recorder.ended_calls(AGENTS * CALLS).await;
        let opened = calls.iter().filter(|call| call.reused() == [false]).count();
        assert!(opened <= 20, "{opened} connections, max_idle {max_idle}");
        upstream.abort();
    }
}

/// After an endpoint closed once right after a response, it must keep connections for longer before they are reused.
#[tokio::test]
async fn an_endpoint_that_closed_unannounced_is_trusted_later() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(POST).await;
    let mut backend = upstream.accept().await;
    answer(&mut backend, &mut agent).await;
    drop(backend);
    let mut open = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        agent.write(POST).await;
        let mut backend = upstream.accept().await;
        answer(&mut backend, &mut agent).await;
        open.push(backend);
    }
    let calls = proxy.recorder.ended_calls(3).await;
    assert!(calls.iter().all(|call| call.reused() == [false]));
}

#[tokio::test]
async fn a_pooled_connection_that_was_closed_costs_no_request() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    drop(backend);
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(backend.read_exact(3).await, b"abc");
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    let calls = proxy.recorder.ended_calls(2).await;
    assert_eq!(calls[1].reused().last(), Some(&false));
    assert_eq!(calls[1].request(), b"abc");
    assert_eq!(calls[1].ended(), Some(End::Complete));
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    agent.write(GET).await;
    backend.read_head().await;
    drop(backend);
    let (head, message) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 502 Bad Gateway\r\n")
            && head.contains("x-tokengauge-error: upstream_reset\r\n"),
        "{head}"
    );
    assert!(
        message.contains("backend") && message.contains(&upstream.address.to_string()),
        "{message}"
    );
    let calls = proxy.recorder.ended_calls(2).await;
    assert_eq!(calls[1].ended(), Some(End::Failed(FailureKind::Reset)));
}

/// A server that closes connections soon after its responses would lose every second request.
#[tokio::test]
async fn an_upstream_that_lost_a_request_gets_the_next_ones_on_new_connections() {
    let (upstream, proxy, mut agent, mut backend) = reused(0).await;
    agent.write(GET).await;
    backend.read_head().await;
    drop(backend);
    let (head, _) = refusal(&mut agent).await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let mut open = Vec::new();
    for request in [GET, POST, GET, POST] {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(request).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(OK).await;
        agent.read_until(b"ok").await;
        open.push(backend);
    }
    let calls = proxy.recorder.ended_calls(6).await;
    let reused: Vec<_> = calls.iter().map(|call| call.reused()).collect();
    assert_eq!(
        reused,
        [[false], [true], [false], [false], [false], [false]]
    );
}

/// A proxy with one idle reused connection to the returned upstream, and its agent.
async fn reused(resend_bytes: usize) -> (Upstream, Proxy, RawConnection, RawConnection) {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.resend_bytes = resend_bytes;
    let proxy = setup.start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    // Until the connection has been open for a while, only idempotent requests reuse it.
    tokio::time::sleep(Duration::from_millis(150)).await;
    (upstream, proxy, agent, backend)
}

#[tokio::test]
async fn a_request_that_a_reused_connection_lost_is_sent_once_more_where_that_is_set() {
    let (upstream, proxy, mut agent, mut backend) = reused(16).await;
    agent
        .write("PUT /a HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nTrailer: digest\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await;
    let first = backend.read_head().await;
    backend.read_until(b"abc\r\n").await;
    drop(backend);
    let mut backend = upstream.accept().await;
    assert_eq!(backend.read_head().await, first);
    backend.read_until(b"3\r\nabc\r\n").await;
    agent.write("2\r\nde\r\n0\r\nDigest: 1\r\n\r\n").await;
    backend
        .read_until(b"2\r\nde\r\n0\r\ndigest: 1\r\n\r\n")
        .await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    let calls = proxy.recorder.ended_calls(2).await;
    assert_eq!(calls[1].reused(), [true, false]);
    assert_eq!(calls[1].request(), b"abcde");
    assert_eq!(calls[1].ended(), Some(End::Complete));
}

#[tokio::test]
async fn a_request_is_sent_at_most_twice() {
    let (upstream, proxy, mut agent, mut backend) = reused(16).await;
    agent.write(GET).await;
    backend.read_head().await;
    drop(backend);
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    drop(backend);
    let (head, _) = refusal(&mut agent).await;
    assert!(
        head.contains("x-tokengauge-error: upstream_reset\r\n"),
        "{head}"
    );
    let calls = proxy.recorder.ended_calls(2).await;
    assert_eq!(calls[1].ended(), Some(End::Failed(FailureKind::Reset)));
}

#[tokio::test]
async fn a_request_that_is_too_long_or_was_responded_to_is_not_sent_again() {
    const LONG: &str = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 17\r\n\r\n12345678901234567";
    const EARLY: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for (request, response) in [(LONG, ""), (GET, "HTTP/1.1 2"), (GET, EARLY)] {
        let (_upstream, proxy, mut agent, mut backend) = reused(16).await;
        agent.write(request).await;
        backend.read_head().await;
        if request == LONG {
            backend.read_exact(17).await;
        }
        backend.write(response).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(backend);
        let text = agent.read_until(b"}").await;
        let text = String::from_utf8_lossy(&text);
        assert!(
            text.contains("x-tokengauge-error: upstream_reset\r\n"),
            "{text}"
        );
        let calls = proxy.recorder.ended_calls(2).await;
        assert_eq!(calls[1].reused(), [true], "{response}");
    }
}

#[tokio::test]
async fn a_length_that_is_no_number_is_the_upstreams_fault_even_without_a_body() {
    for head in [
        "HTTP/1.1 304 Not Modified\r\nContent-Length: !9\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    ] {
        let (upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(GET).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(head).await;
        let (response, _) = refusal(&mut agent).await;
        assert!(
            response.starts_with("HTTP/1.1 502 Bad Gateway\r\n")
                && response.contains("x-tokengauge-error: upstream_protocol\r\n"),
            "{head}: {response}"
        );
        backend.closed().await;
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.ended(), Some(End::Failed(FailureKind::Protocol)));
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_named() {
    let address = nowhere();
    let proxy = Setup::to(address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    for _ in 0..2 {
        agent.write(GET).await;
        let (head, message) = refusal(&mut agent).await;
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
        assert!(
            head.contains("content-type: application/json\r\n")
                && head.contains("x-tokengauge-error: upstream_connect\r\n"),
            "{head}"
        );
        assert!(
            message.contains("backend") && message.contains(&address.to_string()),
            "{message}"
        );
    }
    let calls = proxy.recorder.ended_calls(2).await;
    assert!(
        calls
            .iter()
            .all(|call| call.ended() == Some(End::Failed(FailureKind::Connect)))
    );
}

#[tokio::test]
async fn a_request_without_a_route_is_refused_with_the_reason() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        prefix: "/known",
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let (head, _) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 404 Not Found\r\n")
            && head.contains("x-tokengauge-error: no_route\r\n"),
        "{head}"
    );
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.route.as_str(), call.ended()),
        ("none", Some(End::Failed(FailureKind::NoRoute)))
    );
}

#[tokio::test]
async fn the_endpoint_that_cannot_be_reached_is_left_alone_for_a_while() {
    let upstream = Upstream::bind().await;
    let dead = nowhere();
    let eject_for = Duration::from_secs(3);
    let setup = Setup {
        endpoints: vec![dead, upstream.address],
        eject_for,
        max_idle: 0,
        ..Setup::to(dead)
    };
    let proxy = setup.start().await;
    let mut tried = 0;
    let mut agent = RawConnection::connect(proxy.address).await;
    for n in 0..6 {
        agent.write(GET).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(OK).await;
        agent.read_until(b"ok").await;
        let calls = proxy.recorder.ended_calls(n + 1).await;
        tried += calls[n]
            .endpoints()
            .iter()
            .filter(|endpoint| **endpoint == dead.to_string())
            .count();
    }
    assert_eq!(tried, 1);
    tokio::time::sleep(eject_for).await;
    for n in 6..8 {
        agent.write(GET).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(OK).await;
        agent.read_until(b"ok").await;
        let calls = proxy.recorder.ended_calls(n + 1).await;
        tried += calls[n]
            .endpoints()
            .iter()
            .filter(|endpoint| **endpoint == dead.to_string())
            .count();
    }
    assert_eq!(tried, 2, "tried again when its time is over");
}

#[tokio::test]
async fn the_endpoint_with_the_fewest_requests_is_next() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let proxy = Setup {
        endpoints: vec![first.address, second.address],
        ..Setup::to(first.address)
    }
    .start()
    .await;
    let mut agents = Vec::new();
    let mut backends = Vec::new();
    for _ in 0..6 {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(GET).await;
        let mut backend = tokio::select! {
            backend = first.accept() => (0, backend),
            backend = second.accept() => (1, backend),
        };
        backend.1.read_head().await;
        agents.push(agent);
        backends.push(backend);
    }
    assert_eq!(backends.iter().filter(|(place, _)| *place == 0).count(), 3);
    // After two connections of the first endpoint have ended, the next two go to the first.
    let mut ended = 0;
    for (agent, (place, backend)) in agents.iter_mut().zip(&mut backends) {
        if *place == 0 && ended < 2 {
            backend
                .write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                .await;
            agent.read_until(b"ok").await;
            ended += 1;
        }
    }
    for _ in 0..2 {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(GET).await;
        backends.push((0, first.accept().await));
        agents.push(agent);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_http_has_a_separate_error() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write("SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
    let (head, _) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 502 Bad Gateway\r\n")
            && head.contains("x-tokengauge-error: upstream_protocol\r\n"),
        "{head}"
    );
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::Protocol))
    );
}

#[tokio::test]
async fn a_route_limits_requests_per_minute() {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.limits.requests_per_minute = std::num::NonZeroU32::new(1);
    let proxy = setup.start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(OK).await;
    agent.read_until(b"ok").await;
    agent.write(GET).await;
    let (head, _) = refusal(&mut agent).await;
    assert!(
        head.starts_with("HTTP/1.1 429 Too Many Requests\r\n") && head.contains("retry-after: "),
        "{head}"
    );
}

#[tokio::test]
async fn bytes_before_a_body_broke_off_are_not_lost() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    const WRONG: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n";
    for sent in [LENGTH, CHUNKS, WRONG] {
        let (upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(GET).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(sent).await;
        drop(backend);
        let seen = String::from_utf8(agent.read_to_end().await).unwrap();
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen:?}");
        assert!(seen.contains("abc"), "{seen:?}");
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.ended(), Some(End::UpstreamReset));
        assert_eq!(call.response(), b"abc");
    }
}

#[tokio::test]
async fn an_agent_of_http_1_0_does_not_take_a_cut_body_for_a_whole_one() {
    for sent in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        let whole = sent.ends_with("0\r\n\r\n");
        let (upstream, proxy) = proxy().await;
        let mut agent = TcpStream::connect(proxy.address).await.unwrap();
        let request = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        agent.write_all(request).await.unwrap();
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(sent).await;
        drop(backend);
        let mut seen = Vec::new();
        let read = soon("the end", agent.read_to_end(&mut seen)).await;
        assert_eq!(read.is_ok(), whole, "{read:?}");
        assert!(seen.ends_with(b"\r\n\r\nabc"), "{seen:?}");
        let seen = String::from_utf8_lossy(&seen);
        assert!(!seen.contains("keep-alive"), "{seen}");
    }
}
