//! What slow and greedy peers cost the others: 50 paced streams, alone and beside each of
//! them, directly and through the proxy, in turns.
//!
//! `cargo bench --bench backpressure` prints for each scene how late a chunk is at its agent
//! (p50, p99), that p99 beside the one of the streams alone, and the proxy's memory. The
//! direct column is the control: what the machine itself does under such peers. The proxy
//! has a core of its own; agents and backend share the other.

#[allow(dead_code, reason = "it takes a part of it")]
#[path = "peers/process.rs"]
mod process;

use anyhow::Context;
use process::{Cores, Preference, Processes, make_room_for_files, pin};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

const STREAMS: u64 = 50;
/// Between two chunks of a paced stream.
const PACE: Duration = Duration::from_millis(20);
/// Where no number is named.
const ROUNDS: usize = 5;
/// Of one scene in one round.
const SCENE: Duration = Duration::from_secs(3);
/// At its start, and not measured: the trouble has to come up.
const SETTLE: Duration = Duration::from_secs(1);
/// Bytes of a long prompt: more than is read to count its tokens.
const LONG: usize = 100 << 20;
/// Of a prompt whose tokens are counted.
const COUNTED: usize = 1 << 20;
/// Bytes a second of each prompt: four are a network of 1 Gbit/s.
const UPLOAD: usize = 30 << 20;
/// Tiny chunks a second of each such stream.
const TINY: usize = 5_000;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Who is there beside the paced streams.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Peer {
    Nobody,
    SlowReaders,
    NonReaders,
    TinyChunks,
    CountedPrompts,
    LongPrompts,
}

const PEERS: [(Peer, &str, usize); 6] = [
    (Peer::Nobody, "nobody", 0),
    (
        Peer::SlowReaders,
        "20 agents that read 1 KB/s of a flood",
        20,
    ),
    (Peer::NonReaders, "20 agents that never read a flood", 20),
    (
        Peer::TinyChunks,
        "4 streams of 5,000 one-byte chunks a second",
        4,
    ),
    (
        Peer::CountedPrompts,
        "4 prompts of 1 MB at once, over and over",
        4,
    ),
    (
        Peer::LongPrompts,
        "4 prompts of 100 MB at once, over and over",
        4,
    ),
];

fn main() -> anyhow::Result<()> {
    make_room_for_files()?;
    let _preference = Preference::take();
    let cores = Cores::choose()?;
    pin(cores.load)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(cores))
}

/// As many as the command line says: `cargo bench --bench backpressure -- 1`.
fn rounds() -> usize {
    let mut arguments = std::env::args().skip(1);
    arguments
        .find_map(|argument| argument.parse().ok())
        .filter(|rounds| *rounds > 0)
        .unwrap_or(ROUNDS)
}

/// What the chunks of one scene were late, in nanoseconds, over all rounds.
#[derive(Default)]
struct Scene {
    direct: Vec<(u64, u64)>,
    through: Vec<(u64, u64)>,
    resident_kb: f64,
}

async fn run(cores: Cores) -> anyhow::Result<()> {
    let backend = backend().await?;
    let (proxy, processes) = start(backend, cores)?;
    let mut scenes: Vec<Scene> = PEERS.iter().map(|_| Scene::default()).collect();
    for _ in 0..rounds() {
        for ((peer, _, count), scene) in PEERS.iter().zip(&mut scenes) {
            scene.direct.push(play(backend, *peer, *count).await?);
            scene.through.push(play(proxy, *peer, *count).await?);
            scene.resident_kb = scene.resident_kb.max(processes.resident_kb()?);
        }
    }
    print(&scenes);
    Ok(())
}

fn start(backend: SocketAddr, cores: Cores) -> anyhow::Result<(SocketAddr, Processes)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let url = format!("http://{backend}");
    let any = "127.0.0.1:0";
    command.args(["run", "--upstream", &url, "--listen", any, "--admin", any]);
    let (mut reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stderr(writer);
    let processes = Processes::start(command, cores.peer, cores.load)?;
    let mut lines = BufReader::new(&mut reader).lines();
    let listening =
        lines.find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.to_owned()));
    let address = listening.context("the proxy does not listen")?.parse()?;
    // The log goes on being read, or the proxy would have to wait for that.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok((address, processes))
}

/// One scene: how late its chunks were, at the median and at the 99th percentile.
async fn play(address: SocketAddr, peer: Peer, count: usize) -> anyhow::Result<(u64, u64)> {
    let late = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(trouble(address, peer));
    }
    let from = Instant::now() + SETTLE;
    for number in 0..STREAMS {
        let late = Arc::clone(&late);
        tasks.spawn(async move {
            // Spread over the pace, as agents are.
            tokio::time::sleep(PACE * u32::try_from(number)? / u32::try_from(STREAMS)?).await;
            listen(address, from, &late).await
        });
    }
    tokio::time::sleep(SETTLE + SCENE).await;
    tasks.shutdown().await;
    // What is still in the kernels' buffers is not the next scene's.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut late = std::mem::take(&mut *late.lock().expect("no panic"));
    late.sort_unstable();
    let expected = STREAMS * SCENE.as_millis() as u64 / PACE.as_millis() as u64;
    anyhow::ensure!(
        late.len() as u64 > expected / 2,
        "{} of {expected} chunks",
        late.len()
    );
    Ok((late[late.len() / 2], late[late.len() * 99 / 100]))
}

/// Nanoseconds on a clock that all of this process shares.
fn nanos() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// A chunk says when it was sent: `<16 digits>` amid a chat event of some length.
fn paced_chunk() -> String {
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"<{:016x}>\"}}}}]}}\n\n",
        nanos()
    );
    format!("{:x}\r\n{event}\r\n", event.len())
}

