//! The real proxy in front of a backend. After a fault the proxy must return to its idle state.

use super::backend::Backend;
use super::message::{self, MessageEnd, ObservedMessage};
use super::script::{Peer, Script};
use crate::process::Process;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::meter::{DONE, finish, words};
use tokio::net::TcpStream;
use tokio::process::Command;

pub const MEMORY: u64 = 8 << 20;
/// Timeouts for heads and for pauses in bodies, for tests that wait until they expire.
pub const SHORT_TIMEOUT_MS: u64 = 2_000;
/// Timeouts for all other tests, longer than a busy machine delays anything.
const LONG_TIMEOUT_MS: u64 = 20_000;

const SETTINGS: &str = "\
listen = \"127.0.0.1:0\"
[admin]
listen = \"127.0.0.1:0\"
[measure]
stall_threshold = \"200ms\"
";

pub struct ProxyFixture {
    pub process: Process,
    pub backend: Backend,
    _folder: TempDir,
    idle: IdleState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IdleState {
    files: usize,
    tasks: f64,
    in_flight: f64,
    held_bytes: f64,
}

impl ProxyFixture {
    pub async fn start() -> ProxyFixture {
        ProxyFixture::with(|_| ()).await
    }

    pub async fn with_short_timeouts() -> ProxyFixture {
        ProxyFixture::with(|setup| setup.timeout_ms = SHORT_TIMEOUT_MS).await
    }

    pub async fn with_upstream(change: impl FnOnce(&mut Setup)) -> ProxyFixture {
        let mut fixture = ProxyFixture::begin(change).await;
        fixture.idle = fixture.settled().await;
        fixture
    }

    pub async fn with(change: impl FnOnce(&mut Setup)) -> ProxyFixture {
        let mut fixture = ProxyFixture::begin(change).await;
        fixture.next_call_works().await;
        fixture.idle = fixture.settled().await;
        fixture
    }

    async fn begin(change: impl FnOnce(&mut Setup)) -> ProxyFixture {
        let backend = Backend::start().await;
        let mut setup = Setup::new(&backend);
        change(&mut setup);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, setup.text()).expect("written");
        let mut command = setup.command;
        command.arg("run").args(setup.arguments);
        command.arg("--config").arg(path);
        ProxyFixture {
            process: Process::start_by(command).await,
            backend,
            _folder: folder,
            idle: IdleState::default(),
        }
    }

