//! The real proxy in front of a backend, and what it must look like when a fault is over.

use super::backend::Backend;
use super::message::{self, Ending, Seen};
use super::play::{End, Play};
use crate::process::Process;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::PATIENCE;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::meter::{DONE, finish, words};
use tokio::net::TcpStream;
use tokio::process::Command;

/// What measuring may hold in these tests.
pub const MEMORY: u64 = 8 << 20;
/// How long an impatient proxy waits for heads, and in the middle of bodies, in milliseconds.
pub const GIVES_UP: u64 = 2_000;
/// And one that is not: longer than a busy machine holds anybody up.
const PATIENT: u64 = 20_000;

/// Bounds that tests reach, and connections that do not stay.
const SETTINGS: &str = "\
listen = \"127.0.0.1:0\"
[admin]
listen = \"127.0.0.1:0\"
[measure]
stall_threshold = \"200ms\"
";

pub struct World {
    pub process: Process,
    pub backend: Backend,
    _folder: TempDir,
    rest: Rest,
}

/// What the process has open when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rest {
    files: usize,
    tasks: f64,
    in_flight: f64,
    held_bytes: f64,
}

impl World {
    pub async fn start() -> World {
        World::with(|_| ()).await
    }

    /// One that gives up soon.
    pub async fn impatient() -> World {
        World::with(|setup| setup.gives_up = GIVES_UP).await
    }

    /// In front of an upstream that is somebody else's to play.
    pub async fn elsewhere(change: impl FnOnce(&mut Setup)) -> World {
        let mut world = World::begin(change).await;
        world.rest = world.settled().await;
        world
    }

    /// With one more thing or another in its configuration.
    pub async fn with(change: impl FnOnce(&mut Setup)) -> World {
        let mut world = World::begin(change).await;
        world.next_call_works().await;
        world.rest = world.settled().await;
        world
    }

    async fn begin(change: impl FnOnce(&mut Setup)) -> World {
        let backend = Backend::start().await;
        let mut setup = Setup::new(&backend);
        change(&mut setup);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, setup.text()).expect("written");
        let mut command = setup.command;
        command.arg("run").args(setup.arguments);
        command.arg("--config").arg(path);
        World {
            process: Process::start_by(command).await,
            backend,
            _folder: folder,
            rest: Rest::default(),
        }
    }

    pub fn proxy(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    /// The one finished call of this session.
    pub async fn record(&self, session: &str) -> Value {
        self.recorded(session, 1).await.remove(0)
    }

    /// The finished calls of this session, once there are so many.
    pub async fn recorded(&self, session: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + PATIENCE;
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

    /// The finished calls of this session so far.
    pub async fn records(&self, session: &str) -> Vec<Value> {
        let path = format!("/api/v1/calls?limit=1000&operation_class=all&session={session}");
        let answer: Value =
            serde_json::from_str(&fetch(self.process.admin, &path).await.body).expect("an answer");
        answer["calls"].as_array().expect("calls").clone()
    }

    /// Waits until nothing is left of what went on: no file, no task, no stream, no byte
    /// that is held for measuring, as it was before.
    pub async fn rests(&self, after: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.now().await;
            if now == self.rest {
                return;
            }
            assert!(
                Instant::now() < end,
                "{after} left {now:?} of {:?}",
                self.rest
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// An ordinary call, byte by byte and token by token.
    pub async fn next_call_works(&self) {
        self.backend.plays(&ordinary());
        let seen = ask(self.proxy(), &request("ordinary")).await;
        assert_eq!(seen.what.as_deref(), Some("200"), "{seen:?}");
        assert_eq!(seen.end, Ending::Whole);
        assert_eq!(String::from_utf8_lossy(&seen.body), ordinary_body());
    }

    pub async fn now(&self) -> Rest {
        let metrics = self.process.metrics().await;
        Rest {
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

    /// Resident memory of the process, in bytes.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most that was resident since [`World::forget_peak`], in bytes.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Begins anew to look for the most that is resident.
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

    /// What it has open once that no longer changes.
    async fn settled(&self) -> Rest {
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

/// All series of one metric together.
fn sum(metrics: &HashMap<String, f64>, name: &str) -> f64 {
    let series = metrics.iter().filter(|(series, _)| {
        let rest = series.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
    });
    series.map(|(_, value)| value).sum()
}

/// How the proxy is started.
pub struct Setup {
    /// Becomes the proxy; the arguments follow.
    pub command: Command,
    /// More of them.
    pub arguments: Vec<String>,
    /// More of the configuration's first part.
    pub settings: String,
    /// More of the one upstream.
    pub upstream: String,
    /// More of the one route.
    pub route: String,
    /// What measuring may hold.
    pub bounds: String,
    pub url: String,
    pub idle_for: &'static str,
    pub eject_for: &'static str,
    /// How long heads may take, and pauses in bodies, in milliseconds.
    pub gives_up: u64,
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
            idle_for: "100ms",
            eject_for: "1ms",
            gives_up: PATIENT,
        }
    }

    fn text(&self) -> String {
        let Setup {
            settings,
            upstream,
            route,
            bounds,
            url,
            idle_for,
            eject_for,
            gives_up,
            ..
        } = self;
        format!(
            "{settings}{SETTINGS}{bounds}[limits]\nhttp2_streams = 100\nhead_timeout = \"{gives_up}ms\"\n\
             [[upstream]]\nname = \"engine\"\nurl = \"{url}\"\n\
             idle_for = \"{idle_for}\"\neject_for = \"{eject_for}\"\ntimeouts.connect = \"{gives_up}ms\"\n\
             timeouts.head = \"{gives_up}ms\"\ntimeouts.idle = \"{gives_up}ms\"\n{upstream}\
             [[route]]\nupstream = \"engine\"\n{route}"
        )
    }
}

/// What an agent does and sees.
pub async fn ask(address: SocketAddr, play: &Play) -> Seen {
    let tcp = TcpStream::connect(address).await.expect("connected");
    let mut end = End::new(tcp);
    if end.play(play).await {
        end.listen().await;
    }
    message::response(&end.heard, end.gone)
}

/// What asks for a chat, whose connection closes after it.
pub fn request(session: &str) -> Play {
    Play::default().send(chat(session, "HTTP/1.1"))
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

/// The head of a stream of events in chunks.
pub const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                          Transfer-Encoding: chunked\r\n\r\n";

/// One chunk.
pub fn chunk(content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let size = format!("{:x}\r\n", content.len());
    [size.as_bytes(), content, b"\r\n"].concat()
}

/// What ends a stream as it should.
pub fn the_end() -> Vec<u8> {
    [chunk(finish(None)), chunk(DONE), b"0\r\n\r\n".to_vec()].concat()
}

/// A stream of 10 tokens.
pub fn ordinary() -> Play {
    let stream = Play::default().send(STREAM).send(chunk(words(4)));
    stream.send(chunk(words(6))).send(the_end())
}

fn ordinary_body() -> String {
    [words(4), words(6), finish(None), DONE.to_owned()].concat()
}
