//! Models, operations and providers that are named late or elsewhere.

use super::play::{Case, JSON, play};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_named_late_labels_all_tokens() {
    let late = |model: &str| json!({"outcome": "complete", "model": model, "tokens": {"normalised": {"output": 100}}});
    let mut cases = Vec::new();
    for call in 0..3 {
        let stream = STREAMS
            .iter()
            .find(|stream| stream.name == "llama.cpp")
            .expect("llama.cpp");
        let mut chunks = stream.words(100);
        chunks.push(sse(json!({"index": 0, "content": "", "stop": true, "stop_type": "eos", "model": "late.gguf", "tokens_predicted": 100})));
        cases.push(Case::new(
            &format!("llama.cpp {call}"),
            stream.path,
            SSE,
            chunks,
            late("late.gguf"),
        ));
        for (name, path, text) in [
            ("chat", CHAT, "delta"),
            ("completions", COMPLETIONS, "text"),
        ] {
            let word = |model: &str, finish: Value| {
                let mut choice = json!({"index": 0, "finish_reason": finish});
                choice[text] = if text == "text" {
                    json!(" word")
                } else {
                    json!({"content": " word"})
                };
                sse(json!({"id": "c", "model": model, "choices": [choice]}))
            };
            let mut chunks = vec![word(&format!("router-{name}"), Value::Null)];
            chunks.extend(vec![word(&format!("served-{name}"), Value::Null); 98]);
            chunks.extend([word(&format!("served-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("router {name} {call}"),
                path,
                SSE,
                chunks,
                late(&format!("served-{name}")),
            ));
            for (kind, aliases) in [("last", 99), ("after two", 2), ("after one", 1)] {
                let model = format!("real-{name}-{aliases}");
                let alias = format!("alias-{name}-{aliases}");
                let mut chunks = vec![word(&alias, Value::Null); aliases];
                chunks.extend(vec![word(&model, Value::Null); 99 - aliases]);
                chunks.extend([word(&model, json!("stop")), done()]);
                let chunks = || chunks.clone();
                let asked = json!({"model": alias});
                cases.push(Case::new(
                    &format!("{kind} {name} {call}"),
                    path,
                    SSE,
                    chunks(),
                    late(&model),
                ));
                cases.push(
                    Case::new(
                        &format!("{kind} {name} as asked {call}"),
                        path,
                        SSE,
                        chunks(),
                        late(&model),
                    )
                    .asking(&asked),
                );
            }
            let mut chunks = vec![word(&format!("one-{name}"), Value::Null)];
            chunks.extend(vec![word(&format!("two-{name}"), Value::Null); 98]);
            chunks.extend([word(&format!("three-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("three names {name} {call}"),
                path,
                SSE,
                chunks,
                late(&format!("three-{name}")),
            ));
            // The name of this model is trusted after two seconds, and changes at the end.
            let mut chunks = Vec::new();
            for _ in 0..3 {
                chunks.extend(vec![word(&format!("slow-{name}-{call}"), Value::Null); 33]);
                chunks.push(Vec::new());
            }
            chunks.extend([word(&format!("slow-real-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("slow {name} {call}"),
                path,
                SSE,
                chunks,
                late(&format!("slow-real-{name}")),
            ));
            let nameless = |finish: Value| {
                let mut choice = json!({"index": 0, "finish_reason": finish});
                choice[text] = if text == "text" {
                    json!(" word")
                } else {
                    json!({"content": " word"})
                };
                sse(json!({"id": "c", "choices": [choice]}))
            };
            let mut chunks = vec![nameless(Value::Null); 99];
            chunks.extend([word(&format!("only-last-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("only last {name} {call}"),
                path,
                SSE,
                chunks,
                late(&format!("only-last-{name}")),
            ));
            let mut chunks = vec![nameless(Value::Null); 99];
            chunks.extend([nameless(json!("stop")), done()]);
            cases.push(
                Case::new(
                    &format!("never {name} {call}"),
                    path,
                    SSE,
                    chunks,
                    json!({"outcome": "complete", "model": null, "tokens": {"normalised": {"output": 100}}}),
                )
                .asking(&json!({"model": format!("never-{name}")})),
            );
        }
        let mut chunks = vec![typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "alias-a", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        )];
        chunks.extend(ANTHROPIC_STREAM.words(100));
        chunks.extend((ANTHROPIC_STREAM.end)());
        cases.push(Case::new(
            &format!("anthropic {call}"),
            MESSAGES,
            SSE,
            chunks,
            late("alias-a"),
        ));
        let mut chunks = vec![
            sse(
                json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word"}]}}]})
            );
            100
        ];
        chunks.push(sse(json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "modelVersion": "late-gemini"})));
        cases.push(Case::new(
            &format!("gemini {call}"),
            GEMINI_STREAM,
            SSE,
            chunks,
            late("late-gemini"),
        ));
        let created = typed(
            &json!({"type": "response.created", "response": {"id": "r", "model": "alias-r", "status": "in_progress", "output": []}}),
        );
        let mut chunks = vec![created.clone()];
        chunks.extend(STREAMS[3].words(100));
        chunks.push(typed(&json!({"type": "response.completed", "response": {"id": "r", "model": "real-r", "status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 100}}})));
        cases.push(Case::new(
            &format!("responses {call}"),
            RESPONSES,
            SSE,
            chunks,
            late("real-r"),
        ));
        let mut chunks = vec![sse(gemini_text(" word")), sse(gemini_text(" word"))];
        let mut named = gemini_text(" word");
        named["modelVersion"] = json!("real-gemini");
        chunks.extend(vec![sse(&named); 98]);
        named["candidates"][0]["finishReason"] = json!("STOP");
        named["candidates"][0]["content"] = json!(null);
        chunks.push(sse(&named));
        cases.push(Case::new(
            &format!("gemini after two {call}"),
            GEMINI_STREAM,
            SSE,
            chunks,
            late("real-gemini"),
        ));
        let ollama = |model: &str, done: bool| {
            line(
                json!({"model": model, "message": {"content": " word"}, "done": done, "done_reason": done.then_some("stop")}),
            )
        };
        let mut chunks = vec![ollama("alias-ollama", false); 99];
        chunks.push(ollama("real-ollama", true));
        cases.push(Case::new(
            &format!("ollama {call}"),
            OLLAMA,
            NDJSON,
            chunks,
            late("real-ollama"),
        ));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_tokens_on_vertex_generates_nothing() {
    let count = "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict";
    let raw = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:rawPredict";
    let body = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word word"}], "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 2}});
    let counted = json!({"input_tokens": 14}).to_string();
    let other = json!({"outcome": "complete", "operation_class": "other", "tokens": {"normalised": {"output": null}}, "cost_usd": null});
    let cases = vec![
        Case::new("count", count, JSON, [counted.clone()], other.clone()),
        Case::new(
            "count of anthropic",
            "/v1/messages/count_tokens",
            JSON,
            [counted.clone()],
            other.clone(),
        ),
        Case::new(
            "count of gemini",
            "/v1beta/models/m:countTokens",
            JSON,
            [json!({"totalTokens": 14}).to_string()],
            other.clone(),
        ),
        Case::new(
            "count of responses",
            "/v1/responses/input_tokens",
            JSON,
            [counted.clone()],
            other.clone(),
        ),
        Case::new(
            "count of bedrock",
            "/model/m/count-tokens",
            JSON,
            [json!({"inputTokens": 14}).to_string()],
            other,
        ),
        Case::new(
            "generation",
            raw,
            JSON,
            [body.to_string()],
            json!({"outcome": "complete", "operation_class": "generation", "tokens": {"normalised": {"output": 2}}}),
        ),
    ];
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_behind_a_gateway_is_in_the_record() {
    let by = |provider: &str| json!({"outcome": "complete", "served_by": provider});
    let body = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word"}, "finish_reason": "stop"}]});
    let mut openrouter = body.clone();
    openrouter["provider"] = json!("DeepInfra");
    let mut delta = chat_delta(&json!({"content": " word"}));
    delta["provider"] = json!("DeepInfra");
    let completion = json!({"model": "m", "provider": "DeepInfra", "object": "text_completion", "choices": [{"index": 0, "text": " word", "finish_reason": "stop"}]});
    let message = json!({"type": "message", "id": "i", "model": "m", "provider": "DeepInfra", "content": [{"type": "text", "text": " word"}], "stop_reason": "end_turn"});
    let response = json!({"id": "r", "object": "response", "model": "m", "provider": "DeepInfra", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": " word"}]}]});
    let litellm =
        "x-litellm-model-api-base: https://user:secret@eu.example.com/openai/v1?key=secret\r\n";
    let cases = vec![
        Case::new(
            "openrouter",
            CHAT,
            JSON,
            [openrouter.to_string()],
            by("DeepInfra"),
        ),
        Case::new(
            "openrouter stream",
            CHAT,
            SSE,
            [sse(delta), sse(chat_finish("stop")), done()],
            by("DeepInfra"),
        ),
        Case::new(
            "openrouter completions",
            COMPLETIONS,
            JSON,
            [completion.to_string()],
            by("DeepInfra"),
        ),
        Case::new(
            "openrouter messages",
            MESSAGES,
            JSON,
            [message.to_string()],
            by("DeepInfra"),
        ),
        Case::new(
            "openrouter messages stream",
            MESSAGES,
            SSE,
            [
                typed(
                    &json!({"type": "message_start", "message": {"id": "m", "model": "m", "provider": "DeepInfra", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
                ),
                typed(&anthropic_word()),
                typed(&json!({"type": "message_stop"})),
            ],
            by("DeepInfra"),
        ),
        Case::new(
            "openrouter responses",
            RESPONSES,
            JSON,
            [response.to_string()],
            by("DeepInfra"),
        ),
        Case::new(
            "litellm",
            CHAT,
            JSON,
            [body.to_string()],
            by("eu.example.com"),
        )
        .headers(litellm),
        Case::new(
            "azure",
            CHAT,
            JSON,
            [body.to_string()],
            by("Sweden Central"),
        )
        .headers("x-ms-region: Sweden Central\r\n"),
        Case::new(
            "nobody",
            CHAT,
            JSON,
            [body.to_string()],
            json!({"served_by": null}),
        ),
    ];
    play(cases).await;
}
