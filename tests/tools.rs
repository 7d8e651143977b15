//! Tools that answers call: their names in records, their cost and speed, and nothing more about them.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch_json;
use tokengauge_test_support::sim::{self, Sim};
use tokengauge_test_support::upstream::Upstream;
use tokio::process::Command;

/// An argument of a tool call, which must not be written anywhere.
const ARGUMENT: &str = "a-question-of-nobody-else";
/// A tool name that a model may invent.
const ODD: &str = "sh -c \\\"rm+*\\\"";

struct Fixture {
    folder: TempDir,
    config: PathBuf,
    _engine: Sim,
    scripted: Upstream,
}

impl Fixture {
    async fn new() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = sim::start("tokens=20,ttft=1ms,gap=1ms,usage=on,seed=3").await;
        let scripted = Upstream::bind().await;
        let config = folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n[[upstream]]\nname = \"scripted\"\nurl = \"http://{}\"\n\
             [[route]]\nname = \"scripted\"\npath = \"/scripted\"\nstrip = true\nupstream = \"scripted\"\n\
             [[route]]\nname = \"all\"\nupstream = \"engine\"\n[[price]]\nmodel = \"m*\"\noutput = 1000\n",
            folder.path().join("state"),
            engine.address,
            scripted.address,
        );
        std::fs::write(&config, text).expect("written");
        Fixture {
            folder,
            config,
            _engine: engine,
            scripted,
        }
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger.sqlite")
    }

    async fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(arguments).arg("--ledger").arg(self.ledger());
        let output = command.output().await.expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// All files that the process wrote.
    fn written(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path().join("state")).expect("a folder");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|path| path.is_file());
        files
            .flat_map(|path| std::fs::read(path).expect("read"))
            .collect()
    }
}

/// Makes a call. The simulated backend calls the first tool that the request offers.
async fn ask(process: &Process, path: &str, behaviour: &str, body: &Value) -> String {
    let body = body.to_string();
    let mut agent = RawConnection::connect(process.addresses()[0]).await;
    agent
        .write(format!(
            "POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\nx-sim: {behaviour}\r\n\
             x-tokengauge-session: s-{behaviour}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let response = agent.text_to_end().await;
    assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    response
}

fn asking(stream: bool, more: Value) -> Value {
    let mut body = json!({"model": "m-1", "max_tokens": 99, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]});
    let more = more.as_object().expect("members").clone();
    body.as_object_mut().expect("members").extend(more);
    body
}

async fn scripted(upstream: &Upstream, tools: &[&str]) {
    let calls = tools.iter().enumerate().map(|(index, name)| {
        format!(
            "{{\"index\":{index},\"id\":\"c-{index}\",\"type\":\"function\",\
             \"function\":{{\"name\":\"{name}\",\"arguments\":\"{{\\\"q\\\":\\\"{ARGUMENT}\\\"}}\"}}}}"
        )
    });
    let body = format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\
         \"assistant\",\"content\":null,\"tool_calls\":[{}]}},\"finish_reason\":\"tool_calls\"}}],\
         \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":20}}}}",
        calls.collect::<Vec<_>>().join(",")
    );
    let mut peer = upstream.accept().await;
    peer.read_head().await;
    peer.write(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
}

async fn get(process: &Process, path: &str) -> Value {
    fetch_json(process.admin, &format!("/api/v1/{path}"), &[]).await
}

