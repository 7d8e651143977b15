//! A session as one HTML file over the real binary, from a running proxy and from its ledger.

use crate::process::Process;
use serde_json::json;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::sim;
use tokio::process::Command;

const PROMPT: &str = "a-prompt-that-is-nowhere";

async fn command(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(arguments).current_dir(folder);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    output.expect("in time").expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_one_file_with_its_calls_and_the_parts_of_its_duration() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = sim::start("ttft=5ms,gap=1ms,tokens=20,reasoning=5,usage=on").await;
    let ledger = folder.path().join("ledger.sqlite");
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[ledger]\npath = {ledger:?}\n\
         [[upstream]]\nname = \"sim\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"sim\"\n",
        sim.address
    );
    let file = folder.path().join("proxy.toml");
    std::fs::write(&file, text).expect("written");
    let process = Process::start(&file).await;
    for agent in ["planner", "<b>coder"] {
        let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": PROMPT}]});
        let body = body.to_string();
        let mut connection = RawConnection::connect(process.addresses()[0]).await;
        connection
            .write(format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\nx-tokengauge-session: one & all\r\n\
                 x-tokengauge-agent: {agent}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert!(connection.text_to_end().await.starts_with("HTTP/1.1 200 "));
    }
    let admin = process.admin.to_string();
    for source in [["--admin", &admin], ["--ledger", "ledger.sqlite"]] {
        let arguments = [
            "report",
            "session",
            "one & all",
            "--format",
            "html",
            source[0],
            source[1],
        ];
        let end = Instant::now() + TIMEOUT;
        // The ledger is written in batches.
        let page = loop {
            let output = command(folder.path(), &arguments).await;
            let page = String::from_utf8(output.stdout).expect("text");
            if output.status.success() && page.matches("class=\"lane\"").count() == 2 {
                break page;
            }
            assert!(Instant::now() < end, "{page} {:?}", output.stderr);
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        for expected in [
            "<h1>Session one &amp; all</h1>",
            "planner · m",
            "&lt;b&gt;coder · m",
            "Critical path: how much shorter the session would be without each part",
            "class=\"answer\"",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        for never in [PROMPT, "<b>coder", "src=", "<link", "url("] {
            assert!(!page.contains(never), "{never}\n{page}");
        }
    }
}
