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
