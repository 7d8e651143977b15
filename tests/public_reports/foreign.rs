//! Streams with events of no known dialect count as streams without an answer.

use super::play::{Case, play};
use super::*;

fn foreign() -> Vec<(&'static str, Value)> {
    vec![
        ("ping", json!({"type": "ping"})),
        ("status", json!({"status": "processing"})),
        ("keep-alive", json!({"event": "keep-alive", "time": 1})),
        ("word of nobody's", json!({"value": " word"})),
    ]
}

/// Dialects whose readers treat an object without their members as a damaged event.
fn is_damaged(stream: &Stream, event: &Value) -> bool {
    let typed = ["anthropic", "responses"].contains(&stream.name);
    let strict = stream.name.starts_with("bedrock") || stream.name == "llama.cpp";
    strict || typed && event["type"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_only_unknown_events_has_no_answer() {
    let empty = json!({"outcome": "error_event", "error_type": "empty_response", "operation_class": "generation", "tokens": {"normalised": {"output": null}}, "cost_usd": null});
    let mut cases = Vec::new();
    for stream in STREAMS {
        let events = foreign().into_iter();
        for (name, event) in events.filter(|(_, event)| !is_damaged(&stream, event)) {
            for count in [1, 3] {
                let chunks = vec![(stream.frame)(&event); count];
                let name = format!("{}: {name}, {count}", stream.name);
                let kind = stream.content_type;
                cases.push(Case::new(&name, stream.path, kind, chunks, empty.clone()));
            }
        }
    }
    let pings = vec![named("ping", json!({"type": "ping"})); 3];
    cases.push(Case::new("named pings", MESSAGES, SSE, pings, empty));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_servers_may_stream_additional_events() {
    let other = json!({"outcome": "complete", "error_type": null, "dialect": "unknown"});
    let asks = json!({"id": 17, "stream": true});
    let case = |path: &'static str| {
        let chunks = vec![sse(json!({"progress": 0.5})); 3];
        Case::new(path, path, SSE, chunks, other.clone()).asked(&asks)
    };
    play(
        [CHAT, OLLAMA, "/generate_stream", "/own/path"]
            .map(case)
            .to_vec(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_events_around_an_answer_change_nothing() {
    let complete = json!({"outcome": "complete", "error_type": null, "tokens": {"normalised": {"output": 40}}});
    let mut cases = Vec::new();
    let ping = json!({"type": "ping"});
    for stream in STREAMS.iter().filter(|stream| !is_damaged(stream, &ping)) {
        let ping = (stream.frame)(&ping);
        let mut chunks = vec![ping.clone(); 2];
        chunks.extend(stream.words(40));
        chunks.push(ping);
        chunks.extend((stream.end)());
        let kind = stream.content_type;
        cases.push(Case::new(
            stream.name,
            stream.path,
            kind,
            chunks,
            complete.clone(),
        ));
    }
    play(cases).await;
}
