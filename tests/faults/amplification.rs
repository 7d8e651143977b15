//! Memory that measuring needs for bytes that are few on the wire and many when decoded.
//!
//! The bound in addition to the idle process is `memory_bytes` for all measuring together, [`PER_STREAM`] for each open
//! stream, and [`SLACK`].

use super::fixture::{ProxyFixture, Setup, chunk};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::wire::encode::encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const MEMORY: u64 = 64 << 20;
/// Memory of one open stream in addition to `memory_bytes`, as stated in `docs/reliability.md`.
const PER_STREAM: u64 = 256 << 10;
/// Memory that the allocator keeps, and that one thread needs to read a body.
const SLACK: u64 = 32 << 20;
/// Deadline for an answer of the admin address during the attack.
const LIVEZ: Duration = Duration::from_secs(5);

const BOUNDS: &str = "memory_bytes = \"64MiB\"\n";
const UPGRADE: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                        Upgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n";

/// Answers every request with fixed bytes and keeps the connection open.
struct CannedBackend {
    address: SocketAddr,
    written: Arc<AtomicU64>,
}

impl CannedBackend {
    async fn start(response: Vec<u8>) -> CannedBackend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let written = Arc::new(AtomicU64::new(0));
        let (response, count) = (Arc::new(response), Arc::clone(&written));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (response, count) = (Arc::clone(&response), Arc::clone(&count));
                tokio::spawn(async move {
                    let (mut reading, mut writing) = tcp.into_split();
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match reading.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    if writing.write_all(&response).await.is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = tokio::io::copy(&mut reading, &mut tokio::io::sink()).await;
                });
            }
        });
        CannedBackend { address, written }
    }
}

struct AttackCost {
    fixture: ProxyFixture,
    at_rest: u64,
}

impl AttackCost {
    async fn of(name: &str, streams: u64, request: &[u8], response: Vec<u8>) -> AttackCost {
        AttackCost::with(name, streams, request, response, |_| ()).await
    }

    async fn with(
        name: &str,
        streams: u64,
        request: &[u8],
        response: Vec<u8>,
        change: impl FnOnce(&mut Setup),
    ) -> AttackCost {
        let bytes = response.len() as u64;
        let upstream = CannedBackend::start(response).await;
        let url = format!("http://{}", upstream.address);
        let fixture = ProxyFixture::with_upstream(|setup| {
            setup.url = url;
            setup.bounds = BOUNDS.to_owned();
            change(setup);
        })
        .await;
        let at_rest = fixture.resident();
        fixture.forget_peak();
        let read = Arc::new(AtomicU64::new(0));
        let mut agents = JoinSet::new();
        for _ in 0..streams {
            let mut tcp = TcpStream::connect(fixture.proxy())
                .await
                .expect("connected");
            let (request, read) = (request.to_owned(), Arc::clone(&read));
            agents.spawn(async move {
                tcp.write_all(&request).await.expect("written");
                let mut piece = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = tcp.read(&mut piece).await {
                    read.fetch_add(length as u64, Ordering::Relaxed);
                }
            });
        }
        let mut cost = AttackCost { fixture, at_rest };
        cost.arrives(&upstream, &read, streams, bytes).await;
        let held = cost.fixture.metric("tokengauge_meter_queue_bytes").await;
        let lost = cost
            .fixture
            .metric("tokengauge_meter_lagged_frames_total")
            .await;
        agents.shutdown().await;
        cost.fixture.returns_to_idle(name).await;
        let peak = cost.fixture.peak().saturating_sub(at_rest);
        println!(
            "{name}: {bytes} bytes on each of {streams} streams, {} KB at the peak, {} KB held, \
             {lost} chunks not measured",
            peak >> 10,
            held as u64 >> 10
        );
        println!("{name}: {} KB left", cost.given_back().await >> 10);
        assert!(
            peak <= MEMORY + streams * PER_STREAM + SLACK,
            "{peak} bytes"
        );
        for panics in [
            "tokengauge_meter_panics_total",
            "tokengauge_observer_panics_total",
        ] {
            assert_eq!(
                cost.fixture.process.metrics().await[panics],
                0.0,
                "{panics}"
            );
        }
        cost.at_rest = at_rest;
        cost
    }

