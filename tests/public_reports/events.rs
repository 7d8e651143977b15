//! Events that cannot be read, and texts that change their shape midway.

use super::play::{Case, JSON, KNOWN, SILENCE, play};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_event_that_cannot_be_read_is_left_out() {
    let expected = |words: u64, skipped: u64| json!({"outcome": "complete", "skipped_events": skipped, "tokens": {"normalised": {"output": words}}, "tps": {"output": KNOWN, "total": KNOWN}, "seconds": {"ttft": KNOWN}});
    let mut cases = Vec::new();
    for stream in STREAMS {
        let word = (stream.word)().to_string();
        let frame = |data: &str| {
            // Insert unquoted JSON, because a raw value may be invalid JSON.
            let marked = (stream.frame)(&json!("MARK"));
            if stream.content_type == AWS {
                return match stream.name {
                    "converse" => aws("contentBlockDelta", data),
                    _ => aws_chunk(data),
                };
            }
            let kind = (stream.word)()["type"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let marked = String::from_utf8(marked)
                .expect("text")
                .replace("\"MARK\"", data);
            marked
                .replace("event: \n", &format!("event: {kind}\n"))
                .into_bytes()
        };
        let member = |text: &str| format!("{},{text}}}", &word[..word.len() - 1]);
        let odd = [
            ("null", "null".to_owned(), (60, 1)),
            ("keep-alive", "keep-alive".to_owned(), (60, 1)),
            ("empty string", "\"\"".to_owned(), (60, 1)),
            ("list", "[\"error\",\"other-model\"]".to_owned(), (60, 1)),
            ("empty list", "[]".to_owned(), (60, 1)),
            ("torn", word[..word.len() - 1].to_owned(), (60, 1)),
            ("NaN", member("\"logprob\":NaN"), (61, 0)),
            (
                "infinity",
                member("\"logprobs\":[-Infinity, Infinity]"),
                (61, 0),
            ),
            ("twice", member(&word[1..word.len() - 1]), (61, 0)),
            ("surrogate", member(r#""note":"\ud83d""#), (61, 0)),
        ];
        for (kind, data, (words, skipped)) in odd {
            let mut chunks = stream.words(60);
            chunks.insert(30, frame(&data));
            chunks.extend((stream.end)());
            let name = format!("{} {kind}", stream.name);
            cases.push(Case::new(
                &name,
                stream.path,
                stream.content_type,
                chunks,
                expected(words, skipped),
            ));
        }
        // Gemini frames an array differently.
    }
    for (kind, more) in [
        ("NaN", "\"avgLogprobs\":NaN"),
        ("twice", "\"modelVersion\":\"m\""),
    ] {
        let word = gemini_text(" word").to_string();
        let odd = format!("{},{more}}}", &word[..word.len() - 1]);
        let mut elements = vec![word; 60];
        elements.insert(30, odd);
        elements.push(json!({"candidates": [{"index": 0, "finishReason": "STOP"}]}).to_string());
        let mut chunks: Vec<String> = elements
            .iter()
            .map(|element| format!("{element},\n"))
            .collect();
        chunks[0].insert(0, '[');
        let last = chunks.last_mut().expect("chunks");
        *last = last.replace(",\n", "]");
        cases.push(Case::new(
            &format!("gemini array {kind}"),
            GEMINI_ARRAY,
            "application/json; charset=UTF-8",
            chunks,
            expected(61, 0),
        ));
    }
    // The first event is unreadable.
    for stream in STREAMS {
        let odd = match stream.content_type {
            AWS if stream.name == "converse" => aws("contentBlockDelta", "null"),
            AWS => aws_chunk("null"),
            NDJSON => line("null"),
            _ => sse("null"),
        };
        let mut chunks = vec![odd];
        chunks.extend(stream.words(60));
        chunks.extend((stream.end)());
        let name = format!("{} first", stream.name);
        cases.push(Case::new(
            &name,
            stream.path,
            stream.content_type,
            chunks,
            expected(60, 1),
        ));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_numbers_that_json_lacks_is_read() {
    let expected = json!({"outcome": "complete", "skipped_events": 0, "tokens": {"normalised": {"output": 2}}});
    let chat = |pretty: bool| {
        let body = json!({"model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": " word word"}, "logprobs": {"content": [{"token": "a", "logprob": "MARK"}]}, "finish_reason": "stop"}]});
        if pretty {
            serde_json::to_string_pretty(&body).expect("JSON")
        } else {
            body.to_string()
        }
    };
    let mut cases = Vec::new();
    for pretty in [false, true] {
        for number in ["NaN", "-Infinity"] {
            let body = chat(pretty).replace("\"MARK\"", number);
            cases.push(Case::new(
                &format!("chat {number} {pretty}"),
                CHAT,
                JSON,
                [body],
                expected.clone(),
            ));
        }
        let twice = chat(pretty).replacen('{', "{\"model\":\"old\",", 1);
        cases.push(Case::new(
            &format!("chat twice {pretty}"),
            CHAT,
            JSON,
            [twice],
            expected.clone(),
        ));
    }
    let invoke = json!({"type": "message", "id": "i", "model": "m", "content": [{"type": "text", "text": " word word"}], "stop_reason": "end_turn", "x": "MARK"}).to_string().replace("\"MARK\"", "NaN");
    cases.push(Case::new("invoke", INVOKE, JSON, [invoke], expected));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_come_in_another_shape_midway_are_counted() {
    let counted = |reasoning: u64, answer: u64, calls: u64| json!({"outcome": "complete", "tokens": {"normalised": {"reasoning": reasoning, "answer": answer, "tool_call": calls}}});
    let ended = |mut chunks: Vec<Vec<u8>>, reason: &str| {
        chunks.extend([sse(chat_finish(reason)), done()]);
        chunks
    };
    let fields = [
        ("reasoning_content", json!({"reasoning_content": " word"})),
        ("reasoning", json!({"reasoning": " word"})),
        (
            "reasoning_details",
            json!({"reasoning_details": [{"type": "reasoning.text", "text": " word"}]}),
        ),
    ];
    let mut cases = Vec::new();
    for (first, one) in &fields {
        for (second, other) in &fields {
            let mut chunks = vec![sse(chat_delta(one)); 10];
            chunks.extend(vec![sse(chat_delta(other)); 7]);
            chunks.extend(CHAT_STREAM.words(5));
            cases.push(Case::new(
                &format!("{first} then {second}"),
                CHAT,
                SSE,
                ended(chunks, "stop"),
                counted(17, 5, 0),
            ));
        }
        // Every event has both fields.
        let mut both = one.clone();
        for (name, value) in fields[1].1.as_object().expect("an object") {
            both[name] = value.clone();
        }
        let chunks = vec![sse(chat_delta(&both)); 10];
        cases.push(Case::new(
            &format!("{first} and reasoning"),
            CHAT,
            SSE,
            ended(chunks, "stop"),
            counted(10, 0, 0),
        ));
    }
    let call = |index: Value, name: &str, arguments: &str| {
        let mut call = json!({"function": {"name": name, "arguments": arguments}});
        if !index.is_null() {
            call["index"] = index;
        }
        sse(chat_delta(&json!({"tool_calls": [call]})))
    };
    let tools = |tools: &str| json!({"outcome": "complete", "tools": tools});
    for (kind, index) in [("one index", json!(0)), ("no index", Value::Null)] {
        let chunks = vec![
            call(index.clone(), "fetch", r#"{"a": 1}"#),
            call(index.clone(), "search", r#"{"b": 2}"#),
        ];
        cases.push(Case::new(
            &format!("two calls, {kind}"),
            CHAT,
            SSE,
            ended(chunks, "tool_calls"),
            tools("fetch+search"),
        ));
    }
    // Arguments in pieces, and several calls of one tool.
    for (kind, index) in [("one index", json!(0)), ("no index", Value::Null)] {
        let mut chunks = Vec::new();
        for name in ["fetch", "search", "fetch"] {
            chunks.push(call(index.clone(), name, ""));
            for piece in ["{\"a\"", ": {\"b\": \"}\\\"\"}", "}"] {
                chunks.push(call(index.clone(), "", piece));
            }
        }
        cases.push(Case::new(&format!("three calls in pieces, {kind}"), CHAT, SSE, ended(chunks, "tool_calls"), json!({"outcome": "complete", "tools": "fetch+search", "tokens": {"normalised": {"answer": 0, "reasoning": 0}}})));
    }
    // The last event repeats all reasoning in another field.
    let mut chunks: Vec<_> = (0..20)
        .map(|at| {
            sse(chat_delta(
                &json!({"reasoning_content": format!(" word{}", " word".repeat(at % 3))}),
            ))
        })
        .collect();
    let words = (0..20).map(|at| 1 + at % 3).sum::<usize>();
    chunks.push(sse(chat_delta(
        &json!({"reasoning": " word".repeat(words)}),
    )));
    cases.push(Case::new(
        "all reasoning again",
        CHAT,
        SSE,
        ended(chunks, "stop"),
        counted(words as u64, 0, 0),
    ));
    // The field changes after the first event.
    let mut chunks = vec![sse(chat_delta(&json!({"reasoning_content": " word"})))];
    chunks.extend(vec![sse(chat_delta(&json!({"reasoning": " also"}))); 7]);
    cases.push(Case::new(
        "another field at once",
        CHAT,
        SSE,
        ended(chunks, "stop"),
        counted(8, 0, 0),
    ));
    // The text continues with the same word.
    let mut chunks = vec![sse(chat_delta(&json!({"reasoning_content": " word"})))];
    chunks.extend(vec![sse(chat_delta(&json!({"reasoning": " word"}))); 10]);
    cases.push(Case::new(
        "another field, the same word",
        CHAT,
        SSE,
        ended(chunks, "stop"),
        counted(11, 0, 0),
    ));
    // A Responses text that arrives only when it is done.
    for kind in [
        "output_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "refusal",
    ] {
        let member = match kind {
            "function_call_arguments" => "arguments",
            "refusal" => "refusal",
            _ => "text",
        };
        let mut event = json!({"type": format!("response.{kind}.done"), "item_id": "i", "output_index": 0, "content_index": 0, "summary_index": 0});
        event[member] = json!(" word word word");
        let chunks = vec![
            typed(&event),
            typed(
                &json!({"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": []}}),
            ),
        ];
        cases.push(Case::new(
            &format!("only done: {kind}"),
            RESPONSES,
            SSE,
            chunks,
            json!({"outcome": "complete", "tokens": {"normalised": {"output": 3}}}),
        ));
    }
    play(cases).await;
}

/// While the provider runs a tool, the model writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_provider_are_a_separate_phase() {
    let known = json!({"outcome": "complete", "seconds": {"server_tools": KNOWN}, "tps": {"output": KNOWN}, "tokens": {"normalised": {"output": 80}}});
    let silence = Vec::new();
    let start = |index: u8, block: Value| {
        typed(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let stop = |index: u8| typed(&json!({"type": "content_block_stop", "index": index}));
    let text = |index: u8| {
        typed(
            &json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": " word"}}),
        )
    };
    let mut anthropic = vec![
        typed(
            &json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        ),
        start(0, json!({"type": "text", "text": ""})),
    ];
    anthropic.extend(vec![text(0); 40]);
    anthropic.extend([
        stop(0),
        start(
            1,
            json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        ),
        stop(1),
        silence.clone(),
        start(
            2,
            json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        ),
        stop(2),
        start(3, json!({"type": "text", "text": ""})),
    ]);
    anthropic.extend(vec![text(3); 40]);
    anthropic.extend([
        stop(3),
        typed(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 80}})),
        typed(&json!({"type": "message_stop"})),
    ]);
    let delta = typed(
        &json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": " word"}),
    );
    let of_tool = |kind: &str, state: &str| {
        typed(
            &json!({"type": format!("response.{kind}.{state}"), "item_id": "s", "output_index": 1}),
        )
    };
    let item = |state: &str, kind: &str| {
        typed(
            &json!({"type": format!("response.output_item.{state}"), "output_index": 1, "item": {"type": kind, "id": "s"}}),
        )
    };
    let mut cases = vec![Case::new(
        "anthropic search",
        MESSAGES,
        SSE,
        anthropic,
        known.clone(),
    )];
    // The part before the silence, and the part after it.
    let calls = [
        (
            "web search",
            vec![
                of_tool("web_search_call", "in_progress"),
                of_tool("web_search_call", "searching"),
            ],
            of_tool("web_search_call", "completed"),
        ),
        (
            "failed web search",
            vec![of_tool("web_search_call", "in_progress")],
            of_tool("web_search_call", "failed"),
        ),
        (
            "incomplete code",
            vec![of_tool("code_interpreter_call", "interpreting")],
            of_tool("code_interpreter_call", "incomplete"),
        ),
        (
            "tools of a server",
            vec![of_tool("mcp_list_tools", "in_progress")],
            of_tool("mcp_list_tools", "completed"),
        ),
        (
            "items",
            vec![item("added", "web_search_call")],
            item("done", "web_search_call"),
        ),
        (
            "another search",
            vec![item("added", "x_search_call")],
            item("done", "x_search_call"),
        ),
        (
            "shell",
            vec![item("added", "shell_call"), item("done", "shell_call")],
            item("added", "shell_call_output"),
        ),
    ];
    for (name, begin, end) in calls {
        let mut responses = vec![delta.clone(); 40];
        responses.extend(begin);
        responses.extend([silence.clone(), end]);
        responses.extend(vec![delta.clone(); 40]);
        responses.push(typed(&json!({"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": 9, "output_tokens": 80}}})));
        cases.push(Case::new(
            &format!("responses {name}"),
            RESPONSES,
            SSE,
            responses,
            known.clone(),
        ));
    }
    let of = |event: &str, index: u8, member: &str, content: Value| {
        named(
            event,
            json!({"event_type": event, "index": index, member: content}),
        )
    };
    let word = |index: u8| {
        of(
            "content.delta",
            index,
            "delta",
            json!({"type": "text", "text": " word"}),
        )
    };
    let mut interaction = vec![word(0); 40];
    interaction.extend([
        of(
            "content.start",
            1,
            "content",
            json!({"type": "google_search_call"}),
        ),
        of(
            "content.delta",
            1,
            "delta",
            json!({"type": "google_search_call", "arguments": {"queries": ["a"]}}),
        ),
        named(
            "content.stop",
            json!({"event_type": "content.stop", "index": 1}),
        ),
        silence,
        of(
            "content.start",
            2,
            "content",
            json!({"type": "google_search_result"}),
        ),
    ]);
    interaction.extend(vec![word(3); 40]);
    interaction.push(named("interaction.complete", json!({"event_type": "interaction.complete", "interaction": {"id": "i", "model": "m", "status": "completed", "usage": {"total_input_tokens": 5, "total_output_tokens": 80}}})));
    cases.push(Case::new(
        "interactions search",
        INTERACTIONS,
        SSE,
        interaction,
        known,
    ));
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    let played = play(cases).await;
    for name in &names {
        for record in played.of(name) {
            let of = |pointer: &str| {
                record
                    .pointer(pointer)
                    .and_then(Value::as_f64)
                    .expect(pointer)
            };
            let searched = of("/seconds/server_tools");
            assert!(searched >= SILENCE.as_secs_f64(), "{name}: {searched} s");
            // From the first token to the last, without the search.
            let wrote = of("/seconds/duration") - of("/seconds/ttft") - searched;
            let least = 79.0 / wrote;
            let tps = of("/tps/output");
            assert!(tps >= least, "{name}: {tps}, not {least} or more");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_midway_has_no_count_anywhere() {
    let unknown = json!({"outcome": "complete", "tps": {"output": null, "unavailable": "unparsed"}, "tokens": {"normalised": {"output": null}, "reported": {"output": null}}, "cost_usd": null});
    let mut cases = Vec::new();
    for stream in STREAMS {
        let mut chunks = stream.words(60);
        if stream.content_type == AWS {
            chunks.push(b"<html>502 Bad Gateway</html>".to_vec());
        } else {
            let torn = String::from_utf8((stream.frame)(&(stream.word)())).expect("text");
            chunks.extend(vec![torn.replacen("}\n", "\n", 1).into_bytes(); 10]);
            let ends = (stream.end)()
                .into_iter()
                .filter_map(|end| String::from_utf8(end).ok());
            // Without usage, whose counts would otherwise be known.
            let plain = |end: String| {
                end.replace("output_tokens", "o")
                    .replace("eval_count", "e")
                    .replace("tokens_predicted", "p")
                    .replace("generated_tokens", "g")
            };
            chunks.extend(ends.map(plain).map(String::into_bytes));
        }
        cases.push(Case::new(
            stream.name,
            stream.path,
            stream.content_type,
            chunks,
            unknown.clone(),
        ));
    }
    play(cases).await;
}
