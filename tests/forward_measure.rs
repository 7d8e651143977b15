//! The observer never affects traffic, whatever it does.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, Filter, Phase};
use tokengauge_test_support::agent::none;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::recorder::{ObserverEvent, RecordedCall, RecorderBehaviour};
use tokengauge_test_support::soon;
use tokengauge_test_support::upstream::Upstream;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn stream(behaviour: RecorderBehaviour) -> (Proxy, RawConnection, RawConnection) {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        behaviour,
        inject_usage: true,
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.read_exact(2).await;
    backend.write(CHUNKED).await;
    agent.read_head().await;
    (proxy, agent, backend)
}

/// Sends chunks, each when the previous one has arrived, and the end.
async fn talk(agent: &mut RawConnection, backend: &mut RawConnection, chunks: usize) {
    for n in 0..chunks {
        let chunk = format!("2\r\n{n:02}\r\n");
        backend.write(&chunk).await;
        assert_eq!(agent.read_exact(chunk.len()).await, chunk.as_bytes());
    }
    backend.write("0\r\n\r\n").await;
    assert_eq!(agent.read_exact(5).await, b"0\r\n\r\n");
}

#[tokio::test]
async fn an_observer_that_panics_costs_one_measurement_and_nothing_else() {
    let everywhere: [fn(&ObserverEvent) -> bool; 8] = [
        |seen| matches!(seen, ObserverEvent::Endpoint(_)),
        |seen| matches!(seen, ObserverEvent::Connected(..)),
        |seen| matches!(seen, ObserverEvent::RequestChunk(_)),
        |seen| matches!(seen, ObserverEvent::Sent(_)),
        |seen| matches!(seen, ObserverEvent::Head(..)),
        |seen| matches!(seen, ObserverEvent::Chunk(_)),
        |seen| matches!(seen, ObserverEvent::Overhead(..)),
        |seen| matches!(seen, ObserverEvent::Ended(..)),
    ];
    for (place, panics) in everywhere.into_iter().enumerate() {
        let (proxy, mut agent, mut backend) = stream(RecorderBehaviour {
            panics: Some(panics),
            ..RecorderBehaviour::default()
        })
        .await;
        talk(&mut agent, &mut backend, 5).await;
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.ended(), Some(End::Complete), "place {place}");
        assert_eq!(proxy.forwarder.observer_panics(), 1, "place {place}");
        // The record states which bytes the observer was not shown.
        let shown = call.chunks().len() as u64;
        let panicked_at_a_chunk = u64::from(place == 5);
        assert_eq!(
            shown - panicked_at_a_chunk + call.lagged(),
            5,
            "place {place}"
        );
    }
}

#[tokio::test]
async fn a_slow_observer_does_not_hold_up_the_chunk_it_looks_at() {
    let slow = Duration::from_secs(2);
    let (proxy, agent, mut backend) = stream(RecorderBehaviour {
        slow,
        ..RecorderBehaviour::default()
    })
    .await;
    let began = Instant::now();
    let watching = tokio::task::spawn_blocking(move || {
        let mut tcp = agent.io.into_std().unwrap();
        tcp.set_nonblocking(false).unwrap();
        std::io::Read::read_exact(&mut tcp, &mut [0; 7]).unwrap();
        (began.elapsed(), tcp)
    });
    backend.write("2\r\n00\r\n").await;
    let (took, _tcp) = watching.await.unwrap();
    assert!(took < slow, "{took:?}");
    assert!(proxy.recorder.calls().len() == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_outruns_its_observer_is_neither_delayed_nor_buffered() {
    let slow = Duration::from_millis(20);
    let (proxy, mut agent, mut backend) = stream(RecorderBehaviour {
        slow,
        ..RecorderBehaviour::default()
    })
    .await;
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let chunks = 500;
    let began = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..chunks {
            backend.write(&chunk).await;
        }
        backend.write("0\r\n\r\n").await;
    });
    agent.read_until(b"\r\n0\r\n\r\n").await;
    let took = began.elapsed();
    sending.await.unwrap();
    let call = proxy.recorder.only_call().await;
    assert!(took < slow * chunks / 2, "{took:?}");
    assert!(call.lagged() > 0);
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn the_proxys_own_overhead_is_reported() {
    let (proxy, mut agent, mut backend) = stream(RecorderBehaviour::default()).await;
    talk(&mut agent, &mut backend, 3).await;
    let call = proxy.recorder.only_call().await;
    for phase in [Phase::Head, Phase::Chunk] {
        let cost = overhead(&call, phase);
        assert!(
            cost > Duration::ZERO && cost < Duration::from_secs(1),
            "{phase:?}: {cost:?}"
        );
    }
}

/// Time that the proxy itself took in this phase of a call.
fn overhead(call: &RecordedCall, phase: Phase) -> Duration {
    let costs = call.all(|seen| match seen {
        ObserverEvent::Overhead(of, cost) if *of == phase => Some(*cost),
        _ => None,
    });
    assert_eq!(costs.len(), 1, "{phase:?}");
    costs[0]
}

#[tokio::test]
async fn how_long_an_http2_agent_reads_nothing_is_not_the_proxys_overhead() {
    const WINDOW: usize = 1_000;
    const SHUT: Duration = Duration::from_secs(2);
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let tcp = TcpStream::connect(proxy.address).await.expect("connected");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW as u32);
    let connection = builder.handshake(TokioIo::new(tcp)).await;
    let (mut agent, connection) = connection.expect("a connection");
    tokio::spawn(connection);
    let request = http::Request::get("http://h/").body(none()).unwrap();
    let sending = agent.send_request(request);
    let serving = async {
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        let chunk = format!("{WINDOW:x}\r\n{}\r\n", "x".repeat(WINDOW));
        backend.write(format!("{CHUNKED}{chunk}")).await;
        // The next chunk is read in its own read: the server has it while the window is closed.
        sleep(SHUT / 4).await;
        backend.write(&chunk).await;
        backend
    };
    let (response, mut backend) = tokio::join!(sending, serving);
    sleep(SHUT).await;
    let mut body = response.expect("a head").into_body();
    let mut read = 0;
    while read <= 2 * WINDOW {
        if read == 2 * WINDOW {
            backend.write("1\r\nx\r\n").await;
        }
        let frame = soon("a frame", body.frame()).await.expect("no end");
        read += frame.expect("read").into_data().expect("data").len();
    }
    backend.write("0\r\n\r\n").await;
    soon("the end", body.collect()).await.expect("whole");
    let call = proxy.recorder.only_call().await;
    let cost = overhead(&call, Phase::Chunk);
    assert!(cost < SHUT / 2, "{cost:?}");
}

