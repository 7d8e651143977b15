//! Slow peers and floods: their memory, and that other streams are not affected.
//!
//! The bounds in addition to the idle process are [`PER_STREAM`] for each slow stream and [`MEMORY`] for all measuring
//! together. `cargo bench --bench peers -- --noisy-neighbours` measures latency next to such peers.

use super::fixture::{MEMORY, ProxyFixture, Setup};
use super::message::{self, MessageEnd};
use super::script::Disconnect;
use crate::process::{Listener, SteppedBackend};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{DONE, finish, words};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Memory that one stream may hold, whatever its peers do.
const PER_STREAM: u64 = 256 << 10;
/// Memory for other reasons, such as code of an unoptimised build that runs for the first time.
const SLACK: u64 = 8 << 20;
/// Bytes of one stream that the loopback buffers of both kernels may hold.
const KERNEL: u64 = 32 << 20;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const TINY: usize = 1_200;
const PROMPT: u64 = 100 << 20;

/// A backend that reads and writes without end, and counts the bytes.
struct EndlessBackend {
    address: SocketAddr,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl EndlessBackend {
    async fn start(steps: SocketAddr) -> EndlessBackend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let tireless = EndlessBackend {
            address: listener.local_addr().expect("an address"),
            written: Arc::default(),
            read: Arc::default(),
        };
        let (written, read) = (Arc::clone(&tireless.written), Arc::clone(&tireless.read));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp, steps, Arc::clone(&written), Arc::clone(&read)));
            }
        });
        tireless
    }
}

