//! The fast path emits what the reader emits.

use super::super::Registration;
use super::*;
use tokengauge_core::call::Dialect;

/// What `events` say: read one by one, and with the short way, which took so many.
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

/// Every one of `events` after the first `learnt` takes the short way, and tells the same.
fn repeats(dialect: Dialect, events: &[&str], learnt: usize) {
    let (read, repeated, short) = both(dialect, events);
    assert_eq!(read, repeated);
    assert_eq!(short, events.len() - learnt, "{events:?}");
}

#[test]
fn usage_that_grows_with_every_event_is_emitted_without_parsing() {
    repeats(
        Dialect::Gemini,
        &[
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":1,"totalTokenCount":9},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":2,"totalTokenCount":10},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":" \"promptTokenCount\":7 "}]}}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":12,"totalTokenCount":20},"modelVersion":"g"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"c"}]}}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":13,"totalTokenCount":21},"modelVersion":"g"}"#,
        ],
        // The first one tells the model's name, too.
        2,
    );
}

#[test]
fn usage_is_emitted_without_parsing_where_google_writes_spaces() {
    repeats(
        Dialect::Gemini,
        &[
            r#"{"candidates": [{"content": {"parts": [{"text": "a"}]}}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 1,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 8}]}}"#,
            r#"{"candidates": [{"content": {"parts": [{"text": "b"}]}}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 2,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 9}]}}"#,
        ],
        1,
    );
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
        let events = [&*events[0], &*events[1], &*events[0]];
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
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"candidatesTokenCount":2}}"#,
        ],
    );
    assert_eq!(read, repeated);
    assert_eq!(short, 0);
}

#[test]
fn spaces_before_the_last_brace_may_differ() {
    repeats(
        Dialect::Anthropic,
        &[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"A"}      }"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" play  "} }"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \n }  }"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"."}                 }"#,
        ],
        1,
    );
}

#[test]
fn spaces_elsewhere_and_other_ends_are_read() {
    let delta = |end: &str| {
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"a"{end}"#
        )
    };
    for other in ["} }", " }}", r#"},"other":1  }"#, r#"},"more":"}  "}"#] {
        let events = [delta("}}"), delta("} , \"more\":\"}\"}"), delta(other)];
        let events = events.each_ref().map(String::as_str);
        let (read, repeated, _) = both(Dialect::Anthropic, &events);
        assert_eq!(read, repeated, "{other}");
    }
    let mut cache = EventCache::new(Some(&Template::PLAIN));
    let mut reader = (<&Registration>::from(Dialect::Anthropic).reader)();
    let learnt = cache.read_and_learn(&mut *reader, "", delta("}}").as_bytes(), &mut |_| {});
    learnt.expect("an event");
    assert!(
        !cache.emit_cached("", delta("}  ").as_bytes(), &mut |_| {}),
        "its last brace is missing"
    );
}

#[test]
fn a_text_that_is_sent_twice_is_emitted_once() {
    let together = |text: &str, copy: &str, id: u32| {
        format!(
            r#"{{"id":"o","created":1,"choices":[{{"index":0,"text":"{copy}","logprobs":null,"delta":{{"token_id":{id},"content":"{text}"}}}}]}}"#
        )
    };
    let events = [
        together(" a", " a", 1),
        together(" b", " b", 2),
        together("\\n", "\\n", 30),
        together(" c", " c", 4),
    ];
    repeats(
        Dialect::OpenaiChat,
        &events.each_ref().map(String::as_str),
        // The first one tells the response's id, too.
        2,
    );
    let reasoning = |text: &str, detail: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"","reasoning_details":[{{"type":"reasoning.text","text":"{detail}"}}],"reasoning":"{text}","reasoning_content":"{text}"}}}}]}}"#
        )
    };
    let events = [
        reasoning("I", "I"),
        reasoning(" am", " am"),
        reasoning("text", "text"),
    ];
    repeats(
        Dialect::OpenaiChat,
        &events.each_ref().map(String::as_str),
        1,
    );
}

#[test]
fn copies_that_differ_from_the_text_are_read() {
    let event = |text: &str, copy: &str, other: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"text":"{copy}","delta":{{"content":"{text}","reasoning":"{other}"}}}}]}}"#
        )
    };
    for odd in [
        event("b", "c", "b"),
        event("b", "", ""),
        event("b", "b", "c"),
        event("b", "c", "c"),
        event("", "", ""),
    ] {
        let events = [event("a", "a", "x"), event("a", "a", ""), odd];
        let (read, repeated, _) = both(Dialect::OpenaiChat, &events.each_ref().map(String::as_str));
        assert_eq!(read, repeated, "{}", events[2]);
    }
}

#[test]
fn lists_and_objects_that_are_not_read_may_differ() {
    repeats(
        Dialect::LlamaCpp,
        &[
            r#"{"index":0,"content":" members","tokens":[2357],"stop":false,"id_slot":-1,"tokens_predicted":1,"tokens_evaluated":5}"#,
            r#"{"index":0,"content":" Index","tokens":[40, 7],"stop":false,"id_slot":-1,"tokens_predicted":2,"tokens_evaluated":5}"#,
            r#"{"index":0,"content":" of","tokens":[],"stop":false,"id_slot":-1,"tokens_predicted":10,"tokens_evaluated":5}"#,
        ],
        1,
    );
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
        chat("c", "{}"),
    ];
    repeats(
        Dialect::OpenaiChat,
        &events.each_ref().map(String::as_str),
        1,
    );
}

#[test]
fn values_that_are_no_json_do_not_match() {
    let registration = <&Registration>::from(Dialect::LlamaCpp);
    let event =
        |tokens: &str| format!(r#"{{"index":0,"content":"a","tokens":{tokens},"stop":false}}"#);
    for bad in ["[1,,2]", "[1 2]", "[1", "{1}", "[\"\n\"]", ""] {
        let mut cache = EventCache::new(registration.template);
        let mut reader = (registration.reader)();
        let learnt = cache.read_and_learn(&mut *reader, "", event("[1]").as_bytes(), &mut |_| {});
        learnt.expect("an event");
        assert!(
            !cache.emit_cached("", event(bad).as_bytes(), &mut |_| {}),
            "{bad}"
        );
    }
}

#[test]
fn the_last_event_of_an_engine_is_read_with_its_counts() {
    let (read, repeated, short) = both(
        Dialect::LlamaCpp,
        &[
            r#"{"index":0,"content":"a","tokens":[1],"stop":false,"tokens_predicted":1,"tokens_evaluated":5}"#,
            r#"{"index":0,"content":"b","tokens":[2],"stop":false,"tokens_predicted":2,"tokens_evaluated":5}"#,
            r#"{"index":0,"content":"","tokens":[],"stop":true,"tokens_predicted":3,"tokens_evaluated":5}"#,
        ],
    );
    assert_eq!(read, repeated);
    assert_eq!(short, 1);
    assert!(read.concat().contains("output: Some(3)"), "{read:?}");
}
