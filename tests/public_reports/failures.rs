//! Failures inside a 200, and responses that only look like answers.

use super::play::{Case, JSON, KNOWN, play};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_text_is_one_in_every_stream() {
    let expected = json!({"outcome": "error_event", "error_type": KNOWN, "tokens": {"normalised": {"output": 5}}});
    let mut cases = Vec::new();
    for stream in STREAMS {
        for (shape, error) in errors() {
            let mut chunks = stream.words(5);
            chunks.push((stream.frame)(&error));
            let name = format!("{}, {shape}", stream.name);
            cases.push(Case::new(
                &name,
                stream.path,
                stream.content_type,
                chunks.clone(),
                expected.clone(),
            ));
            chunks.extend((stream.end)());
            let name = format!("{name}, then an end");
            cases.push(Case::new(
                &name,
                stream.path,
                stream.content_type,
                chunks,
                expected.clone(),
            ));
        }
        if stream.content_type == SSE {
            for (shape, error) in [
                ("named", r#"{"message":"it failed"}"#),
                ("named text", "Internal Server Error"),
                ("named empty", "{}"),
            ] {
                let mut chunks = stream.words(5);
                chunks.push(named("error", error));
                let name = format!("{}, {shape}", stream.name);
                cases.push(
                    Case::new(
                        &name,
                        stream.path,
                        stream.content_type,
                        chunks,
                        expected.clone(),
                    )
                    .cut(),
                );
            }
        }
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_an_error_is_one_in_every_dialect() {
    let mut cases = Vec::new();
    for path in [
        CHAT,
        COMPLETIONS,
        MESSAGES,
        RESPONSES,
        GEMINI,
        OLLAMA,
        COHERE,
        COHERE_1,
        CONVERSE,
        INVOKE,
        "/generate",
        "/completion",
    ] {
        for (shape, error) in errors() {
            let name = format!("{path}, {shape}");
            let expected = json!({"outcome": "error_event", "error_type": KNOWN});
            cases.push(Case::new(
                &name,
                path,
                JSON,
                [error.to_string()],
                expected.clone(),
            ));
            let pretty = serde_json::to_string_pretty(&error).expect("JSON");
            cases.push(Case::new(
                &format!("{name}, pretty"),
                path,
                JSON,
                [pretty],
                expected,
            ));
        }
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finish_reason_that_says_that_the_generation_failed_is_an_error() {
    let failed = |kind: &str| json!({"outcome": "error_event", "error_type": kind});
    let mut cases = Vec::new();
    for (reason, kind) in [
        ("error", "error"),
        ("network_error", "network_error"),
        (
            "insufficient_system_resource",
            "insufficient_system_resource",
        ),
        ("abort", "abort"),
        ("server_error", "server_error"),
        ("internal_error", "internal_error"),
        // Google's API in the format of OpenAI.
        (
            "function_call_filter: MALFORMED_FUNCTION_CALL",
            "function_call_filter: malformed_function_call",
        ),
    ] {
        let mut chunks = CHAT_STREAM.words(5);
        chunks.extend([sse(chat_finish(reason)), done()]);
        cases.push(Case::new(
            &format!("chat stream {reason}"),
            CHAT,
            SSE,
            chunks,
            failed(kind),
        ));
        let body = json!({"model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": " word"}, "finish_reason": reason}]});
        cases.push(Case::new(
            &format!("chat {reason}"),
            CHAT,
            JSON,
            [body.to_string()],
            failed(kind),
        ));
        let body = json!({"model": "m", "object": "text_completion", "choices": [{"index": 0, "text": " word", "finish_reason": reason}]});
        cases.push(Case::new(
            &format!("completions {reason}"),
            COMPLETIONS,
            JSON,
            [body.to_string()],
            failed(kind),
        ));
    }
    // SGLang sends the reason as an object.
    let abort = json!({"type": "abort", "message": "it failed", "status_code": 503});
    let aborted =
        json!({"outcome": "error_event", "error_type": "abort", "finish_reasons": ["abort"]});
    for (name, path, text) in [
        ("chat", CHAT, json!({"message": {"content": " word"}})),
        ("completions", COMPLETIONS, json!({"text": " word"})),
    ] {
        let mut choice = text;
        choice["finish_reason"] = abort.clone();
        let body = json!({"model": "m", "choices": [choice]});
        cases.push(Case::new(
            &format!("object of {name}"),
            path,
            JSON,
            [body.to_string()],
            aborted.clone(),
        ));
        cases.push(Case::new(
            &format!("object of {name} stream"),
            path,
            SSE,
            [sse(&body), done()],
            aborted.clone(),
        ));
    }
    let delta = json!({"error": {"code": "provider_failed", "message": "it failed"}});
    let mut chunks = CHAT_STREAM.words(5);
    chunks.extend([sse(chat_delta(&delta)), sse(chat_finish("stop")), done()]);
    cases.push(Case::new(
        "error in a delta",
        CHAT,
        SSE,
        chunks,
        failed("provider_failed"),
    ));
    let error = json!({"code": 502, "message": "it failed", "type": "provider_unavailable"});
    let choice =
        json!({"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": error});
    let mut chunks = CHAT_STREAM.words(5);
    chunks.extend([sse(json!({"model": "m", "choices": [choice]})), done()]);
    cases.push(Case::new("openrouter stream", CHAT, SSE, chunks, json!({"outcome": "error_event", "error_type": "provider_unavailable", "finish_reasons": ["error"]})));
    for (name, path, text) in [
        ("chat", CHAT, "message"),
        ("completions", COMPLETIONS, "text"),
    ] {
        let mut choice = json!({"index": 0, "finish_reason": "stop", "error": error});
        choice[text] = if text == "text" {
            json!(" word")
        } else {
            json!({"content": " word"})
        };
        let body = json!({"model": "m", "choices": [choice]});
        cases.push(Case::new(
            &format!("openrouter {name}"),
            path,
            JSON,
            [body.to_string()],
            failed("provider_unavailable"),
        ));
    }
    let two = json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word"}, "finish_reason": "stop"}, {"index": 1, "message": {"content": ""}, "finish_reason": "error"}]});
    cases.push(Case::new(
        "one of two choices",
        CHAT,
        JSON,
        [two.to_string()],
        failed("error"),
    ));
    for reason in [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "MALFORMED_RESPONSE",
    ] {
        let body = json!({"candidates": [{"index": 0, "finishReason": reason, "finishMessage": "Malformed call"}], "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}, "modelVersion": "m"});
        let kind = reason.to_ascii_lowercase();
        cases.push(Case::new(
            &format!("gemini stream {reason}"),
            GEMINI_STREAM,
            SSE,
            [sse(&body)],
            failed(&kind),
        ));
        cases.push(Case::new(
            &format!("gemini {reason}"),
            GEMINI,
            JSON,
            [body.to_string()],
            failed(&kind),
        ));
        cases.push(Case::new(
            &format!("gemini array {reason}"),
            GEMINI_ARRAY,
            "application/json; charset=UTF-8",
            [format!("[{body}]")],
            failed(&kind),
        ));
    }
    let body = json!({"model": "m", "message": {"content": " word"}, "done": true, "done_reason": "error"});
    cases.push(Case::new(
        "ollama",
        OLLAMA,
        JSON,
        [body.to_string()],
        failed("error"),
    ));
    let body = json!({"id": "c", "message": {"role": "assistant", "content": [{"type": "text", "text": " word"}]}, "finish_reason": "ERROR"});
    cases.push(Case::new(
        "cohere",
        COHERE,
        JSON,
        [body.to_string()],
        failed("ERROR"),
    ));
    let body = json!({"text": " word", "generation_id": "g", "finish_reason": "ERROR"});
    cases.push(Case::new(
        "cohere v1",
        COHERE_1,
        JSON,
        [body.to_string()],
        failed("ERROR"),
    ));
    let body = json!({"output": {"message": {"role": "assistant", "content": [{"text": " word"}]}}, "stopReason": "malformed_model_output", "usage": {"inputTokens": 1, "outputTokens": 1}});
    cases.push(Case::new(
        "converse",
        CONVERSE,
        JSON,
        [body.to_string()],
        failed("malformed_model_output"),
    ));
    let response = json!({"id": "r", "object": "response", "model": "m", "status": "failed", "error": {"code": "server_error", "message": "it failed"}, "output": []});
    cases.push(Case::new(
        "responses",
        RESPONSES,
        JSON,
        [response.to_string()],
        failed("server_error"),
    ));
    let event = json!({"type": "response.failed", "response": response});
    cases.push(Case::new(
        "responses stream",
        RESPONSES,
        SSE,
        [typed(&event)],
        failed("server_error"),
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_is_not_complete() {
    let mut cases = Vec::new();
    for stream in STREAMS {
        let chunks = stream.words(30);
        // The upstream closes the connection before these responses end.
        let reset = json!({"outcome": "upstream_reset", "error_type": "upstream_reset", "tokens": {"normalised": {"output": 30}}});
        let unterminated = json!({"outcome": "upstream_reset", "error_type": "unterminated", "tokens": {"normalised": {"output": 30}}});
        cases.push(
            Case::new(
                &format!("{} cut", stream.name),
                stream.path,
                stream.content_type,
                chunks.clone(),
                reset,
            )
            .cut(),
        );
        cases.push(Case::new(
            &format!("{} unterminated", stream.name),
            stream.path,
            stream.content_type,
            chunks.clone(),
            unterminated.clone(),
        ));
        if stream.content_type != AWS {
            let mut chunks = stream.words(30);
            let torn = (stream.frame)(&(stream.word)());
            let text = String::from_utf8(torn).expect("text");
            chunks.push(text.replace("}\n", "\n").into_bytes());
            cases.push(Case::new(
                &format!("{} unterminated, one event unreadable", stream.name),
                stream.path,
                stream.content_type,
                chunks,
                unterminated,
            ));
        }
    }
    let untyped = [
        named(
            "message_start",
            json!({"message": {"id": "m", "model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        ),
        named(
            "content_block_delta",
            json!({"index": 0, "delta": {"type": "text_delta", "text": " word"}}),
        ),
    ];
    let error = named(
        "error",
        json!({"error": {"type": "overloaded_error", "message": "busy"}}),
    );
    let mut failed = untyped.to_vec();
    failed.push(error);
    let expected = json!({"outcome": "error_event", "error_type": "overloaded_error", "tokens": {"normalised": {"output": 1}, "reported": {"input": 5}}});
    cases.push(Case::new(
        "anthropic without types",
        MESSAGES,
        SSE,
        failed.clone(),
        expected.clone(),
    ));
    cases.push(
        Case::new(
            "anthropic without types, cut",
            MESSAGES,
            SSE,
            failed,
            expected,
        )
        .cut(),
    );
    cases.push(Case::new(
        "anthropic without types, no error",
        MESSAGES,
        SSE,
        untyped,
        json!({"outcome": "upstream_reset", "error_type": "unterminated"}),
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_200_without_an_answer_is_an_error() {
    let empty = json!({"outcome": "error_event", "error_type": "empty_response"});
    let not_json = json!({"outcome": "error_event", "error_type": "not_json"});
    let html = "<html><body><h1>502 Bad Gateway</h1></body></html>";
    let mut cases = Vec::new();
    for path in [
        CHAT,
        COMPLETIONS,
        MESSAGES,
        RESPONSES,
        GEMINI,
        OLLAMA,
        COHERE,
        COHERE_1,
        CONVERSE,
        INVOKE,
        "/completion",
    ] {
        cases.push(Case::new(
            &format!("{path} empty"),
            path,
            JSON,
            [""],
            empty.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} object"),
            path,
            JSON,
            ["{}"],
            empty.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} null"),
            path,
            JSON,
            ["null"],
            json!({"outcome": "error_event", "error_type": KNOWN}),
        ));
        cases.push(Case::new(
            &format!("{path} html"),
            path,
            "text/html; charset=utf-8",
            [html],
            not_json.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} html as JSON"),
            path,
            JSON,
            [html],
            not_json.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} torn"),
            path,
            JSON,
            [r#"{"id":"#],
            not_json.clone(),
        ));
    }
    for path in [CHAT, COMPLETIONS] {
        cases.push(Case::new(
            &format!("{path} done"),
            path,
            SSE,
            [done()],
            empty.clone(),
        ));
        let usage = json!({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}});
        cases.push(Case::new(
            &format!("{path} usage and done"),
            path,
            SSE,
            [sse(&usage), done()],
            empty.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} comments and done"),
            path,
            SSE,
            [b": PROCESSING\n\n".to_vec(), done()],
            empty.clone(),
        ));
        cases.push(Case::new(
            &format!("{path} no choices"),
            path,
            JSON,
            [usage.to_string()],
            empty.clone(),
        ));
    }
    for stream in STREAMS.iter().filter(|stream| stream.content_type == SSE) {
        let name = format!("{} stream of a terminator", stream.name);
        cases.push(Case::new(&name, stream.path, SSE, [done()], empty.clone()));
        let error = json!({"error": {"type": "overloaded", "message": "busy"}});
        let name = format!("{} stream of JSON", stream.name);
        let failed = json!({"outcome": "error_event", "error_type": "overloaded"});
        cases.push(Case::new(
            &name,
            stream.path,
            SSE,
            [error.to_string()],
            failed,
        ));
        let name = format!("{} stream of HTML", stream.name);
        cases.push(
            Case::new(&name, stream.path, "text/html", [html], not_json.clone())
                .asking(&json!({"stream": true})),
        );
    }
    for (name, body) in [
        ("error", json!({"error": "busy"})),
        ("object", json!({"object": "error", "message": "busy"})),
    ] {
        let failed = json!({"outcome": "error_event", "error_type": "error"});
        cases.push(Case::new(
            &format!("embeddings {name}"),
            "/v1/embeddings",
            JSON,
            [body.to_string()],
            failed,
        ));
    }
    // Errors of Zhipu, MiniMax and Cloudflare in a 200.
    for (name, body) in [
        (
            "zhipu",
            json!({"code": 500, "msg": "404 NOT_FOUND", "success": false}),
        ),
        (
            "baidu",
            json!({"error_code": 336003, "error_msg": "it failed"}),
        ),
        (
            "minimax",
            json!({"id": "i", "choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
        ),
        (
            "cloudflare",
            json!({"result": null, "success": false, "errors": [{"code": 7009, "message": "it failed"}], "messages": []}),
        ),
    ] {
        let failed = json!({"outcome": "error_event", "error_type": KNOWN});
        cases.push(Case::new(
            name,
            CHAT,
            JSON,
            [body.to_string()],
            failed.clone(),
        ));
        cases.push(Case::new(
            &format!("{name} stream"),
            CHAT,
            SSE,
            [sse(&body), done()],
            failed,
        ));
    }
    let candidates = json!({"candidates": [], "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}, "modelVersion": "m"});
    cases.push(Case::new(
        "gemini without candidates",
        GEMINI,
        JSON,
        [candidates.to_string()],
        empty.clone(),
    ));
    let message = json!({"type": "message", "id": "m", "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 0}});
    cases.push(Case::new(
        "anthropic without content",
        MESSAGES,
        JSON,
        [message.to_string()],
        empty.clone(),
    ));
    let stream = [
        typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 0}}}),
        ),
        typed(&json!({"type": "message_stop"})),
    ];
    cases.push(Case::new(
        "anthropic stream without content",
        MESSAGES,
        SSE,
        stream,
        empty.clone(),
    ));
    cases.push(Case::new(
        "converse stream without content",
        CONVERSE_STREAM,
        AWS,
        [aws(
            "metadata",
            json!({"usage": {"inputTokens": 9, "outputTokens": 0}}),
        )],
        empty,
    ));
    // Bodies of a known shape without content.
    for (name, path, body) in [
        (
            "choices",
            CHAT,
            json!({"object": "chat.completion", "choices": []}),
        ),
        (
            "choices null",
            CHAT,
            json!({"object": "chat.completion", "created": 1, "choices": null}),
        ),
        ("candidates", GEMINI, json!({"candidates": []})),
    ] {
        let failed = json!({"outcome": "error_event", "error_type": "empty_response"});
        cases.push(Case::new(
            &format!("hollow {name}"),
            path,
            JSON,
            [body.to_string()],
            failed,
        ));
    }
    // Errors of gateways and frameworks, each in its own envelope.
    for path in [CHAT, MESSAGES, RESPONSES, GEMINI, OLLAMA, COHERE] {
        for (name, body) in [
            ("detail", json!({"detail": "Not Found"})),
            ("message", json!({"message": "Internal server error"})),
            ("fault", json!({"fault": {"faultstring": "it failed"}})),
            ("bare choices", json!({"choices": []})),
            ("nothing", json!({})),
        ] {
            let failed = json!({"outcome": "error_event", "error_type": KNOWN});
            let name = format!("{name} at {path}");
            cases.push(Case::new(&name, path, JSON, [body.to_string()], failed));
        }
    }
    // Short but complete answers.
    let complete = json!({"outcome": "complete", "error_type": null});
    let stop = json!({"model": "m", "choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]});
    cases.push(Case::new(
        "an empty answer that ended",
        CHAT,
        JSON,
        [stop.to_string()],
        complete.clone(),
    ));
    cases.push(Case::new(
        "an empty stream that ended",
        CHAT,
        SSE,
        [sse(chat_finish("length")), done()],
        complete,
    ));
    play(cases).await;
}

fn answers() -> Vec<(&'static str, Value)> {
    let message = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word"}], "stop_reason": "end_turn"});
    vec![
        (
            CHAT,
            json!({"model": "m", "choices": [{"index": 0, "message": {"content": " word"}, "finish_reason": "stop"}]}),
        ),
        (
            COMPLETIONS,
            json!({"model": "m", "choices": [{"index": 0, "text": " word", "finish_reason": "stop"}]}),
        ),
        (MESSAGES, message.clone()),
        (
            RESPONSES,
            json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": " word"}]}]}),
        ),
        (GEMINI, gemini_text(" word")),
        (
            OLLAMA,
            json!({"model": "m", "message": {"content": " word"}, "done": true, "done_reason": "stop"}),
        ),
        (
            COHERE,
            json!({"id": "c", "message": {"role": "assistant", "content": [{"type": "text", "text": " word"}]}, "finish_reason": "COMPLETE"}),
        ),
        (
            COHERE_1,
            json!({"text": " word", "generation_id": "g", "finish_reason": "COMPLETE"}),
        ),
        (
            CONVERSE,
            json!({"output": {"message": {"role": "assistant", "content": [{"text": " word"}]}}, "stopReason": "end_turn"}),
        ),
        (INVOKE, message),
        (
            "/generate",
            json!({"generated_text": " word", "details": {"finish_reason": "eos_token"}}),
        ),
        (
            "/completion",
            json!({"content": " word", "stop": true, "stop_type": "eos"}),
        ),
        (
            "/v2/models/m/generate",
            json!({"model_name": "m", "text_output": " word"}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_answer_is_not_a_successful_generation() {
    let not_json = json!({"outcome": "error_event", "error_type": "not_json", "tokens": {"normalised": {"output": null}}});
    let empty = json!({"outcome": "error_event", "error_type": "empty_response"});
    let mut cases = Vec::new();
    for (path, response) in answers() {
        let compact = response.to_string();
        let pretty = serde_json::to_string_pretty(&response).expect("JSON");
        let pretty_list = serde_json::to_string_pretty(&json!([[response]])).expect("JSON");
        let half = |text: &str| text[..text.len() / 2].to_owned();
        let mut damaged = vec![
            ("half", half(&compact)),
            ("half and pretty", half(&pretty)),
            ("all but a brace", compact[..compact.len() - 1].to_owned()),
            (
                "all but a pretty brace",
                pretty[..pretty.len() - 2].to_owned(),
            ),
            ("without commas", compact.replace(',', " ")),
            ("pretty without commas", pretty.replace(",\n", "\n")),
            ("with single quotes", pretty.replace('"', "'")),
        ];
        if path != GEMINI {
            // A list is a stream in Gemini's API.
            damaged.push(("a part of a list", half(&pretty_list)));
        }
        for (name, body) in damaged {
            let name = format!("{path} {name}");
            cases.push(Case::new(&name, path, JSON, [body], not_json.clone()));
        }
    }
    let reset = json!({"outcome": "upstream_reset", "error_type": "unterminated"});
    for stream in STREAMS {
        let torn = |data: &Value| {
            let text = String::from_utf8((stream.frame)(data)).expect("text");
            text.replacen("}\n", "\n", 1).into_bytes()
        };
        let case = |name: &str, chunks: Vec<Vec<u8>>, record: &Value| {
            let name = format!("{} {name}", stream.name);
            Case::new(
                &name,
                stream.path,
                stream.content_type,
                chunks,
                record.clone(),
            )
        };
        if stream.content_type == AWS {
            let garbage = vec![b"<html>502 Bad Gateway</html>".to_vec()];
            cases.push(case("garbage", garbage, &not_json));
            continue;
        }
        let chunks = vec![torn(&(stream.word)()); 3];
        cases.push(case("all torn", chunks.clone(), &reset));
        if stream.content_type == SSE {
            let mut ended = chunks;
            ended.push(done());
            cases.push(case("all torn, then an end", ended, &not_json));
            let chunks = vec![sse("null"), sse("busy"), done()];
            cases.push(case("nothing in it", chunks, &empty));
        }
    }
    let triton = "/v2/models/m/generate_stream";
    let torn = r#"{"model_name":"m","text_output":" word""#;
    cases.push(Case::new(
        "triton torn",
        triton,
        SSE,
        vec![sse(torn); 3],
        not_json,
    ));
    cases.push(Case::new("triton null", triton, SSE, [sse("null")], empty));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_a_number_is_an_error_and_no_finish_reason() {
    let failed =
        |kind: &str| json!({"outcome": "error_event", "error_type": kind, "finish_reasons": []});
    let mut cases = Vec::new();
    for (name, kind, body) in [
        (
            "status",
            "401",
            json!({"status": 401, "message": "Unauthorized"}),
        ),
        (
            "text",
            "401",
            json!({"status": "401", "message": "Unauthorized"}),
        ),
        (
            "code and text",
            "401",
            json!({"code": 401, "error": "You did not send a key"}),
        ),
        (
            "status and code",
            "401",
            json!({"status": 401, "error": {"code": 401, "message": "no key"}}),
        ),
        (
            "status and type",
            "invalid_api_key",
            json!({"status": 401, "error": {"type": "invalid_api_key", "message": "no key"}}),
        ),
        (
            "status and text",
            "503",
            json!({"status": 503, "error": "Service Unavailable"}),
        ),
    ] {
        for (api, path) in [
            ("responses", RESPONSES),
            ("interactions", INTERACTIONS),
            ("chat", CHAT),
            ("messages", MESSAGES),
            ("cohere", COHERE),
            ("ollama", OLLAMA),
        ] {
            let kind = match api {
                "responses" => kind,
                _ => KNOWN,
            };
            cases.push(Case::new(
                &format!("{api} {name}"),
                path,
                JSON,
                [body.to_string()],
                failed(kind),
            ));
        }
        let event = json!({"type": "response.failed", "response": body});
        cases.push(Case::new(
            &format!("responses stream {name}"),
            RESPONSES,
            SSE,
            [typed(&event)],
            failed(kind),
        ));
    }
    let event = json!({"type": "error", "status": 401, "code": 401, "message": "no key"});
    cases.push(Case::new(
        "responses error event",
        RESPONSES,
        SSE,
        [typed(&event)],
        failed("401"),
    ));
    for (name, path, body) in [
        (
            "chat",
            CHAT,
            json!({"model": "m", "choices": [{"index": 0, "message": {"content": ""}, "finish_reason": 500}]}),
        ),
        (
            "messages",
            MESSAGES,
            json!({"type": "message", "id": "i", "model": "m", "content": [], "stop_reason": 500}),
        ),
        (
            "gemini",
            GEMINI,
            json!({"candidates": [{"index": 0, "finishReason": 500}], "modelVersion": "m"}),
        ),
        (
            "converse",
            CONVERSE,
            json!({"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "500"}),
        ),
        (
            "ollama",
            OLLAMA,
            json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": "500"}),
        ),
    ] {
        cases.push(Case::new(
            &format!("finish reason of {name}"),
            path,
            JSON,
            [body.to_string()],
            failed("500"),
        ));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_prompt_is_refused_like_a_4xx() {
    let blocked = json!({"outcome": "error_event", "error_type": "prompt_blocked"});
    let body = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}, "modelVersion": "m"});
    let cases = vec![
        Case::new("blocked", GEMINI, JSON, [body.to_string()], blocked.clone()),
        Case::new(
            "blocked stream",
            GEMINI_STREAM,
            SSE,
            [sse(&body)],
            blocked.clone(),
        ),
        Case::new(
            "blocked array",
            GEMINI_ARRAY,
            "application/json; charset=UTF-8",
            [format!("[{body}]")],
            blocked.clone(),
        ),
    ];
    let calls = cases.len();
    let played = play(cases).await;
    let slos = played.availability().await;
    let events = |name: &str| slos["slos"][0][name].as_f64();
    assert_eq!(
        (events("good"), events("bad")),
        (Some(0.0), Some(0.0)),
        "{calls} calls: {slos:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_only_mentions_errors_is_complete() {
    let complete = json!({"outcome": "complete", "error_type": null});
    let mut cases = Vec::new();
    for (kind, more) in [
        ("null", json!({"error": null})),
        ("empty object", json!({"error": {}})),
        ("empty text", json!({"error": ""})),
        ("false", json!({"error": false})),
        ("code 0", json!({"error": {"code": 0, "message": ""}})),
        ("nulls", json!({"error": {"code": null, "message": null}})),
        ("code 200", json!({"error": {"code": 200, "message": "ok"}})),
        (
            "success",
            json!({"success": true, "error_code": 0, "base_resp": {"status_code": 0, "status_msg": ""}}),
        ),
    ] {
        let with = |mut body: Value| {
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            body
        };
        for stream in STREAMS {
            let mut chunks = vec![(stream.frame)(&with((stream.word)())); 4];
            chunks.extend((stream.end)());
            cases.push(Case::new(
                &format!("{} {kind}", stream.name),
                stream.path,
                stream.content_type,
                chunks,
                complete.clone(),
            ));
        }
        let body = with(
            json!({"model": "m", "choices": [{"index": 0, "error": null, "message": {"content": "{\"error\": \"busy\"}"}, "finish_reason": "stop"}]}),
        );
        cases.push(Case::new(
            &format!("chat body {kind}"),
            CHAT,
            JSON,
            [body.to_string()],
            complete.clone(),
        ));
    }
    let mut unblocked = gemini_text(" word");
    unblocked["promptFeedback"] = json!({"blockReason": "BLOCK_REASON_UNSPECIFIED"});
    unblocked["candidates"][0]["finishReason"] = json!("STOP");
    cases.push(Case::new(
        "gemini not blocked",
        GEMINI,
        JSON,
        [unblocked.to_string()],
        complete.clone(),
    ));
    cases.push(Case::new(
        "gemini stream not blocked",
        GEMINI_STREAM,
        SSE,
        [sse(&unblocked)],
        complete,
    ));
    play(cases).await;
}
