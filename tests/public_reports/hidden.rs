//! Answers that report little reasoning and far more output than their text has.

use super::play::{Case, JSON, KNOWN, Socket, play, play_sockets};
use super::*;

fn hidden(output: u64) -> Value {
    json!({"outcome": "complete", "tps": {"output": null, "reported": null, "total": null, "unavailable": "hidden_output", "total_unavailable": "hidden_output"}, "tokens": {"reported": {"output": output}}})
}

/// A stream with this usage, between its words and its end.
fn chat(mut chunks: Vec<Vec<u8>>, output: u64, reasoning: &Value) -> Vec<Vec<u8>> {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": output, "completion_tokens_details": {"reasoning_tokens": reasoning}});
    chunks.push(sse(chat_finish("stop")));
    chunks.push(sse(
        json!({"id": "c", "model": "m", "choices": [], "usage": usage}),
    ));
    chunks.push(done());
    chunks
}

fn thoughts(count: usize) -> Vec<Vec<u8>> {
    vec![sse(chat_delta(&json!({"reasoning_content": " word"}))); count]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_little_reasoning_does_not_explain_much_output() {
    let mut cases = Vec::new();
    for reasoning in [json!(1), json!(8), json!("8"), json!(8.0)] {
        let chunks = chat(CHAT_STREAM.words(64), 1660, &reasoning);
        let name = format!("chat {reasoning}");
        cases.push(Case::new(&name, CHAT, SSE, chunks, hidden(1660)));
    }
    let mut chunks = thoughts(40);
    chunks.extend(CHAT_STREAM.words(64));
    let streamed = chat(chunks.clone(), 1660, &json!(40));
    cases.push(Case::new("streamed", CHAT, SSE, streamed, hidden(1660)));
    let mut tagged = vec![sse(chat_delta(&json!({"content": "<think>"})))];
    tagged.extend(CHAT_STREAM.words(20));
    tagged.push(sse(chat_delta(&json!({"content": "</think>"}))));
    tagged.extend(CHAT_STREAM.words(64));
    let tagged = chat(tagged, 1660, &json!(25));
    cases.push(Case::new("tags", CHAT, SSE, tagged, hidden(1660)));
    let body = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word".repeat(64)}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 1660, "completion_tokens_details": {"reasoning_tokens": 5}}});
    let whole = json!({"outcome": "complete", "tps": {"total": null, "unavailable": "not_streamed", "total_unavailable": "hidden_output"}});
    cases.push(Case::new("body", CHAT, JSON, [body.to_string()], whole));
    let mut chunks = vec![typed(
        &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
    )];
    chunks.extend(ANTHROPIC_STREAM.words(64));
    chunks.push(typed(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1660, "output_tokens_details": {"thinking_tokens": 7}}})));
    chunks.push(typed(&json!({"type": "message_stop"})));
    cases.push(Case::new("anthropic", MESSAGES, SSE, chunks, hidden(1660)));
    let mut chunks = vec![sse(gemini_text(" word")); 64];
    chunks.push(sse(json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1654, "thoughtsTokenCount": 6, "totalTokenCount": 1669}})));
    cases.push(Case::new(
        "gemini",
        GEMINI_STREAM,
        SSE,
        chunks,
        hidden(1660),
    ));
    let responses = STREAMS.iter().find(|stream| stream.name == "responses");
    let mut chunks = responses.expect("a stream").words(64);
    chunks.push(typed(&json!({"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": 9, "output_tokens": 1660, "output_tokens_details": {"reasoning_tokens": 5}}}})));
    cases.push(Case::new("responses", RESPONSES, SSE, chunks, hidden(1660)));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_reasoning_keeps_both_speeds() {
    let known = json!({"outcome": "complete", "tps": {"output": KNOWN, "reported": KNOWN, "unavailable": null}});
    let mut chunks = thoughts(100);
    chunks.extend(CHAT_STREAM.words(64));
    let cases = [
        ("the same", 164, 100),
        ("another tokenizer", 213, 130),
        ("rounded down", 220, 64),
        ("counted by a gateway", 213, 100),
    ];
    let case = |(name, output, reasoning): (&str, u64, u64)| {
        let chunks = chat(chunks.clone(), output, &json!(reasoning));
        Case::new(name, CHAT, SSE, chunks, known.clone())
    };
    play(cases.into_iter().map(case).collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_little_reasoning_over_a_socket_does_not_explain_much_output() {
    let word = json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": " word"});
    let socket = |name, reasoning: Value, record| {
        let created = json!({"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}});
        let mut messages = vec![created.to_string()];
        messages.extend(vec![word.to_string(); 64]);
        let details =
            json!({"text_tokens": 1660, "audio_tokens": 0, "reasoning_tokens": reasoning});
        messages.push(json!({"type": "response.done", "response": {"id": "r", "status": "completed", "output": [], "usage": {"input_tokens": 9, "output_tokens": 1660, "output_token_details": details}}}).to_string());
        let ask = json!({"type": "response.create", "model": "m"});
        Socket::new(name, "/v1/realtime?model=m", ask, messages, record)
    };
    play_sockets(vec![
        socket("five", json!(5), hidden(1660)),
        socket("none", json!(0), hidden(1660)),
        // The output may be speech.
        socket(
            "not said",
            json!(null),
            json!({"tps": {"unavailable": null}}),
        ),
    ])
    .await;
}