    async fn arrives(&self, upstream: &CannedBackend, read: &AtomicU64, streams: u64, bytes: u64) {
        let end = Instant::now() + 2 * TIMEOUT;
        let mut slowest = Duration::ZERO;
        loop {
            let asked = Instant::now();
            assert_eq!(
                fetch(self.fixture.process.admin, "/livez").await.status,
                200
            );
            slowest = slowest.max(asked.elapsed());
            let written = upstream.written.load(Ordering::Relaxed);
            if written == streams && read.load(Ordering::Relaxed) >= streams * bytes / 2 {
                let before = read.load(Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1500)).await;
                if read.load(Ordering::Relaxed) == before {
                    break;
                }
            }
            assert!(Instant::now() < end, "{written} of {streams} were written");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(slowest < LIVEZ, "/livez took {slowest:?}");
    }

    /// Returns the resident memory once it no longer falls.
    async fn given_back(&self) -> u64 {
        let end = Instant::now() + TIMEOUT;
        loop {
            let left = self.fixture.resident().saturating_sub(self.at_rest);
            if left <= SLACK {
                return left;
            }
            assert!(Instant::now() < end, "{left} bytes were not given back");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn chat() -> Vec<u8> {
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}".to_vec()
}

fn json(encoding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {encoding}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn stream(media_type: &str, encoding: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: {encoding}\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    let pieces = pieces.iter().flat_map(chunk);
    head.bytes().chain(pieces).collect()
}

fn choices(bytes: usize) -> Vec<u8> {
    let many = "{},".repeat(bytes / 3);
    format!("{{\"choices\":[{many}{{}}]}}").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_kilobytes_of_gzip_that_are_a_million_choices() {
    let body = encode("gzip", &choices(4_100_000));
    assert!(body.len() < 8 << 10, "{} bytes", body.len());
    AttackCost::of("a million choices in gzip", 1, &chat(), json("gzip", &body)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_millions_of_choices() {
    let response = json("identity", &choices(4 << 20));
    AttackCost::of("millions of choices", 2, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_million_tool_calls() {
    let calls = "{},".repeat(1 << 20);
    let event =
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{calls}{{}}]}}}}]}}\n\n");
    let response = stream("text/event-stream", "identity", &[event.as_bytes()]);
    AttackCost::of("a million tool calls", 2, &chat(), response).await;
}

#[derive(Default)]
struct BitWriter(Vec<bool>);

impl BitWriter {
    fn put(&mut self, count: usize, number: u32) {
        self.0.extend((0..count).map(|bit| number >> bit & 1 == 1));
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| (0..).zip(bits).map(|(at, bit)| u8::from(*bit) << at).sum();
        self.0.chunks(8).map(byte).collect()
    }
}

