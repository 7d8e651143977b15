//! Traffic and measuring while the machine's clock is wrong.

use crate::process::{Process, SteppedBackend};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_config::{ClientTls, Protocol};
use tokengauge_net::tls::Connector;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{exchange, fetch};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::sleep;

/// An override of `clock_gettime` that adds an offset in seconds, which the process maps from a file.
const OFFSET_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *at = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) offset = at;
}
int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    if (id == CLOCK_REALTIME && offset) time->tv_sec += *offset;
    return result;
}
"#;

/// A wall clock for processes that a test changes while they run.
pub struct SteppedClock {
    library: PathBuf,
    offset: File,
    path: PathBuf,
}

impl SteppedClock {
    /// Starts without an offset. Returns `None` without a C compiler.
    pub fn new(folder: &Path) -> Option<SteppedClock> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, OFFSET_CLOCK).expect("written");
        let built = StdCommand::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output()
            .is_ok_and(|output| output.status.success());
        let path = folder.join("offset");
        let clock = SteppedClock {
            library,
            offset: File::create(&path).expect("made"),
            path,
        };
        clock.set_ahead(0);
        built.then_some(clock)
    }

    pub fn set_ahead(&self, seconds: i64) {
        let written = self.offset.write_all_at(&seconds.to_ne_bytes(), 0);
        written.expect("set");
    }

    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("CLOCK_OFFSET", &self.path);
    }
}

/// A year before 1970 and a day after 9999, which RFC 3339 cannot express.
const WRONG: [(i64, &str); 2] = [
    (-31_536_000, "1970-01-01T00:00:00.000Z"),
    (253_402_400_000, "9999-12-31T23:59:59.999Z"),
];

/// A proxy with state, an objective and a budget, whose clock starts at a number of seconds since 1970.
struct WrongClock {
    process: Process,
    _backend: SteppedBackend,
    folder: TempDir,
}

impl WrongClock {
    async fn start(seconds: i64, more: &str) -> WrongClock {
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
        let clock = SteppedClock::new(folder.path()).expect("cc runs");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        clock.set_ahead(seconds - now.expect("a right clock").as_secs() as i64);
        clock.apply(&mut command);
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

    /// Start times in the call log once it has `count` calls. The log is read because the HTTP library of the admin
    /// address panics at such clocks.
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

    /// Stops the process and asserts that no thread has panicked.
    async fn ended(self) {
        self.process.signal(Signal::TERM);
        self.process.line("\"ended\"").await;
        assert_eq!(self.process.find("panicked"), None);
        assert!(self.process.ended().await.success());
    }
}

#[tokio::test]
async fn calls_are_measured_even_if_the_clock_cannot_be_written_as_text() {
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
        let response = exchange(stream.expect("a handshake"), "GET", "/hello", &[]).await;
        assert_eq!((response.status, &*response.body), (200, "hello"));
    }
    assert_eq!(proxy.logged(2).await, [WRONG[0].1; 2]);
    proxy.ended().await;
}
