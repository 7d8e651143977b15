//! Gates over the real binary: every verdict from a ledger of calls, by command, API and hooks, and the log of
//! verdicts.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{TestResponse, request_with};
use tokengauge_test_support::records::Records;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

pub const TOKEN: &str = "0123456789abcdef0123";
const SESSIONS: usize = 700;
const GATE: &str =
    "[[gate]]\nname = \"rollout\"\ncandidate.upstream = \"new\"\nbaseline.upstream = \"old\"\n";

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.path("ledger.sqlite")
    }

    fn config(&self, gates: &str) -> PathBuf {
        let path = self.path("proxy.toml");
        let upstream = |name: &str| {
            format!(
                "[[upstream]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
            )
        };
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n\
             [ledger]\npath = {:?}\n{}{}{gates}",
            self.0.path(),
            self.ledger(),
            upstream("old"),
            upstream("new"),
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Writes two calls of each session on both sides, the last an hour ago. `old` decodes 40 tokens per second and
    /// `new` `tps`. Every `truncated`-th session of `new` has a truncated answer.
    fn write(&self, sessions: usize, tps: f64, truncated: Option<usize>) {
        let begin = SystemTime::now() - Duration::from_secs(2 * 3_600);
        let records = Records::new(begin, 1_000.0).take(4 * sessions);
        let calls: Vec<CallRecord> = records
            .enumerate()
            .map(|(place, mut call)| {
                let (side, session, number) = (place % 2, place / 4, place / 2 % 2);
                let name = ["old", "new"][side];
                let speed = [40.0, tps][side] * (1.0 + (session * 7_919 % 101) as f64 / 1_010.0);
                let cut =
                    side == 1 && number == 1 && truncated.is_some_and(|every| session % every == 0);
                call = serde_json::from_value(json!({
                    "id": call.id, "started_at": call.started_at, "route": name, "upstream": name,
                    "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
                    "outcome": "complete", "status": 200, "session": format!("{name}-{session}"),
                    "model_requested": "m", "streamed": true, "warm_up": false,
                    "finish_reasons": [if cut { "length" } else { "stop" }],
                    "tokens": {"normalised": {"output": 200}, "reported": {}},
                    "seconds": {"ttft": 0.3, "duration": 6.0, "last_token": 0.3 + 200.0 / speed},
                    "tps": {"output": speed}, "frames": 50, "stalls": 0, "segments": [],
                    "bytes": {"request": 1_000 + number, "response": 1},
                }))
                .expect("a record");
                call
            })
            .collect();
        let calls = calls
            .iter()
            .filter_map(|call| LedgerCall::of_record(call, Some(3)));
        let mut ledger = LedgerDatabase::open(&self.ledger()).expect("opens");
        ledger.write(&calls.collect::<Vec<_>>()).expect("written");
    }

    /// Writes five calls of each session over ten hours that ended an hour ago, with one candidate session for 19
    /// baseline sessions. Each hour is a tenth slower than the previous one.
    fn write_trend(&self, candidate: f64) {
        const SESSIONS: usize = 26_000;
        let begin = SystemTime::now() - Duration::from_secs(11 * 3_600);
        let every = 36_000_000.0 / (5 * SESSIONS) as f64;
        let mut ledger = LedgerDatabase::open(&self.ledger()).expect("opens");
        let mut batch = Vec::new();
        for (place, call) in Records::new(begin, every).take(5 * SESSIONS).enumerate() {
            let session = place / 5;
            let (name, factor) = match session % 20 {
                0 => ("new", candidate),
                _ => ("old", 1.0),
            };
            let hours = place as f64 * every / 3_600_000.0;
            let differs = 1.0 + (session * 7_919 % 101) as f64 / 202.0;
            let speed = 40.0 * factor * differs * 0.9_f64.powf(hours);
            let call: CallRecord = serde_json::from_value(json!({
                "id": call.id, "started_at": call.started_at, "route": name, "upstream": name,
                "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
                "outcome": "complete", "status": 200, "session": format!("{name}-{session}"),
                "model_requested": "m", "streamed": true, "warm_up": false, "finish_reasons": ["stop"],
                "tokens": {"normalised": {"output": 200}, "reported": {}},
                "seconds": {"ttft": 0.3, "duration": 6.0, "last_token": 0.3 + 200.0 / speed},
                "tps": {"output": speed}, "frames": 50, "stalls": 0, "segments": [],
                "bytes": {"request": 1_000, "response": 1},
            }))
            .expect("a record");
            batch.push(call);
            if batch.len() == 1_000 {
                let calls = batch
                    .iter()
                    .filter_map(|call| LedgerCall::of_record(call, Some(3)));
                ledger.write(&calls.collect::<Vec<_>>()).expect("written");
                batch.clear();
            }
        }
    }

    async fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(arguments).current_dir(self.0.path());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect("in time").expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (status.code(), text(stdout), text(stderr))
    }

    async fn gate(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let ledger = [
            "gate",
            "rollout",
            "--ledger",
            "ledger.sqlite",
            "-c",
            "proxy.toml",
        ];
        self.run(&[&ledger, more].concat()).await
    }
}