/// A Brotli head with the largest window and 256 tables each for literals and distances, none of which follows.
fn tables() -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.put(4, 0b1111);
    bits.put(1, 0);
    bits.put(2, 2);
    bits.put(24, 0xff_ffff);
    bits.put(1, 0);
    // One block type each, no postfix, no direct distances, context mode 0.
    bits.put(3, 0);
    bits.put(6, 0);
    bits.put(2, 0);
    for _ in 0..2 {
        bits.put(4, 0b1111);
        bits.put(7, 127);
        bits.put(1, 0);
        bits.put(2, 1);
        bits.put(2, 0);
        bits.put(8, 0);
        bits.put(1, 0);
    }
    bits.put(24, 0);
    bits.bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_bytes_of_brotli_on_each_of_200_streams() {
    let response = stream("text/event-stream", "br", &[&tables()]);
    AttackCost::of("tables of brotli", 200, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_zstd_on_each_of_60_streams() {
    // A zstd frame with a window of 8 MiB and one-byte blocks that each decode to 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3];
    let block = |frame: &mut Vec<u8>, kind: u32, size: u32, content: &[u8]| {
        frame.extend_from_slice(&(size << 3 | kind << 1).to_le_bytes()[..3]);
        frame.extend_from_slice(content);
    };
    // Leading blanks, which are not stored anywhere else.
    for _ in 0..30 {
        block(&mut frame, 1, 128 << 10, b" ");
    }
    let response = stream("application/json", "zstd", &[&frame]);
    AttackCost::of("windows of zstd", 60, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_brotli_on_each_of_60_streams() {
    let blanks = encode("br-16MB", &vec![b' '; 20 << 20]);
    let response = stream("application/json", "br", &[&blanks]);
    AttackCost::of("windows of brotli", 60, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_a_long_event_is_returned() {
    let event = format!("data: {{\"x\":\"{}\"}}\n\n", "x".repeat(2 << 20));
    let response = stream("text/event-stream", "identity", &[event.as_bytes()]);
    AttackCost::of("an event of 2 MB and then silence", 60, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_megabyte_are_not_remembered() {
    let long = "x".repeat(1 << 20);
    let events: String = (0..6)
        .map(|n| {
            format!(
                "event: {long}\ndata: {{\"id\":\"{n}{long}\",\"choices\":[{{\"delta\":{{\"tool_calls\":\
                 [{{\"index\":{n},\"id\":\"{n}{long}\",\"function\":{{\"name\":\"f\"}}}}]}}}}]}}\n\n"
            )
        })
        .collect();
    let response = stream("text/event-stream", "identity", &[events.as_bytes()]);
    AttackCost::of("names of a megabyte", 30, &chat(), response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_event_stream_chunks_is_returned() {
    let long = "x".repeat(3 << 19);
    let event = format!("{{\"bytes\":\"{long}\"}}\n");
    let request = b"POST /model/m/invoke-with-response-stream HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";
    let response = stream("application/x-ndjson", "identity", &[event.as_bytes()]);
    AttackCost::of("a chunk of 1.5 MB", 60, request, response).await;
}

/// A WebSocket frame of a server: the first byte, the announced length, and as much of its payload as is given.
fn frame(first: u8, length: u64, payload: &[u8]) -> Vec<u8> {
    [&[first, 127], &length.to_be_bytes()[..], payload].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continuation_as_long_as_numbers_go() {
    let response = [
        SWITCHED.as_bytes().to_vec(),
        frame(0x01, 3, b"abc"),
        frame(0x80, u64::MAX, &vec![b'x'; 120 << 20]),
    ];
    AttackCost::of(
        "a continuation of 2^64 - 1 bytes",
        1,
        UPGRADE.as_bytes(),
        response.concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_on_100_sockets_that_do_not_end() {
    let response = [
        SWITCHED.as_bytes().to_vec(),
        frame(0x01, 7 << 20, &vec![b'x'; (7 << 20) - 1]),
    ];
    AttackCost::of(
        "messages that do not end",
        100,
        UPGRADE.as_bytes(),
        response.concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_chunks_of_a_byte_that_are_read_to_be_rewritten() {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let request = head.to_owned() + &"1\r\n \r\n".repeat(500_000);
    let upstream = CannedBackend::start(Vec::new()).await;
    let url = format!("http://{}", upstream.address);
    let fixture = ProxyFixture::with_upstream(|setup| {
        setup.url = url;
        setup.bounds = BOUNDS.to_owned();
        setup.route = "inject_usage = true\n".to_owned();
    })
    .await;
    let at_rest = fixture.resident();
    fixture.forget_peak();
    const AGENTS: u64 = 8;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let mut tcp = TcpStream::connect(fixture.proxy())
            .await
            .expect("connected");
        let request = request.clone();
        agents.push(tokio::spawn(async move {
            tcp.write_all(request.as_bytes()).await.expect("written");
            tcp
        }));
    }
    let mut open = Vec::new();
    for agent in agents {
        open.push(agent.await.expect("written"));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let peak = fixture.peak().saturating_sub(at_rest);
    println!("chunks of a byte to be rewritten: {} KB", peak >> 10);
    assert!(
        peak <= AGENTS * (PER_STREAM + (1 << 20)) + (8 << 20),
        "{peak} bytes"
    );
    drop(open);
    fixture
        .returns_to_idle("requests in chunks of a byte")
        .await;
}
