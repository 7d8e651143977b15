use super::*;
use crate::DIALECTS;
use tokengauge_core::call::Channel;

/// What the events of a stream, or with one payload also a body, are read as, without what comes
/// with every event.
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

/// Answers whose error, reason or code is this.
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
            // A text of Cohere's first version has a message only where it failed.
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
