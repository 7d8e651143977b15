//! Experiments on the real binary: traffic is split by session, sticky across a restart, and compared.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SESSIONS: usize = 200;
const ANSWER: &str = "data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n\
    data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

type Requests = Arc<Mutex<Vec<(String, String)>>>;

struct Backend {
    address: SocketAddr,
    requests: Requests,
}

impl Backend {
    /// A backend that delays sessions whose number is not a multiple of 4.
    async fn start(wait: Duration) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(answer(tcp, Arc::clone(&seen), wait));
            }
        });
        Backend { address, requests }
    }

    fn sessions(&self) -> HashMap<String, usize> {
        let mut sessions = HashMap::new();
        for (head, _) in self.requests.lock().expect("no panic").iter() {
            if let Some(session) = session_of(head) {
                *sessions.entry(session).or_default() += 1;
            }
        }
        sessions
    }
}

fn session_of(head: &str) -> Option<String> {
    let mut lines = head.lines();
    let line = lines.find_map(|line| line.strip_prefix("x-tokengauge-session: "))?;
    Some(line.to_owned())
}

async fn answer(mut tcp: TcpStream, requests: Requests, wait: Duration) {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match tcp.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let head = String::from_utf8(bytes.drain(..end).collect()).expect("text");
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().expect("a number");
        while bytes.len() < length {
            if tcp.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body = String::from_utf8(bytes.drain(..length).collect()).expect("text");
        let number =
            session_of(&head).and_then(|session| session.trim_start_matches("s-").parse().ok());
        let waits = number.is_some_and(|number: usize| !number.is_multiple_of(4));
        requests.lock().expect("no panic").push((head, body));
        if waits {
            tokio::time::sleep(wait).await;
        }
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{ANSWER}",
            ANSWER.len()
        );
        if tcp.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

struct Fixture {
    folder: TempDir,
    default: Backend,
    arms: [Backend; 2],
}

impl Fixture {
    async fn new(slow: Duration) -> Fixture {
        Fixture {
            folder: tempfile::tempdir().expect("a folder"),
            default: Backend::start(Duration::ZERO).await,
            arms: [
                Backend::start(Duration::ZERO).await,
                Backend::start(slow).await,
            ],
        }
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger.sqlite")
    }

    fn config(&self, experiment: &str) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let [a, b] = &self.arms;
        let upstream = |name: &str, backend: &Backend| {
            format!(
                "[[upstream]]\nname = \"{name}\"\nurl = \"http://{}\"\n",
                backend.address
            )
        };
        let upstreams = [
            upstream("default", &self.default),
            upstream("a", a),
            upstream("b", b),
        ];
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [measure]\nwarm_up_calls = 0\nwarm_up_for = \"0s\"\n{}[[route]]\nname = \"chat\"\nupstream = \"default\"\n{experiment}",
            self.folder.path().join("state"),
            upstreams.concat(),
        );
        std::fs::write(&path, text).expect("written");
        path
    }
}

const EXPERIMENT: &str = "[[experiment]]\nname = \"decoder\"\nroute = \"chat\"\nttft_above = \"120ms\"\n\
    min_units = 50\nsettled_after = \"0s\"\n\
    arms = [{ name = \"old\", upstream = \"a\" }, { name = \"new\", upstream = \"b\" }]\n\
    [[experiment]]\nname = \"quiet\"\n";

fn body(session: usize) -> String {
    format!(
        "{{\"model\":\"m\",\"stream\":true,  \"messages\":[{{\"role\":\"user\",\"content\":\"{session} ü\"}}]}}"
    )
}

/// Sends a call that names its own experiment, which the split overrides, and checks that the answer is the backend's,
/// byte for byte.
async fn call(address: SocketAddr, session: Option<usize>) {
    let body = body(session.unwrap_or(0));
    let named = session.map(|session| format!("x-tokengauge-session: s-{session}\r\n"));
    let request = format!(
        "POST /v1/chat/completions?x=%2F HTTP/1.1\r\nhost: llm.example\r\nconnection: close\r\n{}x-tokengauge-experiment: own/z\r\nx-odd:  kept\r\ncontent-length: {}\r\n\r\n{body}",
        named.unwrap_or_default(),
        body.len()
    );
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut response = String::new();
    tcp.read_to_string(&mut response).await.expect("an answer");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(body, ANSWER);
}

