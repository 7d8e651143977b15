//! A peer that does not take what is written to it is disconnected after the send timeout.

use crate::faults::frames::{
    CANCEL, DATA, HEADERS, PING, PREFACE, RST_STREAM, WINDOW_UPDATE, frame, frames, request,
    settings,
};
use std::time::{Duration, Instant};
use tokengauge_config::{ClientTls, Protocol, ServerTls, Timeouts};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_net::tls::Connector;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::{SOON, eventually, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The send timeout in these tests. All other timeouts are long.
const SEND: Duration = Duration::from_millis(600);

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const SIZED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";

async fn proxy(upstream: &Upstream) -> Proxy {
    proxy_that_waits(upstream, SEND).await
}

async fn proxy_that_waits(upstream: &Upstream, send: Duration) -> Proxy {
    let mut setup = Setup::to(upstream.address);
    let long = Duration::from_secs(60);
    setup.timeouts = Timeouts {
        connect: SOON,
        head: long,
        idle: long,
        send,
    };
    setup.start().await
}

/// Writes `piece` repeatedly, until a write stalls or the other side has closed.
async fn flood(tcp: &mut TcpStream, piece: &[u8]) {
    let flooding = async { while tcp.write_all(piece).await.is_ok() {} };
    let _ = tokio::time::timeout(SOON, flooding).await;
}

fn big_chunk() -> Vec<u8> {
    [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat()
}

/// An agent that reads a head and then nothing more, from a response that begins with `head`.
async fn never_reads(head: &str, piece: &[u8]) {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(head).await;
    agent.read_head().await;
    let began = Instant::now();
    flood(&mut backend.io, piece).await;
    assert!(began.elapsed() >= SEND, "{:?}", began.elapsed());
    let call = proxy.recorder.only_call().await;
    let end = End::Failed(FailureKind::AgentSendTimeout);
    assert_eq!(call.ended(), Some(end), "{head}");
    eventually("nothing is open", || proxy.shutdown.connections() == 0).await;
    // Bytes on their way to the agent were discarded with the connection.
    let rest = agent.read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn an_agent_that_never_reads_chunks_is_given_up() {
    never_reads(CHUNKED, &big_chunk()).await;
}

#[tokio::test]
async fn an_agent_that_never_reads_a_body_of_known_length_is_given_up() {
    never_reads(SIZED, &[b'x'; 0x10000]).await;
}

/// TLS buffers some bytes. That must not look like an agent that reads.
#[tokio::test]
async fn an_agent_that_never_reads_over_tls_is_given_up() {
    for head in [CHUNKED, SIZED] {
        let upstream = Upstream::bind().await;
        let authority = Authority::new();
        let (certificate, key) = authority.issue("server", "localhost");
        let mut setup = Setup::to(upstream.address);
        setup.timeouts.send = SEND;
        setup.timeouts.idle = Duration::from_secs(60);
        setup.listener_tls = Some(ServerTls {
            certificate,
            key,
            client_ca: None,
        });
        let proxy = setup.start().await;
        let tls = ClientTls {
            ca: Some(authority.file.clone()),
            ..ClientTls::default()
        };
        let connector = Connector::new(&tls, Protocol::Http1).expect("usable");
        let tcp = TcpStream::connect(proxy.address).await.expect("connected");
        let agent = connector.connect(tcp, "localhost").await;
        let mut agent = agent.expect("a handshake");
        agent.write_all(GET.as_bytes()).await.expect("written");
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(head).await;
        let piece = if head == CHUNKED {
            big_chunk()
        } else {
            vec![b'x'; 0x10000]
        };
        flood(&mut backend.io, &piece).await;
        let call = proxy.recorder.only_call().await;
        let end = End::Failed(FailureKind::AgentSendTimeout);
        assert_eq!(call.ended(), Some(end), "{head}");
        eventually("nothing is open", || proxy.shutdown.connections() == 0).await;
    }
}

#[tokio::test]
async fn an_agent_that_reads_slowly_is_not() {
    let upstream = Upstream::bind().await;
    // Far above the pauses that a busy machine adds.
    let send = Duration::from_secs(2);
    let proxy = proxy_that_waits(&upstream, send).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(GET).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(CHUNKED).await;
    agent.read_head().await;
    let chunk = big_chunk();
    let flooding = tokio::spawn(async move {
        for _ in 0..256 {
            backend.io.write_all(&chunk).await.expect("it is taken");
        }
        backend.io.write_all(b"0\r\n\r\n").await.expect("taken");
        backend
    });
    // The whole transfer takes longer than the limit, but no pause without a byte does.
    for _ in 0..8 {
        tokio::time::sleep(send / 7).await;
        agent.read_exact(1 << 20).await;
    }
    assert!(agent.read_until(b"\r\n0\r\n\r\n").await.len() > 1 << 20);
    flooding.await.expect("all was taken");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn only_the_stream_with_a_closed_window_is_reset() {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream).await;
    let mut agent = TcpStream::connect(proxy.address).await.expect("connected");
    let shut = [PREFACE, &settings(&[(4, 0)]), &request(1, "shut")].concat();
    agent.write_all(&shut).await.expect("written");
    let mut first = upstream.accept().await;
    first.read_head().await;
    first.write(format!("{CHUNKED}5\r\nhello\r\n")).await;
    // The other stream has a window, and continues for longer than a closed window is allowed.
    let open = [
        request(3, "open"),
        frame(WINDOW_UPDATE, 0, 3, 100_000_u32.to_be_bytes()),
    ];
    agent.write_all(&open.concat()).await.expect("written");
    let mut second = upstream.accept().await;
    second.read_head().await;
    second.write(CHUNKED).await;
    let mut heard = Vec::new();
    let began = Instant::now();
    let reset = |heard: &[u8]| frames(heard).iter().any(|frame| frame.0 == RST_STREAM);
    while !reset(&heard) {
        second.write("1\r\na\r\n").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _ = tokio::time::timeout(Duration::from_millis(50), agent.read_buf(&mut heard)).await;
        assert!(began.elapsed() < SOON, "never reset");
    }
    assert!(began.elapsed() >= SEND / 2, "{:?}", began.elapsed());
    soon("the upstream hears of it", first.closed()).await;
    second.write("1\r\nb\r\n0\r\n\r\n").await;
    agent
        .write_all(&frame(PING, 0, 0, [7; 8]))
        .await
        .expect("written");
    let of = |heard: &[u8], kind| {
        let all = frames(heard);
        let all = all.iter().filter(|frame| frame.0 == kind);
        all.map(|frame| (frame.2, frame.3.to_vec()))
            .collect::<Vec<_>>()
    };
    let ended = |heard: &[u8]| {
        let mut data = of(heard, DATA).into_iter();
        data.any(|(_, data)| data.ends_with(b"b"))
    };
    while !ended(&heard) {
        let read = soon("the neighbour's end", agent.read_buf(&mut heard)).await;
        assert!(read.expect("open") > 0);
    }
    assert_eq!(
        of(&heard, RST_STREAM),
        [(1, CANCEL.to_be_bytes().to_vec())],
        "the one stream"
    );
    assert_eq!(of(&heard, HEADERS).len(), 2);
    assert!(of(&heard, DATA).iter().all(|(stream, _)| *stream == 3));
    let calls = proxy.recorder.ended_calls(2).await;
    let ends: Vec<_> = calls.iter().map(|call| call.ended()).collect();
    let given_up = End::Failed(FailureKind::AgentSendTimeout);
    assert_eq!(ends, [Some(given_up), Some(End::Complete)]);
}

#[tokio::test]
async fn an_http2_connection_that_takes_no_bytes_is_closed() {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream).await;
    let mut agent = TcpStream::connect(proxy.address).await.expect("connected");
    let window = 0x7fff_0000_u32.to_be_bytes();
    let open = [
        PREFACE,
        &settings(&[(4, 0x7fff_ffff)]),
        &frame(WINDOW_UPDATE, 0, 0, window),
        &request(1, "never reads"),
    ];
    agent.write_all(&open.concat()).await.expect("written");
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(CHUNKED).await;
    flood(&mut backend.io, &big_chunk()).await;
    let call = proxy.recorder.only_call().await;
    let given_up = End::Failed(FailureKind::AgentSendTimeout);
    assert_eq!(call.ended(), Some(given_up));
    eventually("nothing is open", || proxy.shutdown.connections() == 0).await;
}

#[tokio::test]
async fn an_upstream_that_does_not_take_a_request_is_given_up_and_named() {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    flood(&mut agent.io, &[b'x'; 0x10000]).await;
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        call.ended(),
        Some(End::Failed(FailureKind::SendTimeout)),
        "not the agent's pause"
    );
    drop(backend);
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A tunnel of which one side reads nothing, while the other side continues to write.
async fn tunnel(agent_reads: bool) -> Option<End> {
    let upstream = Upstream::bind().await;
    let proxy = proxy(&upstream).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(UPGRADE).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(SWITCHED).await;
    agent.read_head().await;
    let (mut silent, mut busy) = if agent_reads {
        (backend.io, agent.io)
    } else {
        (agent.io, backend.io)
    };
    let talking = tokio::spawn(async move {
        while silent.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SEND / 10).await;
        }
    });
    flood(&mut busy, &[b'x'; 0x10000]).await;
    talking.abort();
    proxy.recorder.only_call().await.ended()
}

#[tokio::test]
async fn a_tunnel_whose_side_reads_nothing_is_closed_and_the_side_is_named() {
    let agent = End::Failed(FailureKind::AgentSendTimeout);
    assert_eq!(tunnel(false).await, Some(agent));
    let upstream = End::Failed(FailureKind::SendTimeout);
    assert_eq!(tunnel(true).await, Some(upstream));
}