/// Removes every `#`, and delays an `!` to the end.
struct RemovingFilter {
    held_back: bool,
}

impl Filter for RemovingFilter {
    fn push(&mut self, bytes: Bytes) -> Bytes {
        self.held_back |= bytes.contains(&b'!');
        bytes
            .iter()
            .copied()
            .filter(|byte| !b"#!".contains(byte))
            .collect()
    }
    fn finish(&mut self) -> Bytes {
        Bytes::from_static(if self.held_back { b"!" } else { b"" })
    }
}

fn injecting() -> RecorderBehaviour {
    RecorderBehaviour {
        rewrite: Some(|body| {
            (body == b"{\"stream\":true}")
                .then(|| Bytes::from_static(b"{\"stream\":true,\"usage\":true}"))
        }),
        filter: Some(|| Box::new(RemovingFilter { held_back: false })),
        ..RecorderBehaviour::default()
    }
}

async fn injecting_proxy() -> (Upstream, Proxy, RawConnection) {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        behaviour: injecting(),
        inject_usage: true,
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let agent = RawConnection::connect(proxy.address).await;
    (upstream, proxy, agent)
}

#[tokio::test]
async fn usage_is_asked_for_and_taken_out_again() {
    let (upstream, proxy, mut agent) = injecting_proxy().await;
    agent.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\nContent-Length: 15\r\n\r\n{\"stream\":true}").await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    assert!(
        head.contains("Accept-Encoding: identity\r\n") && head.contains("Content-Length: 28\r\n"),
        "{head}"
    );
    assert_eq!(
        backend.read_exact(28).await,
        b"{\"stream\":true,\"usage\":true}"
    );
    backend.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\na#b###c!d").await;
    let head = agent.read_head().await;
    assert!(
        !head.to_ascii_lowercase().contains("content-length"),
        "{head}"
    );
    assert_eq!(
        agent.read_until(b"0\r\n\r\n").await,
        b"4\r\nabcd\r\n1\r\n!\r\n0\r\n\r\n"
    );
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        call.response(),
        b"a#b###c!d",
        "the meter sees what the upstream sent"
    );
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn a_chunk_that_is_taken_out_whole_leaves_nothing_behind() {
    let (upstream, proxy, mut agent) = injecting_proxy().await;
    agent.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"stream\":true}").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(CHUNKED).await;
    agent.read_head().await;
    for piece in ["2\r\nab\r\n", "2\r\n##\r\n", "2\r\ncd\r\n", "0\r\n\r\n"] {
        backend.write(piece).await;
        if !piece.contains('#') {
            assert_eq!(agent.read_exact(piece.len()).await, piece.as_bytes());
        }
    }
    assert_eq!(proxy.recorder.only_call().await.response(), b"ab##cd");
}

#[tokio::test]
async fn bytes_that_are_not_rewritten_are_forwarded_unchanged() {
    let (upstream, _proxy, mut agent) = injecting_proxy().await;
    let big = format!("{{{}}}", " ".repeat(2 << 20));
    let length = big.len();
    let plain = |body: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (request, body) in [
        (plain("{\"stream\":false}"), "{\"stream\":false}".to_owned()),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_owned(), "2\r\n{}\r\n0\r\n\r\n".to_owned()),
        (plain(&big), big.clone()),
        (format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{length:X}\r\n{big}\r\n0\r\n\r\n"), String::new()),
    ] {
        let writing = agent.write(request);
        let reading = async {
            // A POST never uses a connection that has not been open for a while.
            let mut backend = upstream.accept().await;
            backend.read_head().await;
            if body.is_empty() {
                backend.read_until(b"\r\n0\r\n\r\n").await;
            } else {
                assert!(backend.read_exact(body.len()).await == body.as_bytes());
            }
            backend.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 3\r\n\r\na#b").await;
        };
        tokio::join!(writing, reading);
        agent.read_head().await;
        assert_eq!(agent.read_exact(3).await, b"a#b");
    }
}

#[tokio::test]
async fn what_an_agent_does_not_read_is_measured_all_the_same() {
    let (proxy, mut agent, mut backend) = stream(RecorderBehaviour::default()).await;
    backend.write("2\r\n00\r\n").await;
    agent.read_exact(7).await;
    let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
    // Write in small pieces until the proxy takes no more.
    let limit = Duration::from_millis(500);
    while let Ok(written) = timeout(limit, backend.io.write_all(chunk.as_bytes())).await {
        written.expect("a connection");
        sleep(Duration::from_millis(1)).await;
    }
    let shown = || proxy.recorder.calls()[0].chunks().len();
    let before = shown();
    drop(agent);
    proxy.recorder.ended_calls(1).await;
    assert!(before > 100, "{before}");
    assert_eq!(shown(), before, "nothing was left for the end");
}
