//! API answers about the calls of a session, and its trace.

use crate::admin_api::Server;
use crate::admin_finished::chat;
use serde_json::Value;

#[tokio::test]
async fn the_critical_path_adds_up_to_the_session() {
    let server = Server::start().await;
    for second in [0, 10, 20] {
        chat(&server, second, "a b", "coder/1");
    }
    chat(&server, 5, "other", "coder/1");
    let found = server.json("/api/v1/sessions/a%20b/analysis").await;
    assert_eq!(
        (&found["store"], &found["calls"]),
        (&"memory".into(), &3.into())
    );
    let path = &found["critical_path"];
    assert_eq!(path["calls_beside"], 0);
    let session = server.json("/api/v1/sessions/a%20b").await;
    let wall = session["seconds"]["wall"].as_f64().expect("its length");
    assert!((path["seconds"].as_f64().expect("a length") - wall).abs() < 1e-6);
    let parts = path["parts"].as_array().expect("parts");
    let sum: f64 = parts
        .iter()
        .filter_map(|part| part["seconds"].as_f64())
        .sum();
    assert!((sum - wall).abs() < 1e-6, "{sum} {wall}");
    let between = parts.iter().find(|part| part["phase"].is_null());
    let between = between.expect("time between calls")["seconds"].as_f64();
    assert!(
        (between.expect("seconds") - 16.0).abs() < 0.01,
        "{between:?}"
    );
    assert_eq!(found["cache_breaks"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn a_session_is_saved_as_a_trace() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    let perfetto = server.fetch("/api/v1/sessions/a/trace").await;
    assert_eq!(perfetto.status, 200);
    let name = "content-disposition: attachment; filename=\"session.json\"";
    assert!(perfetto.head.contains(name), "{}", perfetto.head);
    let events: Value = serde_json::from_str(&perfetto.body).expect("JSON");
    assert!(events["traceEvents"].as_array().expect("events").len() > 4);
    let otlp = server.json("/api/v1/sessions/a/trace?format=otlp").await;
    let spans = &otlp["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans[0]["name"], "session a");
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
}

#[tokio::test]
async fn an_unknown_session_and_an_unknown_format_are_errors() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    for path in ["analysis", "trace"] {
        let response = server.fetch(&format!("/api/v1/sessions/b/{path}")).await;
        assert_eq!(response.status, 404, "{}", response.body);
        let why =
            "no finished call in memory has this session: memory has at most the last 50 calls";
        assert!(response.body.contains(why), "{}", response.body);
    }
    let response = server.fetch("/api/v1/sessions/a/trace?format=zipkin").await;
    assert_eq!(response.status, 400);
    assert!(
        response
            .body
            .contains("format must be one of perfetto, otlp")
    );
    let response = server.fetch("/api/v1/sessions/a/analysis?since=1h").await;
    assert_eq!(response.status, 400);
}
