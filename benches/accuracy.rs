//! Accuracy of the proxy's figures.
//!
//! Run it with `cargo bench --bench accuracy`, or with other numbers of streams: `cargo bench --bench accuracy -- 1 50`.
//!
//! A simulated backend and the agents run in this process, and the proxy is the built binary. Each call's record is
//! compared with the truth of the backend (times after each write to the socket) and with the times at which the agent
//! read chunks. All use the machine's monotonic clock.
//!
//! - **TTFT, backend's share**: the record's `ttft_upstream` compared with (first token written − whole request read)
//!   at the backend. The record includes two hops over loopback and any wait for a processor, but the truth does not.
//! - **TTFT, agent's view**: the record's `ttft` compared with (first token read − request handed to the connection) at
//!   the agent.
//! - **output_tps** and **longest gap**: the record's values compared with the backend's.
//! - **tokens**: calls whose normalised output count differs from the number of sent tokens.
//!
//! All processes share this machine. If all processors are busy, a late process is an error of the measurement, not
//! only of the proxy.

#[allow(dead_code, reason = "only a part of it is used")]
#[path = "peers/cores.rs"]
mod cores;
#[path = "peers/keep_awake.rs"]
mod keep_awake;
#[allow(dead_code, reason = "only a part of it is used")]
#[path = "peers/process.rs"]
mod process;

use bytes::Bytes;
use cores::Cores;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use keep_awake::KeepAwake;
use process::{make_room_for_files, raise_priority};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_sim::{Profile, Simulator, Truth};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Limit of open files: both ends of 500 streams.
const FILES: u64 = 16 * 1024;
/// Behaviour of each stream: about 8 s, with a stall of a quarter second in the middle.
const BEHAVIOUR: &str = "ttft=300ms,gap=40ms~10ms,tokens=192,stall=250ms@96,usage=on";

fn main() {
    let asked: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let rounds = if asked.is_empty() {
        vec![1, 50, 500]
    } else {
        asked
    };
    // Other processes of the machine would add latency that the proxy does not cause.
    raise_priority();
    make_room_for_files(FILES).expect("a limit on files that can be raised");
    let _awake = Cores::choose(1).map(KeepAwake::keep);
    println!("{BEHAVIOUR}\n");
    println!(
        "{:>8}{:>7}  {:^26}{:^26}{:^24}{:^26}{:>9}",
        "streams",
        "calls",
        "TTFT backend's share, ms",
        "TTFT agent's view, ms",
        "output_tps, %",
        "longest gap, ms",
        "tokens"
    );
    let columns = format!("{:>8}{:>9}{:>9}", "p50", "p99", "max");
    println!(
        "{:>15}{columns}{columns}{columns}{columns}{:>9}",
        "", "wrong"
    );
    for streams in rounds {
        // One stream makes one call a round, but a percentile needs more.
        let repeats = (10 / streams).max(1);
        println!("{}", measure(streams, repeats));
    }
    println!("\ngoals: TTFT ≤ 1 ms at p99, output_tps ≤ 0.5 %, longest gap ≤ 1 ms, no wrong count");
}

struct AgentCall {
    id: String,
    ttft: f64,
}

fn measure(streams: usize, repeats: usize) -> String {
    let backend = runtime();
    let agents = runtime();
    let simulator = Simulator::new(BEHAVIOUR.parse::<Profile>().expect("settings"));
    let address = serve(&backend, &simulator);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls.jsonl");
    let proxy = Proxy::start(address, &log);
    let mut seen = Vec::new();
    for round in 0..repeats {
        seen.extend(agents.block_on(call_all(proxy.address, round, streams)));
    }
    let records = proxy.records(&log, seen.len());
    let truths: HashMap<String, Arc<Truth>> = simulator
        .truths()
        .into_iter()
        .map(|truth| (truth.id.clone(), truth))
        .collect();
    row(streams, &seen, &records, &truths)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("threads")
}

fn serve(runtime: &Runtime, simulator: &Arc<Simulator>) -> SocketAddr {
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let address = listener.local_addr().expect("bound");
    runtime.spawn(Arc::clone(simulator).serve(listener, std::future::pending()));
    address
}

/// Starts all streams of a round one after the other, so that they overlap.
async fn call_all(proxy: SocketAddr, round: usize, streams: usize) -> Vec<AgentCall> {
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..streams {
        let begin = Duration::from_millis(4) * number as u32;
        calls.spawn(async move {
            tokio::time::sleep(begin).await;
            call(proxy, format!("{round}-{number}")).await
        });
    }
    let mut seen = Vec::new();
    while let Some(call) = calls.join_next().await {
        seen.push(call.expect("a call that came back"));
    }
    seen
}

