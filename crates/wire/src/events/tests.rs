use super::*;
use crate::DIALECTS;
use tokengauge_core::call::{Channel, Usage, UsageDetails};

/// The events that are read from a stream, or from a single payload, without the events that every
/// payload has.
fn read_by(dialect: Dialect, take: impl Fn(&mut EventReader, Sink<'_>)) -> Vec<String> {
    let mut said = Vec::new();
    let sink: Sink<'_> = &mut |event| match event {
        Event::Message => {}
        Event::Delta { segment, text } => said.push(match segment.channel {
            Channel::Answer => text.to_owned(),
            Channel::Reasoning => format!("({text})"),
            Channel::ToolCall => format!("<{text}>"),
        }),
        event => said.push(format!("{event:?}")),
    };
    take(&mut EventReader::new(dialect.into()), sink);
    said
}

fn stream(dialect: Dialect, payloads: &[&str]) -> Vec<String> {
    read_by(dialect, |reader, sink| {
        for payload in payloads {
            let payload = payload.as_bytes();
            reader.take(Item::Event { name: "", payload }, sink);
        }
    })
}

fn body(dialect: Dialect, payload: &str) -> Vec<String> {
    read_by(dialect, |reader, sink| {
        reader.whole(payload.as_bytes(), sink);
    })
}

