//! Facts about upstreams on the real binary: in each call, in groups, reports and metrics, with counts and durations.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn config(upstream: SocketAddr, facts: &str, folder: &Path) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [ledger]\npath = \"{}\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{upstream}\"\n{facts}\n\
         [[route]]\nupstream = \"u\"\n",
        folder.join("ledger.sqlite").display()
    )
}

const OLD: &str =
    "facts.hardware = \"8xH100\"\nfacts.engine = \"vllm\"\nfacts.engine_version = \"0.10.0\"";
const NEW: &str =
    "facts.hardware = \"8xH100\"\nfacts.engine = \"vllm\"\nfacts.engine_version = \"0.11.0\"";

async fn json(process: &Process, path: &str) -> Value {
    let response = fetch(process.admin, path).await;
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

async fn call(process: &Process, session: &str, words: usize) {
    let body = format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(words)
    );
    let asked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\ncontent-type: application/json\r\n\
         x-tokengauge-session: {session}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut agent = TcpStream::connect(process.addresses()[0])
        .await
        .expect("connected");
    agent.write_all(asked.as_bytes()).await.expect("written");
    let mut response = String::new();
    agent.read_to_string(&mut response).await.expect("read");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

async fn kept(process: &Process, calls: u64) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        // A ledger that was just created may be busy.
        let groups = fetch(process.admin, "/api/v1/groups").await.body;
        let groups: Value = serde_json::from_str(&groups).expect("JSON");
        if groups["groups"][0]["calls"] == calls {
            return groups["groups"][0].clone();
        }
        assert!(Instant::now() < end, "{calls} calls are not in the ledger");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_keep_the_facts_of_their_upstream_at_the_time() {
    let sim = sim::start("ttft=100ms,gap=10ms,tokens=60,usage=on,seed=7").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    std::fs::write(&file, config(sim.address, OLD, folder.path())).expect("written");
    let process = Process::start(&file).await;
    for _ in 0..3 {
        call(&process, "short", 10).await;
    }
    kept(&process, 3).await;
    std::fs::write(&file, config(sim.address, NEW, folder.path())).expect("written");
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    call(&process, "long", 2_000).await;
    let all = kept(&process, 4).await;

    let by_facts = json(&process, "/api/v1/groups?by=upstream_facts").await;
    let named: Vec<_> = by_facts["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| {
            (
                group["name"].as_str().unwrap_or_default(),
                group["calls"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        named,
        [
            (
                "hardware=8xH100; engine=vllm; engine_version=0.10.0",
                Some(3)
            ),
            (
                "hardware=8xH100; engine=vllm; engine_version=0.11.0",
                Some(1)
            ),
        ]
    );
    let newest = json(&process, "/api/v1/calls?limit=1").await;
    assert_eq!(
        newest["calls"][0]["upstream_facts"]["engine_version"],
        "0.11.0"
    );

    let lengths = json(&process, "/api/v1/groups?by=prompt_length,output_length").await;
    let classes: Vec<_> = lengths["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| {
            (
                group["by"]["prompt_length"].clone(),
                group["by"]["output_length"].clone(),
            )
        })
        .collect();
    assert_eq!(
        classes,
        [
            ("under_1k".into(), "under_128".into()),
            ("1k_8k".into(), "under_128".into()),
        ]
    );

    // Every call has a speed and a first token. The wait for the first token is a part of the total time.
    assert_eq!(
        (&all["tps"]["calls"], &all["ttft"]["calls"]),
        (&4.into(), &4.into())
    );
    let share = all["ttft"]["share"].as_f64().expect("a share");
    assert!(share > 0.05 && share < 0.9, "{share}");
    let often = all["requests_per_second"].as_f64().expect("a rate");
    assert!(often > 0.0, "{often}");

    let tasks = json(&process, "/api/v1/tasks").await;
    assert_eq!(tasks["tasks"], 2);
    assert!(tasks["seconds"]["p50"].as_f64() > Some(0.05), "{tasks}");
    assert!(tasks["per_minute"].as_f64() > Some(0.0), "{tasks}");

    let metrics = fetch(process.admin, "/metrics").await.body;
    let info: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("tokengauge_upstream_info{"))
        .collect();
    assert_eq!(
        info,
        [
            "tokengauge_upstream_info{upstream=\"u\",hardware=\"8xH100\",quantization=\"\",batch_size=\"\",engine=\"vllm\",engine_version=\"0.11.0\",model_version=\"\"} 1"
        ]
    );
    let about = json(&process, "/api/v1/about").await;
    assert_eq!(about["routes"][0]["upstream_facts"]["engine"], "vllm");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());

    let report = |by: &str, format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args([
                "report",
                "--with-warm-up",
                "--by",
                by,
                "--format",
                format,
                "--ledger",
            ])
            .arg(folder.path().join("ledger.sqlite"))
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("text")
    };
    let document: Value = serde_json::from_str(&report("upstream-facts", "json")).expect("JSON");
    assert_eq!(document["groups"][0]["calls"], 3);
    assert_eq!(document["tasks"]["tasks"], 2);
    let table = report("prompt-length", "table");
    assert!(
        table.contains("REQ/S") && table.contains("3 of 3"),
        "{table}"
    );
    assert!(table.contains("2 sessions as tasks"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_that_cannot_be_kept_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    let check = |facts: &str| {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        std::fs::write(&file, config(nowhere, facts, folder.path())).expect("written");
        let output = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(["check", "--config"])
            .arg(&file)
            .output()
            .expect("runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout),
        )
    };
    for (facts, said) in [
        (
            "facts.hardware = \"\"",
            "`hardware` must have 1 to 100 bytes",
        ),
        (
            "facts.engine = \"a;b\"",
            "`engine` must have 1 to 100 bytes",
        ),
        ("facts.colour = \"red\"", "colour"),
    ] {
        let (fine, output) = check(facts);
        assert!(!fine && output.contains(said), "{facts}: {output}");
    }
    assert!(check(OLD).0);
}