async fn serve(
    mut tcp: TcpStream,
    steps: SocketAddr,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let text = String::from_utf8(head).expect("text");
    match text.split(' ').nth(1).expect("a target") {
        "/v1/flood" => {
            let _ = tcp.write_all(HEAD.as_bytes()).await;
            let piece = piece();
            while let Ok(()) = tcp.write_all(&piece).await {
                written.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
        }
        "/v1/chat/completions" if text.contains(&PROMPT.to_string()) => {
            take(&mut tcp, &read).await;
            let _ = tcp
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
        }
        "/v1/chat/completions" => {
            let mut body = [0; 2];
            let _ = tcp.read_exact(&mut body).await;
            let _ = tcp.write_all(&tiny()).await;
        }
        _ => {
            let mut backend = TcpStream::connect(steps).await.expect("connected");
            backend.write_all(text.as_bytes()).await.expect("written");
            let _ = tokio::io::copy_bidirectional(&mut tcp, &mut backend).await;
        }
    }
}

async fn take(tcp: &mut TcpStream, read: &AtomicU64) {
    let (block, mut at) = (block().repeat(2), 0);
    let mut piece = vec![0; 64 * 1024];
    while at < PROMPT {
        let length = tcp.read(&mut piece).await.unwrap_or(0);
        assert_ne!(length, 0, "ended after {at}");
        let from = (at % piece.len() as u64) as usize;
        assert!(piece[..length] == block[from..from + length], "at {at}");
        at += length as u64;
    }
    read.fetch_add(at, Ordering::Relaxed);
}

fn block() -> Vec<u8> {
    "{\"content\":\"word \"},"
        .bytes()
        .cycle()
        .take(64 * 1024)
        .collect()
}

fn piece() -> Vec<u8> {
    let events = words(20).repeat(100);
    format!("{:x}\r\n{events}\r\n", events.len()).into_bytes()
}

fn tiny() -> Vec<u8> {
    let events = words(2).repeat(TINY) + &finish(None) + DONE;
    let chunks: Vec<u8> = events
        .bytes()
        .flat_map(|byte| [b'1', b'\r', b'\n', byte, b'\r', b'\n'])
        .collect();
    [HEAD.as_bytes(), &chunks, b"0\r\n\r\n"].concat()
}

/// An agent with a small receive window that has asked for a flood.
async fn thirsty(proxy: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("small");
    let mut tcp = socket.connect(proxy).await.expect("connected");
    let request = "GET /v1/flood HTTP/1.1\r\nHost: h\r\nx-tokengauge-session: thirsty\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("written");
    tcp
}

struct BackpressureFixture {
    fixture: ProxyFixture,
    tireless: EndlessBackend,
    steps: SteppedBackend,
    at_rest: u64,
}

impl BackpressureFixture {
    async fn set() -> BackpressureFixture {
        let steps = SteppedBackend::start().await;
        let tireless = EndlessBackend::start(steps.address).await;
        let url = format!("http://{}", tireless.address);
        let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| setup.url = url).await;
        let at_rest = fixture.resident();
        BackpressureFixture {
            fixture,
            tireless,
            steps,
            at_rest,
        }
    }

    fn grown(&self) -> u64 {
        self.fixture.resident().saturating_sub(self.at_rest)
    }

    /// Waits until the backend can write no more, and returns how many bytes it wrote.
    async fn held_back(&self) -> u64 {
        let end = Instant::now() + TIMEOUT;
        let written = || self.tireless.written.load(Ordering::Relaxed);
        loop {
            let before = written();
            tokio::time::sleep(Duration::from_secs(2)).await;
            if before > 0 && written() == before {
                return before;
            }
            assert!(Instant::now() < end, "it writes and writes");
        }
    }

    /// Runs other streams during the flood and checks every byte of each.
    async fn others_are_unharmed(&self) {
        const STEPS: usize = 20;
        let mut streams = Vec::new();
        for number in 0..5 {
            streams.push(Listener::open(self.fixture.proxy(), "", format!("o{number}")).await);
        }
        for step in 1..=STEPS {
            self.steps.next();
            for stream in &mut streams {
                stream.step(step).await;
            }
        }
        self.steps.end();
        for stream in streams {
            let (id, text) = stream.whole().await;
            assert_eq!(text, SteppedBackend::whole(&id, STEPS));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_never_read_hold_their_own_backends_back() {
    const AGENTS: u64 = 20;
    let backpressure = BackpressureFixture::set().await;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        agents.push(thirsty(backpressure.fixture.proxy()).await);
    }
    let written = backpressure.held_back().await;
    let grown = backpressure.grown();
    println!(
        "{AGENTS} agents that never read: {} KB written, {} KB resident",
        written >> 10,
        grown >> 10
    );
    assert!(written < AGENTS * KERNEL, "{written} bytes");
    assert!(
        grown < AGENTS * PER_STREAM + MEMORY + SLACK,
        "{grown} bytes"
    );
    backpressure.others_are_unharmed().await;
    let later = backpressure.held_back().await;
    assert!(later < AGENTS * KERNEL, "{later} bytes");
    drop(agents);
    backpressure
        .fixture
        .returns_to_idle("agents that never read")
        .await;
    let records = backpressure
        .fixture
        .recorded("thirsty", AGENTS as usize)
        .await;
    let forwarded: u64 = records
        .iter()
        .filter_map(|record| record["bytes"]["response"].as_u64())
        .sum();
    assert!(forwarded <= later, "{forwarded} of {later} bytes");
    assert!(
        records
            .iter()
            .all(|record| record["outcome"] == "client_cancelled")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reads_a_kilobyte_a_second_gets_every_byte_in_its_own_time() {
    let backpressure = BackpressureFixture::set().await;
    let mut agent = thirsty(backpressure.fixture.proxy()).await;
    let written = backpressure.held_back().await;
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        let mut some = [0; 102];
        agent.read_exact(&mut some).await.expect("more");
        seen.extend_from_slice(&some);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seen = message::response(&seen, None).body;
    let expected = words(20).into_bytes().into_iter().cycle();
    assert!(seen.len() > 1_000, "{} bytes", seen.len());
    assert!(
        seen.iter()
            .copied()
            .zip(expected)
            .all(|(seen, expected)| seen == expected)
    );
    let more = backpressure.held_back().await - written;
    assert!(
        more < 1 << 20,
        "{more} bytes for {} that were read",
        seen.len()
    );
    assert!(
        backpressure.grown() < PER_STREAM + MEMORY + SLACK,
        "{}",
        backpressure.grown()
    );
    backpressure.others_are_unharmed().await;
    drop(agent);
    backpressure.fixture.returns_to_idle("a slow reader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_one_byte_cost_no_memory_and_every_token_is_counted() {
    let backpressure = BackpressureFixture::set().await;
    let mut agent = TcpStream::connect(backpressure.fixture.proxy())
        .await
        .expect("connected");
    let request = "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-tokengauge-session: tiny\r\nContent-Length: 2\r\n\r\n{}";
    agent.write_all(request.as_bytes()).await.expect("written");
    let reading = tokio::spawn(async move {
        let mut raw = Vec::new();
        agent.read_to_end(&mut raw).await.expect("read");
        raw
    });
    backpressure.others_are_unharmed().await;
    let raw = reading.await.expect("read");
    let seen = message::response(&raw, Some(Disconnect::Closed));
    let events = words(2).repeat(TINY) + &finish(None) + DONE;
    assert_eq!(
        (seen.body.len(), seen.end),
        (events.len(), MessageEnd::Whole)
    );
    assert!(seen.body == events.as_bytes());
    let record = backpressure.fixture.record("tiny").await;
    assert_eq!(
        record["tokens"]["normalised"]["output"],
        2 * TINY,
        "{record}"
    );
    assert_eq!(record["outcome"], "complete");
    assert!(
        backpressure.grown() < MEMORY + SLACK,
        "{}",
        backpressure.grown()
    );
    backpressure.fixture.returns_to_idle("tiny chunks").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_100_mb_pass_within_the_memory_of_measuring() {
    const PROMPTS: u64 = 4;
    let backpressure = BackpressureFixture::set().await;
    let proxy = backpressure.fixture.proxy();
    let prompts = (0..PROMPTS).map(|_| {
        tokio::spawn(async move {
            let mut agent = TcpStream::connect(proxy).await.expect("connected");
            let request = format!("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-tokengauge-session: long\r\nContent-Length: {PROMPT}\r\n\r\n");
            agent.write_all(request.as_bytes()).await.expect("written");
            let block = block();
            for _ in 0..PROMPT / block.len() as u64 {
                agent.write_all(&block).await.expect("written");
            }
            let mut response = String::new();
            agent.read_to_string(&mut response).await.expect("read");
            assert!(response.ends_with("\r\n\r\nok"), "{response}");
        })
    });
    let prompts: Vec<_> = prompts.collect();
    let (mut grown, mut held) = (0, 0.0_f64);
    while !prompts.iter().all(tokio::task::JoinHandle::is_finished) {
        grown = grown.max(backpressure.grown());
        held = held.max(
            backpressure
                .fixture
                .metric("tokengauge_meter_queue_bytes")
                .await,
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for prompt in prompts {
        prompt.await.expect("passed");
    }
    println!(
        "{PROMPTS} prompts of 100 MB: {} KB resident, {} KB held",
        grown >> 10,
        held as u64 >> 10
    );
    assert!(held <= MEMORY as f64, "{held} bytes");
    assert!(
        grown < PROMPTS * PER_STREAM + MEMORY + SLACK,
        "{grown} bytes"
    );
    assert_eq!(
        backpressure.tireless.read.load(Ordering::Relaxed),
        PROMPTS * PROMPT
    );
    backpressure.others_are_unharmed().await;
    backpressure.fixture.returns_to_idle("long prompts").await;
    let records = backpressure
        .fixture
        .recorded("long", PROMPTS as usize)
        .await;
    assert!(
        records
            .iter()
            .all(|record| record["bytes"]["request"] == PROMPT)
    );
}
