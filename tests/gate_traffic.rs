//! Gates of the real binary on real traffic: simulated models, calls over sockets, and every verdict by command, API,
//! hook and gauge.

use crate::gate::{TOKEN, get, post};
use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::sim::{self, Sim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const SESSIONS: usize = 150;
const FEW: usize = 20;
/// Margins for a busy machine. The speeds of the models are equal or differ by a factor of four.
const MARGINS: &str = "tps = 0.5, failures = 0.2, truncated = 0.2, refused = 0.2, empty = 0.2, \
                       cut_off = 0.2, invalid_tool_calls = 0.2";
/// Upstreams, their behaviour, and the number of sessions that call each; `old` is the baseline.
const UPSTREAMS: [(&str, &str, usize); 10] = [
    ("old", "ttft=2ms,gap=2ms,tokens=40,usage=on", SESSIONS),
    ("equal", "ttft=2ms,gap=2ms,tokens=40,usage=on", SESSIONS),
    ("slower", "ttft=2ms,gap=8ms,tokens=40,usage=on", SESSIONS),
    // Faster, with shorter answers.
    (
        "shorter",
        "ttft=2ms,gap=1ms,tokens=40,usage=on,finish=length",
        SESSIONS,
    ),
    (
        "lost",
        "ttft=2ms,gap=1ms,tokens=40,usage=on,close=@36",
        SESSIONS,
    ),
    (
        "refusing",
        "ttft=2ms,gap=1ms,tokens=40,usage=on,finish=refused",
        SESSIONS,
    ),
    // Gemini reports this in its dialect.
    (
        "malformed",
        "ttft=2ms,gap=1ms,tokens=40,usage=on,finish=invalid_tool_call",
        SESSIONS,
    ),
    ("failing", "status=503", SESSIONS),
    // Answers without a token, which no simulated model gives.
    ("silent", "", SESSIONS),
    ("few", "ttft=2ms,gap=2ms,tokens=40,usage=on", FEW),
];
/// Verdict of each candidate's gate, and the exit code of the command.
const EXPECTED: [(&str, &str, i32); 10] = [
    ("equal", "pass", 0),
    ("slower", "fail", 1),
    ("shorter", "fail", 1),
    ("lost", "fail", 1),
    ("refusing", "fail", 1),
    ("malformed", "fail", 1),
    ("failing", "fail", 1),
    ("silent", "fail", 1),
    ("few", "inconclusive", 3),
    ("idle", "inconclusive", 3),
];

struct Fixture {
    folder: TempDir,
    _sims: Vec<Sim>,
    process: Process,
}

impl Fixture {
    async fn start() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sims = Vec::new();
        let mut upstreams = String::new();
        for (name, behaviour, _) in UPSTREAMS {
            if name == "silent" {
                upstreams += &upstream(name, silent().await);
                continue;
            }
            let sim = sim::start(behaviour).await;
            upstreams += &upstream(name, sim.address);
            sims.push(sim);
        }
        upstreams += &upstream("idle", ([127, 0, 0, 1], 9).into());
        let gates = EXPECTED.map(|(name, ..)| {
            format!(
                "[[gate]]\nname = \"{name}\"\ncandidate.upstream = \"{name}\"\nbaseline.upstream = \"old\"\n\
                 settled_after = \"0s\"\nnot_worse_by = {{ {MARGINS} }}\n"
            )
        });
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n\
             [measure]\nwarm_up_calls = 0\nwarm_up_for = \"0s\"\n{upstreams}{}",
            folder.path().join("state"),
            gates.concat(),
        );
        let config = folder.path().join("proxy.toml");
        std::fs::write(&config, text).expect("written");
        std::fs::write(folder.path().join("token"), TOKEN).expect("written");
        let process = Process::start(&config).await;
        Fixture {
            folder,
            _sims: sims,
            process,
        }
    }

    fn audit(&self) -> PathBuf {
        self.folder.path().join("state/gate-audit.jsonl")
    }

    /// Makes one or two calls of every session of every upstream, twelve at a time, and waits until all are in the
    /// ledger.
    async fn drive(&self) {
        let address = self.process.addresses()[0];
        let calls = UPSTREAMS.iter().flat_map(|(name, _, sessions)| {
            (0..*sessions).map(move |session| (*name, format!("{name}-{session}")))
        });
        let mut calls: Vec<_> = calls.collect();
        // Interleave the upstreams, so that other load of the machine affects all equally.
        calls.sort_by_key(|(name, session)| {
            let number: Option<usize> = session[name.len() + 1..].parse().ok();
            number
        });
        let count = calls.len() as u64;
        let workers = (0..12).map(|worker| {
            let mine: Vec<_> = calls.iter().skip(worker).step_by(12).cloned().collect();
            tokio::spawn(async move {
                for (upstream, session) in mine {
                    call(address, upstream, &session).await;
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("no panic");
        }
        let end = Instant::now() + TIMEOUT;
        while (self.metric("tokengauge_ledger_records_total").await as u64) < count {
            assert!(Instant::now() < end, "fewer than {count}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn metrics(&self) -> Vec<(String, f64)> {
        let token = format!("Bearer {TOKEN}");
        let headers = [("authorization", token.as_str())];
        let response = tokengauge_test_support::http_client::request_with(
            self.process.admin,
            "GET",
            "/metrics",
            &headers,
        );
        let text = response.await.body;
        let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
        let samples = samples.filter(|(series, _)| !series.starts_with('#'));
        samples
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    async fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics().await;
        let found = metrics.into_iter().find(|(name, _)| name == series);
        found.unwrap_or_else(|| panic!("no {series}")).1
    }

    /// Exit code, standard output and standard error of `gate NAME`.
    async fn command(&self, gate: &str) -> (Option<i32>, String, String) {
        let admin = self.process.admin.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["gate", gate, "--admin", &admin, "--token-file", "token"]);
        let output = command.current_dir(self.folder.path()).output();
        let output = tokio::time::timeout(TIMEOUT, output).await;
        let output = output.expect("in time").expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

fn upstream(name: &str, address: SocketAddr) -> String {
    format!(
        "[[upstream]]\nname = \"{name}\"\nurl = \"http://{address}\"\n[[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
    )
}

/// A backend whose answers are complete and have no text.
async fn silent() -> SocketAddr {
    let response = "data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{response}",
        response.len()
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let mut peer = RawConnection::new(tcp);
                if let Some(head) = peer.next_head().await {
                    let mut lengths = head
                        .lines()
                        .filter_map(|line| line.strip_prefix("content-length: "));
                    let length = lengths.next().and_then(|length| length.parse().ok());
                    peer.read_exact(length.unwrap_or(0)).await;
                    peer.write(response).await;
                }
            });
        }
    });
    address
}

/// Makes a streamed call that must be answered, and reads it to its end unless the model breaks it off.
async fn call(address: SocketAddr, upstream: &str, session: &str) {
    let body = json!({
        "model": "m",
        "stream": true,
        "messages": [{"role": "user", "content": format!("What is {session}?")}],
    });
    let body = match upstream {
        "malformed" => {
            json!({"contents": [{"role": "user", "parts": [{"text": format!("What is {session}?")}]}]})
        }
        _ => body,
    };
    let path = match upstream {
        "malformed" => "v1beta/models/m:streamGenerateContent?alt=sse",
        _ => "v1/chat/completions",
    };
    let body = body.to_string();
    let request = format!(
        "POST /{upstream}/{path} HTTP/1.1\r\nhost: llm.example\r\nconnection: close\r\n\
         content-type: application/json\r\nx-tokengauge-session: {session}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut response = String::new();
    let read = tokio::time::timeout(TIMEOUT, tcp.read_to_string(&mut response)).await;
    read.expect("in time").expect("an answer");
    let status = if upstream == "failing" { 503 } else { 200 };
    assert!(
        response.starts_with(&format!("HTTP/1.1 {status} ")),
        "{response}"
    );
    let end = match upstream {
        "malformed" => "MALFORMED_FUNCTION_CALL",
        "failing" => "error",
        _ => "data: [DONE]",
    };
    assert_eq!(response.contains(end), upstream != "lost", "{response}");
}

fn checks<'a>(report: &'a Value, verdict: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    let checks = checks.filter(|check| check["verdict"] == verdict);
    checks.filter_map(|check| check["name"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verdict_is_reached_by_calls_through_the_proxy() {
    let fixture = Fixture::start().await;
    let admin = fixture.process.admin;
    // No call has been made yet.
    let end = Instant::now() + TIMEOUT;
    for (name, ..) in EXPECTED {
        let report = loop {
            match get(admin, &format!("/api/v1/gates/{name}")).await {
                (200, report) => break report,
                // The ledger is being created.
                (503, _) if Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(report["verdict"], "inconclusive", "{report:#}");
    }
    fixture.drive().await;
    for (name, verdict, exit) in EXPECTED {
        let (status, report) = get(admin, &format!("/api/v1/gates/{name}")).await;
        assert_eq!(
            (status, &report["verdict"]),
            (200, &json!(verdict)),
            "{report:#}"
        );
        let (code, out, error) = fixture.command(name).await;
        assert_eq!(code, Some(exit), "{out}{error}");
        assert!(
            out.starts_with(&format!("gate {name}: {verdict}: ")),
            "{out}"
        );
        let hook = json!({"name": name, "metadata": {"token": TOKEN}});
        for (path, acts_on) in [("confirm-promotion", "pass"), ("rollback", "fail")] {
            let expected = if verdict == acts_on { 200 } else { 409 };
            let (status, said) = post(admin, &format!("/api/v1/gates/{name}/{path}"), &hook).await;
            assert_eq!(status, expected, "{name} {path}: {said:#}");
        }
        what_decided(name, &report);
    }
    gauges(&fixture).await;
}

/// Checks that each gate decides for the right reason.
fn what_decided(name: &str, report: &Value) {
    let (failed, holding) = (checks(report, "fail"), checks(report, "pass"));
    let reason = report["reason"].as_str().expect("a reason");
    match name {
        "equal" => assert_eq!(holding.len(), 7, "{report:#}"),
        "slower" => assert_eq!(failed, ["tps"], "{report:#}"),
        "shorter" => {
            assert_eq!(failed, ["truncated"], "{report:#}");
            assert!(holding.contains(&"tps"), "{report:#}");
        }
        "lost" => assert!(failed.contains(&"cut_off"), "{report:#}"),
        "refusing" => assert_eq!(failed, ["refused"], "{report:#}"),
        "malformed" => {
            // An answer whose tool call cannot be parsed also counts as failed.
            let all = ["failures", "cut_off", "invalid_tool_calls"];
            assert_eq!(failed, all, "{report:#}");
        }
        "failing" => assert_eq!(failed, ["failures"], "{report:#}"),
        "silent" => assert_eq!(failed, ["empty"], "{report:#}"),
        "few" => assert!(reason.contains("too few sessions"), "{reason}"),
        _ => assert!(reason.contains("check that it has traffic"), "{reason}"),
    }
}

/// After another evaluation, gauges show the same verdicts and the log of verdicts is complete.
async fn gauges(fixture: &Fixture) {
    let audit = fixture.audit();
    let changes = || {
        let text = std::fs::read_to_string(&audit).expect("readable");
        text.matches("\"asked_by\":\"gauge\"").count()
    };
    let before = changes();
    fixture.process.signal(Signal::HUP);
    let end = Instant::now() + TIMEOUT;
    for (name, verdict, _) in EXPECTED {
        for one in ["pass", "fail", "inconclusive"] {
            let series = format!("tokengauge_gate_verdict{{gate=\"{name}\",verdict=\"{one}\"}}");
            let expected = f64::from(u8::from(one == verdict));
            while fixture.metric(&series).await != expected {
                assert!(Instant::now() < end, "{series} is not {expected}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    assert_eq!(fixture.metric("tokengauge_gate_failures_total").await, 0.0);
    assert!(
        changes() <= before + 5,
        "what was the same is not written again"
    );
    let text = std::fs::read_to_string(&audit).expect("readable");
    let is_json = |line| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(text.ends_with('\n') && text.lines().all(is_json), "{text}");
}