async fn call(proxy: SocketAddr, id: String) -> AgentCall {
    let stream = TcpStream::connect(proxy).await.expect("the proxy listens");
    stream.set_nodelay(true).expect("a socket");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/1.1");
    tokio::spawn(connection);
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Go"}]});
    let request = Request::post("/v1/chat/completions")
        .header("host", proxy.to_string())
        .header("content-type", "application/json")
        .header("x-sim-id", &id)
        .header("x-tokengauge-session", &id)
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    let sent = Instant::now();
    let mut body = sender
        .send_request(request)
        .await
        .expect("a response")
        .into_body();
    let mut first = None;
    while let Some(frame) = body.frame().await {
        let at = Instant::now();
        let data = frame
            .expect("a whole stream")
            .into_data()
            .unwrap_or_default();
        if first.is_none() && has_token(&data) {
            first = Some(at);
        }
    }
    let ttft = first.expect("a token").duration_since(sent).as_secs_f64();
    AgentCall { id, ttft }
}

/// Whether a chunk has a delta with text. The first chunk has only the role.
fn has_token(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    text.split(r#""content":""#)
        .skip(1)
        .any(|rest| !rest.starts_with('"'))
}

/// The built binary in front of the backend, killed on drop.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    fn start(backend: SocketAddr, log: &Path) -> Proxy {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(["run", "--upstream", &format!("http://{backend}")])
            .args([
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--call-log",
            ])
            .arg(log)
            .env("TOKENGAUGE_LOG", "error")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built binary");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = lines
            .by_ref()
            .take(20)
            .filter_map(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok())
            .expect("the proxy prints its address");
        std::thread::spawn(move || lines.for_each(drop));
        Proxy { child, address }
    }

    fn records(&self, log: &Path, calls: usize) -> HashMap<String, Value> {
        for _ in 0..200 {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if text.lines().count() >= calls {
                let records = text
                    .lines()
                    .filter_map(|line| serde_json::from_str::<Value>(line).ok());
                return records
                    .filter_map(|r| Some((r["session"].as_str()?.to_owned(), r)))
                    .collect();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the call log has fewer than {calls} calls after 10 s");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn row(
    streams: usize,
    seen: &[AgentCall],
    records: &HashMap<String, Value>,
    truths: &HashMap<String, Arc<Truth>>,
) -> String {
    let (mut share, mut view, mut tps, mut gap) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut wrong = 0;
    for call in seen {
        let (record, truth) = (&records[&call.id], &truths[&call.id]);
        let seconds = |name: &str| record["seconds"][name].as_f64();
        share.extend(difference(
            seconds("ttft_upstream"),
            truth.seconds.ttft_upstream,
            1e3,
        ));
        view.extend(difference(seconds("ttft"), Some(call.ttft), 1e3));
        gap.extend(difference(
            seconds("longest_gap"),
            truth.seconds.longest_gap,
            1e3,
        ));
        let truly = truth.output_tps;
        tps.extend(difference(
            record["tps"]["output"].as_f64(),
            truly,
            100.0 / truly.unwrap_or(1.0),
        ));
        let counted = record["tokens"]["normalised"]["output"].as_u64();
        wrong += usize::from(counted != truth.tokens.map(|tokens| tokens.output));
    }
    let columns = [share, view, tps, gap].map(|errors| column(errors, seen.len()));
    format!(
        "{streams:>8}{:>7}{}{wrong:>9}",
        seen.len(),
        columns.concat()
    )
}

/// The scaled absolute difference of two values; `None` if one is missing.
fn difference(measured: Option<f64>, truly: Option<f64>, scale: f64) -> Option<f64> {
    Some((measured? - truly?).abs() * scale)
}

/// The percentiles of one figure, and the number of calls without it.
fn column(mut errors: Vec<f64>, calls: usize) -> String {
    if errors.is_empty() {
        return format!("{:>26}", "not measured");
    }
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
    let missing = calls - errors.len();
    let note = if missing > 0 {
        format!(" ({missing} without)")
    } else {
        String::new()
    };
    format!("{:>8.3}{:>9.3}{:>9.3}{note}", at(0.5), at(0.99), at(1.0))
}
