//! An incident as one file, over the real binary: what it contains, what it omits, and that it loads no other file.

use crate::process::Process;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::sim::{self, Sim};
use tokio::process::Command;

/// Planted in keys, prompts and other secrets, and nowhere else.
const PLANTED: &str = "PLANTED-91c2";

struct Fixture {
    folder: TempDir,
    process: Process,
    _simulators: [Sim; 2],
}

impl Fixture {
    async fn start() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = "ttft=5ms,gap=1ms,tokens=20,usage=on";
        let simulators = [sim::start(settings).await, sim::start(settings).await];
        let upstreams = ["good", "bad"].into_iter().zip(&simulators);
        let upstreams = upstreams.map(|(name, sim)| {
            format!(
                "[[upstream]]\nname = \"{name}\"\nurl = \"http://{}\"\n\
                 [[route]]\npath = \"/{name}\"\nstrip = true\nupstream = \"{name}\"\n",
                sim.address
            )
        });
        let text = format!(
            "# {PLANTED}\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}\
             [ledger]\npath = {:?}\n\
             [[workload]]\nname = \"w\"\nheaders = {{ x-api-key = \"{PLANTED}\" }}\n\
             [[slo]]\nname = \"chat\"\navailability = true\nobjective = 0.99\nwindow = \"1d\"\nmin_events = 40\n",
            upstreams.collect::<String>(),
            folder.path().join("ledger.sqlite")
        );
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, text).expect("written");
        let process = Process::start(&file).await;
        Fixture {
            folder,
            process,
            _simulators: simulators,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Calls each upstream `times` times. The bad upstream answers with an error.
    async fn incident(&self, times: usize) {
        let proxy = self.process.addresses()[0];
        for _ in 0..times {
            call(proxy, "good", "").await;
            call(proxy, "bad", "status=503").await;
        }
    }

    async fn burns(&self) -> String {
        let end = Instant::now() + TIMEOUT;
        loop {
            let response = fetch(self.process.admin, "/api/v1/slos").await.body;
            let response: Value = serde_json::from_str(&response).expect("JSON");
            let slo = &response["slos"][0];
            let firing = slo["alerts"].as_array().expect("alerts");
            let firing = firing.iter().any(|alert| alert["firing"] == true);
            let sentence = slo["cause"]["sentence"].as_str().unwrap_or_default();
            if firing && sentence.contains("upstream bad") {
                return sentence.to_owned();
            }
            assert!(Instant::now() < end, "{slo:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(arguments).current_dir(self.folder.path());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        output.expect("in time").expect("it runs")
    }
}

async fn call(proxy: SocketAddr, upstream: &str, settings: &str) {
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": PLANTED}]});
    let body = body.to_string();
    let mut agent = RawConnection::connect(proxy).await;
    agent
        .write(format!(
            "POST /{upstream}/v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\
             authorization: Bearer {PLANTED}\r\nx-sim: {settings}\r\nx-tokengauge-agent: <coder>\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let response = agent.text_to_end().await;
    assert!(response.starts_with("HTTP/1.1 "), "{response}");
}

/// Asserts that the page loads nothing and contains nothing planted.
fn stands_alone(page: &str) {
    assert!(page.starts_with("<!doctype html>"), "{page}");
    assert!(page.trim_end().ends_with("</html>"), "it is cut off");
    assert!(!page.contains(PLANTED));
    for loads in ["src=", "<link", "@import", "url(", "<iframe", "<object"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("default-src 'none'"), "its own policy");
    assert!(!page.contains("<coder>"), "names are text");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_an_alert_has_its_cause_its_calls_and_the_configuration() {
    let fixture = Fixture::start().await;
    fixture.incident(40).await;
    let sentence = fixture.burns().await;
    let response = fetch(fixture.process.admin, "/api/v1/capsule?slo=chat").await;
    assert_eq!(response.status, 200, "{}", response.body);
    let page = &response.body;
    stands_alone(page);
    let escaped = sentence.replace('&', "&amp;");
    for expected in [
        &*escaped,
        "Incident of chat",
        "page over",
        "Remaining error budget",
        "Time to first token",
        "&lt;coder&gt;",
        "http error: ",
        "class=\"lane\"",
        "The error budget is overspent by ",
        "calls of upstream bad first",
        "x-api-key = &quot;(hidden)&quot;",
        "tokengauge slo incident --slo 'chat'",
        "Text of the configuration",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    // Run the commands as the page shows them, at the time of the calls.
    for command in [
        "tokengauge slo status --admin http://localhost\n",
        "curl -s 'http://localhost/api/v1/calls/",
    ] {
        assert!(page.contains(command), "{command}");
    }
    assert!(!page.contains("ADDRESS"), "{page}");
    assert!(
        page.contains("<p>The calls are from the ledger.</p>"),
        "{page}"
    );
    assert!(!page.contains("<details"), "what is folded is not printed");
    let saved = "content-disposition: attachment; filename=\"incident-chat-20";
    assert!(response.head.contains(saved), "{}", response.head);
    assert!(page.matches("<svg").count() >= 3, "curves are drawn");
    let failed = fetch(fixture.process.admin, "/api/v1/calls?slo=chat&limit=1").await;
    let failed: Value = serde_json::from_str(&failed.body).expect("JSON");
    assert_eq!(failed["calls"][0]["upstream"], "bad");

    let status = |path: &'static str| {
        let admin = fixture.process.admin;
        async move { fetch(admin, path).await.status }
    };
    assert_eq!(status("/api/v1/capsule?slo=nope").await, 404);
    assert_eq!(status("/api/v1/capsule?since=1h&until=2h").await, 400);
    assert_eq!(status("/api/v1/capsule?from=1h").await, 400);
    assert_eq!(status("/api/v1/capsule").await, 200);
    let before_1970 = "/api/v1/capsule?until=90435d";
    assert_eq!(status(before_1970).await, 200, "an end alone is a span");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_writes_it_from_a_proxy_and_from_a_ledger() {
    let fixture = Fixture::start().await;
    fixture.incident(3).await;
    let admin = fixture.process.admin.to_string();
    let of_proxy = [
        "slo", "incident", "--since", "10m", "--admin", &admin, "-o", "a.html",
    ];
    let output = fixture.command(&of_proxy).await;
    assert!(output.status.success(), "{output:?}");
    let page = read(&fixture.path("a.html"));
    stands_alone(&page);
    assert!(page.contains("Incident report, "), "{page}");

    let end = Instant::now() + TIMEOUT;
    let page = loop {
        let of_ledger = [
            "slo",
            "incident",
            "--ledger",
            "ledger.sqlite",
            "--since",
            "10m",
            "--config",
            "proxy.toml",
        ];
        let output = fixture.command(&of_ledger).await;
        assert!(output.status.success(), "{output:?}");
        let page = String::from_utf8(output.stdout).expect("text");
        // The ledger is written in batches.
        if page.contains("http error") {
            break page;
        }
        assert!(Instant::now() < end, "{page}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    stands_alone(&page);
    for expected in ["By upstream", ">bad<", ">good<", "Configuration"] {
        assert!(page.contains(expected), "{expected}");
    }
    let both = [
        "slo",
        "incident",
        "--ledger",
        "ledger.sqlite",
        "--slo",
        "chat",
    ];
    assert_eq!(fixture.command(&both).await.status.code(), Some(2));
    let none = [
        "slo",
        "incident",
        "--ledger",
        "ledger.sqlite",
        "--since",
        "1h",
        "--until",
        "2h",
    ];
    let output = fixture.command(&none).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("--since"),
        "{error}"
    );
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("written")
}