/// Makes a call of every session and waits until all are in the ledger.
async fn round(process: &Process, kept: u64) {
    let address = process.addresses()[0];
    let calls: Vec<_> = (0..8)
        .map(|worker| {
            tokio::spawn(async move {
                for session in (worker..SESSIONS).step_by(8) {
                    call(address, Some(session)).await;
                }
            })
        })
        .collect();
    for calls in calls {
        calls.await.expect("no panic");
    }
    has_kept(process, kept).await;
}

async fn has_kept(process: &Process, records: u64) {
    let end = Instant::now() + TIMEOUT;
    while (process.metrics().await["tokengauge_ledger_records_total"] as u64) < records {
        assert!(Instant::now() < end, "fewer than {records}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn experiment(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .arg("experiment")
        .args(args)
        .output()
        .expect("it runs")
}

fn stdout(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("text")
}

fn fails(output: &Output, words: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(words), "{error}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_split_by_weight_stay_over_a_restart_and_are_compared() {
    let fixture = Fixture::new(Duration::from_millis(300)).await;
    let config = fixture.config(EXPERIMENT);
    let process = Process::start(&config).await;
    round(&process, SESSIONS as u64).await;
    let [a, b] = fixture.arms.each_ref().map(Backend::sessions);
    // Five standard deviations of a binomial distribution with 200 draws.
    assert!((65..=135).contains(&a.len()), "{}", a.len());
    assert_eq!(a.len() + b.len(), SESSIONS, "each session has one arm");

    for _ in 0..10 {
        call(process.addresses()[0], None).await;
    }
    assert_eq!(fixture.default.requests.lock().expect("no panic").len(), 10);
    has_kept(&process, SESSIONS as u64 + 10).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());

    let process = Process::start(&config).await;
    round(&process, SESSIONS as u64).await;
    let after = fixture.arms.each_ref().map(Backend::sessions);
    for (before, after) in [a, b].iter().zip(&after) {
        assert_eq!(after.len(), before.len());
        let sticky = |session| after.get(session) == Some(&2);
        assert!(
            before.keys().all(sticky),
            "both calls of a session have one arm"
        );
    }
    for backend in &fixture.arms {
        for (head, sent) in backend.requests.lock().expect("no panic").iter() {
            let line = "POST /v1/chat/completions?x=%2F HTTP/1.1\r\n";
            assert!(head.starts_with(line) && head.contains("x-odd:"), "{head}");
            let session = session_of(head).expect("a session");
            let number = session.trim_start_matches("s-").parse().expect("a number");
            assert_eq!(*sent, body(number));
        }
    }

    let ledger = fixture.ledger();
    let of_ledger = [
        "decoder",
        "--ledger",
        text(&ledger),
        "--config",
        text(&config),
    ];
    let json = stdout(experiment(
        &[&of_ledger[..], &["--format", "json"]].concat(),
    ));
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["withheld"], Value::Null, "{report:#}");
    assert_eq!(report["calls_without_unit"], 10);
    assert_eq!(report["arms"][0]["name"], "old");
    assert_eq!(report["arms"][1]["units"], after[1].len());
    for arm in report["arms"].as_array().expect("arms") {
        let calls = |name: &str| arm[name].as_u64().expect("a count");
        assert!(
            calls("ttft_calls") > 0 && calls("ttft_calls") <= calls("calls"),
            "{arm}"
        );
        assert!(calls("tps_calls") <= calls("ttft_calls"), "{arm}");
    }
    let ttft = &report["comparisons"][0]["metrics"][0];
    assert_eq!(
        (&ttft["metric"], &ttft["decision"]),
        (&"ttft_above".into(), &"worse".into()),
        "{report:#}"
    );
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("with new, "), "{verdict}");
    assert!(
        verdict.contains("points more calls wait more than 12"),
        "{verdict}"
    );
    assert!(verdict.ends_with("; 200 sessions"), "{verdict}");

    let admin = process.admin.to_string();
    let of_proxy = stdout(experiment(&[
        "decoder", "--admin", &admin, "--format", "markdown",
    ]));
    assert!(of_proxy.lines().any(|line| line == verdict), "{of_proxy}");
    let has_heads = |line: &str| line.starts_with("| metric | baseline |");
    assert!(of_proxy.lines().any(has_heads), "{of_proxy}");
    let table = stdout(experiment(&of_ledger));
    let has_heads = |line: &str| line.starts_with("metric  ");
    assert!(table.lines().any(has_heads), "{table}");
    assert_eq!(table.lines().last(), Some(verdict), "{table}");
    let all = fetch(process.admin, "/api/v1/experiments").await;
    let all: Value = serde_json::from_str(&all.body).expect("JSON");
    assert_eq!(all["experiments"][0]["verdict"], verdict);
    gauges(&process, &report).await;
    let report_of = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args([
            "report",
            "--by",
            "experiment,variant",
            "--format",
            format,
            "--ledger",
            text(&ledger),
        ]);
        stdout(command.output().expect("it runs"))
    };
    let whole: Value = serde_json::from_str(&report_of("json")).expect("JSON");
    let judged = &whole["experiments"][0];
    assert_eq!(judged["name"], "decoder");
    assert_eq!(
        judged["arms"][1]["units"], report["arms"][0]["units"],
        "by name: new, old"
    );
    let reason = judged["withheld"]
        .as_str()
        .expect("the default waits five minutes");
    assert!(reason.contains("units"), "{reason}");
    for format in ["text", "markdown", "html"] {
        let page = report_of(format);
        assert!(page.contains("experiment decoder, by session"), "{page}");
    }
    let quiet = &all["experiments"][1];
    let words = quiet["withheld"].as_str().expect("a reason");
    assert!(
        words.contains("no finished call belongs to a variant"),
        "{words}"
    );

    fails(
        &experiment(&["quiet", "--admin", &admin]),
        "no finished call belongs to a variant of the experiment `quiet`",
    );
    fails(
        &experiment(&["none", "--admin", &admin]),
        "404: neither an [[experiment]] nor a finished call has this name",
    );
    let quiet = [
        "quiet",
        "--ledger",
        text(&ledger),
        "--config",
        text(&config),
    ];
    fails(
        &experiment(&quiet),
        "no finished call belongs to a variant of the experiment `quiet`",
    );
}

