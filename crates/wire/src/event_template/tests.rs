//! The fast path emits what the reader emits.

use super::super::Registration;
use super::super::events::EventReader;
use super::super::framing::Item;
use super::*;
use tokengauge_core::call::Dialect;

/// Reads `events` with the reader, and with the cache. Returns both results and the number of
/// events on the fast path.
fn both(dialect: Dialect, events: &[&str]) -> (Vec<String>, Vec<String>, usize) {
    let dialect = <&Registration>::from(dialect);
    let (mut plain, mut repeating) = ((dialect.reader)(), (dialect.reader)());
    let mut cache = EventCache::new(dialect.template);
    let (mut read, mut repeated, mut short) = (Vec::new(), Vec::new(), 0);
    for event in events {
        let payload = event.as_bytes();
        let sink: Sink<'_> = &mut |event| read.push(format!("{event:?}"));
        plain.event("", payload, sink).expect("an event");
        let sink: Sink<'_> = &mut |event| repeated.push(format!("{event:?}"));
        if cache.emit_cached("", payload, sink) {
            short += 1;
        } else {
            let result = cache.read_and_learn(&mut *repeating, "", payload, sink);
            result.expect("an event");
        }
    }
    (read, repeated, short)
}

/// Asserts that the first `others` events, one to learn and one to confirm are parsed, and all
/// further events take the fast path.
fn repeats(dialect: Dialect, events: &[&str], others: usize) {
    let (read, repeated, short) = both(dialect, events);
    assert_eq!(read, repeated);
    assert!(events.len() > others + 2, "{events:?}");
    assert_eq!(short, events.len() - others - 2, "{events:?}");
}

/// Asserts that `short` of the events take the fast path.
fn reads(dialect: Dialect, events: &[String], short: usize) {
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let (read, repeated, took) = both(dialect, &events);
    assert_eq!(read, repeated, "{events:?}");
    assert_eq!(took, short, "{events:?}");
}

/// Whether `event`, which need not be JSON, matches the template of the two `learnt` events.
fn matches(dialect: Dialect, learnt: &[String; 2], event: &str) -> bool {
    let dialect = <&Registration>::from(dialect);
    let (mut cache, mut reader) = (EventCache::new(dialect.template), (dialect.reader)());
    for event in learnt {
        assert!(!cache.emit_cached("", event.as_bytes(), &mut |_| {}));
        let read = cache.read_and_learn(&mut *reader, "", event.as_bytes(), &mut |_| {});
        read.expect("an event");
    }
    cache.emit_cached("", event.as_bytes(), &mut |_| {})
}

#[test]
fn usage_that_grows_with_every_event_is_emitted_without_parsing() {
    repeats(
        Dialect::Gemini,
        &[
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":1,"totalTokenCount":9},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":2,"totalTokenCount":10},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"b2"}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":3,"totalTokenCount":11},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":" \"promptTokenCount\":7 "}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":12,"totalTokenCount":20},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"c"}]}}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":13,"totalTokenCount":21},"modelVersion":"g"}"#,
        ],
        // The first event also contains the model name.
        1,
    );
}

#[test]
fn usage_is_emitted_without_parsing_where_google_writes_spaces() {
    repeats(
        Dialect::Gemini,
        &[
            r#"{"candidates": [{"content": {"parts": [{"text": "a"}]}}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 1,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 8}]}}"#,
            r#"{"candidates": [{"content": {"parts": [{"text": "b"}]}}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 2,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 9}]}}"#,
            r#"{"candidates": [{"content": {"parts": [{"text": "c"}]}}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 4,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 9}]}}"#,
        ],
        0,
    );
}

#[test]
fn usage_that_openai_compatible_servers_send_with_every_event_is_emitted_without_parsing() {
    let usage = |count: u32| {
        let total = 8 + count;
        format!(
            r#"{{"prompt_tokens":8,"total_tokens":{total},"completion_tokens":{count},"completion_tokens_details":{{"reasoning_tokens":0}}}}"#
        )
    };
    let chat = |count: u32| {
        let usage = usage(count);
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":" {count}"}},"finish_reason":null}}],"usage":{usage}}}"#
        )
    };
    reads(Dialect::OpenaiChat, &[1, 2, 9, 10, 200].map(chat), 3);
    let completion = |count: u32| {
        let usage = usage(count);
        format!(
            r#"{{"choices":[{{"index":0,"text":" {count}","finish_reason":null}}],"usage":{usage}}}"#
        )
    };
    reads(
        Dialect::OpenaiCompletions,
        &[1, 2, 9, 10, 200].map(completion),
        3,
    );
}

