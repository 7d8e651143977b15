//! Reasoning in the text of an answer, and calls whose cost the list price of tokens does not cover.

use super::play::{Case, JSON, play, play_by_list_prices, play_with_upstream};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_in_the_text_of_an_answer_is_reasoning() {
    let counted = |reasoning: u64, answer: u64| json!({"outcome": "complete", "tokens": {"normalised": {"reasoning": reasoning, "answer": answer}}});
    let chat = |pieces: &[&str]| {
        let delta = |text: &&str| sse(chat_delta(&json!({"content": text})));
        let mut frames: Vec<_> = pieces.iter().map(delta).collect();
        frames.push(sse(chat_finish("stop")));
        frames.push(done());
        frames
    };
    let ollama = |text: &str, end: bool| {
        line(json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": end}))
    };
    let thought = tokengauge_tokenizer::count("<think> word word</think>");
    let pieces = ["<th", "ink> word", " word</thi", "nk>", " word", " word"];
    let choices = [0, 1].map(|index| json!({"index": index, "message": {"content": "<think> word word</think> word word"}, "finish_reason": "stop"}));
    play(vec![
        Case::new("cut tags", CHAT, SSE, chat(&pieces), counted(thought, 2)),
        Case::new("no tags", CHAT, SSE, chat(&[" word", " word <think>"]), counted(0, tokengauge_tokenizer::count(" word word <think>"))),
        Case::new("ollama", OLLAMA, NDJSON, vec![ollama("<think> word word</think>", false), ollama(" word", false), ollama(" word", true)], counted(thought, 2)),
        Case::new("whole", CHAT, JSON, vec![json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"content": "<think> word word</think> word word"}, "finish_reason": "stop"}]}).to_string().into_bytes()], counted(thought, 2)),
        Case::new("two choices", CHAT, SSE, two_choices("<think>"), counted(2 * thought, 4)),
        Case::new("two whole choices", CHAT, JSON, [json!({"model": "m", "choices": choices}).to_string()], counted(2 * thought, 4)),
    ])
    .await;
}

/// Two answers that think in tags, piece by piece in turn.
fn two_choices(open: &str) -> Vec<Vec<u8>> {
    let choice = |index: u32, delta: Value| {
        sse(json!({"id": "c", "model": "m", "choices": [{"index": index, "delta": delta}]}))
    };
    let pieces = [open, " word", " word</thi", "nk>", " word", " word"];
    let pieces = pieces.iter().filter(|piece| !piece.is_empty());
    let deltas =
        pieces.flat_map(|piece| [0, 1].map(|index| choice(index, json!({"content": piece}))));
    let finish = |index| {
        sse(
            json!({"id": "c", "model": "m", "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}),
        )
    };
    deltas.chain([finish(0), finish(1), done()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_begins_within_the_reasoning_is_split_unless_the_engine_did() {
    let counted = |reasoning: u64, answer: u64| json!({"outcome": "complete", "tokens": {"normalised": {"reasoning": reasoning, "answer": answer}}});
    let thought = tokengauge_tokenizer::count(" word word</think>");
    let mut parsed = vec![sse(chat_delta(&json!({"reasoning_content": " word"}))); 10];
    parsed.extend(CHAT_STREAM.words(20));
    parsed.extend([sse(chat_finish("stop")), done()]);
    let whole = json!({"model": "m", "choices": [{"index": 0, "message": {"reasoning_content": " word".repeat(10), "content": " word".repeat(20)}, "finish_reason": "stop"}]});
    play_with_upstream(
        "think_tags = \"opened\"\n",
        vec![
            Case::new(
                "two choices",
                CHAT,
                SSE,
                two_choices(""),
                counted(2 * thought, 4),
            ),
            Case::new("parsed", CHAT, SSE, parsed, counted(10, 20)),
            Case::new(
                "parsed, whole",
                CHAT,
                JSON,
                [whole.to_string()],
                counted(10, 20),
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_is_right_or_absent() {
    let gemini = |model: &str, usage: Value| {
        let text = json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word"}]}, "finishReason": "STOP"}], "modelVersion": model, "usageMetadata": usage});
        vec![text.to_string().into_bytes()]
    };
    let audio = json!({"promptTokenCount": 10_000, "candidatesTokenCount": 100, "totalTokenCount": 10_100, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 10_000}]});
    let claude = |usage: Value| {
        let message = json!({"type": "message", "id": "m", "model": "claude-sonnet-4-6", "content": [{"type": "text", "text": " word"}], "stop_reason": "end_turn", "usage": usage});
        vec![message.to_string().into_bytes()]
    };
    // 3 and 15 US dollars per million tokens: 0.0315 for these.
    let tokens = |more: Value| {
        let mut usage = json!({"input_tokens": 10_000, "output_tokens": 100});
        for (name, value) in more.as_object().expect("members") {
            usage[name] = value.clone();
        }
        usage
    };
    let searches = json!({"server_tool_use": {"web_search_requests": 3}});
    let cost = |usd: f64| json!({"cost_usd": usd, "cost_source": "list", "cost_unavailable": null});
    let absent =
        |why: &str| json!({"cost_usd": null, "cost_source": null, "cost_unavailable": why});
    play_by_list_prices(vec![
        Case::new(
            "audio",
            GEMINI,
            JSON,
            gemini("gemini-2.5-flash", audio.clone()),
            cost(0.010_25),
        ),
        Case::new(
            "audio without a price",
            GEMINI,
            JSON,
            gemini("gemini-3.5-flash", audio),
            absent("modality"),
        ),
        Case::new(
            "plain",
            MESSAGES,
            JSON,
            claude(tokens(json!({}))),
            cost(0.0315),
        ),
        Case::new(
            "searches",
            MESSAGES,
            JSON,
            claude(tokens(searches)),
            cost(0.0615),
        ),
        Case::new(
            "region",
            MESSAGES,
            JSON,
            claude(tokens(json!({"inference_geo": "us"}))),
            cost(0.034_65),
        ),
        Case::new(
            "no region",
            MESSAGES,
            JSON,
            claude(tokens(json!({"inference_geo": "global"}))),
            cost(0.0315),
        ),
        Case::new(
            "tier",
            MESSAGES,
            JSON,
            claude(tokens(json!({"service_tier": "priority"}))),
            absent("service_tier"),
        ),
    ])
    .await;
}