    pub fn proxy(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    pub async fn record(&self, session: &str) -> Value {
        self.recorded(session, 1).await.remove(0)
    }

    pub async fn recorded(&self, session: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let calls = self.records(session).await;
            let there = calls.len();
            assert!(there <= count, "{session} made {there} calls, not {count}");
            if there == count {
                return calls;
            }
            assert!(
                Instant::now() < end,
                "{there} of {count} calls of {session}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn records(&self, session: &str) -> Vec<Value> {
        let path = format!("/api/v1/calls?limit=1000&operation_class=all&session={session}");
        let response: Value =
            serde_json::from_str(&fetch(self.process.admin, &path).await.body).expect("an answer");
        response["calls"].as_array().expect("calls").clone()
    }

    /// Waits until the process has no more files, tasks, streams and queued bytes than when it was idle.
    pub async fn returns_to_idle(&self, after: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let now = self.now().await;
            if now == self.idle {
                return;
            }
            assert!(
                Instant::now() < end,
                "{after} left {now:?} of {:?}",
                self.idle
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn next_call_works(&self) {
        self.backend.set_script(&ordinary());
        let seen = ask(self.proxy(), &request("ordinary")).await;
        assert_eq!(seen.what.as_deref(), Some("200"), "{seen:?}");
        assert_eq!(seen.end, MessageEnd::Whole);
        assert_eq!(String::from_utf8_lossy(&seen.body), ordinary_body());
    }

    pub async fn now(&self) -> IdleState {
        let metrics = self.process.metrics().await;
        IdleState {
            files: self.open_files(),
            tasks: sum(&metrics, "tokengauge_runtime_alive_tasks"),
            in_flight: sum(&metrics, "tokengauge_streams_in_flight"),
            held_bytes: sum(&metrics, "tokengauge_meter_queue_bytes"),
        }
    }

    pub fn open_files(&self) -> usize {
        let path = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(path).expect("it runs").count()
    }

    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Peak resident memory in bytes since [`ProxyFixture::forget_peak`].
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    pub fn forget_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.process.id());
        std::fs::write(path, "5").expect("it is ours");
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        kibibytes
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
            * 1024
    }

    pub async fn metric(&self, name: &str) -> f64 {
        sum(&self.process.metrics().await, name)
    }

    async fn settled(&self) -> IdleState {
        let (mut last, mut same) = (self.now().await, 0);
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.now().await;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        assert_eq!((last.in_flight, last.held_bytes), (0.0, 0.0));
        last
    }
}

fn sum(metrics: &HashMap<String, f64>, name: &str) -> f64 {
    let series = metrics.iter().filter(|(series, _)| {
        let rest = series.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
    });
    series.map(|(_, value)| value).sum()
}

pub struct Setup {
    /// The command that executes the proxy. Its arguments are appended.
    pub command: Command,
    pub arguments: Vec<String>,
    /// Additional top-level configuration.
    pub settings: String,
    pub upstream: String,
    pub route: String,
    /// Keys of `[limits]` for measuring.
    pub bounds: String,
    pub url: String,
    pub http2_streams: usize,
    pub idle_for: &'static str,
    pub eject_for: &'static str,
    /// Timeouts for heads and for pauses in bodies, in milliseconds.
    pub timeout_ms: u64,
}

impl Setup {
    fn new(backend: &Backend) -> Setup {
        Setup {
            command: Command::new(env!("CARGO_BIN_EXE_tokengauge")),
            arguments: Vec::new(),
            settings: String::new(),
            upstream: String::new(),
            route: String::new(),
            bounds: format!("memory_bytes = {MEMORY}\nbody_bytes = \"1MiB\"\n"),
            url: format!("http://{}", backend.address),
            http2_streams: 100,
            idle_for: "100ms",
            eject_for: "1ms",
            timeout_ms: LONG_TIMEOUT_MS,
        }
    }

    fn text(&self) -> String {
        let Setup {
            settings,
            upstream,
            route,
            bounds,
            url,
            http2_streams,
            idle_for,
            eject_for,
            timeout_ms,
            ..
        } = self;
        format!(
            "{settings}{SETTINGS}{bounds}[limits]\nhttp2_streams = {http2_streams}\nhead_timeout = \"{timeout_ms}ms\"\n\
             [[upstream]]\nname = \"engine\"\nurl = \"{url}\"\n\
             idle_for = \"{idle_for}\"\neject_for = \"{eject_for}\"\ntimeouts.connect = \"{timeout_ms}ms\"\n\
             timeouts.head = \"{timeout_ms}ms\"\ntimeouts.idle = \"{timeout_ms}ms\"\n{upstream}\
             [[route]]\nupstream = \"engine\"\n{route}"
        )
    }
}

pub async fn ask(address: SocketAddr, script: &Script) -> ObservedMessage {
    let tcp = TcpStream::connect(address).await.expect("connected");
    let mut end = Peer::new(tcp);
    if end.play(script).await {
        end.receive_all().await;
    }
    message::response(&end.received, end.gone)
}

/// A chat request that asks to close the connection after the response.
pub fn request(session: &str) -> Script {
    Script::default().send(chat(session, "HTTP/1.1"))
}

pub fn chat(session: &str, version: &str) -> String {
    chat_about(session, version, "Hi")
}

pub fn chat_about(session: &str, version: &str, prompt: &str) -> String {
    let body = format!(
        "{{\"model\":\"m-1\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}"
    );
    let length = body.len();
    format!(
        "POST /v1/chat/completions {version}\r\nHost: backend\r\nConnection: close\r\n\
         TE: trailers\r\nContent-Type: application/json\r\nx-tokengauge-session: {session}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

pub const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                          Transfer-Encoding: chunked\r\n\r\n";

pub fn chunk(content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let size = format!("{:x}\r\n", content.len());
    [size.as_bytes(), content, b"\r\n"].concat()
}

/// The last events and the last chunk of a complete stream.
pub fn the_end() -> Vec<u8> {
    [chunk(finish(None)), chunk(DONE), b"0\r\n\r\n".to_vec()].concat()
}

pub fn ordinary() -> Script {
    let stream = Script::default().send(STREAM).send(chunk(words(4)));
    stream.send(chunk(words(6))).send(the_end())
}

fn ordinary_body() -> String {
    [words(4), words(6), finish(None), DONE.to_owned()].concat()
}