/// Asserts that gauges match the API, and that gauges of a removed experiment disappear.
async fn gauges(process: &Process, report: &Value) {
    let name = |name: &str| format!("tokengauge_experiment_{name}{{experiment=\"decoder\"");
    let difference = |bound: &str| {
        format!(
            "{},variant=\"new\",metric=\"ttft_above\"}}",
            name(&format!("difference{bound}_ratio"))
        )
    };
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    let difference_of_report = report["comparisons"][0]["metrics"][0]["difference"].as_f64();
    let difference_of_report = difference_of_report.expect("a number");
    let end = Instant::now() + TIMEOUT;
    let metrics = loop {
        let metrics = process.metrics().await;
        // The first evaluation may precede the record of the last call.
        let shown = metrics.get(&difference(""));
        if shown.is_some_and(|shown| (shown - difference_of_report).abs() < 1e-9) {
            break metrics;
        }
        assert!(Instant::now() < end, "{metrics:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let ttft = &report["comparisons"][0]["metrics"][0];
    for (bound, member) in [("", "difference"), ("_lower", "lower"), ("_upper", "upper")] {
        let expected = ttft[member].as_f64().expect("a number");
        let shown = metrics[&difference(bound)];
        assert!((shown - expected).abs() < 1e-9, "{shown} for {expected}");
    }
    let units = format!("{},variant=\"old\"}}", name("units"));
    assert_eq!(
        metrics[&units],
        report["arms"][0]["complete_units"]
            .as_f64()
            .expect("a number")
    );
    assert_eq!(metrics[&format!("{}}}", name("withheld"))], 0.0);
    assert_eq!(
        metrics["tokengauge_experiment_withheld{experiment=\"quiet\"}"],
        1.0
    );
    assert_eq!(metrics["tokengauge_experiment_failures_total"], 0.0);
}

/// Blocks of ten seconds over forty seconds: every call of every session goes to the arm of the block in which it
/// began.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_time_are_given_to_the_arms_in_turn() {
    const BLOCK: u64 = 10;
    let fixture = Fixture::new(Duration::ZERO).await;
    let experiment = EXPERIMENT.replace("settled_after", "switchback = \"10s\"\nsettled_after");
    let process = Process::start(&fixture.config(&experiment)).await;
    let address = process.addresses()[0];
    let end = Instant::now() + Duration::from_secs(4 * BLOCK);
    let mut calls = 0;
    while Instant::now() < end {
        for session in 0..5 {
            call(address, Some(session)).await;
            calls += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    has_kept(&process, calls).await;
    let response = fetch(process.admin, "/api/v1/calls?limit=1000").await;
    let body: Value = serde_json::from_str(&response.body).expect("JSON");
    let records = body["calls"].as_array().expect("calls");
    let mut blocks: HashMap<u64, Vec<&str>> = HashMap::new();
    for record in records {
        let began = record["started_at"].as_str().expect("an instant");
        let began = humantime::parse_rfc3339(began).expect("an instant");
        let second = began
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        let arm = record["variant"].as_str().expect("a variant");
        assert_eq!(record["upstream"], if arm == "old" { "a" } else { "b" });
        blocks.entry(second / BLOCK).or_default().push(arm);
    }
    // The last calls may be in a separate block.
    assert!((4..=6).contains(&blocks.len()), "{blocks:?}");
    let mut arms: Vec<(u64, &str)> = Vec::new();
    for (block, seen) in &blocks {
        assert!(
            seen.iter().all(|arm| arm == &seen[0]),
            "one arm in a block: {blocks:?}"
        );
        arms.push((*block, seen[0]));
    }
    let of_arm = |wanted: &str| arms.iter().filter(|(_, arm)| *arm == wanted).count();
    let response = fetch(process.admin, "/api/v1/experiments/decoder").await;
    let report: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(report["unit"], "block of 10s");
    assert_eq!(
        (&report["mixed_units"], &report["calls_without_unit"]),
        (&0.into(), &0.into())
    );
    for arm in report["arms"].as_array().expect("arms") {
        let name = arm["name"].as_str().expect("a name");
        assert_eq!(arm["units"], of_arm(name), "{report:#}");
    }
    assert!(
        report["withheld"].is_string(),
        "four blocks are too few: {report:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_split_is_withheld_and_a_reload_changes_the_arms() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let config = fixture.config(EXPERIMENT);
    let process = Process::start(&config).await;
    round(&process, SESSIONS as u64).await;
    // The experiment continues with other weights, so far more sessions are in `new` than the new weights predict.
    let weights = EXPERIMENT.replace("upstream = \"a\" }", "upstream = \"a\", weight = 9 }");
    fixture.config(&weights);
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    let response = fetch(process.admin, "/api/v1/experiments/decoder").await;
    let report: Value = serde_json::from_str(&response.body).expect("JSON");
    let reason = report["withheld"].as_str().expect("a reason");
    assert!(
        reason.starts_with("the split differs from the configured weights"),
        "{reason}"
    );
    assert!(reason.contains("instead of the expected 180"), "{reason}");
    assert_eq!(report["comparisons"], Value::Array(Vec::new()));
    // New calls follow the new weights, so sessions that changed their arm interfere.
    round(&process, 2 * SESSIONS as u64).await;
    let response = fetch(process.admin, "/api/v1/experiments/decoder").await;
    let report: Value = serde_json::from_str(&response.body).expect("JSON");
    assert!(
        report["mixed_units"].as_u64().expect("a number") > 40,
        "{report:#}"
    );
}

#[test]
fn errors_of_an_experiment_name_the_line() {
    let base = "[[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
        [[upstream]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\n\
        [[route]]\nname = \"chat\"\nupstream = \"a\"\n\
        [[route]]\nname = \"other\"\npath = \"/b\"\nupstream = \"b\"\n";
    let two = "arms = [{ name = \"x\", upstream = \"a\" }, { name = \"y\", upstream = \"b\" }]\n";
    let e = "[[experiment]]\nname = \"e\"\nroute = \"chat\"\n";
    let weight = |weight: &str| {
        two.replace(
            "upstream = \"b\"",
            &format!("upstream = \"b\", weight = {weight}"),
        )
    };
    let cases = [
        (
            format!("{e}{}", weight("0")),
            "arm `y`: `weight` must be above 0",
        ),
        (
            format!("{e}{}", weight("nan")),
            "arm `y`: `weight` must be above 0",
        ),
        (
            format!("{e}{}", two.replace("\"b\"", "\"c\"")),
            "arm `y`: there is no upstream named `c`",
        ),
        (
            format!("{}{two}", e.replace("chat", "chatt")),
            "there is no route named `chatt`",
        ),
        (
            format!("{e}arms = [{{ name = \"x\", upstream = \"a\" }}]\n"),
            "needs at least two arms",
        ),
        (
            format!("{e}{}", two.replace("\"y\"", "\"x\"")),
            "there are two arms named `x`",
        ),
        (
            format!("{e}{}", two.replace("\"y\"", "\"y/z\"")),
            "may not have a `/`",
        ),
        (
            format!("{e}{two}{}{two}", e.replace("chat", "other")),
            "there are two experiments named `e`",
        ),
        (
            format!("{e}{two}{}{two}", e.replace("\"e\"", "\"f\"")),
            "the experiment `e` already splits",
        ),
        (
            format!("{e}{two}unit = \"user\"\nswitchback = \"10m\"\n"),
            "give either `switchback` or `unit`",
        ),
        (
            format!("{e}{two}switchback = \"10500ms\"\n"),
            "must be a whole number of seconds",
        ),
        (
            format!("{e}{two}switchback = \"1s\"\n"),
            "must be at least 10s",
        ),
        (e.to_owned(), "needs `arms`: without them nothing is split"),
        (
            "[[experiment]]\nname = \"e\"\nswitchback = \"10m\"\n".to_owned(),
            "needs `arms`",
        ),
        (
            format!("[[experiment]]\nname = \"e\"\n{two}"),
            "needs the `route`",
        ),
        (format!("{e}{two}alpha = 0.0\n"), "alpha"),
        (format!("{e}{two}min_units = 2\n"), "must be at least 10"),
        (
            format!("{e}{two}unit = \"call\"\n"),
            "unknown variant `call`",
        ),
        (format!("{e}{two}wieght = 1\n"), "wieght"),
        (
            format!("dialect = \"anthropic\"\n{e}{two}")
                + "[[route]]\npath = \"/c\"\nname = \"c\"\nupstream = \"a\"\ndialect = \"openai_chat\"\n",
            "its arms speak different dialects: `y` is routed to as anthropic, the others as openai_chat",
        ),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("proxy.toml");
    let check = |more: &str| {
        std::fs::write(&path, format!("{base}{more}")).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command
            .args(["check", "--config", text(&path)])
            .output()
            .expect("it runs")
    };
    for (more, words) in &cases {
        let output = check(more);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{more}: {error}");
        assert!(
            error.contains(words) && error.contains("proxy.toml:"),
            "{more}: {error}"
        );
    }
    let good = check(&format!(
        "{e}{two}ttft_above = \"500ms\"\ntps_below = 20\nswitchback = \"10m\"\n"
    ));
    let printed = String::from_utf8_lossy(&good.stdout);
    assert!(
        good.status.success() && printed.contains("experiment e: "),
        "{printed}"
    );
}