/// Waits until the ledger has this number of calls.
async fn stored(process: &Process, count: usize) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = get(process, "calls").await;
        let calls = response["calls"].as_array().map_or(0, Vec::len);
        if calls >= count && response["store"] == "ledger" {
            return;
        }
        assert!(Instant::now() < end, "{calls} of {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn rows<'a>(
    groups: &'a Value,
    names: impl Fn(&'a Value) -> &'a Value,
) -> Vec<(Option<&'a str>, u64)> {
    let rows = groups.as_array().expect("rows");
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                names(row).as_str(),
                row["calls"].as_u64().expect("a number"),
            )
        })
        .collect();
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_grouped_filtered_and_paid_by_the_tools_that_they_call_each_once() {
    let fixture = Fixture::new().await;
    let process = Process::start(&fixture.config).await;
    let chat = |name: &str| json!({"tools": [{"type": "function", "function": {"name": name}}]});
    let flat = |name: &str| json!({"tools": [{"name": name, "input_schema": {}}]});
    let (completions, messages) = ("/v1/chat/completions", "/v1/messages");
    for (path, behaviour, stream, tools) in [
        (completions, "tool=9x2", true, chat("fetch")),
        (messages, "tool=9", true, flat("fetch")),
        (completions, "tool=9", false, chat("search")),
        // Tools that are offered, but not called.
        (completions, "tokens=20", true, chat("search")),
    ] {
        ask(&process, path, behaviour, &asking(stream, tools)).await;
    }
    let scripts: [&[&str]; 2] = [&["search", "fetch", "search"], &[ODD]];
    for tools in scripts {
        let body = asking(false, json!({}));
        let path = format!("/scripted{completions}");
        tokio::join!(
            ask(&process, &path, "plain", &body),
            scripted(&fixture.scripted, tools)
        );
    }
    stored(&process, 6).await;

    let expected = [
        (None, 1),
        (Some("fetch"), 2),
        (Some("fetch+search"), 1),
        (Some("search"), 1),
        (Some("sh_-c__rm___"), 1),
    ];
    let groups = get(&process, "groups?by=tool").await;
    let found = rows(&groups["groups"], |row| &row["by"]["tool"]);
    assert_eq!(found, expected, "{:#}", get(&process, "calls").await);
    let all = get(&process, "groups").await;
    let costs = |groups: &Value| -> f64 {
        let rows = groups["groups"].as_array().expect("rows");
        rows.iter()
            .map(|row| row["cost_usd"].as_f64().expect("a price"))
            .sum()
    };
    assert!(
        costs(&all) > 0.0 && (costs(&groups) - costs(&all)).abs() < 1e-9,
        "{groups}"
    );
    let spent = get(&process, "costs?dimension=tool").await;
    assert_eq!(rows(&spent["series"], |row| &row["name"]), expected);

    for query in ["tool=fetch%2Bsearch", "tool=fetch+search"] {
        let calls = get(&process, &format!("calls?{query}")).await;
        let calls = calls["calls"].as_array().expect("calls");
        assert_eq!(calls.len(), 1, "{query}");
        assert_eq!(
            (&calls[0]["tools"], &calls[0]["route"]),
            (&json!("fetch+search"), &json!("scripted"))
        );
    }
    for (tool, calls) in [("search", 2), ("fetch", 3), ("sh_-c__rm___", 1)] {
        let found = get(&process, &format!("calls?tool={tool}")).await;
        assert_eq!(
            found["calls"].as_array().map(Vec::len),
            Some(calls),
            "{tool}"
        );
        let found = get(&process, &format!("coverage?tool={tool}")).await;
        assert_eq!(found["calls"], calls, "{found}");
    }
    let sessions = get(&process, "sessions?tool=search").await;
    assert_eq!(
        sessions["sessions"].as_array().map(Vec::len),
        Some(2),
        "{sessions}"
    );
    assert_eq!(get(&process, "calls?tool=nobody").await["calls"], json!([]));
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());

    let report = fixture
        .command(&["report", "--by", "tool", "--format", "json"])
        .await;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(rows(&report["groups"], |row| &row["by"]["tool"]), expected);
    let lines = fixture
        .command(&["export", "--since", "1h", "--format", "csv"])
        .await;
    let head = lines.lines().next().expect("a head").split(',');
    let at = head
        .clone()
        .position(|name| name == "tools")
        .expect("a column");
    let tools = lines.lines().skip(1).map(|line| {
        // Values before this column contain no comma outside quotes, because only lists of reasons do.
        line.split(',').nth(at).expect("a value").to_owned()
    });
    let mut tools: Vec<String> = tools.collect();
    tools.sort();
    assert_eq!(
        tools,
        [
            "",
            "fetch",
            "fetch",
            "fetch+search",
            "search",
            "sh_-c__rm___"
        ]
    );
    let written = fixture.written();
    assert!(written.windows(5).any(|part| part == b"fetch"));
    assert!(
        !written
            .windows(ARGUMENT.len())
            .any(|part| part == ARGUMENT.as_bytes()),
        "an argument is in a file"
    );
}
