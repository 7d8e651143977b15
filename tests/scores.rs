//! Scores over the real binary: by the API and the command, next to calls, sessions and groups, in reports, experiments
//! and gates.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::{Score, ScoreTarget, ScoreType};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{fetch_json, request_with};
use tokengauge_test_support::records::Records;
use tokengauge_test_support::sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

const TOKEN: &str = "0123456789abcdef0123";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

struct Fixture {
    folder: TempDir,
    process: Process,
}

impl Fixture {
    async fn start(upstream: SocketAddr, (token, ledger): (bool, bool)) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let token = if token {
            format!("token = \"{TOKEN}\"\n")
        } else {
            String::new()
        };
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{token}[ledger]\nenabled = {ledger}\n\
             path = {:?}\n[[upstream]]\nname = \"engine\"\nurl = \"http://{upstream}\"\n[[route]]\nupstream = \"engine\"\n",
            folder.path().join("ledger.sqlite")
        );
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, text).expect("written");
        std::fs::write(folder.path().join("token"), TOKEN).expect("written");
        let process = Process::start(&path).await;
        Fixture { folder, process }
    }

    async fn json(&self, path: &str) -> Value {
        let token = format!("Bearer {TOKEN}");
        fetch_json(self.process.admin, path, &[("authorization", &token)]).await
    }

    async fn post(&self, body: &str) -> (u16, Value) {
        post(self.process.admin, TOKEN, body).await
    }

    async fn metric(&self, name: &str) -> f64 {
        let token = format!("Bearer {TOKEN}");
        let head = [("authorization", &*token)];
        let text = request_with(self.process.admin, "GET", "/metrics", &head).await;
        let mut lines = text.body.lines().filter_map(|line| line.rsplit_once(' '));
        let found = lines.find(|(series, _)| *series == name);
        found.map_or(0.0, |(_, value)| value.parse().expect("a number"))
    }

    /// The calls, the oldest first, once there are `count`.
    async fn calls(&self, count: usize) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let answer = self.json("/api/v1/calls").await;
            let mut calls = answer["calls"].as_array().expect("calls").clone();
            if calls.len() >= count {
                calls.reverse();
                return calls;
            }
            assert!(Instant::now() < end, "{calls:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn command(&self, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
        let admin = self.process.admin.to_string();
        let of_admin = ["--admin", &admin, "--token-file", "token"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.arg("score").args(arguments).args(of_admin);
        run(command, &self.folder, input).await
    }
}