#[test]
fn a_list_is_no_event_of_any_dialect() {
    for dialect in DIALECTS.iter().map(|dialect| dialect.dialect) {
        for list in [
            r#"["error"]"#,
            r#"["x","evil-model"]"#,
            "[]",
            "[1]",
            r#"["response.completed"]"#,
            r#"["message_stop","message_stop"]"#,
            r#"["x",{"error":"y"}]"#,
        ] {
            let said = stream(dialect, &[list]);
            if dialect == Dialect::Embeddings || dialect == Dialect::Rerank {
                continue;
            }
            assert_eq!(said, ["Skipped"], "{dialect:?}: {list}");
        }
    }
    let nested = [
        (
            Dialect::Anthropic,
            r#"{"type":"message_start","message":["id","evil-model"]}"#,
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"type":"response.created","response":["","id","evil-model"]}"#,
        ),
        (Dialect::Gemini, r#"{"promptFeedback":["SAFETY"]}"#),
        (Dialect::Ollama, r#"{"done":false,"message":["evil"]}"#),
    ];
    for (dialect, event) in nested {
        let said = stream(dialect, &[event]).join(" ");
        assert!(said.is_empty() || said == "Damaged", "{event}: {said}");
    }
}

/// Payloads in which the error, the reason or the code is `member`.
fn answers(dialect: Dialect, member: &str) -> [Vec<String>; 2] {
    let (text, delta) = match dialect {
        Dialect::OpenaiChat => (r#""message":{"content":"a"}"#, r#""delta":{"content":"a"}"#),
        _ => (r#""text":"a""#, r#""text":"a""#),
    };
    let of = |text: &str| format!(r#"{{"choices":[{{"index":0,{text},{member}}}]}}"#);
    [body(dialect, &of(text)), stream(dialect, &[&of(delta)])]
}

#[test]
fn a_finish_reason_may_be_an_object() {
    for dialect in [Dialect::OpenaiChat, Dialect::OpenaiCompletions] {
        for (reason, said) in [
            (
                r#"{"type":"abort","message":"x","status_code":503}"#,
                "abort",
            ),
            (r#"{"type":"stop","matched":"a"}"#, "stop"),
            (r#""length""#, "length"),
        ] {
            let member = format!(r#""finish_reason":{reason}"#);
            for read in answers(dialect, &member) {
                let finish = format!("Finish {{ choice: 0, reason: {said:?} }}");
                assert_eq!(read, ["a", &finish], "{dialect:?}: {reason}");
            }
        }
        for none in ["null", "{}", "[1]", "true"] {
            let member = format!(r#""finish_reason":{none}"#);
            for read in answers(dialect, &member) {
                assert_eq!(read, ["a"], "{dialect:?}: {none}");
            }
        }
    }
}

#[test]
fn an_error_that_says_that_nothing_failed_is_none() {
    for none in [
        r#"{"code":0,"message":""}"#,
        r#"{"code":null,"message":null}"#,
        r#"{"code":200,"message":"ok"}"#,
        r#"{"code":"200","message":"it is done","type":""}"#,
        r#"{"code":0,"message":"Success"}"#,
        r#"{"type":null,"param":null,"code":"OK"}"#,
        "{}",
    ] {
        for dialect in [Dialect::OpenaiChat, Dialect::OpenaiCompletions] {
            for read in answers(dialect, &format!(r#""error":{none}"#)) {
                assert_eq!(read, ["a"], "{dialect:?}: {none}");
            }
        }
        let event = format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"error":{none}}}"#);
        assert_eq!(stream(Dialect::OpenaiChat, &[&event]), ["a"], "{none}");
        let event = format!(r#"{{"model":"","response":"a","done":false,"error":{none}}}"#);
        assert_eq!(stream(Dialect::Ollama, &[&event]), ["a"], "{none}");
    }
    for (error, kind) in [
        (r#"{"code":0,"message":"it failed"}"#, "error"),
        (
            r#"{"code":200,"message":"ok","type":"server_error"}"#,
            "server_error",
        ),
        (r#"{"code":null,"message":"it failed"}"#, "error"),
        (r#"{"metadata":{"x":1}}"#, "error"),
        (r#"{"code":500}"#, "500"),
        (r#""it failed""#, "error"),
    ] {
        for dialect in [Dialect::OpenaiChat, Dialect::OpenaiCompletions] {
            for read in answers(dialect, &format!(r#""error":{error}"#)) {
                assert_eq!(read, ["a", &format!("Error({kind:?})")], "{error}");
            }
        }
    }
    let blocked = |reason: &str| {
        let text = r#""candidates":[{"content":{"parts":[{"text":"a"}]}}]"#;
        body(
            Dialect::Gemini,
            &format!(r#"{{{text},"promptFeedback":{{"blockReason":{reason}}}}}"#),
        )
    };
    assert_eq!(blocked(r#""BLOCK_REASON_UNSPECIFIED""#), ["a"]);
    assert_eq!(blocked("0"), ["a"]);
    assert_eq!(blocked(r#""SAFETY""#).len(), 3);
}

#[test]
fn an_error_in_a_delta_or_a_message_is_one() {
    for text in ["delta", "message"] {
        let event =
            format!(r#"{{"choices":[{{"{text}":{{"content":"a","error":{{"code":502}}}}}}]}}"#);
        assert_eq!(
            stream(Dialect::OpenaiChat, &[&event]),
            ["a", "Error(\"502\")"]
        );
    }
}

#[test]
fn a_code_and_a_message_after_text_are_an_error_in_every_dialect() {
    let cases = [
        (r#"{"code":500,"message":"x"}"#, Some("500")),
        (
            r#"{"code":"InternalError","message":"x","request_id":"r"}"#,
            Some("InternalError"),
        ),
        (r#"{"status":500,"message":"x"}"#, Some("500")),
        (r#"{"statusCode":503,"message":"x"}"#, Some("503")),
        (r#"{"code":"500","msg":"x"}"#, Some("500")),
        (r#"{"detail":"x"}"#, Some("error")),
        (r#"{"detail":[{"msg":"x"}]}"#, Some("error")),
        (r#"{"status":"error","message":"x"}"#, Some("error")),
        (r#"{"code":1302,"message":"x"}"#, Some("1302")),
        (r#"{"code":"it failed","message":"x"}"#, Some("error")),
        (
            r#"{"id":"r","code":500,"message":"x","type":"server_error"}"#,
            Some("500"),
        ),
        (r#"{"code":0,"message":"x"}"#, None),
        (r#"{"code":200,"message":"ok"}"#, None),
        (r#"{"code":"Success","message":"x"}"#, None),
        (r#"{"code":20000,"message":"Ok","status":true}"#, None),
        (r#"{"status":"processing","message":"queued"}"#, None),
        (r#"{"type":"ping","code":1,"message":"x"}"#, None),
        (r#"{"code":500}"#, None),
        (r#"{"detail":null}"#, None),
        (r#"{"message":""}"#, None),
    ];
    let generating = DIALECTS.iter().filter(|dialect| dialect.generates);
    for dialect in generating.map(|dialect| dialect.dialect) {
        for (event, kind) in cases {
            // In Cohere v1, only a failed response has a `message`.
            let said = stream(dialect, &[event]);
            let errors = said.iter().filter(|event| event.starts_with("Error"));
            let expected = kind.map(|kind| format!("Error({kind:?})"));
            assert_eq!(
                errors.collect::<Vec<_>>(),
                expected.iter().collect::<Vec<_>>(),
                "{dialect:?}: {event}"
            );
        }
    }
    for (event, _) in cases {
        let said = stream(Dialect::Unknown, &[event]).concat();
        assert!(
            !said.contains("Error"),
            "{event}: nobody asked for an answer"
        );
    }
}

#[test]
fn reasoning_that_moves_to_another_field_is_read_and_a_copy_of_it_is_not() {
    const FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];
    let read = |pieces: &[(usize, &str)]| {
        let of = |(field, text): &(usize, &str)| match FIELDS[*field] {
            field @ "reasoning_details" => {
                format!(r#"{{"choices":[{{"delta":{{"{field}":[{{"text":"{text}"}}]}}}}]}}"#)
            }
            field => format!(r#"{{"choices":[{{"delta":{{"{field}":"{text}"}}}}]}}"#),
        };
        let events: Vec<String> = pieces.iter().map(of).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        stream(Dialect::OpenaiChat, &events).concat()
    };
    for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let moved = [&[(one, " word")][..], &[(other, " word"); 10]].concat();
        assert_eq!(read(&moved), "( word)".repeat(11));
        let moved = [&[(one, " word"); 10][..], &[(other, " word"); 10]].concat();
        assert_eq!(read(&moved), "( word)".repeat(20));
        let moved = [(one, " word"), (other, " wording"), (other, " it")];
        assert_eq!(read(&moved), "( word)( wording)( it)");
        let moved = [(one, " word"), (other, " word"), (other, " it")];
        assert_eq!(read(&moved), "( word)( word)( it)");
        let moved = [(one, " a"), (one, " a"), (other, " a b c"), (other, " d")];
        assert_eq!(read(&moved), "( a)( a)( a b c)( d)");
        let copied = [(one, " word"), (other, " word")];
        assert_eq!(read(&copied), "( word)");
        let copied = [(one, " a"), (one, " b"), (one, " c"), (other, " a b c")];
        assert_eq!(read(&copied), "( a)( b)( c)");
        let twice = [&copied[..], &[(other, " a b c")]].concat();
        assert_eq!(read(&twice), "( a)( b)( c)");
    }
}

fn tools(dialect: Dialect, events: &[&str]) -> String {
    let said = stream(dialect, events);
    let tools = said.iter().filter(|event| event.starts_with("ServerTool"));
    tools
        .map(|tool| tool["ServerTool(".len()..].replace(')', " "))
        .collect()
}

#[test]
fn every_call_that_the_provider_runs_begins_and_ends_once() {
    let state = |kind: &str, state: &str| {
        format!(r#"{{"type":"response.{kind}.{state}","item_id":"s","output_index":1}}"#)
    };
    let item = |state: &str, kind: &str| {
        format!(
            r#"{{"type":"response.output_item.{state}","output_index":1,"item":{{"type":"{kind}","id":"s"}}}}"#
        )
    };
    let read = |events: &[String]| {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let both = [Dialect::OpenaiResponses, Dialect::OpenaiRealtime];
        let [one, other] = both.map(|dialect| tools(dialect, &events));
        assert_eq!(one, other);
        one
    };
    for kind in [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "x_search_call",
    ] {
        for end in ["completed", "failed", "incomplete"] {
            let events = [
                item("added", kind),
                state(kind, "in_progress"),
                state(kind, "searching"),
                state(kind, end),
                item("done", kind),
            ];
            assert_eq!(read(&events), "Began Ended ", "{kind} {end}");
            assert_eq!(read(&events[1..4]), "Began Ended ", "{kind} {end}");
        }
        let events = [item("added", kind), item("done", kind)];
        assert_eq!(read(&events), "Began Ended ", "{kind}");
        assert_eq!(read(&events[1..]), "", "{kind}: only its end");
    }
    let code = [
        state("code_interpreter_call_code", "delta"),
        state("code_interpreter_call_code", "done"),
        state("code_interpreter_call", "completed"),
    ];
    assert_eq!(read(&code), "Began Ended ");
    let shell = [
        item("added", "shell_call"),
        item("done", "shell_call"),
        item("added", "shell_call_output"),
        item("done", "shell_call_output"),
    ];
    assert_eq!(read(&shell), "Began Ended ");
    for agents in [
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
    ] {
        let events = [item("added", agents), item("done", agents)];
        assert_eq!(read(&events), "", "{agents}");
    }
}

#[test]
fn tools_of_the_provider_begin_and_end_in_other_dialects() {
    let content = |state: &str, index: u8, member: &str, kind: &str| {
        format!(r#"{{"event_type":"{state}","index":{index},"{member}":{{"type":"{kind}"}}}}"#)
    };
    for call in [
        "google_search_call",
        "url_context_call",
        "mcp_server_tool_call",
        "new_call",
    ] {
        for (names, start) in [("content", "content"), ("step", "step")] {
            let events = [
                content(&format!("{names}.start"), 1, start, call),
                content(&format!("{names}.delta"), 1, "delta", call),
                content(&format!("{names}.start"), 2, start, "google_search_result"),
                content(
                    &format!("{names}.delta"),
                    2,
                    "delta",
                    "google_search_result",
                ),
            ];
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            let said = tools(Dialect::GeminiInteractions, &events);
            assert_eq!(said, "Began Ended ", "{call}");
        }
    }
    let agents = [content("step.start", 1, "step", "function_call")];
    assert_eq!(tools(Dialect::GeminiInteractions, &[&agents[0]]), "");
    let part = |part: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}}}}]}}"#);
    let events = [
        part(r#"{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB"}}"#),
        part(r#"{"toolResponse":{"toolType":"GOOGLE_SEARCH_WEB"}}"#),
    ];
    assert_eq!(
        tools(Dialect::Gemini, &[&events[0], &events[1]]),
        "Began Ended "
    );
    let events = [
        r#"{"choices":[{"delta":{"executed_tools":[{"type":"search","arguments":"{}","output":null}]}}]}"#,
        r#"{"choices":[{"delta":{"executed_tools":[{"type":"search","output":"x"}]}}]}"#,
    ];
    assert_eq!(tools(Dialect::OpenaiChat, &events), "Began Ended ");
    let events = [
        r#"{"contentBlockStart":{"start":{"toolUse":{"name":"nova_grounding","type":"server_tool_use"}}}}"#,
        r#"{"contentBlockStart":{"start":{"toolResult":{"toolUseId":"t"}}}}"#,
        r#"{"contentBlockStart":{"start":{"toolUse":{"name":"mine"}}}}"#,
    ];
    assert_eq!(tools(Dialect::BedrockConverse, &events), "Began Ended ");
}

fn usage(dialect: Dialect, payloads: &[&str]) -> Usage {
    let mut usage = Usage::default();
    let sink: Sink<'_> = &mut |event| {
        if let Event::Usage(newer) = event {
            usage.overlay(newer);
        }
    };
    let mut reader = EventReader::new(dialect.into());
    match payloads {
        [body] => reader.whole(body.as_bytes(), sink),
        events => {
            for payload in events.iter().map(|payload| payload.as_bytes()) {
                reader.take(Item::Event { name: "", payload }, sink);
            }
        }
    }
    usage
}

#[test]
fn tools_that_are_billed_apart_are_seen_wherever_they_are() {
    let tools = |searches: u64, other: u64| UsageDetails {
        searches: (searches > 0).then_some(searches),
        other_tools: (other > 0).then_some(other),
        ..UsageDetails::default()
    };
    let searched = UsageDetails {
        searched: Some(true),
        ..UsageDetails::default()
    };
    let done = r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#;
    for (kind, details) in [
        ("web_search_call", tools(1, 0)),
        ("file_search_call", tools(0, 1)),
        ("code_interpreter_call", tools(0, 1)),
        ("image_generation_call", tools(0, 1)),
        ("x_search_call", tools(0, 1)),
        ("shell_call_output", tools(0, 1)),
        ("mcp_call", tools(0, 0)),
        ("function_call", tools(0, 0)),
        ("shell_call", tools(0, 0)),
        ("message", tools(0, 0)),
    ] {
        let state = format!(r#"{{"type":"response.{kind}.completed","output_index":1}}"#);
        let item = format!(
            r#"{{"type":"response.output_item.done","output_index":1,"item":{{"type":"{kind}"}}}}"#
        );
        let read = |events: &[&str]| usage(Dialect::OpenaiResponses, events).details;
        assert_eq!(read(&[&item, done]), details, "{kind}");
        assert_eq!(read(&[&item, &state]), details, "{kind}: cut");
        if !kind.ends_with("output") {
            assert_eq!(read(&[&state, &item, done]), details, "{kind}");
            assert_eq!(read(&[&state, done]), details, "{kind}");
        }
        let body = format!(r#"{{"object":"response","output":[{{"type":"{kind}"}}]}}"#);
        assert_eq!(read(&[&body]), details, "{kind}");
    }
    let cited = r#"[{"type":"url_citation","url":"x"}]"#;
    let grounded = |metadata: &str| {
        format!(r#"{{"candidates":[{{"content":{{"parts":[]}},"groundingMetadata":{metadata}}}]}}"#)
    };
    for (dialect, payload, details) in [
        (
            Dialect::OpenaiResponses,
            format!(r#"{{"object":"response","output":[{{"type":"message","content":[{{"type":"output_text","text":"a","annotations":{cited}}}]}}]}}"#),
            searched,
        ),
        (
            Dialect::OpenaiChat,
            format!(r#"{{"choices":[{{"message":{{"content":"a","annotations":{cited}}}}}]}}"#),
            searched,
        ),
        (
            Dialect::OpenaiChat,
            r#"{"choices":[{"message":{"content":"a","annotations":[{"type":"file"}]}}]}"#.into(),
            tools(0, 0),
        ),
        (
            Dialect::OpenaiChat,
            r#"{"choices":[{"message":{"content":"a","executed_tools":[{"type":"search"}]}}]}"#.into(),
            tools(0, 1),
        ),
        (Dialect::Gemini, grounded(r#"{"webSearchQueries":["a","b"]}"#), tools(2, 0)),
        (Dialect::Gemini, grounded(r#"{"imageSearchQueries":["a"]}"#), tools(1, 0)),
        (Dialect::Gemini, grounded(r#"{"groundingChunks":[{"web":{"uri":"x"}}]}"#), searched),
        (Dialect::Gemini, grounded(r#"{"groundingChunks":[{"maps":{"uri":"x"}}]}"#), searched),
        (Dialect::Gemini, grounded(r#"{"searchEntryPoint":{"renderedContent":"x"}}"#), searched),
        (Dialect::Gemini, grounded(r#"{"groundingChunks":[{"retrievedContext":{"uri":"x"}}]}"#), tools(0, 0)),
        (Dialect::Gemini, grounded("{}"), tools(0, 0)),
        (
            Dialect::GeminiInteractions,
            r#"{"object":"interaction","outputs":[{"type":"google_search_call"},{"type":"google_search_result"}]}"#.into(),
            searched,
        ),
        (
            Dialect::GeminiInteractions,
            r#"{"object":"interaction","steps":[{"type":"google_maps_call"}]}"#.into(),
            tools(0, 1),
        ),
        (
            Dialect::GeminiInteractions,
            r#"{"object":"interaction","steps":[{"type":"code_execution_call"},{"type":"function_call"}]}"#.into(),
            tools(0, 0),
        ),
        (
            Dialect::Anthropic,
            r#"{"type":"message","content":[{"type":"server_tool_use","name":"web_search"}],"usage":{}}"#.into(),
            searched,
        ),
        (
            Dialect::Anthropic,
            r#"{"type":"message","content":[{"type":"server_tool_use","name":"web_fetch"}],"usage":{}}"#.into(),
            tools(0, 0),
        ),
        (
            Dialect::Anthropic,
            r#"{"type":"message","content":[{"type":"server_tool_use","name":"web_search"}],"usage":{"server_tool_use":{"web_search_requests":0}}}"#.into(),
            UsageDetails { searches: Some(0), ..searched },
        ),
        (
            Dialect::MistralConversations,
            r#"{"object":"conversation.response","outputs":[],"usage":{"prompt_tokens":1,"connectors":{"web_search":2,"code":1}}}"#.into(),
            tools(0, 3),
        ),
        (
            Dialect::MistralConversations,
            r#"{"object":"conversation.response","outputs":[{"type":"tool.execution","name":"web_search"}]}"#.into(),
            tools(0, 1),
        ),
        (
            Dialect::BedrockConverse,
            r#"{"output":{"message":{"content":[{"toolUse":{"type":"server_tool_use","name":"nova_grounding","input":{}}}]}},"stopReason":"end_turn"}"#.into(),
            tools(0, 1),
        ),
    ] {
        assert_eq!(usage(dialect, &[&payload]).details, details, "{payload}");
    }
}

#[test]
fn audio_is_seen_under_every_spelling_and_in_what_tools_add() {
    let audio = |tokens: u64, cached: Option<u64>| UsageDetails {
        audio_input: Some(tokens),
        cached_audio_input: cached,
        ..UsageDetails::default()
    };
    for (dialect, payload, details) in [
        (
            Dialect::Gemini,
            r#"{"usageMetadata":{"promptTokensDetails":[{"modality":"audio","tokenCount":7}]}}"#,
            audio(7, None),
        ),
        (
            Dialect::Gemini,
            r#"{"usageMetadata":{"promptTokensDetails":[{"modality":"AUDIO","tokenCount":7}],"toolUsePromptTokensDetails":[{"modality":"AUDIO","tokenCount":"5"},{"modality":"TEXT","tokenCount":9}]}}"#,
            audio(12, None),
        ),
        (
            Dialect::GeminiInteractions,
            r#"{"object":"interaction","usage":{"input_tokens_by_modality":[{"modality":"audio","tokens":7}],"tool_use_tokens_by_modality":[{"modality":"audio","tokens":2}],"cached_tokens_by_modality":[{"modality":"audio","tokens":3}]}}"#,
            audio(9, Some(3)),
        ),
        (
            Dialect::GeminiInteractions,
            r#"{"object":"interaction","usage":{"output_tokens_by_modality":[{"modality":"image","tokens":7},{"modality":"audio","tokens":2}]}}"#,
            UsageDetails {
                audio_output: Some(2),
                image_output: Some(7),
                ..UsageDetails::default()
            },
        ),
    ] {
        assert_eq!(usage(dialect, &[payload]).details, details, "{payload}");
    }
    for (geo, regional) in [
        ("Global", None),
        ("GLOBAL", None),
        ("US", Some(true)),
        ("eu", Some(true)),
    ] {
        let message = format!(r#"{{"type":"message","usage":{{"inference_geo":"{geo}"}}}}"#);
        assert_eq!(
            usage(Dialect::Anthropic, &[&message]).details.regional,
            regional,
            "{geo}"
        );
    }
}
