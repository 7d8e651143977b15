//! Starts the real binary as a process, and an upstream that streams step by step.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// `tokengauge run` with a configuration file.
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    pub admin: SocketAddr,
}

impl Process {
    pub async fn start(config: &Path) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["run", "--config"]).arg(config);
        Process::start_by(command).await
    }

    /// Starts the process with this number of traffic threads. Requests under `/u` go to `url`. `upstream` contains
    /// further keys of the upstream.
    pub async fn start_threads(threads: usize, url: &str, upstream: &str) -> (Process, TempDir) {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[route]]\nupstream = \"u\"\npath = \"/u\"\n\
             [[upstream]]\nname = \"u\"\nurl = \"{url}\"\n{upstream}\n"
        );
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["run", "--config"]).arg(&file);
        command.env("TOKIO_WORKER_THREADS", threads.to_string());
        (Process::start_by(command).await, folder)
    }

    pub async fn start_by(mut command: Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        let mut stderr = BufReader::new(child.stderr.take().expect("piped")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                written.lock().expect("no panic").push(line);
            }
        });
        let mut process = Process {
            child,
            lines,
            admin: ([127, 0, 0, 1], 0).into(),
        };
        let admin = process.line("admin on ").await;
        process.admin = admin["admin on ".len()..].parse().expect("an address");
        process
    }

    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Addresses for agents, in the order in which they were opened.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let lines = self.lines.lock().expect("no panic");
        let found = lines
            .iter()
            .filter_map(|line| line.strip_prefix("listening on "));
        found
            .map(|address| address.parse().expect("an address"))
            .collect()
    }

    pub fn find(&self, text: &str) -> Option<String> {
        let lines = self.lines.lock().expect("no panic");
        lines.iter().find(|line| line.contains(text)).cloned()
    }

    pub async fn line(&self, text: &str) -> String {
        self.line_within(text, TIMEOUT).await
    }

    /// Waits for a log line that may take minutes.
    pub async fn eventually(&self, text: &str) -> String {
        self.line_within(text, 8 * TIMEOUT).await
    }

    async fn line_within(&self, text: &str, time: Duration) -> String {
        let end = Instant::now() + time;
        loop {
            if let Some(line) = self.find(text) {
                return line;
            }
            let lines = self.lines.lock().expect("no panic").clone();
            assert!(Instant::now() < end, "no line with {text:?} in {lines:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.id()).expect("an id")).expect("an id");
        kill_process(id, signal).expect("sent");
    }

    pub async fn metrics(&self) -> HashMap<String, f64> {
        let text = fetch(self.admin, "/metrics").await.body;
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| line.rsplit_once(' '));
        samples
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    pub async fn reloads(&self, result: &str) -> f64 {
        let series = format!("tokengauge_config_reloads_total{{result=\"{result}\"}}");
        self.metrics().await[&series]
    }

    pub async fn has_reloaded(&self, result: &str, count: f64) {
        let end = Instant::now() + TIMEOUT;
        while self.reloads(result).await < count {
            let log = self.lines.lock().expect("no panic").clone();
            assert!(Instant::now() < end, "never {count} {result}: {log:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.reloads(result).await, count);
    }

    pub async fn ended(mut self) -> ExitStatus {
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        ended.expect("it ends").expect("it can be waited for")
    }
}

/// Answers `/…/hello` at once, and `/…/stream/<id>` one chunk at a time on demand.
pub struct SteppedBackend {
    pub address: SocketAddr,
    step: watch::Sender<usize>,
    connections: Arc<AtomicUsize>,
}

/// The step that ends all streams.
const END: usize = usize::MAX;

impl SteppedBackend {
    pub async fn start() -> SteppedBackend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let step = watch::Sender::new(0);
        let connections = Arc::new(AtomicUsize::new(0));
        let (steps, count) = (step.subscribe(), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(answer(tcp, steps.clone()));
            }
        });
        SteppedBackend {
            address,
            step,
            connections,
        }
    }

    pub fn next(&self) {
        self.step.send_modify(|step| *step += 1);
    }

    pub fn end(&self) {
        self.step.send_replace(END);
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The wire bytes of stream `id` with this number of chunks.
    pub fn whole(id: &str, chunks: usize) -> String {
        let chunks: String = (1..=chunks).map(|step| chunk(id, step)).collect();
        chunks + "0\r\n\r\n"
    }
}

fn chunk(id: &str, step: usize) -> String {
    let text = format!("{id}:{step};");
    format!("{:X}\r\n{text}\r\n", text.len())
}

async fn answer(mut tcp: TcpStream, mut steps: watch::Receiver<usize>) {
    loop {
        let Some(target) = target(&mut tcp).await else {
            return;
        };
        let Some((_, id)) = target.split_once("/stream/") else {
            let hello = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            tcp.write_all(hello).await.expect("written");
            continue;
        };
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        tcp.write_all(head).await.expect("written");
        let mut done = 0;
        loop {
            let step = steps
                .wait_for(|step| *step > done)
                .await
                .map_or(END, |step| *step);
            if step == END {
                break;
            }
            for step in done + 1..=step {
                let chunk = chunk(id, step);
                tcp.write_all(chunk.as_bytes()).await.expect("written");
            }
            done = step;
        }
        tcp.write_all(b"0\r\n\r\n").await.expect("written");
    }
}

/// Reads a request without a body, and returns its target.
async fn target(tcp: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("text");
    head.split(' ').nth(1).map(str::to_owned)
}

/// An agent in the middle of a stream.
pub struct Listener {
    pub id: String,
    tcp: TcpStream,
    read: String,
}

impl Listener {
    /// Requests a stream and reads its head.
    pub async fn open(address: SocketAddr, route: &str, id: String) -> Listener {
        let mut tcp = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {route}/stream/{id} HTTP/1.1\r\nhost: test\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.expect("written");
        let mut listener = Listener {
            id,
            tcp,
            read: String::new(),
        };
        listener.until("\r\n\r\n").await;
        let head = listener.read.find("\r\n\r\n").expect("just read") + 4;
        let body = listener.read.split_off(head);
        assert!(
            listener.read.starts_with("HTTP/1.1 200"),
            "{}",
            listener.read
        );
        listener.read = body;
        listener
    }

    pub async fn step(&mut self, step: usize) {
        let chunk = chunk(&self.id, step);
        self.until(&chunk).await;
    }

    /// Reads to the end of the stream and returns its head and body.
    pub async fn whole(mut self) -> (String, String) {
        self.until("\r\n0\r\n\r\n").await;
        (self.id, self.read)
    }

    async fn until(&mut self, end: &str) {
        while !self.read.contains(end) {
            let mut piece = [0; 4096];
            let read = tokio::time::timeout(TIMEOUT, self.tcp.read(&mut piece)).await;
            let read = read
                .unwrap_or_else(|_| panic!("{} waits for {end:?} after {:?}", self.id, self.read));
            let length = read.unwrap_or(0);
            assert_ne!(length, 0, "{} dropped after {:?}", self.id, self.read);
            let piece = std::str::from_utf8(&piece[..length]).expect("text");
            self.read.push_str(piece);
        }
    }
}
