//! Marks over the real binary: added by hand, by the command and by the process itself, and kept in the ledger or in
//! memory.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::{fetch_json, request_with};
use tokengauge_test_support::port::HeldPort;
use tokengauge_test_support::sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const TOKEN: &str = "0123456789abcdef0123";

struct Fixture {
    folder: TempDir,
    process: Process,
}

impl Fixture {
    /// A proxy with these configuration tables; optionally with a token and a ledger.
    async fn start(tables: &str, (token, ledger): (bool, bool)) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("proxy.toml");
        let token = if token {
            format!("token = \"{TOKEN}\"\n")
        } else {
            String::new()
        };
        let ledger = format!(
            "[ledger]\nenabled = {ledger}\npath = {:?}\n",
            folder.path().join("ledger.sqlite")
        );
        let head =
            format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{token}{ledger}");
        std::fs::write(folder.path().join("head.toml"), &head).expect("written");
        std::fs::write(folder.path().join("token"), TOKEN).expect("written");
        std::fs::write(&path, format!("{head}{tables}")).expect("written");
        let process = Process::start(&path).await;
        Fixture { folder, process }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn reload(&self, tables: &str, count: f64) {
        let head = std::fs::read_to_string(self.path("head.toml")).expect("readable");
        std::fs::write(self.path("proxy.toml"), format!("{head}{tables}")).expect("written");
        self.process.signal(Signal::HUP);
        let end = Instant::now() + TIMEOUT;
        let applied = "tokengauge_config_reloads_total{result=\"applied\"}";
        while self.metric(applied).await < count {
            assert!(Instant::now() < end, "it was not read again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = get(self.process.admin, "/metrics").await.1;
        let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        let found = lines.find(|(series, _)| *series == name);
        found.map_or(0.0, |(_, value)| value.parse().expect("a number"))
    }

    async fn json(&self, path: &str) -> Value {
        let token = format!("Bearer {TOKEN}");
        fetch_json(self.process.admin, path, &[("authorization", &token)]).await
    }

    async fn marks(&self, query: &str) -> Vec<Value> {
        let response = self.json(&format!("/api/v1/marks{query}")).await;
        response["marks"].as_array().expect("marks").clone()
    }

    async fn marks_of(&self, kind: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let marks = self.marks(&format!("?kind={kind}")).await;
            if marks.len() >= count {
                return marks;
            }
            assert!(Instant::now() < end, "{kind}: {marks:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether a call found no connection to its upstream.
    async fn was_unreachable(&self) -> bool {
        let path = "/api/v1/calls?outcome=unreachable&limit=1";
        let response = self.json(path).await;
        !response["calls"].as_array().expect("calls").is_empty()
    }

    async fn command(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(arguments).current_dir(self.folder.path());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output.expect("in time").expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

async fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let token = format!("Bearer {TOKEN}");
    let response = request_with(admin, "GET", path, &[("authorization", &token)]).await;
    (response.status, response.body)
}

/// Sends a request that closes its connection, and returns status and body.
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

async fn post_as(admin: SocketAddr, token: &str, body: &str) -> (u16, Value) {
    let request = format!(
        "POST /api/v1/marks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, body) = exchange(admin, &request).await;
    let json = serde_json::from_str(&body);
    (status, json.unwrap_or_else(|_| json!(body)))
}

async fn post(admin: SocketAddr, body: &Value) -> (u16, Value) {
    post_as(admin, TOKEN, &body.to_string()).await
}

fn upstream(address: SocketAddr) -> String {
    format!(
        "[[upstream]]\nname = \"engine\"\nurl = \"http://{address}\"\n[[route]]\nupstream = \"engine\"\n"
    )
}

async fn chat(proxy: SocketAddr) -> u16 {
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hello?"}]});
    let body = body.to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: llm.example\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(proxy, &request).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_marks_a_deployment_and_everybody_sees_it() {
    for ledger in [false, true] {
        let fixture = Fixture::start(&upstream(([127, 0, 0, 1], 9).into()), (true, ledger)).await;
        let admin = fixture.process.admin;
        let whole = json!({
            "text": "deployed v2\nby CI", "time": "2026-11-01T10:00:00.5Z", "tags": ["deploy", "v2"],
            "model": "m", "upstream": "engine", "route": "r", "workload": "w",
        });
        let (status, added) = post(admin, &whole).await;
        assert_eq!(status, 201, "{added}");
        let mut expected = whole.clone();
        expected["id"] = json!(1);
        expected["kind"] = json!("note");
        expected["time"] = json!("2026-11-01T10:00:00.500Z");
        assert_eq!(added, expected);
        // Grafana sends milliseconds.
        let (status, second) = post(
            admin,
            &json!({"text": "moved", "time": 1_793_527_201_000_u64}),
        )
        .await;
        assert_eq!(
            (status, &second["time"]),
            (201, &json!("2026-11-01T10:00:01.000Z"))
        );
        assert_eq!(
            (&second["model"], &second["tags"]),
            (&Value::Null, &json!([]))
        );
        let (code, out, error) = fixture
            .command(&[
                "annotate",
                "now",
                "--admin",
                &admin.to_string(),
                "--token-file",
                "token",
                "--tag",
                "x",
                "--model",
                "n",
            ])
            .await;
        assert_eq!(code, Some(0), "{error}");
        assert!(out.starts_with("mark 3 at 20"), "{out}");
        let ids = |marks: Vec<Value>| {
            marks
                .iter()
                .map(|mark| mark["id"].as_u64())
                .collect::<Vec<_>>()
        };
        for (query, expected) in [
            ("", vec![3, 2, 1]),
            ("?limit=1", vec![3]),
            ("?from=1h", vec![3]),
            ("?to=1h", vec![2, 1]),
            (
                "?from=2026-11-01T10:00:00.500Z&to=2026-11-01T10:00:01Z",
                vec![1],
            ),
            ("?from=1793527201000&to=1793527201001", vec![2]),
            // Marks without a model belong to all models.
            ("?model=m", vec![2, 1]),
            ("?model=n&workload=w", vec![3, 2]),
            ("?kind=alert", vec![]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(Some).collect();
            assert_eq!(ids(fixture.marks(query).await), expected, "{query}");
        }
        assert_eq!(fixture.marks("?kind=note").await[2], added);
        assert_eq!(
            fixture
                .metric("tokengauge_marks_total{kind=\"note\"}")
                .await,
            3.0
        );
        let (_, body) = get(admin, "/api/v1/marks").await;
        let store = if ledger { "ledger" } else { "memory" };
        assert!(body.contains(&format!("\"store\":\"{store}\"")), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_needs_the_token_and_keeps_the_rules() {
    let open = Fixture::start(&upstream(([127, 0, 0, 1], 9).into()), (false, false)).await;
    let (status, said) = post(open.process.admin, &json!({"text": "x"})).await;
    assert_eq!(status, 403, "{said}");
    let message = said["error"]["message"].as_str().expect("a message");
    assert!(message.contains("set `token_file` in [admin]"), "{message}");
    let (code, _, error) = open
        .command(&["annotate", "x", "--admin", &open.process.admin.to_string()])
        .await;
    assert_eq!(code, Some(1));
    assert!(
        error.contains("answered 403: adding a mark changes what everybody sees"),
        "{error}"
    );

    let fixture = Fixture::start(&upstream(([127, 0, 0, 1], 9).into()), (true, false)).await;
    let admin = fixture.process.admin;
    assert_eq!(
        post_as(admin, "another-token-of-it", "{\"text\":\"x\"}")
            .await
            .0,
        401
    );
    let long = |count| "ü".repeat(count);
    for (body, parameter) in [
        (json!({}), Value::Null),
        (json!({"text": 1}), Value::Null),
        (json!({"text": "x", "txt": "y"}), Value::Null),
        (json!(["x"]), Value::Null),
        (json!({"text": ""}), json!("text")),
        (json!({"text": " \n"}), json!("text")),
        (json!({"text": long(1001)}), json!("text")),
        (json!({"text": "x", "time": "1h"}), json!("time")),
        (json!({"text": "x", "time": "yesterday"}), json!("time")),
        (
            json!({"text": "x", "time": 10_000_000_000_000_u64}),
            json!("time"),
        ),
        (json!({"text": "x", "time": 0.5}), json!("time")),
        (json!({"text": "x", "time": -1.0}), json!("time")),
        (json!({"text": "x", "time": 1e300}), json!("time")),
        (json!({"text": "x", "tags": vec!["a"; 11]}), json!("tags")),
        (json!({"text": "x", "tags": [""]}), json!("tags")),
        (json!({"text": "x", "tags": [long(101)]}), json!("tags")),
        (json!({"text": "x", "model": ""}), json!("model")),
        (json!({"text": "x", "route": long(201)}), json!("route")),
    ] {
        let (status, said) = post(admin, &body).await;
        assert_eq!(status, 400, "{body}: {said}");
        assert_eq!(said["error"]["parameter"], parameter, "{body}: {said}");
    }
    let (status, said) = post_as(
        admin,
        TOKEN,
        &format!("{{\"text\": \"{}\"}}", "x".repeat(70_000)),
    )
    .await;
    assert_eq!(status, 413, "{said}");
    assert!(fixture.marks("").await.is_empty());
    // In JSON, 21049.0 is an integer.
    let (status, said) = post(admin, &json!({"text": "x", "time": 21049.0})).await;
    assert_eq!(
        (status, &said["time"]),
        (201, &json!("1970-01-01T00:00:21.049Z"))
    );
    // A request may send null for absent values, as responses do.
    let nothing = json!({"text": "x", "time": null, "model": null, "workload": null});
    assert_eq!(post(admin, &nothing).await.0, 201);
    let longest = json!({"text": long(1000), "tags": vec![long(100); 10], "model": long(200)});
    assert_eq!(post(admin, &longest).await.0, 201);
    for bad in ["?from=x", "?kind=deploy", "?limit=0", "?since=1h", "?to="] {
        assert_eq!(
            get(admin, &format!("/api/v1/marks{bad}")).await.0,
            400,
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_prices_budgets_and_warm_ups_mark_themselves() {
    let held = HeldPort::take();
    let sim = sim::start_on(held.listen(), "tokens=40,ttft=1ms,gap=1ms,usage=on");
    let address = held.address;
    let measure = "[measure]\nwarm_up_calls = 1\nwarm_up_for = \"0s\"\n";
    let tables = |output: u32, usd: &str| {
        format!(
            "{measure}{}[[price]]\nmodel = \"*\"\noutput = {output}\n[[budget]]\nname = \"day\"\nusd = {usd}\n",
            upstream(address)
        )
    };
    let fixture = Fixture::start(&tables(1000, "0.01"), (true, true)).await;
    let proxy = fixture.process.addresses()[0];
    for _ in 0..3 {
        assert_eq!(chat(proxy).await, 200);
    }
    let begun = fixture.marks_of("alert", 1).await;
    let text = begun[0]["text"].as_str().expect("a text");
    assert!(text.starts_with("alert (ticket): budget day: "), "{text}");
    assert_eq!(begun[0]["tags"], json!(["budget day/ticket", "begin"]));

    fixture.reload(&tables(1000, "1000"), 1.0).await;
    assert_eq!(fixture.marks_of("reload", 1).await.len(), 1);
    assert_eq!(fixture.marks("?kind=prices").await, [] as [Value; 0]);
    let ended = fixture.marks_of("alert", 2).await;
    assert_eq!(ended[0]["text"], "alert resolved: budget day/ticket");
    fixture.reload(&tables(2000, "1000"), 2.0).await;
    let prices = fixture.marks_of("prices", 1).await;
    assert_eq!(prices[0]["text"], "the price list has changed");

    // The upstream is unreachable, then reachable again.
    assert_eq!(
        fixture.marks("?kind=warm_up").await,
        [] as [Value; 0],
        "the first one is none"
    );
    drop(sim);
    let end = Instant::now() + TIMEOUT;
    // A call on a kept connection may break off, which is also a 502. After that, no connection can be opened.
    while !fixture.was_unreachable().await {
        assert!(Instant::now() < end, "it still answers");
        chat(proxy).await;
    }
    let _sim = sim::start_on(held.listen(), "tokens=40,ttft=1ms,gap=1ms");
    for _ in 0..2 {
        assert_eq!(chat(proxy).await, 200);
    }
    let warm_up = fixture.marks_of("warm_up", 1).await;
    assert_eq!(
        (warm_up.len(), &warm_up[0]["upstream"]),
        (1, &json!("engine"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_outlive_the_process_and_stand_in_reports() {
    let sim = sim::start("tokens=40,ttft=1ms,gap=1ms,usage=on").await;
    let measure = "[measure]\nwarm_up_calls = 0\nwarm_up_for = \"0s\"\n";
    let tables = format!("{measure}{}", upstream(sim.address));
    let fixture = Fixture::start(&tables, (true, true)).await;
    let admin = fixture.process.admin;
    assert_eq!(
        post(
            admin,
            &json!({"text": "long ago", "time": "2020-01-01T00:00:00Z"})
        )
        .await
        .0,
        201
    );
    assert_eq!(chat(fixture.process.addresses()[0]).await, 200);
    // Plots have one point per second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(
        post(admin, &json!({"text": "deployed <v2>", "model": "m"}))
            .await
            .0,
        201
    );
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(chat(fixture.process.addresses()[0]).await, 200);
    let end = Instant::now() + TIMEOUT;
    while fixture.metric("tokengauge_ledger_records_total").await < 2.0 {
        assert!(Instant::now() < end, "the calls are not kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let of_proxy = [
        "report",
        "--format",
        "json",
        "--admin",
        &admin.to_string(),
        "--token-file",
        "token",
    ];
    let (code, out, error) = fixture.command(&of_proxy).await;
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let marks = report["marks"].as_array().expect("marks");
    assert_eq!(marks.len(), 1, "those of its time: {marks:?}");
    assert_eq!(marks[0]["text"], "deployed <v2>");
    let of_ledger = |format| ["report", "--ledger", "ledger.sqlite", "--format", format];
    let (code, out, error) = fixture.command(&of_ledger("json")).await;
    assert_eq!(code, Some(0), "{error}");
    let same: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(same["marks"], report["marks"]);
    for (format, expected) in [
        ("text", " deployed <v2> (model m)\n"),
        ("markdown", " deployed \\<v2\\> (model m)\n"),
        ("html", " deployed &lt;v2&gt; (model m)"),
    ] {
        let (_, out, _) = fixture.command(&of_ledger(format)).await;
        assert!(out.contains(expected), "{out}");
        assert!(!out.contains("long ago"), "{out}");
        let line = out.contains("stroke=\"#010101\"");
        assert_eq!(line, format == "html", "a line in the plots: {out}");
    }
    fixture.process.signal(Signal::TERM);
    let Fixture { folder, process } = fixture;
    process.ended().await;
    let process = Process::start(&folder.path().join("proxy.toml")).await;
    let again = Fixture { folder, process };
    let texts: Vec<_> = again
        .marks("")
        .await
        .into_iter()
        .map(|mark| mark["text"].clone())
        .collect();
    // The other mark is older than the retention of calls and has been deleted.
    assert_eq!(texts[0], "deployed <v2>");
}

async fn engine_metrics(tokens: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let tokens = Arc::clone(&tokens);
            tokio::spawn(async move {
                let mut peer = RawConnection::new(tcp);
                while peer.next_head().await.is_some() {
                    let tokens = tokens.load(Ordering::Relaxed);
                    let body = format!(
                        "llamacpp:prompt_tokens_total {tokens}\nllamacpp:tokens_predicted_total {tokens}\n\
                         llamacpp:requests_deferred {tokens}\n"
                    );
                    let length = body.len();
                    peer.write(format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
                    ))
                    .await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_counters_fell_is_marked_as_restarted() {
    let tokens = Arc::new(AtomicU64::new(900));
    let metrics = engine_metrics(Arc::clone(&tokens)).await;
    let scraped = format!(
        "name = \"engine\"\nmetrics_url = \"http://{metrics}\"\nmetrics_interval = \"100ms\"\n"
    );
    let tables = upstream(([127, 0, 0, 1], 9).into()).replacen("name = \"engine\"\n", &scraped, 1);
    let fixture = Fixture::start(&tables, (true, false)).await;
    // Each value is scraped before the next is set.
    for figure in [900, 1_500] {
        tokens.store(figure, Ordering::Relaxed);
        let end = Instant::now() + TIMEOUT;
        let queue = "tokengauge_upstream_queue_depth{upstream=\"engine\"}";
        while fixture.metric(queue).await != figure as f64 {
            assert!(Instant::now() < end, "{figure} is not seen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(fixture.marks("?kind=restart").await.is_empty());
    tokens.store(40, Ordering::Relaxed);
    let marks = fixture.marks_of("restart", 1).await;
    assert_eq!(marks.len(), 1);
    assert_eq!(
        marks[0]["text"],
        "engine restarted, according to its own metrics"
    );
    assert_eq!(marks[0]["upstream"], "engine");
}
