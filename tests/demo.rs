//! `tokengauge demo`: the page's address first, objectives of a file, and a folder for state.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Instant;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::process::Command;
use tokio::task::JoinSet;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_takes_a_configuration_and_keeps_its_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mine.toml");
    let text = "[[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n\
                [[route]]\nupstream = \"u\"\n\
                [[slo]]\nname = \"mine\"\navailability = true\n";
    std::fs::write(&config, text).expect("written");
    let state = folder.path().join("state");
    let mut command = demo();
    command
        .arg("--config")
        .arg(&config)
        .arg("--state-dir")
        .arg(&state);
    let process = Process::start_by(command).await;
    let address = format!("demo: http://{}/ ", process.admin);
    let first = process.line("demo: ").await;
    assert!(first.starts_with(&address), "{first}");
    let page = fetch(process.admin, "/").await;
    assert_eq!(page.status, 200);
    let objectives = fetch(process.admin, "/api/v1/slos").await.body;
    assert!(
        objectives.contains("\"mine\"") && !objectives.contains("chat-"),
        "{objectives}"
    );
    let end = Instant::now() + TIMEOUT;
    let calls = loop {
        let calls = fetch(process.admin, "/api/v1/calls?limit=1").await.body;
        if calls.contains("\"id\"") {
            break calls;
        }
        assert!(Instant::now() < end, "{calls}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(calls.contains("demo-"), "{calls}");
    let subagent = "\"parent_agent\":\"demo-coder/1.0\"";
    let end = Instant::now() + TIMEOUT;
    while !fetch(process.admin, "/api/v1/calls?limit=200")
        .await
        .body
        .contains(subagent)
    {
        assert!(Instant::now() < end, "no subagent has called");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert!(state.join("ledger.sqlite").is_file());
}

#[tokio::test]
async fn a_mistake_in_the_file_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mine.toml");
    std::fs::write(&config, "drain_timeout = 5\n").expect("written");
    let output = demo()
        .arg("--config")
        .arg(&config)
        .output()
        .await
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("mine.toml:1:17: drain_timeout: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rehearsed_incident_pages_and_the_alert_names_the_upstream_and_what_happened() {
    let rehearsals = [
        (
            "errors",
            "openai answers 503",
            ": errors, mostly http_error 503.",
        ),
        ("slow-upstream", "openai decodes", ": decoding"),
        ("stalls", "openai stalls", ": stalls"),
        ("cold-start", "openai restarts", ": a cold start."),
    ];
    let mut all = JoinSet::new();
    for (incident, happens, cause) in rehearsals {
        all.spawn(rehearsal(incident, happens, cause));
    }
    all.join_all().await;
}

async fn rehearsal(incident: &str, happens: &str, cause: &str) {
    let mut command = demo();
    command.args(["--incident", incident, "--stop-after", "5m"]);
    let process = Process::start_by(command).await;
    let told = process.line("demo: incident rehearsal").await;
    assert!(told.contains(happens), "{told}");
    // The fault begins after 25 s. Nothing is wrong before.
    process.eventually("demo: now the upstream openai").await;
    let calm: Value = {
        let response = fetch(process.admin, "/api/v1/slos").await.body;
        serde_json::from_str(&response).expect("JSON")
    };
    let bad = calm["slos"][0]["bad"].as_f64().expect("a number");
    assert!(bad < 5.0, "{incident}: {calm:#}");
    let alert = "demo: alert TokengaugeErrorBudgetBurn (page, firing)";
    process.eventually(alert).await;
    // An alert that fires before its cause is known is followed by one with the cause.
    let line = process
        .eventually(" of bad calls are upstream openai")
        .await;
    assert!(line.contains(cause), "{incident}: {line}");
    process.line("  page: ").await;
    let runbook = process.line("  runbook: http://").await;
    assert!(
        runbook.contains("/runbooks#tokengaugeerrorbudgetburn"),
        "{runbook}"
    );
    process.line("  look at: ").await;
    let capsule = process
        .line("  save the incident: tokengauge slo incident --slo rehearsal")
        .await;
    assert!(capsule.contains(&process.admin.to_string()), "{capsule}");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
}