pub async fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("read");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (
        status.expect("a status"),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

pub async fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    let token = format!("Bearer {TOKEN}");
    let TestResponse { status, body, .. } =
        request_with(address, "GET", path, &[("authorization", &token)]).await;
    (status, serde_json::from_str(&body).expect("JSON"))
}

/// Evaluates as Argo Rollouts documents it: the success condition, then the failure condition, otherwise inconclusive.
fn argo(result: &Value) -> &'static str {
    match result["verdict"].as_str() {
        Some("pass") => "Successful",
        Some("fail") => "Failed",
        _ => "Inconclusive",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verdict_is_reached_and_has_its_exit_code() {
    let alike = Folder::new();
    alike.config(GATE);
    alike.write(SESSIONS, 40.0, None);
    let (code, out, error) = alike.gate(&[]).await;
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(
        out.starts_with("gate rollout: pass: all 5 checks hold\n"),
        "{out}"
    );
    assert!(
        out.contains("candidate upstream new: 700 sessions, 698 compared, 1400 calls"),
        "{out}"
    );

    let faster = Folder::new();
    faster.config(GATE);
    faster.write(SESSIONS, 80.0, Some(4));
    let (code, out, error) = faster.gate(&["--format", "junit"]).await;
    assert_eq!(code, Some(1), "a faster model that answers less: {out}");
    assert!(
        error.contains("gate rollout: does not hold: truncated"),
        "{error}"
    );
    assert!(
        out.contains("failures=\"2\" skipped=\"0\"")
            && out.contains("<testcase classname=\"gate.rollout\" name=\"tps\"/>"),
        "{out}"
    );
    let (_, out, _) = faster.gate(&["--format", "github"]).await;
    assert!(
        out.starts_with("::error title=gate rollout%3A fail::does not hold: truncated\n"),
        "{out}"
    );
    assert!(
        out.contains("title=gate rollout%3A truncated::truncated worse by 12."),
        "{out}"
    );
    let (_, out, _) = faster.gate(&["--format", "markdown"]).await;
    assert!(out.contains("| truncated | fail | 0.00 % | 12."), "{out}");

    let few = Folder::new();
    few.config(GATE);
    few.write(20, 40.0, None);
    let (code, out, error) = few.gate(&["--format", "json"]).await;
    assert_eq!(code, Some(3), "{out}{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["verdict"], "inconclusive");
    assert_eq!(report["checks"][0]["upper"], Value::Null);
    let long_ago = format!("{GATE}max_wait = \"1h\"\n");
    few.config(&long_ago);
    let (code, out, error) = few.gate(&[]).await;
    assert_eq!(code, Some(3), "waiting decides nothing: {error}");
    let decide = "no verdict within `max_wait` (1h), so you must decide: too few sessions";
    assert!(error.contains(decide), "{error}");
    let forecast = "), a candidate as good as the baseline passes in about ";
    assert!(
        out.contains(forecast) && out.contains("; at this rate (0.2 sessions a minute, "),
        "{out}"
    );
}

#[tokio::test]
async fn a_plan_says_how_long_a_verdict_takes() {
    let folder = Folder::new();
    folder.config(GATE);
    folder.write(SESSIONS, 40.0, None);
    let (code, out, error) = folder.gate(&["--plan"]).await;
    assert_eq!(code, Some(0), "{out}{error}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("gate rollout: the baseline had 700 sessions with 1400 calls; "),
        "{out}"
    );
    let minutes = |share: &str| -> f64 {
        let line = lines.iter().find(|line| line.starts_with(share));
        let (_, time) = line
            .and_then(|line| line.split_once("in about "))
            .expect("a time");
        let time = time.split("  ").next().expect("a time");
        let time = humantime::parse_duration(time).expect("a time");
        time.as_secs_f64() / 60.0
    };
    assert!(minutes("1 %") > 3.0 * minutes("5 %"), "{out}");
    assert!(minutes("5 %") > 2.0 * minutes("20 %"), "{out}");
    let (_, json, _) = folder.gate(&["--plan", "--format", "json"]).await;
    let plan: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(plan["at"].as_array().map(Vec::len), Some(5), "{plan:#}");

    let process = Process::start(&folder.config(GATE)).await;
    let (status, of_api) = get(process.admin, "/api/v1/gates/rollout/plan").await;
    assert_eq!(
        (status, &of_api["at"][1]),
        (200, &plan["at"][1]),
        "{of_api:#}"
    );
    let (status, missing) = get(process.admin, "/api/v1/gates/other/plan").await;
    assert_eq!(status, 404, "{missing}");
    process.signal(Signal::TERM);
    process.ended().await;

    let few = Folder::new();
    few.config(GATE);
    few.write(20, 40.0, None);
    let (_, out, _) = few.gate(&["--plan"]).await;
    let reason = "the baseline (upstream old) had 20 sessions in the last 1day; 50 are needed to estimate their variance";
    assert!(out.contains(reason), "{out}");
}

/// A baseline whose speed falls by a tenth an hour for ten hours, with more calls than a gate reads. The candidate is
/// equally fast or a fifth slower. A gate that reads only the newest calls of one side would mistake the trend for a
/// difference.
#[tokio::test]
async fn a_trend_of_more_calls_than_are_read_decides_nothing() {
    for (tps, verdict) in [(1.0, "pass"), (0.8, "fail")] {
        let folder = Folder::new();
        folder.config(GATE);
        folder.write_trend(tps);
        let (_, out, error) = folder.gate(&["--format", "json"]).await;
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{error}"));
        assert_eq!(report["verdict"], verdict, "{report:#}");
        assert_eq!(report["baseline"]["one_in"], 2, "{report:#}");
        assert_eq!(report["candidate"]["one_in"], 1, "{report:#}");
        let tps = &report["checks"][0];
        let worse = tps["value"].as_f64().expect("a value");
        let truth = if verdict == "pass" { 0.0 } else { 0.2 };
        assert!((worse - truth).abs() < 0.03, "{tps:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_and_the_hooks_say_the_same_and_the_log_of_verdicts_is_a_chain() {
    let folder = Folder::new();
    folder.write(SESSIONS, 40.0, None);
    let unknown =
        "[[gate]]\nname = \"idle\"\ncandidate.model = \"none\"\nbaseline.upstream = \"old\"\n";
    let process = Process::start(&folder.config(&format!("{GATE}{unknown}"))).await;
    let admin = process.admin;
    let (status, report) = get(admin, "/api/v1/gates/rollout").await;
    assert_eq!((status, argo(&report)), (200, "Successful"), "{report:#}");
    let (status, idle) = get(admin, "/api/v1/gates/idle?since=10m").await;
    assert_eq!((status, argo(&idle)), (200, "Inconclusive"), "{idle:#}");
    assert!(
        idle["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("check that it has traffic"))
    );
    let (_, all) = get(admin, "/api/v1/gates").await;
    assert_eq!(all["gates"].as_array().map(Vec::len), Some(2));
    let (status, missing) = get(admin, "/api/v1/gates/other").await;
    assert_eq!(status, 404, "{missing}");

    let hook =
        |token: &str| json!({"name": "app", "phase": "Progressing", "metadata": {"token": token}});
    let confirm = "/api/v1/gates/rollout/confirm-promotion";
    assert_eq!(post(admin, confirm, &json!({"name": "app"})).await.0, 401);
    assert_eq!(
        post(admin, confirm, &hook("another-token-of-it")).await.0,
        401
    );
    let (status, report) = post(admin, confirm, &hook(TOKEN)).await;
    assert_eq!(
        (status, &report["verdict"]),
        (200, &json!("pass")),
        "{report:#}"
    );
    let rollback = "/api/v1/gates/rollout/rollback";
    assert_eq!(post(admin, rollback, &hook(TOKEN)).await.0, 409);
    let idle = "/api/v1/gates/idle/confirm-promotion";
    assert_eq!(
        post(admin, idle, &hook(TOKEN)).await.0,
        409,
        "no traffic never passes"
    );
    assert_eq!(
        post(admin, "/api/v1/gates/rollout", &hook(TOKEN)).await.0,
        401,
        "not a hook"
    );

    std::fs::write(folder.path("token"), TOKEN).expect("written");
    let address = admin.to_string();
    let (code, out, error) = folder
        .run(&[
            "gate",
            "rollout",
            "--admin",
            &address,
            "--token-file",
            "token",
        ])
        .await;
    assert_eq!(code, Some(0), "{out}{error}");
    process.signal(Signal::TERM);
    process.ended().await;

    let text = std::fs::read_to_string(folder.path("gate-audit.jsonl")).expect("readable");
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 5, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_a_clear_error() {
    let folder = Folder::new();
    let says = async |gates: &str| {
        folder.config(gates);
        let (code, _, error) = folder.run(&["check", "-c", "proxy.toml"]).await;
        assert_eq!(code, Some(78), "{error}");
        error
    };
    let error =
        says("[[gate]]\nname = \"g\"\ncandidate.route = \"none\"\nbaseline.upstream = \"old\"\n")
            .await;
    assert!(error.contains("there is no route named `none`"), "{error}");
    let error =
        says("[[gate]]\nname = \"g\"\ncandidate.upstream = \"old\"\nbaseline.upstream = \"old\"\n")
            .await;
    assert!(
        error.contains("candidate and baseline select the same calls"),
        "{error}"
    );
    let error = says(&format!("{GATE}slos = [\"s\"]\n")).await;
    assert!(error.contains("there is no [[slo]] named `s`"), "{error}");

    folder.config(GATE);
    folder.write(20, 40.0, None);
    let other = [
        "gate",
        "other",
        "--ledger",
        "ledger.sqlite",
        "-c",
        "proxy.toml",
    ];
    let (code, _, error) = folder.run(&other).await;
    assert_eq!(code, Some(78), "{error}");
    assert!(
        error.contains("there is no [[gate]] named `other`"),
        "{error}"
    );
    let ledger = rusqlite::Connection::open(folder.ledger()).expect("opens");
    ledger.pragma_update(None, "user_version", 99).expect("set");
    drop(ledger);
    let (code, _, error) = folder.gate(&[]).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("version"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_ask_the_gate_at_the_address_that_is_given() {
    let folder = Folder::new();
    folder.config(&format!("{GATE}max_wait = \"30m\"\n"));
    let emit = async |manifest: &str| {
        let arguments = [
            "gate",
            "rollout",
            "-c",
            "proxy.toml",
            "--emit",
            manifest,
            "--admin",
            "http://tokengauge.infra:9464",
        ];
        let (code, out, error) = folder.run(&arguments).await;
        assert_eq!(code, Some(0), "{error}");
        serde_saphyr::from_str::<Value>(&out).expect("YAML")
    };
    let template = emit("argo").await;
    let metric = &template["spec"]["metrics"][0];
    let web = &metric["provider"]["web"];
    assert_eq!(
        web["url"],
        "http://tokengauge.infra:9464/api/v1/gates/rollout"
    );
    assert_eq!(web["headers"][0]["value"], "Bearer {{args.token}}");
    assert_eq!(
        (&metric["count"], &metric["inconclusiveLimit"]),
        (&json!(31), &json!(30))
    );
    let canary = emit("flagger").await;
    let hooks = &canary["spec"]["analysis"]["webhooks"];
    assert_eq!(hooks[0]["type"], "confirm-promotion");
    assert_eq!(
        hooks[1]["url"],
        "http://tokengauge.infra:9464/api/v1/gates/rollout/rollback"
    );
}
