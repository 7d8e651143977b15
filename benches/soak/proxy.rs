//! The real binary as a process, configured as in production, with its figures from `/proc` and its metrics.

use crate::backend::Backend;
use anyhow::Context;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Finished calls that the proxy keeps in memory, few enough that the ring is full long before memory is checked.
pub const RECENT_CALLS: usize = 200;

/// A running proxy that is killed on drop.
pub struct Proxy {
    child: Child,
    pub folder: PathBuf,
    pub traffic: SocketAddr,
    pub admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

pub fn configuration(folder: &Path, backend: Backend, generation: u64) -> String {
    let Backend {
        simulator,
        rogue,
        closed,
    } = backend;
    let state = folder.join("state");
    let state = state.display();
    format!(
        r#"listen = "127.0.0.1:0"
drain_timeout = "5s"
state_dir = "{state}"
[admin]
listen = "127.0.0.1:0"
[limits]
head_timeout = "10s"
[measure]
recent_calls = {RECENT_CALLS}
stall_threshold = "{}ms"
[otlp]
call_records = true
[[upstream]]
name = "one"
url = "http://{simulator}"
protocol = "http1"
idle_for = "2s"
gpu_usd_per_hour = 2.5
metrics_url = "http://{rogue}/metrics"
metrics_interval = "1s"
[[upstream]]
name = "two"
url = "http://{simulator}"
protocol = "http2"
idle_for = "2s"
[[upstream]]
name = "rogue"
url = "http://{rogue}"
idle_for = "2s"
[[upstream]]
name = "silent"
url = "http://{rogue}"
idle_for = "2s"
timeouts.head = "1s"
[[upstream]]
name = "closed"
url = "http://{closed}"
eject_for = "1s"
[[route]]
path = "/one"
upstream = "one"
strip = true
[[route]]
path = "/two"
upstream = "two"
strip = true
[[route]]
name = "injected"
path = "/injected"
upstream = "one"
strip = true
inject_usage = true
[[route]]
path = "/rogue"
upstream = "rogue"
strip = true
[[route]]
path = "/silent"
upstream = "silent"
[[route]]
path = "/closed"
upstream = "closed"
strip = true
[[route]]
name = "generation-{generation}"
path = "/generation-{generation}"
upstream = "two"
[[workload]]
name = "soak-chat"
agent = "soak-chat/*"
stall_threshold = "500ms"
[[workload]]
name = "soak-voice"
agent = "soak-voice/*"
[[slo]]
preset = "chat"
select.workload = "soak-chat"
[[slo]]
name = "voice-speed"
output_tps.at_least = 20
weight = "token"
select.workload = "soak-voice"
[[slo]]
name = "up"
availability = true
objective = 0.5
[[slo]]
name = "slices"
ttft.at_most = "2s"
slice = "1m"
[[price]]
model = "gpt-soak"
input = 2.0
output = 8.{}
[[budget]]
name = "sessions"
per = "session"
usd = 100000.0
[[quota]]
name = "sessions"
per = "session"
requests_per_minute = 1000000
tokens_per_minute = 1000000000
concurrent = 100000
[[quota]]
name = "keys"
per = "key"
tokens_per_minute = 1000000000
"#,
        250 + generation % 2,
        generation % 10,
    )
}

impl Proxy {
    /// Starts the proxy with all files in `folder` and OTLP exporters that send to `sink`.
    pub fn start(folder: &Path, backend: Backend, sink: SocketAddr) -> anyhow::Result<Proxy> {
        fs::create_dir_all(folder.join("state"))?;
        fs::write(folder.join("proxy.toml"), configuration(folder, backend, 0))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(["run", "--config"])
            .arg(folder.join("proxy.toml"))
            .arg("--call-log")
            .arg(folder.join("calls.jsonl"))
            .env("TOKENGAUGE_LOG", "info")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{sink}"))
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
            .env("OTEL_BSP_SCHEDULE_DELAY", "1000")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "5000")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the built binary")?;
        let stderr = child.stderr.take().context("piped")?;
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut lines = written.lock();
                // The first lines are needed for addresses, later only the newest ones.
                if lines.len() > 2000 {
                    lines.drain(100..1000);
                }
                lines.push(line);
            }
        });
        let mut proxy = Proxy {
            child,
            folder: folder.to_owned(),
            traffic: ([127, 0, 0, 1], 0).into(),
            admin: ([127, 0, 0, 1], 0).into(),
            log,
        };
        proxy.traffic = proxy.said("listening on ")?;
        proxy.admin = proxy.said("admin on ")?;
        Ok(proxy)
    }

    fn said(&self, before: &str) -> anyhow::Result<SocketAddr> {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            let found = self
                .log()
                .iter()
                .find_map(|line| line.strip_prefix(before)?.trim().parse().ok());
            if let Some(address) = found {
                return Ok(address);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("the proxy never said `{before}`: {:#?}", self.log())
    }

    pub fn log(&self) -> Vec<String> {
        let lines = self.log.lock();
        lines.clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn hang_up(&self) {
        signal(self.id(), Signal::HUP);
    }

    /// Ends the proxy as Kubernetes would, and returns whether it exited successfully.
    pub fn end(&mut self) -> anyhow::Result<bool> {
        signal(self.id(), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(process: u32, signal: Signal) {
    if let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, signal);
    }
}

pub fn resident_kb(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Open file descriptors with their targets, which help to explain an extra one.
pub fn descriptors(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

pub async fn ask(admin: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let exchange = async {
        let stream = TcpStream::connect(admin).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost");
        let request = request.body(Full::<bytes::Bytes>::default())?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        driver.abort();
        Ok((status, String::from_utf8(body.to_vec())?))
    };
    tokio::time::timeout(Duration::from_secs(20), exchange)
        .await
        .with_context(|| format!("{path} within 20 s"))?
}

pub async fn scrape(admin: SocketAddr) -> anyhow::Result<BTreeMap<String, f64>> {
    let (status, text) = ask(admin, "/metrics").await?;
    anyhow::ensure!(status == 200, "/metrics answers {status}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            Ok((series.to_owned(), value.parse()?))
        })
        .collect()
}

/// The sum of a metric's series whose labels contain all of `labels`.
pub fn sum(series: &BTreeMap<String, f64>, metric: &str, labels: &[&str]) -> f64 {
    let of = series.iter().filter(|(name, _)| {
        let rest = name.strip_prefix(metric);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
            && labels.iter().all(|label| name.contains(label))
    });
    of.map(|(_, value)| value).sum()
}