#[test]
fn usage_of_a_chat_that_is_not_made_of_those_counts_is_read() {
    for counts in [
        r#""prompt_tokens":N,"cache_creation_input_tokens":4"#,
        r#""prompt_tokens":N,"cost":4"#,
        r#""prompt_tokens":N,"other":{"prompt_tokens":N}"#,
        r#""prompt_tokens":N.5"#,
        r#""prompt_tokens":"N""#,
    ] {
        let event = |count: u32| {
            let counts = counts.replace('N', &count.to_string());
            format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{{{counts}}}}}"#)
        };
        reads(Dialect::OpenaiChat, &[1, 2, 3, 4].map(event), 0);
    }
}

/// Numbers with the name and the value of a count that are not part of the usage.
#[test]
fn numbers_that_a_usage_is_not_made_of_are_not_taken_for_its_counts() {
    let null = r#"{"prompt_tokens":null},"#.repeat(15);
    for (event, dialects) in [
        // A count that another count overrides.
        (
            r#"CHOICES,"usage":{"prompt_tokens":8,"prompt_cache_hit_tokens":4,"cached_tokens":N}}"#.to_owned(),
            &CHATS[..],
        ),
        (
            r#"CHOICES,"usage":{"prompt_tokens":8,"prompt_tokens_details":{"cached_tokens":4},"cached_tokens":N}}"#.to_owned(),
            &CHATS,
        ),
        // Lists instead of details and usage.
        (
            r#"CHOICES,"usage":{"prompt_tokens":8,"prompt_tokens_details":[N],"cached_tokens":4}}"#
                .to_owned(),
            &CHATS,
        ),
        (
            r#"CHOICES,"usage":{"completion_tokens":8,"completion_tokens_details":[N],"reasoning_tokens":4}}"#
                .to_owned(),
            &CHATS,
        ),
        (
            r#"CHOICES,"x_groq":{"usage":{"prompt_tokens":4,"completion_tokens":4}},"usage":[N,4,null,null,null,null,null,null]}"#
                .to_owned(),
            &CHATS[..1],
        ),
        // A total in another usage than the one with the reasoning.
        (
            r#"CHOICES,"x_groq":{"usage":{"prompt_tokens":0,"completion_tokens":3,"reasoning_tokens":1}},"usage":{"total_tokens":N}}"#.to_owned(),
            &CHATS[..1],
        ),
        (
            r#"CHOICES,"usage":{"prompt_tokens":0,"completion_tokens":3,"reasoning_tokens":1,"total_tokens":null},"more":{"total_tokens":N}}"#.to_owned(),
            &CHATS,
        ),
        // Names with different spelling.
        (
            r#"CHOICES,"usage":{"prompt_tokens" :4},"more":{"prompt_tokens":N}}"#.to_owned(),
            &CHATS,
        ),
        (
            r#"CHOICES,"usage":{"prompt\u005ftokens":4},"more":{"prompt_tokens":N}}"#.to_owned(),
            &CHATS,
        ),
        (
            format!(r#"CHOICES,"more":{{"prompt_tokens":N}},"n":[{null}0],"usage":{{"prompt_tokens":4}}}}"#),
            &CHATS,
        ),
        // A sum that overflows.
        (
            r#"CHOICES,"usage":{"prompt_tokens":18446744073709551615},"more":{"completion_tokens":N}}"#.to_owned(),
            &CHATS,
        ),
        (
            r#"CHOICES,"usageMetadata":{"promptTokenCount" :4},"more":{"promptTokenCount":N}}"#.to_owned(),
            &GEMINI,
        ),
    ] {
        for (dialect, choices) in dialects {
            let event = |count: u32| {
                let event = event.replace("CHOICES", choices);
                event.replace('N', &count.to_string())
            };
            reads(*dialect, &[4, 4, 6, 4].map(event), 0);
        }
    }
}

const CHATS: [(Dialect, &str); 2] = [
    (
        Dialect::OpenaiChat,
        r#"{"choices":[{"delta":{"content":"a"}}]"#,
    ),
    (Dialect::OpenaiCompletions, r#"{"choices":[{"text":"a"}]"#),
];
const GEMINI: [(Dialect, &str); 1] = [(
    Dialect::Gemini,
    r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]"#,
)];

#[test]
fn counts_in_the_details_of_a_usage_are_emitted_without_parsing() {
    for cached in ["cached_tokens", "prompt_cache_hit_tokens"] {
        let event = |count: u32| {
            format!(
                r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{{"prompt_tokens":9,"{cached}":{count},"reasoning_tokens":{count}}}}}"#
            )
        };
        reads(Dialect::OpenaiChat, &[4, 4, 6, 14].map(event), 2);
    }
    let event = |count: u32| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":{count},"prompt_tokens_details":{{"audio_tokens":0,"cached_tokens":{count}}},"completion_tokens_details":{{"reasoning_tokens":{count}}}}}}}"#
        )
    };
    reads(Dialect::OpenaiChat, &[4, 4, 6, 14].map(event), 2);
}

