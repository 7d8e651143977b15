//! Usage in unusual places, under unusual names, and filled with zeros.

use super::play::{Case, JSON, KNOWN, play};
use super::*;

/// A chat stream of `words` words that reports this usage at its end.
fn chat_with_usage(words: usize, usage: &Value) -> Vec<Vec<u8>> {
    let mut chunks = CHAT_STREAM.words(words);
    chunks.push(sse(chat_finish("stop")));
    chunks.push(sse(
        json!({"id": "c", "model": "m", "choices": [], "usage": usage}),
    ));
    chunks.push(done());
    chunks
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_were_billed_and_not_sent_are_in_no_speed() {
    let hidden = json!({"outcome": "complete", "tps": {"output": null, "reported": null, "unavailable": "hidden_output", "total_unavailable": "hidden_output"}, "tokens": {"normalised": {"output": 64}, "reported": {"output": 1660}}, "cost_usd": KNOWN});
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 1660, "total_tokens": 1669, "completion_tokens_details": {"reasoning_tokens": 0}});
    let mut cases = vec![Case::new(
        "chat",
        CHAT,
        SSE,
        chat_with_usage(64, &usage),
        hidden.clone(),
    )];
    let mut chunks = ANTHROPIC_STREAM.words(64);
    chunks.insert(0, typed(&json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}})));
    chunks.push(typed(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1660, "output_tokens_details": {"thinking_tokens": 0}}})));
    chunks.push(typed(&json!({"type": "message_stop"})));
    cases.push(Case::new(
        "anthropic",
        MESSAGES,
        SSE,
        chunks,
        hidden.clone(),
    ));
    let mut chunks = vec![sse(gemini_text(" word")); 64];
    chunks.push(sse(json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1660, "thoughtsTokenCount": 0, "totalTokenCount": 1669}})));
    cases.push(Case::new(
        "gemini",
        GEMINI_STREAM,
        SSE,
        chunks,
        hidden.clone(),
    ));
    for name in ["responses", "ollama", "cohere", "converse"] {
        let stream = STREAMS
            .iter()
            .find(|stream| stream.name == name)
            .expect("a stream");
        let mut chunks = stream.words(64);
        let bytes = |text: &[u8]| String::from_utf8(text.to_vec()).expect("text");
        for chunk in (stream.end)() {
            chunks.push(match stream.content_type {
                AWS => chunk,
                _ => bytes(&chunk)
                    .replace("\"output_tokens\":60", "\"output_tokens\":1660")
                    .replace(
                        "\"eval_count\":60",
                        "\"eval_count\":1660,\"prompt_eval_count\":9",
                    )
                    .into_bytes(),
            });
        }
        if stream.content_type == AWS {
            chunks.pop();
            chunks.push(aws(
                "metadata",
                json!({"usage": {"inputTokens": 9, "outputTokens": 1660}}),
            ));
        }
        cases.push(Case::new(
            name,
            stream.path,
            stream.content_type,
            chunks,
            hidden.clone(),
        ));
    }
    let iterations = json!({"input_tokens": 9, "output_tokens": 64, "iterations": [
        {"type": "compaction", "input_tokens": 5000, "output_tokens": 1000},
        {"type": "message", "input_tokens": 9, "output_tokens": 64},
    ]});
    let mut chunks = ANTHROPIC_STREAM.words(64);
    chunks.push(typed(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": iterations})));
    chunks.push(typed(&json!({"type": "message_stop"})));
    cases.push(Case::new("compacted", MESSAGES, SSE, chunks, json!({"outcome": "complete", "tps": {"output": KNOWN, "reported": KNOWN}, "tokens": {"reported": {"output": 1064}}})));
    let rejected = json!({"prompt_tokens": 9, "completion_tokens": 1062, "total_tokens": 1071, "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 20, "rejected_prediction_tokens": 1000}});
    cases.push(Case::new("rejected", CHAT, SSE, chat_with_usage(62, &rejected), json!({"outcome": "complete", "tps": {"output": KNOWN, "reported": KNOWN}, "tokens": {"reported": {"output": 1062}}})));
    let played = play(cases).await;
    for name in ["rejected", "compacted"] {
        let records = played.of(name);
        assert_eq!(records.len(), 2);
        for record in records {
            let speed = |name: &str| record["tps"][name].as_f64().expect("a speed");
            let share = speed("reported") / speed("output");
            assert!((share - 1.0).abs() < 1e-9, "{name}: {share}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zeros_that_a_server_fills_in_replace_no_counts() {
    let reported = |input: u64, output: u64| json!({"outcome": "complete", "tokens": {"reported": {"input": input, "output": output}}});
    let start = |usage: Value| {
        typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": usage}}),
        )
    };
    let delta = |usage: Value| {
        typed(
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
        )
    };
    let anthropic = |name: &str, first: Value, last: Value, record: Value| {
        let mut chunks = vec![start(first)];
        chunks.extend(ANTHROPIC_STREAM.words(8));
        chunks.extend([delta(last), typed(&json!({"type": "message_stop"}))]);
        Case::new(name, MESSAGES, SSE, chunks, record)
    };
    let mut cases = vec![
        anthropic(
            "anthropic zero input",
            json!({"input_tokens": 1500, "output_tokens": 1}),
            json!({"input_tokens": 0, "output_tokens": 8}),
            reported(1500, 8),
        ),
        anthropic(
            "anthropic zeros",
            json!({"input_tokens": 1500, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 0, "output_tokens": 1}),
            json!({"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 8}),
            json!({"tokens": {"reported": {"input": 2000, "cached_input": 500, "output": 8}}}),
        ),
        anthropic(
            "anthropic real zero",
            json!({"input_tokens": 1500, "cache_creation_input_tokens": 700, "output_tokens": 1}),
            json!({"input_tokens": 2200, "cache_creation_input_tokens": 0, "output_tokens": 8}),
            json!({"tokens": {"reported": {"input": 2200, "cache_write": 0, "output": 8}}}),
        ),
        anthropic(
            "anthropic zero output",
            json!({"input_tokens": 1500, "output_tokens": 8}),
            json!({"output_tokens": 0}),
            json!({"outcome": "complete", "tokens": {"reported": {"input": 1500, "output": 0}}, "cost_usd": 0.00158}),
        ),
    ];
    let real = json!({"prompt_tokens": 1500, "completion_tokens": 8, "total_tokens": 1508});
    let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    for stream in STREAMS.iter().take(2) {
        let mut chunks = stream.words(8);
        let mut last = (stream.word)();
        last["usage"] = real.clone();
        last["choices"] = json!([]);
        chunks.push((stream.frame)(&last));
        last["usage"] = zeros.clone();
        chunks.push((stream.frame)(&last));
        chunks.extend((stream.end)());
        cases.push(Case::new(
            &format!("{} zeros", stream.name),
            stream.path,
            SSE,
            chunks,
            reported(1500, 8),
        ));
        // Zeros in every event until the last, as some gateways send them.
        let mut chunks = Vec::new();
        for at in 0..8 {
            let mut word = (stream.word)();
            word["usage"] = if at == 4 { real.clone() } else { zeros.clone() };
            chunks.push((stream.frame)(&word));
        }
        chunks.extend((stream.end)());
        cases.push(Case::new(
            &format!("{} zeros in every event", stream.name),
            stream.path,
            SSE,
            chunks,
            reported(1500, 8),
        ));
        // Only zeros count as no usage.
        let mut chunks = stream.words(8);
        chunks.push((stream.frame)(&last));
        chunks.extend((stream.end)());
        let unknown = json!({"tokens": {"normalised": {"output": 8}, "reported": {"output": 0}}, "cost_usd": null, "cost_unavailable": "no_tokens"});
        cases.push(Case::new(
            &format!("{} only zeros", stream.name),
            stream.path,
            SSE,
            chunks,
            unknown,
        ));
    }
    let gemini = |name: &str, usages: [Value; 2]| {
        let mut chunks = vec![sse(gemini_text(" word")); 8];
        for usage in usages {
            chunks.push(sse(json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": "m"})));
        }
        Case::new(name, GEMINI_STREAM, SSE, chunks, reported(1500, 8))
    };
    cases.push(gemini(
        "gemini zeros",
        [
            json!({"promptTokenCount": 1500, "candidatesTokenCount": 8, "totalTokenCount": 1508}),
            json!({"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}),
        ],
    ));
    cases.push(gemini(
        "gemini only the prompt",
        [
            json!({"promptTokenCount": 1500, "candidatesTokenCount": 8, "totalTokenCount": 1508}),
            json!({"promptTokenCount": 1500, "candidatesTokenCount": 0, "totalTokenCount": 1500}),
        ],
    ));
    let ollama = |input: u64, output: u64| {
        line(
            json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": "stop", "prompt_eval_count": input, "eval_count": output}),
        )
    };
    let mut chunks =
        vec![line(json!({"model": "m", "message": {"content": " word"}, "done": false})); 8];
    chunks.extend([ollama(1500, 8), ollama(0, 0)]);
    cases.push(Case::new(
        "ollama zeros",
        OLLAMA,
        NDJSON,
        chunks,
        reported(1500, 8),
    ));
    let cohere = |input: u64, output: u64| {
        typed(
            &json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": input, "output_tokens": output}}}}),
        )
    };
    let mut chunks = STREAMS
        .iter()
        .find(|stream| stream.name == "cohere")
        .expect("cohere")
        .words(8);
    chunks.extend([cohere(1500, 8), cohere(0, 0)]);
    cases.push(Case::new(
        "cohere zeros",
        COHERE,
        SSE,
        chunks,
        reported(1500, 8),
    ));
    let response = |usage: Value| {
        typed(
            &json!({"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": [], "usage": usage}}),
        )
    };
    let mut chunks = STREAMS[3].words(8);
    chunks.push(response(
        json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}),
    ));
    let unknown = json!({"outcome": "complete", "tokens": {"normalised": {"output": 8}, "reported": {"input": 0, "output": 0}}, "cost_usd": null});
    cases.push(Case::new(
        "responses only zeros",
        RESPONSES,
        SSE,
        chunks,
        unknown.clone(),
    ));
    let mut chunks = STREAMS
        .iter()
        .find(|stream| stream.name == "converse")
        .expect("converse")
        .words(8);
    chunks.extend([
        aws("messageStop", json!({"stopReason": "end_turn"})),
        aws(
            "metadata",
            json!({"usage": {"inputTokens": 0, "outputTokens": 0}}),
        ),
    ]);
    cases.push(Case::new(
        "converse only zeros",
        CONVERSE_STREAM,
        AWS,
        chunks,
        unknown.clone(),
    ));
    let body = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word".repeat(8)}, "finish_reason": "stop"}], "usage": zeros});
    cases.push(Case::new(
        "chat body only zeros",
        CHAT,
        JSON,
        [body.to_string()],
        unknown,
    ));
    // Bedrock's counts are used if the model's own counts are zeros.
    let mut chunks = vec![aws_chunk(
        json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 0, "output_tokens": 0}}}),
    )];
    chunks.extend(INVOKE_STREAMED.words(8));
    chunks.push(aws_chunk(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 0, "output_tokens": 0}})));
    chunks.push(aws_chunk(json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1500, "outputTokenCount": 8}})));
    cases.push(Case::new(
        "bedrock counts",
        INVOKE_STREAM,
        AWS,
        chunks,
        reported(1500, 8),
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_read_wherever_and_under_whichever_name_it_is() {
    let plain = json!({"prompt_tokens": 1500, "completion_tokens": 8, "total_tokens": 1508});
    let with = |more: Value| {
        let mut usage = plain.clone();
        for (name, value) in more.as_object().expect("an object") {
            usage[name] = value.clone();
        }
        usage
    };
    let reported = |more: Value| {
        let mut reported = json!({"input": 1500, "output": 8});
        for (name, value) in more.as_object().expect("an object") {
            reported[name] = value.clone();
        }
        json!({"outcome": "complete", "tokens": {"reported": reported}})
    };
    let mut cases = Vec::new();
    for (name, usage, more) in [
        ("none", json!({}), json!({"cached_input": null})),
        (
            "openai",
            json!({"prompt_tokens_details": {"cached_tokens": 400}}),
            json!({"cached_input": 400}),
        ),
        (
            "moonshot",
            json!({"cached_tokens": 400}),
            json!({"cached_input": 400}),
        ),
        (
            "deepseek",
            json!({"prompt_cache_hit_tokens": 400, "prompt_cache_miss_tokens": 1100}),
            json!({"cached_input": 400}),
        ),
        (
            "qwen",
            json!({"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 700, "cache_type": "ephemeral", "cache_creation": {"ephemeral_5m_input_tokens": 700}}}),
            json!({"cached_input": 0, "cache_write": 700}),
        ),
        (
            "litellm",
            json!({"cache_read_input_tokens": 400, "cache_creation_input_tokens": 700}),
            json!({"cached_input": 400, "cache_write": 700}),
        ),
        (
            "litellm of qwen",
            json!({"prompt_tokens_details": {"cached_tokens": 400, "cache_creation_tokens": 700, "cache_creation_token_details": {"ephemeral_1h_input_tokens": 700}, "cache_creation": {"ephemeral_1h_input_tokens": 700}}}),
            json!({"cached_input": 400, "cache_write": 700}),
        ),
        (
            "litellm zero",
            json!({"prompt_tokens_details": {"cached_tokens": 400, "cache_creation_tokens": 0}, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 0}),
            json!({"cached_input": 400, "cache_write": 0}),
        ),
        (
            "openrouter",
            json!({"prompt_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 700}}),
            json!({"cached_input": 400, "cache_write": 700}),
        ),
        (
            "details null",
            json!({"prompt_tokens_details": null, "completion_tokens_details": null}),
            json!({"cached_input": null}),
        ),
        (
            "reasoning",
            json!({"completion_tokens_details": {"reasoning_tokens": 3}}),
            json!({"reasoning": 3}),
        ),
        (
            "reasoning outside",
            json!({"reasoning_tokens": 3}),
            json!({"reasoning": 3}),
        ),
    ] {
        let usage = with(usage);
        cases.push(Case::new(
            &format!("chat stream {name}"),
            CHAT,
            SSE,
            chat_with_usage(8, &usage),
            reported(more.clone()),
        ));
        let body = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word".repeat(8)}, "finish_reason": "stop"}], "usage": usage});
        cases.push(Case::new(
            &format!("chat {name}"),
            CHAT,
            JSON,
            [body.to_string()],
            reported(more.clone()),
        ));
        let body = json!({"model": "m", "object": "text_completion", "choices": [{"index": 0, "text": " word".repeat(8), "finish_reason": "stop"}], "usage": usage});
        cases.push(Case::new(
            &format!("completions {name}"),
            COMPLETIONS,
            JSON,
            [body.to_string()],
            reported(more),
        ));
    }
    for (name, stream) in [("chat", &STREAMS[0]), ("completions", &STREAMS[1])] {
        let mut chunks = stream.words(8);
        let mut last = (stream.word)();
        last["choices"][0] =
            json!({"index": 0, "delta": {}, "text": "", "finish_reason": "stop", "usage": plain});
        chunks.extend([sse(&last), done()]);
        cases.push(Case::new(
            &format!("kimi {name}"),
            stream.path,
            SSE,
            chunks,
            reported(json!({})),
        ));
        // Names of Anthropic and of the Responses API that gateways use in chat.
        let mut chunks = stream.words(8);
        last["choices"] = json!([]);
        last["usage"] = json!({"input_tokens": 1500, "output_tokens": 8});
        chunks.push(sse(&last));
        chunks.extend((stream.end)());
        cases.push(Case::new(
            &format!("input_tokens of {name}"),
            stream.path,
            SSE,
            chunks,
            reported(json!({})),
        ));
    }
    let response = |usage: Value| json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": " word".repeat(8)}]}], "usage": usage});
    for (name, details) in [
        (
            "cache_write_tokens",
            json!({"cached_tokens": 400, "cache_write_tokens": 700}),
        ),
        (
            "cache_creation_input_tokens",
            json!({"cached_tokens": 400, "cache_creation_input_tokens": 700}),
        ),
        (
            "cache_creation_tokens",
            json!({"cached_tokens": 400, "cache_creation_tokens": 700}),
        ),
    ] {
        let body = response(
            json!({"input_tokens": 1500, "output_tokens": 8, "input_tokens_details": details}),
        );
        let record = reported(json!({"cached_input": 400, "cache_write": 700}));
        cases.push(Case::new(
            &format!("responses {name}"),
            RESPONSES,
            JSON,
            [body.to_string()],
            record,
        ));
    }
    let body = response(json!({"prompt_tokens": 1500, "completion_tokens": 8}));
    cases.push(Case::new(
        "responses with names of chat",
        RESPONSES,
        JSON,
        [body.to_string()],
        reported(json!({})),
    ));
    let ollama = json!({"model": "m", "message": {"content": " word".repeat(8)}, "done": true, "done_reason": "stop", "prompt_eval_count": 1500, "prompt_eval_cached_count": 400, "eval_count": 8});
    cases.push(Case::new(
        "ollama",
        OLLAMA,
        JSON,
        [ollama.to_string()],
        reported(json!({"cached_input": 400})),
    ));
    cases.push(Case::new(
        "ollama stream",
        OLLAMA,
        NDJSON,
        [line(&ollama)],
        reported(json!({"cached_input": 400})),
    ));
    let gemini = |usage: Value| json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word".repeat(8)}]}, "finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": "m"});
    for (name, usage) in [
        (
            "thoughts apart",
            json!({"promptTokenCount": 1500, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 1508}),
        ),
        (
            "thoughts within",
            json!({"promptTokenCount": 1500, "candidatesTokenCount": 8, "thoughtsTokenCount": 3, "totalTokenCount": 1508}),
        ),
        (
            "tools, thoughts within",
            json!({"promptTokenCount": 1000, "toolUsePromptTokenCount": 500, "candidatesTokenCount": 8, "thoughtsTokenCount": 3, "totalTokenCount": 1508}),
        ),
    ] {
        let record = reported(json!({"reasoning": 3}));
        cases.push(Case::new(
            &format!("gemini {name}"),
            GEMINI,
            JSON,
            [gemini(usage.clone()).to_string()],
            record.clone(),
        ));
        cases.push(Case::new(
            &format!("gemini stream {name}"),
            GEMINI_STREAM,
            SSE,
            [sse(gemini(usage))],
            record,
        ));
    }
    let iterations = json!({"input_tokens": 1000, "output_tokens": 8, "iterations": [
        {"type": "compaction", "input_tokens": 5000, "output_tokens": 300},
        {"type": "message", "input_tokens": 1000, "output_tokens": 8},
    ]});
    let compacted = json!({"outcome": "complete", "tokens": {"reported": {"input": 6000, "output": 308}}, "cost_usd": 0.00908});
    let body = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word".repeat(8)}], "stop_reason": "end_turn", "usage": iterations});
    cases.push(Case::new(
        "compaction",
        MESSAGES,
        JSON,
        [body.to_string()],
        compacted.clone(),
    ));
    cases.push(Case::new(
        "compaction invoke",
        INVOKE,
        JSON,
        [body.to_string()],
        compacted.clone(),
    ));
    for (name, stream) in [
        ("compaction stream", ANTHROPIC_STREAM),
        ("compaction invoke stream", INVOKE_STREAMED),
    ] {
        let frame = stream.frame;
        let mut chunks = vec![frame(
            &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1000, "output_tokens": 1}}}),
        )];
        chunks.extend(stream.words(8));
        chunks.push(frame(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": iterations})));
        chunks.push(frame(&json!({"type": "message_stop"})));
        cases.push(Case::new(
            name,
            stream.path,
            stream.content_type,
            chunks,
            compacted.clone(),
        ));
    }
    let cached = json!({"input_tokens": 1000, "cache_read_input_tokens": 0, "output_tokens": 8, "iterations": [
        {"type": "compaction", "input_tokens": 0, "cache_read_input_tokens": 5000, "output_tokens": 300},
        {"type": "message", "input_tokens": 1000, "output_tokens": 8},
    ]});
    let body = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word".repeat(8)}], "stop_reason": "end_turn", "usage": cached});
    cases.push(Case::new("compaction from a cache", MESSAGES, JSON, [body.to_string()], json!({"outcome": "complete", "tokens": {"reported": {"input": 6000, "cached_input": 5000, "output": 308}}})));
    let tokens = |count: usize| json!(vec![json!({"generatedToken": {"token": "word"}}); count]);
    let jurassic = json!({"id": 1, "prompt": {"text": "hi", "tokens": tokens(1500)}, "completions": [{"data": {"text": " word".repeat(8), "tokens": tokens(8)}, "finishReason": {"reason": "endoftext"}}]});
    cases.push(Case::new("jurassic", INVOKE, JSON, [jurassic.to_string()], json!({"outcome": "complete", "tokens": {"normalised": {"output": 8}, "reported": {"input": 1500, "output": 8}}, "finish_reasons": ["endoftext"]})));
    play(cases).await;
}

type Number = fn(u64) -> Value;

fn written(value: &Value, number: Number) -> Value {
    match value {
        Value::Number(count) => number(count.as_u64().expect("a count")),
        Value::Array(items) => items.iter().map(|item| written(item, number)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| (name.clone(), written(value, number)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_are_texts_or_fractions_are_read() {
    let chat = json!({"prompt_tokens": 1500, "completion_tokens": 8, "total_tokens": 1508, "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 3}});
    let responses = json!({"input_tokens": 1500, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 400}, "output_tokens_details": {"reasoning_tokens": 3}});
    let messages =
        json!({"input_tokens": 1100, "cache_read_input_tokens": 400, "output_tokens": 8});
    let gemini = json!({"promptTokenCount": 1500, "cachedContentTokenCount": 400, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 1508});
    let bedrock = json!({"inputTokens": 1100, "cacheReadInputTokens": 400, "outputTokens": 8});
    let cohere = json!({"tokens": {"input_tokens": 1500, "output_tokens": 8}});
    let text = " word".repeat(8);
    let mut cases = Vec::new();
    let hows: [(&str, Number); 3] = [
        ("text", |count| json!(count.to_string())),
        ("fraction", |count| json!(count as f64)),
        ("text of a fraction", |count| json!(format!("{count}.0"))),
    ];
    for (how, number) in hows {
        let record = |more: Value| json!({"outcome": "complete", "tokens": {"reported": more, "source": "reported"}, "cost_usd": KNOWN});
        let all = record(json!({"input": 1500, "cached_input": 400, "output": 8, "reasoning": 3}));
        let cached = record(json!({"input": 1500, "cached_input": 400, "output": 8}));
        let plain = record(json!({"input": 1500, "output": 8}));
        let mut add = |name: &str, path, content_type, chunks: Vec<Vec<u8>>, record: &Value| {
            let name = format!("{name}, {how}");
            cases.push(Case::new(&name, path, content_type, chunks, record.clone()));
        };
        let body = |body: Value| vec![body.to_string().into_bytes()];
        let usage = written(&chat, number);
        add("chat stream", CHAT, SSE, chat_with_usage(8, &usage), &all);
        let mut chunks = Vec::new();
        for _ in 0..8 {
            let mut word = chat_delta(&json!({"content": " word"}));
            word["usage"] = usage.clone();
            chunks.push(sse(word));
        }
        chunks.extend([sse(chat_finish("stop")), done()]);
        add("chat, in every event", CHAT, SSE, chunks, &all);
        add(
            "chat",
            CHAT,
            JSON,
            body(
                json!({"model": "m", "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}], "usage": usage}),
            ),
            &all,
        );
        add(
            "completions",
            COMPLETIONS,
            JSON,
            body(
                json!({"model": "m", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage}),
            ),
            &all,
        );
        let usage = written(&responses, number);
        let response = json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}], "usage": usage});
        add("responses", RESPONSES, JSON, body(response.clone()), &all);
        add(
            "responses stream",
            RESPONSES,
            SSE,
            vec![typed(
                &json!({"type": "response.completed", "response": response}),
            )],
            &all,
        );
        let usage = written(&messages, number);
        let message = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage});
        add("messages", MESSAGES, JSON, body(message.clone()), &cached);
        add("invoke", INVOKE, JSON, body(message), &cached);
        let mut chunks = vec![typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": usage}}),
        )];
        chunks.extend(ANTHROPIC_STREAM.words(8));
        chunks.push(typed(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": number(8)}})));
        chunks.push(typed(&json!({"type": "message_stop"})));
        add("messages stream", MESSAGES, SSE, chunks, &cached);
        let usage = written(&gemini, number);
        let mut chunks = Vec::new();
        for _ in 0..8 {
            let mut word = gemini_text(" word");
            word["usageMetadata"] = usage.clone();
            chunks.push(sse(word));
        }
        chunks.push(sse(
            json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "modelVersion": "m"}),
        ));
        add("gemini stream", GEMINI_STREAM, SSE, chunks, &all);
        add(
            "gemini",
            GEMINI,
            JSON,
            body(
                json!({"candidates": [{"index": 0, "content": {"parts": [{"text": text}]}, "finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": "m"}),
            ),
            &all,
        );
        let usage = written(&bedrock, number);
        add(
            "converse",
            CONVERSE,
            JSON,
            body(
                json!({"output": {"message": {"role": "assistant", "content": [{"text": text}]}}, "stopReason": "end_turn", "usage": usage}),
            ),
            &cached,
        );
        let usage = written(&cohere, number);
        add(
            "cohere",
            COHERE,
            JSON,
            body(
                json!({"id": "c", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}, "finish_reason": "COMPLETE", "usage": usage}),
            ),
            &plain,
        );
        add(
            "ollama",
            OLLAMA,
            JSON,
            body(
                json!({"model": "m", "message": {"content": text}, "done": true, "done_reason": "stop", "prompt_eval_count": number(1500), "eval_count": number(8)}),
            ),
            &plain,
        );
        add(
            "llama.cpp",
            "/completion",
            JSON,
            body(
                json!({"content": text, "stop": true, "stop_type": "eos", "model": "m", "tokens_evaluated": number(1500), "tokens_predicted": number(8)}),
            ),
            &plain,
        );
        add(
            "tgi",
            "/generate",
            JSON,
            body(
                json!({"generated_text": text, "details": {"finish_reason": "eos_token", "generated_tokens": number(8), "prefill": []}}),
            ),
            &record(json!({"output": 8})),
        );
    }
    play(cases).await;
}