async fn listen(address: SocketAddr, from: Instant, late: &Mutex<Vec<u64>>) -> anyhow::Result<()> {
    let mut tcp = asked(TcpSocket::new_v4()?, address, "GET /v1/paced", "").await?;
    let mut piece = vec![0; 16 * 1024];
    loop {
        let length = tcp.read(&mut piece).await?;
        anyhow::ensure!(length > 0, "a paced stream ended");
        let now = nanos();
        let text = String::from_utf8_lossy(&piece[..length]);
        let sent = text
            .split('<')
            .skip(1)
            .filter_map(|rest| u64::from_str_radix(rest.get(..16)?, 16).ok());
        if Instant::now() >= from {
            late.lock()
                .expect("no panic")
                .extend(sent.map(|sent| now - sent));
        }
    }
}

async fn asked(
    socket: TcpSocket,
    address: SocketAddr,
    line: &str,
    more: &str,
) -> anyhow::Result<TcpStream> {
    let mut tcp = socket.connect(address).await?;
    tcp.set_nodelay(true)?;
    let request = format!("{line} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    tcp.write_all(request.as_bytes()).await?;
    Ok(tcp)
}

async fn trouble(address: SocketAddr, peer: Peer) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4()?;
    match peer {
        Peer::Nobody => {}
        Peer::SlowReaders | Peer::NonReaders => {
            socket.set_recv_buffer_size(4096)?;
            let mut tcp = asked(socket, address, "GET /v1/flood", "").await?;
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if peer == Peer::SlowReaders {
                    tcp.read_exact(&mut [0; 102]).await?;
                }
            }
        }
        Peer::TinyChunks => {
            let mut tcp = asked(socket, address, "GET /v1/tiny", "").await?;
            let mut piece = vec![0; 16 * 1024];
            while tcp.read(&mut piece).await? > 0 {}
        }
        Peer::CountedPrompts | Peer::LongPrompts => {
            let length = if peer == Peer::LongPrompts {
                LONG
            } else {
                COUNTED
            };
            let prompt = prompt(length);
            loop {
                upload(TcpSocket::new_v4()?, address, &prompt).await?;
            }
        }
    }
    Ok(())
}

/// A request of about so many bytes, written fast: the streams share this thread.
fn prompt(length: usize) -> Vec<u8> {
    const WORDS: &str = "Nobody waits for what another asks. ";
    let words = WORDS.repeat(length / WORDS.len());
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{words}"}}]}}"#).into_bytes()
}

async fn upload(socket: TcpSocket, address: SocketAddr, prompt: &[u8]) -> anyhow::Result<()> {
    let length = format!("Content-Length: {}\r\n", prompt.len());
    let mut tcp = asked(socket, address, "POST /v1/chat/completions", &length).await?;
    let (begun, mut sent) = (Instant::now(), 0);
    for block in prompt.chunks(64 * 1024) {
        let due = Duration::from_secs_f64(sent as f64 / UPLOAD as f64);
        tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
        tcp.write_all(block).await?;
        sent += block.len();
    }
    tcp.read_exact(&mut [0; 19]).await?;
    Ok(())
}

async fn backend() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(answer(tcp));
        }
    });
    Ok(address)
}

async fn answer(mut tcp: TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if head.starts_with("POST") {
        let length = head.split_once("Content-Length: ");
        let length = length.and_then(|(_, rest)| rest.split_once("\r\n")?.0.parse().ok());
        let mut left: usize = length.ok_or(std::io::ErrorKind::InvalidData)?;
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            left = left.saturating_sub(tcp.read(&mut piece).await?.max(1));
        }
        return tcp
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
    }
    tcp.write_all(HEAD.as_bytes()).await?;
    let mut every = tokio::time::interval(PACE);
    loop {
        match head.split(' ').nth(1) {
            Some("/v1/flood") => tcp.write_all(paced_chunk().repeat(100).as_bytes()).await?,
            Some("/v1/tiny") => {
                every.tick().await;
                for _ in 0..TINY * PACE.as_millis() as usize / 1_000 {
                    tcp.write_all(b"1\r\n:\r\n").await?;
                }
            }
            _ => {
                every.tick().await;
                tcp.write_all(paced_chunk().as_bytes()).await?;
            }
        }
    }
}

fn print(scenes: &[Scene]) {
    let rounds = scenes[0].direct.len();
    println!(
        "{STREAMS} streams, a chunk every {PACE:?}, {rounds} rounds in turns; how late a chunk is, in µs"
    );
    println!(
        "| beside them | direct p50 | p99 | to alone | proxy p50 | p99 | to alone | proxy memory |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let alone = &scenes[0];
    for (scene, (_, name, _)) in scenes.iter().zip(PEERS) {
        let cells = |rounds: &[(u64, u64)], alone: &[(u64, u64)]| {
            let (p50, p99) = (
                middle(rounds, |round| round.0),
                middle(rounds, |round| round.1),
            );
            format!(
                "{:.0} | {:.0} | {:.2}",
                p50,
                p99,
                p99 / middle(alone, |round| round.1)
            )
        };
        let (direct, through) = (
            cells(&scene.direct, &alone.direct),
            cells(&scene.through, &alone.through),
        );
        println!(
            "| {name} | {direct} | {through} | {:.1} MB |",
            scene.resident_kb / 1024.0
        );
    }
}

/// The median of the rounds, in microseconds.
fn middle(rounds: &[(u64, u64)], of: impl Fn(&(u64, u64)) -> u64) -> f64 {
    let mut all: Vec<u64> = rounds.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2] as f64 / 1_000.0
}
