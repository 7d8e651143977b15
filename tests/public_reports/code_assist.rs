//! Gemini CLI and Code Assist: Gemini's API with an envelope around requests and responses.

use super::play::{Case, JSON, KNOWN, play};
use super::*;

const WHOLE: &str = "/v1internal:generateContent";
const STREAM: &str = "/v1internal:streamGenerateContent?alt=sse";
const ARRAY: &str = "/v1internal:streamGenerateContent";

fn wrapped(response: &Value) -> Value {
    json!({"response": response, "traceId": "t"})
}

/// Words, and an end with usage.
fn chunks() -> Vec<Value> {
    let usage = |output: u64| json!({"promptTokenCount": 12, "candidatesTokenCount": output, "thoughtsTokenCount": 3, "totalTokenCount": output + 15});
    let word = |at: u64| {
        let mut word = gemini_text(" word");
        word["usageMetadata"] = usage(at);
        wrapped(&word)
    };
    let end = json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": usage(60), "modelVersion": "m"});
    (1..=60).map(word).chain([wrapped(&end)]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_around_gemini_is_read() {
    let asked = json!({"model": "gemini-2.5-pro", "project": "p", "request": {"session_id": "s", "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}});
    let read = json!({"outcome": "complete", "dialect": "gemini", "operation": "generate_content", "model": "m", "model_requested": "gemini-2.5-pro", "session": "s", "finish_reasons": ["STOP"], "tokens": {"normalised": {"output": 60}, "reported": {"input": 12, "output": 63, "reasoning": 3}}, "cost_usd": KNOWN});
    let text = json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word".repeat(60)}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 60, "thoughtsTokenCount": 3, "totalTokenCount": 75}, "modelVersion": "m"});
    let array = chunks().iter().map(Value::to_string).collect::<Vec<_>>();
    let stream: Vec<_> = chunks().iter().map(sse).collect();
    let failed = |kind: &str| json!({"outcome": "error_event", "error_type": kind});
    let exhausted =
        json!({"error": {"code": 429, "message": "busy", "status": "RESOURCE_EXHAUSTED"}});
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}, "modelVersion": "m"});
    let malformed = json!({"candidates": [{"index": 0, "finishReason": "MALFORMED_FUNCTION_CALL"}], "modelVersion": "m"});
    let uncounted = json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word"}]}, "finishReason": "STOP"}], "modelVersion": "m"});
    let other = json!({"outcome": "complete", "operation_class": "other", "tokens": {"normalised": {"output": null}}});
    let cases = vec![
        Case::new(
            "whole",
            WHOLE,
            JSON,
            [wrapped(&text).to_string()],
            read.clone(),
        ),
        Case::new("stream", STREAM, SSE, stream, read.clone()),
        Case::new(
            "array",
            ARRAY,
            "application/json; charset=UTF-8",
            [format!("[{}]", array.join(",\n"))],
            read,
        ),
        Case::new(
            "error",
            STREAM,
            SSE,
            [sse(&exhausted)],
            failed("RESOURCE_EXHAUSTED"),
        ),
        Case::new(
            "error in the envelope",
            STREAM,
            SSE,
            [sse(wrapped(&exhausted))],
            failed("RESOURCE_EXHAUSTED"),
        ),
        Case::new(
            "whole error",
            WHOLE,
            JSON,
            [wrapped(&exhausted).to_string()],
            failed("RESOURCE_EXHAUSTED"),
        ),
        Case::new(
            "blocked",
            WHOLE,
            JSON,
            [wrapped(&blocked).to_string()],
            failed("prompt_blocked"),
        ),
        Case::new(
            "malformed",
            STREAM,
            SSE,
            [sse(wrapped(&malformed))],
            failed("malformed_function_call"),
        ),
        Case::new(
            "empty",
            WHOLE,
            JSON,
            [wrapped(&json!({})).to_string()],
            failed("empty_response"),
        ),
        Case::new(
            "input that is not reported",
            WHOLE,
            JSON,
            [wrapped(&uncounted).to_string()],
            json!({"outcome": "complete", "tokens": {"normalised": {"input": 1, "output": 1}, "reported": {"input": null}}}),
        ),
        Case::new(
            "counting",
            "/v1internal:countTokens",
            JSON,
            [json!({"totalTokens": 31}).to_string()],
            other.clone(),
        ),
        Case::new(
            "signing in",
            "/v1internal:loadCodeAssist",
            JSON,
            [json!({"currentTier": {}}).to_string()],
            other,
        ),
    ];
    let cases = cases.into_iter().map(|case| case.asked(&asked));
    play(cases.collect()).await;
}