#[test]
fn a_text_so_far_beside_a_delta_may_differ() {
    let perplexity = |so_far: &str, text: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{so_far}"}},"delta":{{"content":"{text}"}}}}]}}"#
        )
    };
    let learnt = [
        perplexity("I", "I"),
        perplexity("I would", " would"),
        perplexity(r"I would\nask", r"\nask"),
    ];
    let then = |event: String| learnt.iter().cloned().chain([event]).collect::<Vec<_>>();
    reads(Dialect::OpenaiChat, &then(perplexity("other", " a")), 2);
    // A delta without text, the end of a choice, and another kind of message.
    reads(Dialect::OpenaiChat, &then(perplexity("all of it", "")), 1);
    let last = perplexity("all of it", "").replace("}}]}", r#"},"finish_reason":"stop"}]}"#);
    reads(Dialect::OpenaiChat, &then(last), 1);
    let parts = perplexity("so far", " a").replace(r#""so far""#, r#"[{"text":"so far"}]"#);
    reads(Dialect::OpenaiChat, &then(parts), 1);
    for broken in [r"\q", "\u{1}", r"\ud800"] {
        let event = perplexity(broken, " a");
        assert!(
            !matches(
                Dialect::OpenaiChat,
                &[learnt[0].clone(), learnt[1].clone()],
                &event
            ),
            "{event}"
        );
    }
}

#[test]
fn a_message_that_is_the_text_of_its_choice_is_read() {
    let two_choices = |other: &str, text: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}},{{"index":1,"message":{{"content":"{other}"}}}}]}}"#
        )
    };
    let events = [
        two_choices("", "a"),
        two_choices("", "b"),
        two_choices("", "c"),
        two_choices("other", "d"),
        two_choices("more", "e"),
    ];
    reads(Dialect::OpenaiChat, &events, 1);
    let no_delta =
        |text: &str| format!(r#"{{"choices":[{{"index":0,"message":{{"content":"{text}"}}}}]}}"#);
    reads(Dialect::OpenaiChat, &["a", "b", "c"].map(no_delta), 1);
    let reasoning = |text: &str| {
        format!(
            r#"{{"choices":[{{"delta":null,"message":{{"reasoning":"a","content":"{text}"}}}}]}}"#
        )
    };
    reads(Dialect::OpenaiChat, &["", "", "b", "c"].map(reasoning), 0);
}

/// Only the first events may change the dialect, whether they are parsed or not.
#[test]
fn events_that_are_not_parsed_are_among_the_first() {
    let chat = r#"{"choices":[{},{"index":1,"delta":{"content":"a"}}]}"#;
    let other = r#"{"type":"message_start","message":{"id":"m"}}"#;
    for (before, dialect) in [(3, Dialect::Anthropic), (4, Dialect::OpenaiChat)] {
        let mut events = EventReader::new(Dialect::OpenaiChat.into());
        for payload in std::iter::repeat_n(chat, before).chain([other]) {
            let payload = payload.as_bytes();
            events.take(Item::Event { name: "", payload }, &mut |_| {});
        }
        assert_eq!(events.dialect(), dialect, "after {before}");
    }
}

#[test]
fn counts_that_are_no_whole_numbers_and_such_of_other_objects_are_read() {
    for counts in [
        [r#""promptTokenCount":1.5"#, r#""promptTokenCount":2.5"#],
        [r#""promptTokenCount":1"#, r#""promptTokenCount":2.5"#],
        [r#""promptTokenCount":1"#, r#""promptTokenCount":1e3"#],
        [r#""promptTokenCount":1"#, r#""promptTokenCount":null"#],
        [r#""promptTokenCount":1"#, r#""thoughtsTokenCount":1"#],
        [
            r#""promptTokenCount":1,"other":{"promptTokenCount":2}"#,
            r#""promptTokenCount":1,"other":{"promptTokenCount":3}"#,
        ],
        [
            r#""other":{"promptTokenCount":2}"#,
            r#""other":{"promptTokenCount":3}"#,
        ],
    ] {
        let events = counts.map(|counts| {
            format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"text":"a"}}]}}}}],"usageMetadata":{{{counts}}}}}"#
            )
        });
        let events = [&*events[0], &*events[0], &*events[1], &*events[0]];
        let (read, repeated, _) = both(Dialect::Gemini, &events);
        assert_eq!(read, repeated, "{counts:?}");
    }
}

