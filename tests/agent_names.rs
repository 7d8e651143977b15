//! Agent names from the port, the path, the key or the environment, for SDKs that send no name.

use crate::process::{Process, SteppedBackend};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_config::Config;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{fetch, request_with};
use tokengauge_test_support::port::HeldPort;
use tokio::process::Command;

const KEY: &str = "sk-test-of-agent-names";

/// Computes the name as the configuration reference describes it.
fn hashed(key: &str) -> String {
    let digest = Sha256::digest(format!("tokengauge key\0{key}"));
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Sorted agent names of calls, because calls within one millisecond are in any order.
async fn names(process: &Process, count: usize) -> Vec<String> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = fetch(process.admin, "/api/v1/calls?operation_class=all")
            .await
            .body;
        assert!(!response.contains(KEY), "no key leaves the process");
        let response: Value = serde_json::from_str(&response).expect("JSON");
        let calls = response["calls"].as_array().expect("calls");
        if calls.len() >= count {
            let names = calls.iter().map(|call| call["agent"].as_str());
            let mut names: Vec<_> = names.map(|name| name.unwrap_or("-").to_owned()).collect();
            names.sort_unstable();
            return names;
        }
        assert!(Instant::now() < end, "{} of {count}", calls.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_path_and_key_override_the_agent_name_of_the_sdk() {
    let (upstream, folder) = (
        SteppedBackend::start().await,
        TempDir::new().expect("a folder"),
    );
    let held = HeldPort::take();
    let (port, hash) = (held.address.port(), hashed(KEY));
    let file = folder.path().join("proxy-config.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\", \"127.0.0.1:{port}\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [attribution]\nagent_headers = [\"x-bot\"]\n\
         [[agent]]\nname = \"by-all\"\nport = {port}\npath = \"/billing\"\n\
         [[agent]]\nname = \"by-path\"\npath = \"/billing\"\n\
         [[agent]]\nname = \"by-key\"\nkey = \"{hash}\"\n\
         [[agent]]\nname = \"by-port\"\nport = {port}\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"u\"\n",
        upstream.address
    );
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(&file);
    command.env("TOKENGAUGE_AGENT", "of-the-pod");
    let process = Process::start_by(command).await;
    let bearer = format!("Bearer {KEY}");
    let sdk = ("user-agent", "OpenAI/Python 2.1");
    let by_key = ("authorization", bearer.as_str());
    let claude = ("x-claude-code-agent-id", "sub-1");
    type Headers<'a> = Vec<(&'a str, &'a str)>;
    let cases: [(usize, &str, Headers<'_>, &str); 9] = [
        (0, "/hello", vec![sdk], "of-the-pod"),
        (0, "/hello", vec![sdk, claude], "sub-1"),
        (0, "/billing/hello", vec![sdk, claude], "by-path"),
        (1, "/billing/hello", vec![sdk], "by-all"),
        (0, "/billings/hello", vec![sdk, by_key], "by-key"),
        (0, "/hello", vec![sdk, ("x-api-key", KEY)], "by-key"),
        (1, "/hello", vec![sdk], "by-port"),
        (1, "/hello", vec![("x-bot", "configured")], "configured"),
        (
            1,
            "/hello",
            vec![("x-bot", "b"), ("x-tokengauge-agent", "own")],
            "own",
        ),
    ];
    let mut expected = Vec::new();
    for (at, path, headers, name) in cases {
        let response = request_with(process.addresses()[at], "GET", path, &headers).await;
        assert_eq!(response.status, 200);
        expected.push(name);
        expected.sort_unstable();
        assert_eq!(names(&process, expected.len()).await, expected);
    }
    assert!(!fetch(process.admin, "/metrics").await.body.contains(KEY));
}

#[test]
fn a_name_that_cannot_be_given_is_refused_and_a_key_is_not_repeated() {
    let problem = |agent: &str| {
        let text = format!(
            "listen = \"127.0.0.1:8080\"\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n\
             [[route]]\nupstream = \"u\"\n[[agent]]\n{agent}\n"
        );
        let result = Config::parse(&text, "test.toml");
        result.map_or_else(|error| error.to_string(), |_| "fine".to_owned())
    };
    for (agent, message) in [
        ("name = \"a\"\nport = 8080", "fine"),
        (
            "name = \"a\"\nkey = \"0123456789abcdef\"\npath = \"/x\"",
            "fine",
        ),
        ("name = \"a\"", "needs `port`, `path` or `key`"),
        ("name = \"a\"\nport = 8081", "`listen` has no port 8081"),
        ("name = \"a\"\npath = \"x\"", "begins with `/`"),
        ("name = \"\"\nport = 8080", "name"),
        ("port = 8080", "missing field `name`"),
        ("name = \"a\"\nhost = \"h\"", "unknown field `host`"),
        (
            &format!("name = \"a\"\nkey = \"{KEY}\""),
            "not the key itself",
        ),
    ] {
        let problem = problem(agent);
        assert!(problem.contains(message), "{agent}: {problem}");
        assert!(!problem.contains(KEY), "{problem}");
    }
}
