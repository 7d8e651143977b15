//! Traffic and measuring while the clock of the machine is wrong.

use crate::process::{Process, SteppedBackend};
use rustix::process::Signal;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge::config::{ClientTls, Protocol};
use tokengauge::tls::Connector;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{exchange, fetch};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::sleep;

/// `clock_gettime` of a machine whose wall clock reads `WALL_SECONDS` at the start of the process.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    static long long offset;
    if (!real) {
        struct timespec now;
        int (*found)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
        found(CLOCK_REALTIME, &now);
        offset = atoll(getenv("WALL_SECONDS")) - now.tv_sec;
        real = found;
    }
    int result = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += offset;
    return result;
}
"#;

/// The library that is loaded before the C library; the linker of Rust programs makes it.
fn wrong_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, WRONG_CLOCK).expect("written");
    let mut compiler = StdCommand::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl");
    let made = compiler.output().expect("cc runs");
    assert!(made.status.success(), "{made:?}");
    library
}

/// A year before 1970, and a day after 9999, which no text of RFC 3339 can have.
const WRONG: [(&str, &str); 2] = [
    ("-31536000", "1970-01-01T00:00:00.000Z"),
    ("253402400000", "9999-12-31T23:59:59.999Z"),
];

/// A proxy with state, an objective and a budget, whose clock begins at a number of seconds since 1970.
struct WrongClock {
    process: Process,
    _backend: SteppedBackend,
    folder: TempDir,
}

impl WrongClock {
    async fn start(seconds: &str, more: &str) -> WrongClock {
        let folder = TempDir::new().expect("a folder");
        let backend = SteppedBackend::start().await;
        let file = folder.path().join("proxy.toml");
        let (state, any) = (folder.path().join("state"), "listen = \"127.0.0.1:0\"\n");
        let text = format!(
            "{any}state_dir = {state:?}\n[admin]\n{any}{more}[[upstream]]\nname = \"u\"\nurl = \"http://{}\"\n\
             [[route]]\nupstream = \"u\"\n[[slo]]\nname = \"up\"\navailability = true\nobjective = 0.9\n\
             [[budget]]\nname = \"month\"\nusd = 5\nperiod = \"30d\"\n",
            backend.address
        );
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["run", "--config"]).arg(&file);
        command
            .arg("--call-log")
            .arg(folder.path().join("calls.jsonl"));
        command.env("LD_PRELOAD", wrong_clock(folder.path()));
        command.env("WALL_SECONDS", seconds);
        for key in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.env(key, "key");
        }
        WrongClock {
            process: Process::start_by(command).await,
            _backend: backend,
            folder,
        }
    }

    fn traffic(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    /// When the calls of the call log began, when there are `count`. (The library that answers operators panics at such clocks.)
    async fn logged(&self, count: usize) -> Vec<String> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let text = std::fs::read_to_string(self.folder.path().join("calls.jsonl"));
            let lines: Vec<_> = text
                .unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect();
            if lines.len() == count {
                let records = lines
                    .iter()
                    .map(|line| serde_json::from_str(line).expect("JSON"));
                return records
                    .map(|record: Value| record["started_at"].as_str().expect("a time").to_owned())
                    .collect();
            }
            assert!(Instant::now() < end, "{lines:#?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it; no thread has panicked until then.
    async fn ended(self) {
        self.process.signal(Signal::TERM);
        self.process.line("\"ended\"").await;
        assert_eq!(self.process.find("panicked"), None);
        assert!(self.process.ended().await.success());
    }
}

#[tokio::test]
async fn a_clock_that_no_text_can_have_costs_no_call_its_measurement() {
    for (seconds, written) in WRONG {
        let proxy = WrongClock::start(seconds, "").await;
        for _ in 0..4 {
            assert_eq!(fetch(proxy.traffic(), "/hello").await.status, 200);
        }
        assert_eq!(proxy.logged(4).await, [written; 4]);
        proxy.ended().await;
    }
}

#[tokio::test]
async fn an_s3_sink_waits_for_a_clock_that_it_can_sign_with() {
    let sink = "[[sink]]\nkind = \"s3\"\nurl = \"http://127.0.0.1:9\"\nbucket = \"b\"\nbatch_wait = \"100ms\"\n";
    let proxy = WrongClock::start(WRONG[0].0, sink).await;
    assert_eq!(fetch(proxy.traffic(), "/hello").await.status, 200);
    proxy
        .process
        .line("the clock of this machine is before 1970")
        .await;
    proxy.ended().await;
}

#[tokio::test]
async fn agents_over_tls_are_served_before_1970() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server", "localhost");
    let tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let proxy = WrongClock::start(WRONG[0].0, &tls).await;
    let tls = ClientTls {
        ca: Some(authority.file.clone()),
        ..ClientTls::default()
    };
    let connector = Connector::new(&tls, Protocol::Http1).expect("usable");
    for _ in 0..2 {
        let tcp = TcpStream::connect(proxy.traffic())
            .await
            .expect("connected");
        let stream = connector.connect(tcp, "localhost").await;
        let reply = exchange(stream.expect("a handshake"), "GET", "/hello", &[]).await;
        assert_eq!((reply.status, &*reply.body), (200, "hello"));
    }
    assert_eq!(proxy.logged(2).await, [WRONG[0].1; 2]);
    proxy.ended().await;
}
