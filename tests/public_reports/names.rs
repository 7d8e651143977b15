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
        let mut frames = stream.words(100);
        frames.push(sse(json!({"index": 0, "content": "", "stop": true, "stop_type": "eos", "model": "late.gguf", "tokens_predicted": 100})));
        cases.push(Case::new(
            &format!("llama.cpp {call}"),
            stream.path,
            SSE,
            frames,
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
            let mut frames = vec![word(&format!("router-{name}"), Value::Null)];
            frames.extend(vec![word(&format!("served-{name}"), Value::Null); 98]);
            frames.extend([word(&format!("served-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("router {name} {call}"),
                path,
                SSE,
                frames,
                late(&format!("served-{name}")),
            ));
            for (kind, aliases) in [("last", 99), ("after two", 2), ("after one", 1)] {
                let model = format!("real-{name}-{aliases}");
                let alias = format!("alias-{name}-{aliases}");
                let mut frames = vec![word(&alias, Value::Null); aliases];
                frames.extend(vec![word(&model, Value::Null); 99 - aliases]);
                frames.extend([word(&model, json!("stop")), done()]);
                let frames = || frames.clone();
                let asked = json!({"model": alias});
                cases.push(Case::new(
                    &format!("{kind} {name} {call}"),
                    path,
                    SSE,
                    frames(),
                    late(&model),
                ));
                cases.push(
                    Case::new(
                        &format!("{kind} {name} as asked {call}"),
                        path,
                        SSE,
                        frames(),
                        late(&model),
                    )
                    .asking(&asked),
                );
            }
            let mut frames = vec![word(&format!("one-{name}"), Value::Null)];
            frames.extend(vec![word(&format!("two-{name}"), Value::Null); 98]);
            frames.extend([word(&format!("three-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("three names {name} {call}"),
                path,
                SSE,
                frames,
                late(&format!("three-{name}")),
            ));
            // Its name is believed after two seconds, and is another at the end.
            let mut frames = Vec::new();
            for _ in 0..3 {
                frames.extend(vec![word(&format!("slow-{name}-{call}"), Value::Null); 33]);
                frames.push(Vec::new());
            }
            frames.extend([word(&format!("slow-real-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("slow {name} {call}"),
                path,
                SSE,
                frames,
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
            let mut frames = vec![nameless(Value::Null); 99];
            frames.extend([word(&format!("only-last-{name}"), json!("stop")), done()]);
            cases.push(Case::new(
                &format!("only last {name} {call}"),
                path,
                SSE,
                frames,
                late(&format!("only-last-{name}")),
            ));
            let mut frames = vec![nameless(Value::Null); 99];
            frames.extend([nameless(json!("stop")), done()]);
            cases.push(
                Case::new(
                    &format!("never {name} {call}"),
                    path,
                    SSE,
                    frames,
                    json!({"outcome": "complete", "model": null, "tokens": {"normalised": {"output": 100}}}),
                )
                .asking(&json!({"model": format!("never-{name}")})),
            );
        }
        let mut frames = vec![typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "alias-a", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        )];
        frames.extend(ANTHROPIC_STREAM.words(100));
        frames.extend((ANTHROPIC_STREAM.end)());
        cases.push(Case::new(
            &format!("anthropic {call}"),
            MESSAGES,
            SSE,
            frames,
            late("alias-a"),
        ));
        let mut frames = vec![
            sse(
                json!({"candidates": [{"index": 0, "content": {"parts": [{"text": " word"}]}}]})
            );
            100
        ];
        frames.push(sse(json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "modelVersion": "late-gemini"})));
        cases.push(Case::new(
            &format!("gemini {call}"),
            GEMINI_STREAM,
            SSE,
            frames,
            late("late-gemini"),
        ));
        let created = typed(
            &json!({"type": "response.created", "response": {"id": "r", "model": "alias-r", "status": "in_progress", "output": []}}),
        );
        let mut frames = vec![created.clone()];
        frames.extend(STREAMS[3].words(100));
        frames.push(typed(&json!({"type": "response.completed", "response": {"id": "r", "model": "real-r", "status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 100}}})));
        cases.push(Case::new(
            &format!("responses {call}"),
            RESPONSES,
            SSE,
            frames,
            late("real-r"),
        ));
        let mut frames = vec![sse(gemini_text(" word")), sse(gemini_text(" word"))];
        let mut named = gemini_text(" word");
        named["modelVersion"] = json!("real-gemini");
        frames.extend(vec![sse(&named); 98]);
        named["candidates"][0]["finishReason"] = json!("STOP");
        named["candidates"][0]["content"] = json!(null);
        frames.push(sse(&named));
        cases.push(Case::new(
            &format!("gemini after two {call}"),
            GEMINI_STREAM,
            SSE,
            frames,
            late("real-gemini"),
        ));
        let ollama = |model: &str, done: bool| {
            line(
                json!({"model": model, "message": {"content": " word"}, "done": done, "done_reason": done.then_some("stop")}),
            )
        };
        let mut frames = vec![ollama("alias-ollama", false); 99];
        frames.push(ollama("real-ollama", true));
        cases.push(Case::new(
            &format!("ollama {call}"),
            OLLAMA,
            NDJSON,
            frames,
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