#[test]
fn the_end_of_a_stream_is_read() {
    let (read, repeated, short) = both(
        Dialect::Gemini,
        &[
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"candidatesTokenCount":1}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"candidatesTokenCount":1}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"candidatesTokenCount":2}}"#,
        ],
    );
    assert_eq!(read, repeated);
    assert_eq!(short, 0);
}

#[test]
fn counts_inside_of_an_unread_value_are_ignored() {
    let event = |inside: u32| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"a"}}]}}}}],"usageMetadata":{{"promptTokenCount" :5,"totalTokenCount":{{"promptTokenCount":{inside}}}}}}}"#
        )
    };
    reads(
        Dialect::Gemini,
        &[event(5), event(5), event(5), event(7)],
        2,
    );
}

fn anthropic(text: &str, end: &str) -> String {
    format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"{end}"#
    )
}

#[test]
fn spaces_before_the_last_brace_may_differ() {
    let events = [
        anthropic("A", "}      }"),
        anthropic(" play  ", "} }"),
        anthropic(r" \n }  }", "}}"),
        anthropic(".", "}                 }"),
    ];
    reads(Dialect::Anthropic, &events, 2);
}

#[test]
fn spaces_elsewhere_and_other_ends_are_read() {
    let learnt = || [anthropic("a", "}}"), anthropic("b", "} }")];
    for other in [" }}", r#"},"other":1  }"#, r#"},"other":"}  "}"#] {
        let events: Vec<String> = learnt()
            .into_iter()
            .chain([anthropic("c", other)])
            .collect();
        reads(Dialect::Anthropic, &events, 0);
    }
    for broken in ["}  ", "}", "", "}}}", "} } }", "}\t}  ,"] {
        let event = anthropic("c", broken);
        assert!(!matches(Dialect::Anthropic, &learnt(), &event), "{event}");
    }
}

#[test]
fn a_text_that_is_sent_twice_is_emitted_once() {
    let together = |text: &str, copy: &str, id: u32| {
        format!(
            r#"{{"created":1,"choices":[{{"index":0,"text":"{copy}","logprobs":null,"delta":{{"token_id":{id},"content":"{text}"}}}}]}}"#
        )
    };
    let learnt = [together("a", "a", 1), together("b", "b", 2)];
    let then = |event: String| learnt.iter().cloned().chain([event]).collect::<Vec<_>>();
    reads(Dialect::OpenaiChat, &then(together("c", "c", 30)), 1);
    reads(Dialect::OpenaiChat, &then(together(r"\n", r"\n", 4)), 1);
    for odd in [("c", "d"), ("c", ""), ("", "c"), ("", ""), ("c", r"\u0063")] {
        reads(Dialect::OpenaiChat, &then(together(odd.0, odd.1, 5)), 0);
    }
}

#[test]
fn each_copy_has_to_repeat_the_text() {
    let reasoning = |text: &str, detail: &str, content: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"","reasoning_details":[{{"type":"reasoning.text","text":"{detail}"}}],"reasoning":"{text}","reasoning_content":"{content}"}}}}]}}"#
        )
    };
    let learnt = [reasoning("I", "I", "I"), reasoning(" am", " am", " am")];
    let then = |event: String| learnt.iter().cloned().chain([event]).collect::<Vec<_>>();
    reads(
        Dialect::OpenaiChat,
        &then(reasoning("text", "text", "text")),
        1,
    );
    for odd in [
        ("a", "b", "a"),
        ("a", "a", "b"),
        ("a", "b", "b"),
        ("a", "", ""),
        ("", "a", "a"),
    ] {
        reads(
            Dialect::OpenaiChat,
            &then(reasoning(odd.0, odd.1, odd.2)),
            0,
        );
    }
}

#[test]
fn lists_and_objects_that_are_not_read_may_differ() {
    let chat = |text: &str, logprobs: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":{logprobs}}}],"created":1}}"#
        )
    };
    let events = [
        chat(
            "a",
            r#"{"content":[{"token":"a","token_id":7,"logprob":-0.25,"bytes":[97]}]}"#,
        ),
        chat(
            "b",
            r#"{"content":[{"token":"b","token_id":81,"logprob":-1e-5,"bytes":null},{"p":"]}"}]}"#,
        ),
        chat("c", r#"{"text":"a","text":"c"}"#),
        chat("d", "{}"),
    ];
    reads(Dialect::OpenaiChat, &events, 2);
}

