//! Reasoning in the text of an answer, and calls whose cost the list price of tokens does not cover.

use super::play::{Case, JSON, play, play_by_list_prices, play_with_upstream};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_in_the_text_of_an_answer_is_reasoning() {
    let counted = |reasoning: u64, answer: u64| json!({"outcome": "complete", "tokens": {"normalised": {"reasoning": reasoning, "answer": answer}}});
    let chat = |pieces: &[&str]| {
        let delta = |text: &&str| sse(chat_delta(&json!({"content": text})));
        let mut chunks: Vec<_> = pieces.iter().map(delta).collect();
        chunks.push(sse(chat_finish("stop")));
        chunks.push(done());
        chunks
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
            "capital global",
            MESSAGES,
            JSON,
            claude(tokens(json!({"inference_geo": "Global"}))),
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

/// Tokens with a known list price, and an item that the list price does not cover.
#[tokio::test(flavor = "multi_thread")]
async fn items_billed_apart_from_tokens_leave_no_cost_or_are_included() {
    let cost = |usd: f64| json!({"cost_usd": usd, "cost_source": "list", "cost_unavailable": null});
    let absent = json!({"outcome": "complete", "cost_usd": null, "cost_source": null, "cost_unavailable": "hosted_tools"});
    let tokens = json!({"input_tokens": 10_000, "output_tokens": 100});
    let response = |output: Value| json!({"id": "r", "object": "response", "model": "gpt-4.1", "status": "completed", "output": output, "usage": tokens});
    let delta = typed(
        &json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": " word"}),
    );
    let mut cases = Vec::new();
    for kind in [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
    ] {
        let item = json!({"type": kind, "id": "s", "status": "completed"});
        let mut chunks = vec![delta.clone(); 5];
        for state in ["in_progress", "completed"] {
            chunks.push(typed(
                &json!({"type": format!("response.{kind}.{state}"), "item_id": "s", "output_index": 1}),
            ));
        }
        chunks.push(typed(
            &json!({"type": "response.output_item.done", "output_index": 1, "item": item}),
        ));
        let whole = response(json!([]));
        chunks.push(typed(
            &json!({"type": "response.completed", "response": whole}),
        ));
        cases.push(Case::new(
            &format!("{kind} without output"),
            RESPONSES,
            SSE,
            chunks,
            absent.clone(),
        ));
        let said =
            json!({"type": "message", "content": [{"type": "output_text", "text": " word"}]});
        cases.push(Case::new(
            kind,
            RESPONSES,
            JSON,
            [response(json!([item, said])).to_string()],
            absent.clone(),
        ));
    }
    let chat = |message: Value| {
        let mut message = message;
        message["content"] = json!(" word");
        json!({"model": "gpt-4.1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10_000, "completion_tokens": 100, "total_tokens": 10_100}}).to_string()
    };
    let cited = json!({"annotations": [{"type": "url_citation", "url_citation": {"url": "x"}}]});
    let executed = json!({"executed_tools": [{"type": "search", "index": 0}]});
    let gemini = |more: Value, usage: Value| {
        let mut candidate =
            json!({"index": 0, "content": {"parts": [{"text": " word"}]}, "finishReason": "STOP"});
        let mut counts = json!({"promptTokenCount": 10_000, "candidatesTokenCount": 100, "totalTokenCount": 10_100});
        for (object, more) in [(&mut candidate, more), (&mut counts, usage)] {
            for (name, value) in more.as_object().expect("members") {
                object[name] = value.clone();
            }
        }
        json!({"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "usageMetadata": counts}).to_string()
    };
    let grounded = |metadata: Value| gemini(json!({"groundingMetadata": metadata}), json!({}));
    let audio = json!([{"modality": "AUDIO", "tokenCount": 10_000}]);
    let small = json!([{"modality": "audio", "tokenCount": 10_000}]);
    let interaction = |outputs: Value, usage: Value| {
        let mut counts = json!({"total_input_tokens": 10_000, "total_output_tokens": 100, "total_tokens": 10_100});
        for (name, value) in usage.as_object().expect("members") {
            counts[name] = value.clone();
        }
        json!({"id": "i", "model": "gemini-2.5-flash", "status": "completed", "outputs": outputs, "usage": counts}).to_string()
    };
    let word = json!({"type": "text", "text": " word"});
    let search = json!([{"type": "google_search_call", "id": "g", "arguments": {"queries": ["a"]}}, {"type": "google_search_result", "call_id": "g", "result": []}, word]);
    let spoken = json!({"input_tokens_by_modality": [{"modality": "audio", "tokens": 10_000}]});
    let blocks = json!({"type": "message", "id": "m", "model": "claude-sonnet-4-6", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, {"type": "text", "text": " word"}], "stop_reason": "end_turn", "usage": tokens});
    for (name, path, body, record) in [
        ("chat", CHAT, chat(json!({})), cost(0.0208)),
        (
            "no annotations",
            CHAT,
            chat(json!({"annotations": []})),
            cost(0.0208),
        ),
        ("annotations", CHAT, chat(cited), absent.clone()),
        ("executed tools", CHAT, chat(executed), absent.clone()),
        (
            "queries",
            GEMINI,
            grounded(json!({"webSearchQueries": ["a"]})),
            absent.clone(),
        ),
        (
            "chunks",
            GEMINI,
            grounded(json!({"groundingChunks": [{"web": {"uri": "x"}}]})),
            absent.clone(),
        ),
        (
            "maps",
            GEMINI,
            grounded(json!({"groundingChunks": [{"maps": {"uri": "x"}}]})),
            absent.clone(),
        ),
        (
            "images",
            GEMINI,
            grounded(json!({"imageSearchQueries": ["a"]})),
            absent.clone(),
        ),
        ("not grounded", GEMINI, grounded(json!({})), cost(0.003_25)),
        (
            "small audio",
            GEMINI,
            gemini(json!({}), json!({"promptTokensDetails": small})),
            cost(0.010_25),
        ),
        (
            "audio of tools",
            GEMINI,
            gemini(
                json!({}),
                json!({"toolUsePromptTokenCount": 10_000, "totalTokenCount": 20_100, "toolUsePromptTokensDetails": audio}),
            ),
            cost(0.013_25),
        ),
        (
            "interactions search",
            INTERACTIONS,
            interaction(search, json!({})),
            absent.clone(),
        ),
        (
            "interactions audio",
            INTERACTIONS,
            interaction(json!([word]), spoken),
            cost(0.010_25),
        ),
        (
            "search blocks",
            MESSAGES,
            blocks.to_string(),
            absent.clone(),
        ),
    ] {
        let asked = json!({"model": "m", "input": "hi", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
        cases.push(Case::new(name, path, JSON, [body], record).asked(&asked));
    }
    play_by_list_prices(cases).await;
}