async fn run(mut command: Command, folder: &TempDir, input: &str) -> (Option<i32>, String, String) {
    use std::process::Stdio;
    command.current_dir(folder.path()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    // The command may end before it has read everything.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
    let output = output.expect("in time").expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

async fn exchange(address: SocketAddr, request: &str) -> (u16, String) {
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut response = String::new();
    let read = tokio::time::timeout(TIMEOUT, tcp.read_to_string(&mut response)).await;
    read.expect("in time").expect("an answer");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

async fn post(admin: SocketAddr, token: &str, body: &str) -> (u16, Value) {
    let request = format!(
        "POST /api/v1/scores HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, body) = exchange(admin, &request).await;
    let json = serde_json::from_str(&body);
    (status, json.unwrap_or_else(|_| json!(body)))
}

/// A call of a session, in the trace [`TRACE`] if `traced`.
async fn chat(proxy: SocketAddr, session: &str, traced: bool) {
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hello?"}]});
    let body = body.to_string();
    let trace = if traced {
        format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n")
    } else {
        String::new()
    };
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: llm.example\r\nconnection: close\r\nx-session-id: {session}\r\n\
         {trace}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(exchange(proxy, &request).await.0, 200);
}

/// Name, value and target of each score.
fn listed(scores: &Value) -> Vec<(String, f64, String)> {
    let scores = scores.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let one = |score: &Value| {
        let value = score["value"].as_f64().expect("a number");
        (text(&score["name"]), value, text(&score["target"]))
    };
    scores.iter().map(one).collect()
}

fn expected(scores: &[(&str, f64, &str)]) -> Vec<(String, f64, String)> {
    let own = |(name, value, target): &(&str, f64, &str)| {
        ((*name).to_owned(), *value, (*target).to_owned())
    };
    scores.iter().map(own).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_stand_next_to_calls_sessions_and_groups() {
    let sim = sim::start("tokens=20,ttft=1ms,gap=1ms,usage=on").await;
    for ledger in [false, true] {
        let fixture = Fixture::start(sim.address, (true, ledger)).await;
        let proxy = fixture.process.addresses()[0];
        // This score arrives before the first call of its session.
        let early = json!({"name": "success", "value": true, "sessionId": "a", "comment": "good"});
        assert_eq!(fixture.post(&early.to_string()).await.0, 201);
        for (session, traced) in [("a", false), ("a", true), ("b", false)] {
            chat(proxy, session, traced).await;
        }
        let calls = fixture.calls(3).await;
        let (first, third) = (&calls[0], &calls[2]);
        assert_eq!(third["session"], "b");
        let response = third["response_id"].as_str().expect("an id");
        let all = [
            json!({"name": "grade", "value": 3.5, "call": first["id"], "source": "judge"}),
            json!({"name": "grade", "value": 4, "call": response}),
            json!({"name": "grade", "value": -1, "traceId": TRACE.to_uppercase()}),
            json!({"name": "success", "value": 1, "dataType": "BOOLEAN", "session": "b"}),
        ];
        let (status, answer) = fixture.post(&json!(all).to_string()).await;
        assert_eq!((status, &answer["stored"]), (201, &json!(4)), "{answer}");
        assert_eq!(answer["waiting_for_call"], 0, "{answer}");
        // One score per line. The first replaces an earlier one, the second has an unknown call.
        let lines = format!(
            "{}\n{}\n",
            json!({"name": "success", "value": false, "session": "b"}),
            json!({"name": "grade", "value": 5, "call": "01890a5d-ac96-774b-bcce-b302099a8057"})
        );
        let (status, answer) = fixture.post(&lines).await;
        assert_eq!((status, &answer["stored"]), (201, &json!(2)), "{answer}");
        assert_eq!(answer["waiting_for_call"], 1, "{answer}");

        let calls = fixture.calls(3).await;
        let of = |place: usize| listed(&calls[place]["scores"]);
        let success = ("success", 1.0, "session");
        assert_eq!(of(0), expected(&[("grade", 3.5, "call"), success]));
        assert_eq!(of(1), expected(&[("grade", -1.0, "trace"), success]));
        let failed = ("success", 0.0, "session");
        assert_eq!(of(2), expected(&[("grade", 4.0, "call"), failed]));
        let id = first["id"].as_str().expect("an id");
        let call = fixture.json(&format!("/api/v1/calls/{id}")).await;
        let grade = &call["call"]["scores"][0];
        assert_eq!(grade["target_id"], first["id"]);
        let about = (&grade["source"], &grade["data_type"]);
        assert_eq!(about, (&json!("judge"), &json!("numeric")));
        assert!(grade.get("comment").is_none());
        let session = fixture.json("/api/v1/sessions/b").await;
        assert_eq!(listed(&session["scores"]), expected(&[failed]));
        assert_eq!(session["scores"][0]["data_type"], "boolean");

        let groups = fixture.json("/api/v1/groups?by=upstream").await;
        let scores = groups["groups"][0]["scores"].as_array().expect("scores");
        let [grade, success] = &scores[..] else {
            panic!("{scores:#?}")
        };
        assert_eq!(
            (&grade["name"], &grade["scores"]),
            (&json!("grade"), &json!(3))
        );
        assert_eq!(grade["average"], json!(6.5 / 3.0));
        assert_eq!(
            (&success["average"], &success["units"]),
            (&json!(0.5), &json!(2))
        );
        assert_eq!(success["data_type"], "boolean");
        let bounds = [&success["lower"], &success["upper"]].map(|bound| bound.as_f64());
        assert!(
            bounds[0] < Some(0.02) && bounds[1] > Some(0.98),
            "{bounds:?}"
        );
        let one = fixture.json("/api/v1/models?session=a").await;
        let scores = &one["models"][0]["scores"];
        assert_eq!(
            (&scores[0]["scores"], &scores[1]["average"]),
            (&json!(2), &json!(1.0))
        );
        assert_eq!(
            fixture
                .metric("tokengauge_scores_total{score=\"grade\"}")
                .await,
            4.0
        );
        if ledger {
            let Fixture { folder, process } = fixture;
            process.signal(Signal::TERM);
            process.ended().await;
            let process = Process::start(&folder.path().join("proxy.toml")).await;
            let again = Fixture { folder, process };
            let calls = again.calls(3).await;
            assert_eq!(
                listed(&calls[0]["scores"]).len(),
                2,
                "they outlive the process"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_score_is_refused_with_what_to_do_and_nothing_is_stored() {
    let nobody = ([127, 0, 0, 1], 9).into();
    let open = Fixture::start(nobody, (false, false)).await;
    let (status, said) = open.post("{}").await;
    assert_eq!(status, 403, "{said}");
    let message = said["error"]["message"].as_str().expect("a message");
    assert!(message.contains("set `token_file` in [admin]"), "{message}");

    let fixture = Fixture::start(nobody, (true, true)).await;
    let admin = fixture.process.admin;
    assert_eq!(post(admin, "another-token-of-it", "{}").await.0, 401);
    let of = |name: Value, value: Value| json!({"name": name, "value": value, "session": "s"});
    let long = "ü".repeat(201);
    let cases = [
        (json!({}), Value::Null),
        (json!([]), Value::Null),
        (json!("x"), Value::Null),
        (of(json!("Big"), json!(1)), json!("name")),
        (of(json!(""), json!(1)), json!("name")),
        (of(json!("a".repeat(65)), json!(1)), json!("name")),
        (of(json!("a"), json!("good")), json!("value")),
        (of(json!("a"), json!(null)), json!("value")),
        (of(json!("a"), json!(1e10)), json!("value")),
        (
            json!({"name": "a", "value": 2, "data_type": "boolean", "session": "s"}),
            json!("value"),
        ),
        (
            json!({"name": "a", "value": 1, "dataType": "CATEGORICAL", "session": "s"}),
            json!("data_type"),
        ),
        (json!({"name": "a", "value": 1}), json!("target")),
        (
            json!({"name": "a", "value": 1, "session": "s", "call": "c"}),
            json!("target"),
        ),
        (
            json!({"name": "a", "value": 1, "session": long}),
            json!("session"),
        ),
        (
            json!({"name": "a", "value": 1, "session": "a\nb"}),
            json!("session"),
        ),
        (json!({"name": "a", "value": 1, "call": ""}), json!("call")),
        (
            json!({"name": "a", "value": 1, "trace_id": "12"}),
            json!("trace_id"),
        ),
        (
            json!({"name": "a", "value": 1, "session": "s", "source": long}),
            json!("source"),
        ),
        (
            json!({"name": "a", "value": 1, "session": "s", "colour": 1}),
            Value::Null,
        ),
        (
            json!([of(json!("a"), json!(1)), of(json!("B"), json!(1))]),
            json!("name"),
        ),
    ];
    for (body, parameter) in &cases {
        let (status, said) = fixture.post(&body.to_string()).await;
        assert_eq!(status, 400, "{body}: {said}");
        assert_eq!(said["error"]["parameter"], *parameter, "{body}: {said}");
    }
    let (_, said) = fixture.post(&cases[cases.len() - 1].0.to_string()).await;
    let message = said["error"]["message"].as_str().expect("a message");
    assert!(message.starts_with("score 2: name must have"), "{message}");
    let many: Vec<Value> = (0..1001)
        .map(|at| of(json!(format!("a{at}")), json!(1)))
        .collect();
    let (status, said) = fixture.post(&json!(many).to_string()).await;
    assert_eq!(status, 413, "{said}");
    let (status, _) = fixture.post(&"x".repeat(3_000_000)).await;
    assert_eq!(status, 413);
    let rejected = "tokengauge_score_requests_rejected_total{reason=\"invalid\"}";
    assert_eq!(fixture.metric(rejected).await, cases.len() as f64 + 1.0);
    assert_eq!(
        fixture.metric("tokengauge_scores_total{score=\"a\"}").await,
        0.0
    );
    let (status, _) = fixture.post(&json!(many[..1000]).to_string()).await;
    assert_eq!(status, 201);
    let other = "tokengauge_scores_total{score=\"other\"}";
    assert_eq!(fixture.metric(other).await, 950.0, "names are bounded");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_sends_one_score_or_a_file() {
    let fixture = Fixture::start(([127, 0, 0, 1], 9).into(), (true, false)).await;
    let one = ["success", "true", "--session", "s", "--source", "ci"];
    let (code, out, error) = fixture.command(&one, "").await;
    assert_eq!((code, &*out), (Some(0), "stored 1 scores\n"), "{error}");
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let (code, out, error) = fixture.command(&["grade", "-2.5", "--call", id], "").await;
    let waits = "stored 1 scores; 1 of them wait for a call that is not known yet\n";
    assert_eq!((code, &*out), (Some(0), waits), "{error}");
    let line = |at: usize| json!({"name": "grade", "value": at, "session": format!("s{at}")});
    let lines: String = (0..1_500).map(|at| format!("{}\n", line(at))).collect();
    let (code, out, error) = fixture.command(&["--file", "-"], &lines).await;
    assert_eq!((code, &*out), (Some(0), "stored 1500 scores\n"), "{error}");
    for (arguments, input, said) in [
        (
            &["success", "good", "--session", "s"][..],
            "",
            "`good` is not a score",
        ),
        (
            &["Success", "1", "--session", "s"],
            "",
            "name must have 1 to 64",
        ),
        (
            &["success", "1", "--trace", "x"],
            "",
            "trace_id must have 32",
        ),
        (
            &["success", "1"],
            "",
            "--call <ID>|--session <NAME>|--trace <ID>",
        ),
        (
            &["success", "1", "--call", "c", "--session", "s"],
            "",
            "cannot be used with",
        ),
        (&["success"], "", "required"),
        (&[], "", "required"),
        (&["--file", "nowhere"], "", "nowhere"),
        (&["--file", "-"], "{}\nx", "line 2 is not a JSON object"),
        (&["--file", "-"], "{\"name\": 1}", "answered 400"),
    ] {
        let (code, out, error) = fixture.command(arguments, input).await;
        assert!(code.is_some_and(|code| code != 0), "{arguments:?}: {out}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

/// A folder with a ledger of scored sessions and a configuration.
struct Stored(TempDir);

impl Stored {
    /// Two calls of each of 600 sessions of two upstreams and two variants that ended an hour ago. `new` is half as fast
    /// again. Every `bad[side]`-th session has a false score `success`; each has a `grade`.
    fn write(bad: [usize; 2]) -> Stored {
        let folder = tempfile::tempdir().expect("a folder");
        let begin = SystemTime::now() - Duration::from_secs(2 * 3_600);
        let mut scores = Vec::new();
        let records = Records::new(begin, 1_000.0).take(2_400).enumerate();
        let calls: Vec<CallRecord> = records
            .map(|(place, call)| {
                let (side, number) = (place % 2, place / 4);
                let name = ["old", "new"][side];
                let session = format!("{name}-{number}");
                let spread = 1.0 + (number * 7_919 % 101) as f64 / 1_010.0;
                let speed = [40.0, 60.0][side] * spread;
                if place / 2 % 2 == 0 {
                    let good = number % bad[side] != 0;
                    scores.push(score("success", f64::from(u8::from(good)), &session));
                    let grade = 3.0 + side as f64 * 0.5 + (number % 3) as f64;
                    scores.push(score("grade", grade, &session));
                }
                serde_json::from_value(json!({
                    "id": call.id, "started_at": call.started_at, "route": name, "upstream": name,
                    "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
                    "outcome": "complete", "status": 200, "session": session,
                    "experiment": "decoder", "variant": name, "cost_usd": 0.01,
                    "model_requested": "m", "streamed": true, "warm_up": false, "finish_reasons": ["stop"],
                    "tokens": {"normalised": {"output": 200}, "reported": {}},
                    "seconds": {"ttft": 0.3, "duration": 6.0, "last_token": 0.3 + 200.0 / speed},
                    "tps": {"output": speed}, "frames": 50, "stalls": 0, "segments": [],
                    "bytes": {"request": 1_000, "response": 1},
                }))
                .expect("a record")
            })
            .collect();
        let path = folder.path().join("ledger.sqlite");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        let stored = calls.iter();
        let stored = stored.filter_map(|call| LedgerCall::of_record(call, Some(3)));
        ledger.write(&stored.collect::<Vec<_>>()).expect("written");
        ledger.score(&scores).expect("written");
        let upstream = |name: &str| {
            format!(
                "[[upstream]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
            )
        };
        let text = format!(
            "{}{}[[gate]]\nname = \"rollout\"\ncandidate.upstream = \"new\"\nbaseline.upstream = \"old\"\n\
             scores = [{{ name = \"success\", not_worse_by = 0.05 }}]\n\
             [[experiment]]\nname = \"decoder\"\nscores = [\"success\", \"grade\"]\n",
            upstream("old"),
            upstream("new")
        );
        std::fs::write(folder.path().join("proxy.toml"), text).expect("written");
        Stored(folder)
    }

    async fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(arguments);
        run(command, &self.0, "").await
    }

    async fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let of_ledger = ["--ledger", "ledger.sqlite", "--format", "json"];
        let (code, out, error) = self.run(&[arguments, &of_ledger].concat()).await;
        let json = serde_json::from_str(&out);
        (code, json.unwrap_or_else(|_| panic!("{out}{error}")))
    }
}

fn score(name: &str, value: f64, session: &str) -> Score {
    Score {
        name: name.to_owned(),
        value,
        data_type: match name {
            "success" => ScoreType::Boolean,
            _ => ScoreType::Numeric,
        },
        target: ScoreTarget::Session,
        target_id: session.to_owned(),
        source: None,
        time: SystemTime::now().into(),
    }
}

const CONFIG: [&str; 2] = ["--config", "proxy.toml"];

#[tokio::test(flavor = "multi_thread")]
async fn a_faster_candidate_that_answers_worse_does_not_pass_its_gate() {
    let gate = ["gate", "rollout", CONFIG[0], CONFIG[1]];
    let (code, report) = Stored::write([20, 20]).json(&gate).await;
    assert_eq!(
        (code, &report["verdict"]),
        (Some(0), &json!("pass")),
        "{report:#}"
    );
    let worse = Stored::write([20, 4]);
    let (code, report) = worse.json(&gate).await;
    assert_eq!(
        (code, &report["verdict"]),
        (Some(1), &json!("fail")),
        "{report:#}"
    );
    assert_eq!(report["reason"], "does not hold: score success");
    let checks = report["checks"].as_array().expect("checks");
    let named = |name: &str| checks.iter().find(|check| check["name"] == name);
    let tps = named("tps").expect("a check");
    assert_eq!(tps["verdict"], "pass", "it is faster: {tps}");
    let success = named("score success").expect("a check");
    // Sessions that began before the other side had one are left out.
    assert_eq!(success["n"], tps["n"], "{success}");
    let (code, out, _) = worse
        .run(&[&gate[..], &["--ledger", "ledger.sqlite"]].concat())
        .await;
    assert_eq!(code, Some(1));
    assert!(out.contains("score success"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_compares_the_scores_that_it_lists() {
    let stored = Stored::write([20, 3]);
    let experiment = ["experiment", "decoder", CONFIG[0], CONFIG[1]];
    let (code, report) = stored.json(&experiment).await;
    assert_eq!(code, Some(0));
    // The baseline is the first variant by name.
    let comparison = &report["comparisons"][0];
    assert_eq!(
        (&comparison["baseline"], &comparison["variant"]),
        (&json!("new"), &json!("old"))
    );
    let metrics = comparison["metrics"].as_array().expect("metrics");
    let of = |name: &str| {
        let found = metrics
            .iter()
            .find(|metric| metric["score"]["name"] == name);
        found.expect("compared").clone()
    };
    let success = of("success");
    assert_eq!(success["decision"], "better", "{success:#}");
    assert_eq!(success["score"]["is_share"], true);
    let difference = success["difference"].as_f64().expect("known");
    assert!(
        (difference - (0.95 - 2.0 / 3.0)).abs() < 0.03,
        "{difference}"
    );
    let grade = of("grade");
    assert_eq!(
        (&grade["decision"], &grade["score"]["is_share"]),
        (&json!("worse"), &json!(false))
    );
    let (_, out, _) = stored
        .run(&[&experiment[..], &["--ledger", "ledger.sqlite"]].concat())
        .await;
    assert!(out.contains("score grade"), "{out}");
    assert!(out.contains("−0.5"), "in the unit of the score: {out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_has_scores_and_what_a_successful_session_takes() {
    let stored = Stored::write([2, 4]);
    let (code, report) = stored.json(&["report", "--by", "upstream"]).await;
    assert_eq!(code, Some(0));
    let groups = report["groups"].as_array().expect("groups");
    let group = |name: &str| {
        groups
            .iter()
            .find(|group| group["name"] == name)
            .expect("a row")
    };
    let (old, new) = (group("old"), group("new"));
    let scores = old["scores"].as_array().expect("scores");
    let success = scores.iter().find(|score| score["name"] == "success");
    assert_eq!(success.expect("a score")["average"], 0.5);
    let per = &old["per_success"];
    assert_eq!(
        (&per["scored_sessions"], &per["successful_sessions"]),
        (&json!(600), &json!(300))
    );
    // Two calls of a cent in each of two sessions.
    let cost = per["cost_usd"]["value"].as_f64().expect("known");
    assert!((cost - 0.04).abs() < 1e-9, "{per}");
    assert!(per["cost_usd"]["lower"].as_f64() < Some(0.04), "{per}");
    let tokens = per["tokens"]["value"].as_f64().expect("known");
    assert!((tokens - 800.0).abs() < 1e-6, "{per}");
    let cheaper = new["per_success"]["cost_usd"]["value"]
        .as_f64()
        .expect("known");
    assert!((cheaper - 0.02 / 0.75).abs() < 1e-9, "{new}");
    let (_, other) = stored
        .json(&["report", "--by", "upstream", "--success", "nothing"])
        .await;
    assert_eq!(other["groups"][0]["per_success"], Value::Null);
    let of_ledger = [
        "report",
        "--by",
        "upstream",
        "--ledger",
        "ledger.sqlite",
        "--format",
    ];
    for format in ["text", "markdown", "html"] {
        let (code, out, error) = stored.run(&[&of_ledger[..], &[format]].concat()).await;
        assert_eq!(code, Some(0), "{error}");
        let out = out.to_lowercase();
        assert!(
            out.contains("cost/success") && out.contains("300 of 600"),
            "{out}"
        );
        assert!(out.contains("50.0 %"), "{out}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_of_a_score_in_the_configuration_is_reported() {
    let stored = Stored::write([2, 2]);
    let path: PathBuf = stored.0.path().join("proxy.toml");
    let text = std::fs::read_to_string(&path).expect("readable");
    for (from, to, said) in [
        (
            "name = \"success\"",
            "name = \"Success\"",
            "the name of a score must have 1 to 64",
        ),
        (
            "\"success\", \"grade\"",
            "\"grade\", \"grade\"",
            "the score `grade` is listed twice",
        ),
        ("not_worse_by = 0.05", "not_worse_by = 0", "must be above 0"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let (code, out, error) = stored.run(&["check", CONFIG[0], CONFIG[1]]).await;
        assert_ne!(code, Some(0), "{to}: {out}");
        assert!(format!("{out}{error}").contains(said), "{to}: {out}{error}");
    }
}
