//! Complete answers on paths that no dialect defines.

use super::play::{Case, JSON, KNOWN, play};
use super::*;

/// A one-word answer in each dialect that a body identifies.
fn bodies() -> Vec<(&'static str, Value)> {
    vec![
        (
            "openai_chat",
            json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word"}, "finish_reason": "stop"}]}),
        ),
        (
            "openai_completions",
            json!({"model": "m", "choices": [{"index": 0, "text": " word", "finish_reason": "stop"}]}),
        ),
        (
            "anthropic",
            json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word"}], "stop_reason": "end_turn"}),
        ),
        (
            "openai_responses",
            json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": " word"}]}]}),
        ),
        ("gemini", gemini_text(" word")),
        (
            "ollama",
            json!({"model": "m", "message": {"content": " word"}, "done": true, "done_reason": "stop"}),
        ),
        (
            "cohere_v2",
            json!({"id": "c", "message": {"role": "assistant", "content": [{"type": "text", "text": " word"}]}, "finish_reason": "COMPLETE"}),
        ),
        (
            "cohere_v1",
            json!({"text": " word", "generation_id": "g", "finish_reason": "COMPLETE"}),
        ),
        (
            "bedrock_converse",
            json!({"output": {"message": {"role": "assistant", "content": [{"text": " word"}]}}, "stopReason": "end_turn"}),
        ),
        (
            "llama_cpp",
            json!({"content": " word", "stop": true, "stop_type": "eos", "model": "m"}),
        ),
        ("tgi", json!({"generated_text": " word"})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_a_known_dialect_is_a_generation_wherever_it_comes_from() {
    let other = json!({"outcome": "complete", "dialect": "unknown", "operation_class": "other", "model_requested": null, "skipped_events": 0, "tokens": {"normalised": {"input": null, "output": null}, "reported": {"output": null}}, "cost_usd": null});
    let mut cases = Vec::new();
    for (dialect, body) in bodies() {
        let expected = json!({"outcome": "complete", "dialect": dialect, "operation_class": "generation", "streamed": false, "model_requested": "m", "tokens": {"normalised": {"output": 1}}, "cost_usd": KNOWN});
        let pretty = serde_json::to_string_pretty(&body).expect("JSON");
        for (how, text) in [("", body.to_string()), (", pretty", pretty)] {
            let name = format!("{dialect}{how}");
            cases.push(Case::new(&name, "/foo/bar", JSON, [text], expected.clone()));
        }
        let text = body.to_string();
        cases.push(Case::new(
            &format!("{dialect}, not JSON"),
            "/foo/bar",
            "text/html",
            [text],
            other.clone(),
        ));
    }
    for (name, body) in [
        ("nobody's", json!({"answer": " word"})),
        ("error", json!({"error": {"message": "busy"}})),
        ("login", json!({"token": "secret"})),
    ] {
        cases.push(Case::new(
            name,
            "/foo/bar",
            JSON,
            [body.to_string()],
            other.clone(),
        ));
    }
    let stored = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word"}, "finish_reason": "stop"}]});
    cases.push(Case::new(
        "stored",
        "/v1/chat/completions/c_1",
        JSON,
        [stored.to_string()],
        other,
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_an_unknown_path_has_the_model_that_was_asked_for() {
    let expected = json!({"outcome": "complete", "operation_class": "generation", "model_requested": "asked", "tokens": {"normalised": {"output": 40}}});
    let nameless = |text: &str, finish: Value| {
        sse(
            json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}),
        )
    };
    let mut chunks = vec![nameless(" word", Value::Null); 40];
    chunks.extend([nameless("", json!("stop")), done()]);
    let asked = json!({"model": "asked"});
    let named = CHAT_STREAM.words(40).into_iter().chain((CHAT_STREAM.end)());
    play(vec![
        Case::new("named", "/foo/bar", SSE, named, expected.clone()).asking(&asked),
        Case::new("nameless", "/foo/bar", SSE, chunks, expected).asking(&asked),
    ])
    .await;
}