#[test]
fn texts_that_are_not_read_are_as_valid_as_those_that_are() {
    for literal in [
        r#""""#,
        r#""a""#,
        r#""\n\u00e9\ud83d\ude00 é""#,
        r#""\\ud800""#,
        r#""\ud800""#,
        r#""\ude00\ud83d""#,
        r#""\ud83d\u0041""#,
        r#""\q""#,
        r#""\u+12f""#,
        r#""\u12""#,
        r#""\""#,
        "\"\u{1}\"",
        "\"\n\"",
        "\"\\n\u{1f}\"",
        "7",
        "\"",
    ] {
        let read = serde_json::from_str::<String>(literal);
        assert_eq!(is_string(literal.as_bytes()), read.is_ok(), "{literal}");
        let text = string(literal.as_bytes()).map(Cow::into_owned);
        assert_eq!(text, read.ok(), "{literal}");
    }
    for invalid in [&b"\"\xff\""[..], b"\"\\n\xff\""] {
        assert!(!is_string(invalid) && string(invalid).is_none());
    }
}

fn llama_cpp(text: &str, tokens: &str, predicted: &str) -> String {
    format!(
        r#"{{"index":0,"content":"{text}","tokens":{tokens},"stop":false,"id_slot":-1,"tokens_predicted":{predicted},"tokens_evaluated":5}}"#
    )
}

#[test]
fn tokens_of_an_engine_may_differ_where_they_are_json() {
    let learnt = [llama_cpp("a", "[1]", "1"), llama_cpp("b", "[2]", "2")];
    let then = |event: String| learnt.iter().cloned().chain([event]).collect::<Vec<_>>();
    for good in [
        ("[40, 7]", "3"),
        ("[]", "10"),
        ("7", "-0.5"),
        (r#""\n""#, "0"),
    ] {
        reads(Dialect::LlamaCpp, &then(llama_cpp("c", good.0, good.1)), 1);
    }
    assert!(matches(
        Dialect::LlamaCpp,
        &learnt,
        &llama_cpp("c", "[3]", "3")
    ));
    for (tokens, predicted) in [
        ("[1,,2]", "3"),
        ("[1 2]", "3"),
        ("[1", "3"),
        ("{1}", "3"),
        ("[\"\n\"]", "3"),
        ("", "3"),
        ("1-2", "3"),
        ("01", "3"),
        ("-", "3"),
        ("1.", "3"),
        (r#""\q""#, "3"),
        ("\"\u{1}\"", "3"),
        ("[3]", "1e999"),
        ("[3]", "1E5"),
        ("[3]", &"9".repeat(400)),
    ] {
        let event = llama_cpp("c", tokens, predicted);
        assert!(!matches(Dialect::LlamaCpp, &learnt, &event), "{event}");
    }
}

#[test]
fn the_last_event_of_an_engine_is_read_with_its_counts() {
    let last = llama_cpp("", "[]", "4").replace("\"stop\":false", "\"stop\":true");
    let events = [
        llama_cpp("a", "[1]", "1"),
        llama_cpp("b", "[2]", "2"),
        llama_cpp("c", "[3]", "3"),
        last,
    ];
    reads(Dialect::LlamaCpp, &events, 1);
}

#[test]
fn what_depends_on_the_events_before_is_read() {
    let sglang =
        |text: &str| format!(r#"{{"text":"{text}","meta_info":{{"id":"i"}},"choices":[]}}"#);
    reads(
        Dialect::LlamaCpp,
        &["a", "ab", "ab", "abc", "abcd"].map(sglang),
        0,
    );
    // The first event also contains the id.
    reads(Dialect::LlamaCpp, &["a", "b", "c", "cd"].map(sglang), 0);
    let calls = |text: &str| {
        format!(
            r#"{{"event_type":"tool-calls-generation","tool_calls":[{{"parameters":"{text}"}}]}}"#
        )
    };
    reads(Dialect::CohereV1, &["a", "b", "c"].map(calls), 0);
    let done = |text: &str| {
        format!(
            r#"{{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"{text}"}}"#
        )
    };
    reads(Dialect::OpenaiResponses, &["a", "b", "c"].map(done), 0);
    let code = |text: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"executableCode":{{"code":"{text}"}}}}]}}}}]}}"#
        )
    };
    reads(Dialect::Gemini, &["1+1", "2+2", "3+3"].map(code), 0);
}

#[test]
fn texts_of_cohere_are_emitted_without_parsing() {
    let text = |text: &str| {
        format!(r#"{{"is_finished":false,"event_type":"text-generation","text":"{text}"}}"#)
    };
    reads(
        Dialect::CohereV1,
        &[" the", " pirate", " ship"].map(text),
        1,
    );
}
